"""Losses on bags that are in chunks on many machines: sums are added up where the bags are.

`parts` has what goes to a chunk and what comes back from it, `problem` the loss that a solver sees,
and `working` the linear model close to a fit, of which all dispersions are known from one pass.
"""

from bagwise.learn.spread.parts import Recipe
from bagwise.learn.spread.problem import SpreadProblem, SpreadRowProblem

__all__ = ["Recipe", "SpreadProblem", "SpreadRowProblem"]
