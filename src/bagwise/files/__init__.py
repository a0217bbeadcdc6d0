"""Files out and in: written whole or not at all, read without trusting their writer."""
