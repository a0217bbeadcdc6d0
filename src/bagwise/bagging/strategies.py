"""All strategies, in the order of help and tables.

An import registers a strategy: `STRATEGIES`, the public names of bagwise, the planner, the help,
the tables of the documentation and the contract tests follow from it.
"""
# ruff: noqa: PLC0414 (the alias tells type checkers that the name is public)

from bagwise.bagging.strategy import BaggingStrategy

# isort: off
from bagwise.bagging.random_bags import RandomBags as RandomBags
from bagwise.bagging.kmeans_bags import KMeansBags as KMeansBags
from bagwise.bagging.optimal_bags import OptimalBags as OptimalBags
from bagwise.bagging.sorted_bags import SortedBags as SortedBags
from bagwise.bagging.random_bags import SuperBags as SuperBags
from bagwise.bagging.group_bags import GroupBags as GroupBags
# isort: on

STRATEGIES: dict[str, type[BaggingStrategy]] = {
    kind.name: kind
    for kind in list(globals().values())
    if hasattr(kind, "assign") and kind is not BaggingStrategy
}
