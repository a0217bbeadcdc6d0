"""Synthetic problems with a known answer, and what is run on them."""
