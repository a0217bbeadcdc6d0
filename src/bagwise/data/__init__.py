"""Tables in: a table, a file or a frame becomes X and y."""
