"""What is asked for, checked once: columns, a promise, and what it will ask of the labels."""
