"""Checked requests: columns, guarantee, and private queries on the labels."""
