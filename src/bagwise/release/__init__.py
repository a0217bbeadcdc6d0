"""From a request to a release, its files, and what can be checked about it."""
