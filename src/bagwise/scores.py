"""Scores: what a strategy may sort rows by, each with its price.

=============  ===========================================  ========================
name           what it is                                   what it costs
=============  ===========================================  ========================
none           nothing; the strategy looks at features      nothing
labels         the labels themselves                        allowed only NOT PRIVATE
=============  ===========================================  ========================
"""

import warnings
from typing import Literal, get_args

from bagwise._types import FloatArray
from bagwise.bagging import BaggingStrategy
from bagwise.errors import BudgetError, LeakWarning, StrategyError

ScoresKind = Literal["none", "labels"]


def resolve_scores(scores: str, *, strategy: BaggingStrategy, private: bool) -> ScoresKind:
    """Turn "auto" into what the strategy needs, and refuse scores that would leak."""
    if scores == "auto":
        scores = "labels" if strategy.uses_scores else "none"
    if scores not in get_args(ScoresKind):
        raise StrategyError(
            f"unknown scores {scores!r}; known are auto, {', '.join(get_args(ScoresKind))}."
        )
    if scores == "none" and strategy.uses_scores:
        raise StrategyError(f"strategy {strategy.name!r} needs scores; scores='none' gives none.")
    if scores == "labels" and not strategy.uses_scores:
        raise StrategyError(
            f"strategy {strategy.name!r} does not use scores; leave scores at 'auto'."
        )
    if scores == "labels" and private:
        raise BudgetError(
            f"strategy {strategy.name!r} would sort rows by their labels, and bag membership is "
            "published: that is not differentially private, whatever noise the bag labels carry. "
            "Use a strategy that looks at features only, such as 'random'."
        )
    return "labels" if scores == "labels" else "none"


def compute_scores(kind: ScoresKind, labels: FloatArray) -> FloatArray | None:
    """Return the scores; warn when they are the labels."""
    if kind == "none":
        return None
    warnings.warn(
        "bags are formed by sorting the labels, so membership alone shows each row's label almost "
        "exactly. The release is NOT PRIVATE; use it only where the labels may be seen.",
        LeakWarning,
        stacklevel=2,
    )
    return labels
