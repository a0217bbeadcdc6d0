"""What "auto" means in a release: the planner's first choice, and a sentence that says why."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise.data.encode import Encoder
from bagwise.data.labels import Bounds
from bagwise.data.row_order import feature_order
from bagwise.errors import BagTooSmallError, StrategyError
from bagwise.planner import STRATEGIES_TO_TRY, Candidate, Prior, plan
from bagwise.planner.candidates import FREE_SIZES
from bagwise.privacy.aggregate import LabelKind
from bagwise.release.provenance import LeastError, LeavesOut, NothingToPlan, Reason
from bagwise.rng import SecureNoise

_SEED = 0
MOST_ROWS = 10_000  # bags are compared on so many rows: a release should not wait for its plan


@dataclass(frozen=True)
class Automatic:
    """The choice that was made, and why."""

    strategy: str
    bag_size: int
    scores: str
    score_share: float | None
    delta: float | None
    why: Reason


def choose(
    table: pa.Table,
    names: Sequence[str],
    *,
    named: Sequence[str],
    nulls: str,
    max_levels: int,
    bag_size: int | None,
    label_kind: LabelKind,
    bounds: Bounds | None,
    epsilon: float | None,
    delta: float | None,
    classes: bool,
    scored: bool,
    leaves_out: LeavesOut = "nothing",
) -> Automatic:
    """Return the planner's first choice among those with this kind of label.

    Where the bag size is given, only strategies that make bags of about that size are asked, under
    the delta that was asked for: whoever names a size expects so many bags. Features alone decide:
    the table must not hold the label any more.
    """
    table = table.take(pa.array(feature_order(table, names, SecureNoise())))
    encoder = Encoder.for_table(table, list(names), named=named, max_levels=max_levels, nulls=nulls)
    # The same rows every time, so that no choice depends on luck; the features alone decide which.
    rows = np.random.default_rng(_SEED).permutation(table.num_rows)[:MOST_ROWS]
    X = encoder.transform(table.take(pa.array(np.sort(rows))))
    privacy: dict[str, Any] = (
        {"not_private": True} if epsilon is None else {"epsilon": epsilon, "delta": delta}
    )
    try:
        found = plan(
            X,
            bounds=bounds,
            family="bernoulli" if classes else "gaussian",
            bag_sizes=None if bag_size is None else [bag_size],
            strategies=_strategies(bag_size, scored=scored),
            n_rows=table.num_rows,
            effort="fast",
            **privacy,
        )
    except (BagTooSmallError, StrategyError):
        if bag_size is None:
            raise
        return Automatic("random", bag_size, "none", None, delta, NothingToPlan(cause="rows"))
    fitting = [
        candidate
        for candidate in found.candidates
        if candidate.label_kind == label_kind and (bag_size is None or candidate.delta == delta)
    ]
    if not fitting and bag_size is not None:
        return Automatic("random", bag_size, "none", None, delta, NothingToPlan(cause="labels"))
    if not fitting:
        raise StrategyError(
            f"the planner knows no way to release {label_kind} labels here (picks need a positive "
            "delta). Name a strategy and a bag size, or label_kind='mean'."
        )
    best = fitting[0]
    return Automatic(
        strategy=best.strategy,
        bag_size=best.bag_size,
        scores=best.scores,
        score_share=best.score_share,
        delta=best.delta,
        why=_why(best, found.prior, leaves_out),
    )


def _strategies(bag_size: int | None, *, scored: bool) -> tuple[str, ...] | None:
    if bag_size is not None:
        return tuple(name for name in STRATEGIES_TO_TRY if name not in FREE_SIZES)
    return None if scored else STRATEGIES_TO_TRY


def _why(best: Candidate, prior: Prior, leaves_out: LeavesOut) -> LeastError:
    return LeastError(
        rmse=float(best.rmse),
        loss=best.loss,
        signal_sd=float(prior.signal_sd),
        label_noise_sd=float(prior.label_noise_sd),
        factor=float(prior.factor),
        leaves_out=leaves_out,
    )
