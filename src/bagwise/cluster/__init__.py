"""Compact clusters whose sizes lie in a range: the search behind bags by features, and a clusterer.

Open `search` first: it runs the stages `bisection`, `moving` and `exchanging` one after the other,
on what `state` says they share. `swapping` is the search behind optimal bags. The
loops that are compiled are in `kernels`.
"""
