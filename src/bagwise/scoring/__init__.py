"""Scores of models: exact, or private."""
