"""Compact clusters whose sizes lie in a range: the engine behind k-means bags, and a clusterer.

`run.find_clusters` is the way in; `engine` shows the stages. Modules with a leading underscore hold
compiled loops and need numba; nothing imports them before they are needed.
"""
