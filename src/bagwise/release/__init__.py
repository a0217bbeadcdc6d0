"""Releases: from a request to files and their verification."""
