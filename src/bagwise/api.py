"""The verbs: resolve every "auto", then call the layers below."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bagwise.aggregate import check_label_kind
from bagwise.bagging import BaggingStrategy, assign_bags, find_strategy
from bagwise.bags import Bags
from bagwise.build import Budget, Choice, build
from bagwise.encode import DEFAULT_MAX_LEVELS, Nulls
from bagwise.errors import BoundsError, BudgetError, StrategyError
from bagwise.privacy.accounting import check_budget
from bagwise.release import Release
from bagwise.rng import Seed, make_generator
from bagwise.scores import resolve_scores
from bagwise.stages import OnStage, ignore_stage
from bagwise.table import Bounds, check_bounds


def make_bags(
    X: Any,
    *,
    bag_size: int,
    strategy: str | BaggingStrategy = "random",
    scores: Any = None,
    seed: Seed = None,
) -> Bags:
    """Put the rows of a numeric matrix into bags of at least `bag_size`.

    Parameters
    ----------
    X : (n, d) floats
    bag_size : int
        Smallest number of rows in a bag.
    strategy : str or BaggingStrategy
        A name from ``bagwise.STRATEGIES`` or an instance with its parameters.
    scores : (n,) floats, optional
        What a sorting strategy sorts by. They shape the bags: if they come from labels, so do the
        bags.
    seed : int, Generator or None

    Examples
    --------
    >>> make_bags(np.zeros((7, 2)), bag_size=3, seed=0).sizes
    array([3, 4])
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2:
        raise StrategyError(f"X must have two dimensions, rows and features, got {X.ndim}.")
    if not np.isfinite(X).all():
        raise StrategyError("X holds NaN or infinite values.")
    chosen = _resolve_strategy(strategy)
    return assign_bags(chosen, X, scores, bag_size=bag_size, rng=make_generator(seed))


def make_release(
    table: Any,
    *,
    label: str,
    bag_size: int,
    bounds: Sequence[float] | None = None,
    label_kind: str = "mean",
    strategy: str | BaggingStrategy = "auto",
    strategy_parameters: Mapping[str, str] | None = None,
    scores: str = "auto",
    epsilon: float | None = None,
    delta: float | None = None,
    not_private: bool = False,
    features: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    id: str | None = None,
    keep_order: bool = False,
    seed: int | None = None,
    nulls: Nulls = "indicator",
    max_levels: int = DEFAULT_MAX_LEVELS,
    on_stage: OnStage = ignore_stage,
) -> Release:
    """Turn a labelled table into bags with one aggregate label each.

    Parameters
    ----------
    table : path or frame
        A Parquet, CSV or Arrow file, or a pandas, polars or pyarrow frame.
    label : str
        The column to protect.
    bag_size : int
        Smallest number of rows in a bag.
    bounds : (lo, hi)
        Range that a label can have, known without looking at this table. Required with epsilon;
        labels outside are clipped to it.
    label_kind : {"mean", "pick"}
        The mean of a bag's labels, or the label of one row drawn in secret.
    strategy : str or BaggingStrategy
        How rows are put together; "auto" is "random" for now.
    strategy_parameters : mapping, optional
        Parameters for a strategy given by name, as text (the command line's ``--set``).
    scores : {"auto", "none", "labels"}
        What a sorting strategy sorts by. "labels" is allowed only when not private.
    epsilon, delta : float
        Label differential privacy to deliver. Give both, or `not_private`.
    not_private : bool
        Release exact aggregates. The certificate says NOT PRIVATE.
    features, exclude : str or list of str
        Columns to use, or to leave out. An excluded column does not leave either.
    id : str, optional
        A public key that leaves with the rows, for joining back.
    keep_order : bool
        Let rows leave in the order of the table. By default their order is a secret permutation,
        since a table may be sorted by its label.
    seed : int or None
        Drives the partition only; it is recorded in the release, and tells anybody which
        *positions* of the table share a bag. Noise, picks and the row order have no seed.
    nulls : {"indicator", "error"}
        Missing features: mark them (numbers are filled with the column's mean), or refuse.
    max_levels : int
        Levels of a text column that get a column of their own; the rarest are pooled.
    on_stage : callable, optional
        Called with the name of each stage as it begins.

    Guarantee
    ---------
    With epsilon and delta: the release is (epsilon, delta)-differentially private for replacing one
    row's label by any other within the bounds. Features, ids and bag membership are public.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"rooms": [1.0, 2.0, 2.0, 3.0], "rent": [500, 700, 720, 900]})
    >>> make_release(table, label="rent", bag_size=2, not_private=True)
    Release(4 rows, 2 bags of at least 2, mean labels, NOT PRIVATE)
    """
    limits = check_bounds(bounds)
    budget = _resolve_budget(epsilon, delta, not_private=not_private, bounds=limits)
    kind = check_label_kind(label_kind)
    if budget is not None and kind == "pick":
        raise BudgetError(
            "private releases offer label_kind='mean' only: the noise that a picked label needs is "
            "not in this version. Use 'mean', or not_private=True."
        )
    chosen = _resolve_strategy(strategy, strategy_parameters)
    choice = Choice(
        label=label,
        bag_size=bag_size,
        strategy=chosen,
        scores=resolve_scores(scores, strategy=chosen, private=budget is not None),
        label_kind=kind,
        budget=budget,
        bounds=limits,
        features=None if features is None else _names(features),
        exclude=_names(exclude),
        id=id,
        keep_order=keep_order,
        seed=_resolve_seed(seed),
        nulls=nulls,
        max_levels=max_levels,
    )
    return build(table, choice, on_stage=on_stage)


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _resolve_seed(seed: int | None) -> int | None:
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise StrategyError(f"seed must be a whole number of at least 0, or None, got {seed!r}.")
    return int(seed)


def _resolve_strategy(
    strategy: str | BaggingStrategy, parameters: Mapping[str, str] | None = None
) -> BaggingStrategy:
    if strategy == "auto":
        if parameters:
            raise StrategyError("parameters belong to a strategy; name one instead of 'auto'.")
        strategy = "random"
    return find_strategy(strategy, parameters)


def _resolve_budget(
    epsilon: float | None, delta: float | None, *, not_private: bool, bounds: Bounds | None
) -> Budget | None:
    if not_private:
        if epsilon is not None or delta is not None:
            raise BudgetError("give either epsilon and delta, or not_private, not both.")
        return None
    if epsilon is None and delta is None:
        raise BudgetError(
            "say how private the release is: epsilon and delta (for example --epsilon 1 "
            "--delta 1e-6), or not_private=True (--not-private) to release exact aggregates."
        )
    if epsilon is None or delta is None:
        raise BudgetError("epsilon and delta go together; delta is typically far below 1/n.")
    check_budget(epsilon, delta)
    if bounds is None:
        raise BoundsError(
            "a private release needs bounds=(lo, hi) (--bounds LO HI): the range a label can have, "
            "known without looking at these labels."
        )
    return Budget(epsilon, delta, bounds)
