"""Compact clusters whose sizes lie in a range: the search behind bags by features, and a clusterer.

Open `search` first: it runs the stages `bisection`, `moving`, `repair` and `exchanging` one after
the other, on what `state` says they share. `swapping` is the search behind optimal bags. Each stage
has its compiled loops below it, so that importing one imports numba.
"""
