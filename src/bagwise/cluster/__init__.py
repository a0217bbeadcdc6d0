"""Compact clusters with sizes in a given range: the search behind compact bags, and a clusterer.

Start with `search`: it runs the stages `bisection`, `moving`, `repair` and `exchanging` one after
the other, on the shared data of `state`. `swapping` is the search behind optimal bags. Each stage
uses compiled loops, so importing one imports numba.
"""
