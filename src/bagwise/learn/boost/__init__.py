"""Boosted trees that learn from bags; growing them needs the extra ``bagwise[boost]``."""
