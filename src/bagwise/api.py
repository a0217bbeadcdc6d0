"""The verbs: resolve every "auto", then call the layers below."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
from scipy import sparse

from bagwise.bagging import (
    BaggingStrategy,
    accepts_sparse,
    assign_bags,
    check_bag_size,
    find_strategy,
)
from bagwise.bagging.bags import Bags
from bagwise.data.columns import find_column, select_features
from bagwise.data.encode import DEFAULT_MAX_LEVELS
from bagwise.data.labels import Bounds, check_bounds, check_classes
from bagwise.data.table import read_table
from bagwise.errors import BagTooSmallError, BoundsError, BudgetError, ColumnError, StrategyError
from bagwise.models.row_model import RowModel
from bagwise.planner.automatic import Automatic, choose
from bagwise.privacy.aggregate import check_label_kind
from bagwise.privacy.calibrate import Calibration, ExactCalibration
from bagwise.privacy.curves import check_delta, check_epsilon
from bagwise.privacy.mechanisms import NoisyChoice
from bagwise.privacy.private_bounds import PrivateBounds
from bagwise.release.build import build, build_bounds, build_model
from bagwise.release.provenance import LeavesOut
from bagwise.release.release import Release
from bagwise.release.request import Choice, Columns
from bagwise.release.scores import ScoresKind, resolve_scores
from bagwise.rng import NoiseSource, SecureNoise, Seed, make_generator
from bagwise.show.stages import OnStage, Stages, ignore_stage


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
        An array, or a scipy sparse matrix for strategies that take one ("kmeans", "random").
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
    chosen = _resolve_strategy(strategy)
    X = _check_matrix(X, chosen)
    return assign_bags(chosen, X, scores, bag_size=bag_size, rng=make_generator(seed))


def _check_matrix(X: Any, strategy: BaggingStrategy) -> Any:
    """Return X as floats, finite and of two dimensions."""
    if sparse.issparse(X):
        if not accepts_sparse(strategy):
            raise StrategyError(
                f"strategy {strategy.name!r} needs dense features; give X.toarray(), or use "
                "'kmeans', which takes sparse ones."
            )
        X = sparse.csr_array(X, dtype=np.float64)
        values = X.data
    else:
        X = values = np.asarray(X, dtype=np.float64)
    if X.ndim != 2:
        raise StrategyError(f"X must have two dimensions, rows and features, got {X.ndim}.")
    if not np.isfinite(values).all():
        raise StrategyError("X holds NaN or infinite values.")
    return X


def make_release(
    table: Any,
    *,
    label: str,
    bag_size: int | Literal["auto"],
    bounds: Sequence[float] | PrivateBounds | None = None,
    classes: Sequence[str] | None = None,
    label_kind: str = "mean",
    strategy: str | BaggingStrategy = "auto",
    strategy_parameters: Mapping[str, str] | None = None,
    scores: str = "auto",
    score_share: float | Literal["auto"] = "auto",
    epsilon: float | None = None,
    delta: float | None = None,
    not_private: bool = False,
    unit: str | None = None,
    features: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    id: str | None = None,
    keep_order: bool = False,
    seed: int | None = None,
    nulls: str = "indicator",
    max_levels: int = DEFAULT_MAX_LEVELS,
    noise: NoiseSource | None = None,
    calibration: Calibration | None = None,
    on_stage: OnStage = ignore_stage,
) -> Release:
    """Turn a labelled table into bags with one aggregate label each.

    Parameters
    ----------
    table : path or frame
        A Parquet, CSV or Arrow file, or a pandas, polars or pyarrow frame.
    label : str
        The column to protect.
    bag_size : int or "auto"
        Smallest number of rows in a bag; "auto" is what the planner would choose.
    bounds : (lo, hi)
        Range that a label can have, known without looking at this table. Required with epsilon;
        labels outside are clipped to it. What `find_bounds` returns may be given too; what it spent
        is part of epsilon then.
    classes : list of str, optional
        For a label that is one of several classes: their public names. Bags then carry the share of
        each class, or the class of one row; under privacy the latter by randomised response.
    label_kind : {"mean", "pick"}
        The mean of a bag's labels, or the label of one row drawn in secret.
    strategy : str or BaggingStrategy
        How rows are put together. "auto" is the planner's first choice for these features (`plan`),
        and the release records why: among strategies that make bags of about `bag_size`, or with
        ``bag_size="auto"`` among all it knows. It never sorts by labels, and in the latter case
        may ask for Laplace noise, which delivers the same epsilon with delta = 0.
    strategy_parameters : mapping, optional
        Parameters for a strategy given by name, as text (the command line's ``--set``).
    scores : {"auto", "none", "labels", "noisy-labels", "model"}
        What a sorting strategy sorts by. "labels" is allowed only when not private; "model" (the
        choice of "auto" under privacy) and "noisy-labels" spend a share of the budget.
    score_share : float or "auto"
        Share of the budget for the scores, in units of mu squared. "auto" is the optimum for
        instance loss on means for "model", and 0.5 elsewhere.
    epsilon, delta : float
        Label differential privacy to deliver. Give both, or `not_private`. With delta = 0 the noise
        is Laplace, and only strategies without scores are allowed.
    not_private : bool
        Release exact aggregates. The certificate says NOT PRIVATE. If single labels can be read off
        them, a `LeakWarning` says so, and a note on the terminal says how many.
    unit : str, optional
        A column that names people (or whatever has several rows): privacy then covers all labels of
        a unit together. The column does not leave.
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
    noise : NoiseSource, optional
        For experiments: ``rng.SimulatedNoise(seed)``, together with `not_private` and epsilon.
    calibration : Calibration, optional
        For experiments: another rule for the noise, together with `not_private`, instead of
        epsilon and delta.
    on_stage : callable, optional
        Called with the name of each stage as it begins.

    Guarantee
    ---------
    With epsilon and delta: the release is (epsilon, delta)-differentially private for replacing one
    row's label, or all labels of one unit, by others within the bounds. Features, ids and bag
    membership are public.

    Examples
    --------
    >>> import pyarrow as pa
    >>> area = np.arange(20.0, 120.0)
    >>> table = pa.table({"area": area, "rent": 150 + 11 * area + 200 * np.sin(area)})
    >>> make_release(table, label="rent", bag_size=10, not_private=True)
    Release(100 rows, 10 bags of at least 10, mean labels, NOT PRIVATE)
    """
    names = check_classes(classes)
    columns = _columns(label, features, exclude, id=id, unit=unit, nulls=nulls, levels=max_levels)
    if names is not None and bounds is not None:
        raise BoundsError("a label with classes has no bounds; leave them out.")
    limits, prior = ((0.0, 1.0), ()) if names else _resolve_bounds(bounds, unit=unit)
    source = SecureNoise() if noise is None else noise
    if calibration is None:
        rule = _resolve_calibration(epsilon, delta, limits, source, prior, not_private=not_private)
    else:
        if prior:
            raise BudgetError("a calibration brings its own bounds; it cannot charge for others.")
        rule = _check_experiment(calibration, epsilon, delta, not_private=not_private)
    made = None
    if bag_size is None or (isinstance(bag_size, str) and bag_size != "auto"):
        raise BagTooSmallError(f"bag_size must be a whole number or 'auto', got {bag_size!r}.")
    if strategy == "auto" and strategy_parameters:
        raise StrategyError("parameters belong to a strategy; name one instead of 'auto'.")
    if strategy == "auto" or bag_size == "auto":
        run = Stages(on_stage)
        table = run("reading the table", read_table, table, index_names=columns.named)
        many = names is not None
        made = run("planning", _automatic, table, columns, rule, strategy, bag_size, label_kind,
                   limits, scores, classes=many)  # fmt: skip
    if made is not None:
        strategy, bag_size, scores = made.strategy, made.bag_size, made.scores
        score_share = score_share if made.score_share is None else made.score_share
        if isinstance(rule, ExactCalibration) and made.delta is not None:
            rule = dataclasses.replace(rule, delta=made.delta)
    chosen = _resolve_strategy(strategy, strategy_parameters)
    kind = resolve_scores(
        scores,
        strategy=chosen,
        private=rule is not None,
        pure=rule is not None and rule.delta == 0,
    )
    if names is not None and kind != "none":
        raise StrategyError("classes cannot be sorted; use a strategy that looks at features only.")
    choice = Choice(
        columns=dataclasses.replace(columns, classes=names),
        bag_size=cast(int, bag_size),  # checked with the rows
        strategy=chosen,
        scores=kind,
        score_share=_check_share(score_share, kind),
        label_kind=check_label_kind(label_kind),
        calibration=rule,
        bounds=None if names else limits,
        keep_order=keep_order,
        seed=_resolve_seed(seed),
        noise=source,
        why=None if made is None else made.why,
    )
    return build(table, choice, on_stage=on_stage)


def release_model(
    table: Any,
    *,
    label: str,
    bounds: Sequence[float] | PrivateBounds,
    epsilon: float,
    delta: float,
    unit: str | None = None,
    features: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    nulls: str = "indicator",
    max_levels: int = DEFAULT_MAX_LEVELS,
    on_stage: OnStage = ignore_stage,
) -> RowModel:
    """Release a linear model with label privacy, instead of bags.

    For a linear model no bags with Gaussian noise beat this: their means and any unbiased decoder
    are themselves such a release, and this one has the least privacy error of all (theory page, the
    direct release). Bags are worth it for whoever needs data: another model, an audit.

    Parameters are those of `make_release`.

    Guarantee
    ---------
    (epsilon, delta)-differentially private for replacing one row's label, or all labels of a unit.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=20_000)
    >>> table = {"x": x, "y": 1 + 2 * x + rng.normal(size=x.size)}
    >>> import pyarrow as pa
    >>> model = release_model(
    ...     pa.table(table), label="y", bounds=(-9, 11), epsilon=1.0, delta=1e-6
    ... )
    >>> abs(model.coefficients()["x"] - 2) < 0.1
    True
    """
    limits, prior = _resolve_bounds(bounds, unit=unit)
    source = SecureNoise()
    rule = _resolve_calibration(epsilon, delta, limits, source, prior, not_private=False)
    if rule is None or rule.delta == 0:
        raise BudgetError("a private model needs a positive delta: its noise is Gaussian.")
    columns = _columns(label, features, exclude, id=None, unit=unit, nulls=nulls, levels=max_levels)
    return build_model(table, columns, rule, noise=source, on_stage=on_stage)


def find_bounds(
    table: Any,
    *,
    label: str,
    epsilon: float,
    outside: float = 0.001,
    unit: str | None = None,
) -> PrivateBounds:
    """Choose bounds for labels whose range is not known, privately.

    Parameters
    ----------
    table : path or frame
    label : str
    epsilon : float
        What the choice may spend, without a delta. It counts towards the epsilon of a release that
        is made with the result.
    outside : float
        Share of labels that may lie beyond each bound; raised where the noise would hide so few.
    unit : str, optional
        A column that names people with several rows.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"y": np.random.default_rng(0).uniform(-3, 700, size=20_000)})
    >>> low, high = find_bounds(table, label="y", epsilon=1.0).bounds
    >>> high
    1000.0
    """
    columns = _columns(
        label, None, (), id=None, unit=unit, nulls="indicator", levels=DEFAULT_MAX_LEVELS
    )
    return build_bounds(table, columns, epsilon=epsilon, outside=outside, noise=SecureNoise())


def _resolve_bounds(
    bounds: Sequence[float] | PrivateBounds | None, *, unit: str | None
) -> tuple[Bounds | None, tuple[NoisyChoice, ...]]:
    if isinstance(bounds, PrivateBounds):
        if bounds.unit != unit:
            raise BoundsError(
                f"the bounds were found for unit {bounds.unit!r}, the release protects {unit!r}. "
                "Find them again with the same unit."
            )
        return check_bounds(bounds.bounds), (bounds.event,)
    return check_bounds(bounds), ()


def _names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    listed = (names,) if isinstance(names, str) else tuple(names or ())
    if not all(isinstance(name, str) for name in listed):
        raise ColumnError("features and exclude are names of columns.")
    return listed


def _resolve_seed(seed: int | None) -> int | None:
    if seed is None:
        return None
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < 2**63:  # a manifest has no larger numbers
        raise StrategyError(
            f"seed must be a whole number of at least 0 and below 2**63, or None, got {seed!r}."
        )
    return int(seed)


def _automatic(
    table: pa.Table,
    columns: Columns,
    rule: Calibration | None,
    strategy: str | BaggingStrategy,
    bag_size: int | Literal["auto"],
    label_kind: str,
    bounds: Bounds | None,
    scores: str,
    *,
    classes: bool,
) -> Automatic | None:
    """Ask the planner, who sees features only; None where there is nothing for it to choose."""
    if strategy != "auto":
        raise StrategyError("bag_size='auto' goes with strategy='auto': the planner chooses both.")
    if scores in ("labels", "noisy-labels", "model"):
        raise StrategyError(
            f"scores={scores!r} are for a strategy that sorts: name strategy='sorted'. 'auto' "
            "chooses scores by itself, and never the labels."
        )
    known = scores in ("auto", "none")  # what else there is will be refused with a list
    if not known or not (rule is None or isinstance(rule, ExactCalibration)):
        if bag_size == "auto":
            raise StrategyError("bag_size='auto' leaves the noise to the planner as well.")
        return None
    reserved = [name for name in (columns.label, columns.id, columns.unit) if name is not None]
    for role, name in (("label", columns.label), ("id", columns.id), ("unit", columns.unit)):
        if name is not None:
            find_column(table, name, role=role)
    names = select_features(
        table, reserved=reserved, features=columns.features, exclude=columns.exclude
    )
    size = None if bag_size == "auto" else bag_size
    if size is not None:
        check_bag_size(size, n_rows=table.num_rows)
    return choose(
        table.select(names),
        names,
        named=columns.features or (),
        nulls=columns.nulls,
        max_levels=columns.max_levels,
        bag_size=size,
        label_kind=check_label_kind(label_kind),
        bounds=bounds,
        epsilon=None if rule is None else rule.left,
        delta=None if rule is None else rule.delta,
        classes=classes,
        scored=scores == "auto" and not classes,
        leaves_out=_leaves_out(columns, rule, classes=classes),
    )


def _leaves_out(columns: Columns, rule: Calibration | None, *, classes: bool) -> LeavesOut:
    """Say what the planner's figure does not account for."""
    if columns.unit is not None and rule is not None:
        return "units"
    return "classes" if classes else "nothing"


def _resolve_strategy(
    strategy: str | BaggingStrategy, parameters: Mapping[str, str] | None = None
) -> BaggingStrategy:
    if strategy == "auto":  # where the planner has nothing to choose by
        if parameters:
            raise StrategyError("parameters belong to a strategy; name one instead of 'auto'.")
        strategy = "random"
    return find_strategy(strategy, parameters)


def _columns(
    label: str,
    features: str | Sequence[str] | None,
    exclude: str | Sequence[str],
    *,
    id: str | None,
    unit: str | None,
    nulls: str,
    levels: int,
) -> Columns:
    for role, name in (("label", label), ("id", id), ("unit", unit)):
        if name is not None and not isinstance(name, str):
            raise ColumnError(f"{role} must be the name of a column, got {name!r}.")
    if label is None:
        raise ColumnError("label must be the name of a column.")
    return Columns(
        label=label,
        classes=None,
        features=None if features is None else _names(features),
        exclude=_names(exclude),
        id=id,
        unit=unit,
        nulls=nulls,
        max_levels=levels,
    )


def _check_share(share: float | Literal["auto"], kind: ScoresKind) -> float | Literal["auto"]:
    if share != "auto" and kind not in ("noisy-labels", "model"):
        raise BudgetError("score_share belongs to scores that cost something; leave it at 'auto'.")
    if share != "auto" and not (isinstance(share, int | float) and 0 < share < 1):
        raise BudgetError(f"score_share must be above 0 and below 1, or 'auto', got {share!r}.")
    return share


def _check_experiment(
    calibration: Calibration, epsilon: float | None, delta: float | None, *, not_private: bool
) -> Calibration:
    if epsilon is not None or delta is not None:
        raise BudgetError("a calibration brings its own epsilon and delta; do not give them too.")
    if calibration.is_exact:
        raise BudgetError("the exact calibration is what epsilon and delta stand for; give those.")
    if not not_private:
        raise BudgetError("only the exact calibration delivers privacy; say not_private=True.")
    return calibration


def _resolve_calibration(
    epsilon: float | None,
    delta: float | None,
    bounds: Bounds | None,
    source: NoiseSource,
    prior: tuple[NoisyChoice, ...] = (),
    *,
    not_private: bool,
) -> Calibration | None:
    if not source.is_secret and not not_private:
        raise BudgetError("simulated noise is not private: say so with not_private=True.")
    if not_private and source.is_secret:
        if epsilon is not None or delta is not None:
            raise BudgetError("give either epsilon and delta, or not_private, not both.")
        return None
    if epsilon is None and delta is None:
        if not_private:
            return None
        raise BudgetError(
            "say how private the release is: epsilon and delta (for example --epsilon 1 "
            "--delta 1e-6), or not_private=True (--not-private) to release exact aggregates."
        )
    if epsilon is None or delta is None:
        raise BudgetError("epsilon and delta go together; delta is typically far below 1/n.")
    check_epsilon(epsilon)
    check_delta(delta)
    if bounds is None:
        raise BoundsError(
            "a private release needs bounds=(lo, hi) (--bounds LO HI): the range a label can have, "
            "known without looking at these labels."
        )
    return ExactCalibration(float(epsilon), float(delta), bounds, prior)
