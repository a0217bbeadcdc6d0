"""The verbs: each makes a request, and hands it to the layer below."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from scipy import sparse

from bagwise.bagging import (
    STRATEGIES,
    BaggingStrategy,
    assign_bags,
    find_strategy,
    traits_of,
)
from bagwise.bagging.bags import Bags
from bagwise.data.encode import DEFAULT_MAX_LEVELS
from bagwise.engines.local import read_rows
from bagwise.errors import StrategyError
from bagwise.models.row_model import RowModel
from bagwise.planner.automatic import decide
from bagwise.privacy.calibrate import Calibration, NoiseKind
from bagwise.privacy.private_bounds import PrivateBounds
from bagwise.release.build import build, build_bounds, build_model
from bagwise.release.release import Release
from bagwise.release.request import BoundsRequest, Budget, Columns, ModelRequest, ReleaseRequest
from bagwise.rng import NoiseSource, Seed, make_generator
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
        An array, or a scipy sparse matrix for strategies that take one (`accepts_sparse`).
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
    chosen = find_strategy("random" if strategy == "auto" else strategy)
    X = _check_matrix(X, chosen)
    return assign_bags(chosen, X, scores, bag_size=bag_size, rng=make_generator(seed))


def _check_matrix(X: Any, strategy: BaggingStrategy) -> Any:
    """Return X as floats, finite and of two dimensions."""
    if sparse.issparse(X):
        if not traits_of(strategy).accepts_sparse:
            takers = [name for name, kind in STRATEGIES.items() if traits_of(kind).accepts_sparse]
            raise StrategyError(
                f"strategy {strategy.name!r} needs dense features; give X.toarray(), or use one "
                f"that takes sparse ones: {', '.join(takers)}."
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
    bag_size: int | Literal["auto"] | None = None,
    min_bag_size: int | None = None,
    bounds: Sequence[float] | PrivateBounds | None = None,
    classes: Sequence[str] | None = None,
    label_kind: str = "mean",
    strategy: str | BaggingStrategy = "auto",
    strategy_parameters: Mapping[str, str] | None = None,
    strategies: str | Sequence[str | BaggingStrategy] | None = None,
    family: str = "auto",
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
    noise: NoiseKind = "auto",
    noise_source: NoiseSource | None = None,
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
    bag_size : int or "auto", optional
        Smallest number of rows in a bag; "auto", the default under an epsilon, is what the planner
        chooses. Without privacy it must be given.
    min_bag_size : int, optional
        The smallest that the planner may choose; 10 by default.
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
        and the release records why: among strategies that make bags of about `bag_size`, if it is
        given, or else among all it knows. It never sorts by labels, and never chooses fewer than
        three bags for each coefficient of its own accord.
    strategy_parameters : mapping, optional
        Parameters for a strategy given by name, as text (the command line's ``--set``).
    strategies : list of str or BaggingStrategy, optional
        Those that the planner may choose from, few large bags among them if they are named.
    family : str
        Distribution of a label, for the planner and for scores by a private model: "auto" is
        gaussian for numbers, shares of all classes otherwise. It says nothing about the model that
        is fitted later.
    scores : {"auto", "none", "labels", "noisy-labels", "model"}
        What a sorting strategy sorts by. "labels" is allowed only when not private; "model" (the
        choice of "auto" under privacy) and "noisy-labels" spend a share of the budget.
    score_share : float or "auto"
        Share of the budget for the scores: of mu squared if they have Gaussian noise, of epsilon if
        they have Laplace noise. "auto" is about the optimum for instance loss on means for "model",
        and 0.5 elsewhere.
    epsilon, delta : float
        Label differential privacy to deliver; or say `not_private`. Without a delta the promise is
        a pure epsilon. With one, the noise still spends none where that is less noise; the
        certificate says what is delivered.
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
    noise : {"auto", "laplace", "staircase", "gaussian"}
        "auto" is the noise of the least variance that keeps the promise; bags, units and delta
        decide which. The others insist on one; a `DominatedWarning` says what that costs.
    noise_source : NoiseSource, optional
        For experiments: ``rng.SimulatedNoise(seed)``, together with `not_private` and epsilon.
    calibration : Calibration, optional
        For experiments: another rule for the noise, together with `not_private`, instead of
        epsilon and delta.
    on_stage : callable, optional
        Called with the name of each stage as it begins.

    Guarantee
    ---------
    With an epsilon: the release is (epsilon, delta)-differentially private for replacing one
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
    columns = Columns.of(
        label, classes=classes, features=features, exclude=exclude, id=id, unit=unit,
        nulls=nulls, max_levels=max_levels,
    )  # fmt: skip
    budget = Budget.of(
        epsilon, delta, bounds=bounds, unit=unit, classes=classes is not None,
        not_private=not_private, noise=noise, noise_source=noise_source, calibration=calibration,
    )  # fmt: skip
    request = ReleaseRequest.of(
        columns, budget, label_kind=label_kind, bag_size=bag_size, strategy=strategy,
        parameters=strategy_parameters, scores=scores, score_share=score_share,
        keep_order=keep_order, seed=seed, min_bag_size=min_bag_size, strategies=strategies,
        family=family,
    )  # fmt: skip
    if request.strategy is not None and request.bag_size is not None:
        choice = request.choose(request.strategy, request.bag_size, request.scores)
        return build(table, choice, on_stage=on_stage)
    run = Stages(on_stage)
    rows = run("reading the table", read_rows, table, named=columns.named)
    return build(rows, run("planning", decide, rows, request), on_stage=on_stage)


def release_model(
    table: Any,
    *,
    label: str,
    bounds: Sequence[float] | PrivateBounds,
    epsilon: float,
    delta: float | None = None,
    family: str = "gaussian",
    link: str = "auto",
    unit: str | None = None,
    features: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    nulls: str = "indicator",
    max_levels: int = DEFAULT_MAX_LEVELS,
    on_stage: OnStage = ignore_stage,
) -> RowModel:
    """Release a generalised linear model with label privacy, instead of bags.

    What is released are noisy sums over the labels; the model is made of them, shrunk as far as
    their noise suggests, with standard errors. For a linear model no bags with Gaussian noise beat
    such sums: bag means and any unbiased decoder are themselves such a release, and this one has
    the least privacy error of all (theory page, the direct release). Bags are worth it for whoever
    needs data: another model, an audit.

    Parameters
    ----------
    delta : float, optional
        Without one the promise is a pure epsilon. With one, the noise is Gaussian or Laplace noise,
        whichever leaves the smaller error.
    family : str
        What a label is: gaussian, bernoulli, poisson, gamma or inverse_gaussian.
    link : str
        "auto" is the canonical link, and the logarithm for gamma and inverse_gaussian.

    All others are those of `make_release`.

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
    >>> calls = pa.table({"x": x, "calls": rng.poisson(np.exp(0.5 + 0.3 * x))})
    >>> counts = release_model(calls, label="calls", bounds=(0, 15), epsilon=1.0, family="poisson")
    >>> abs(counts.coefficients()["x"] - 0.3) < 0.1
    True
    """
    columns = Columns.of(
        label, features=features, exclude=exclude, unit=unit, nulls=nulls, max_levels=max_levels
    )
    budget = Budget.of(epsilon, delta, bounds=bounds, unit=unit)
    request = ModelRequest.of(columns, budget, family=family, link=link)
    return build_model(table, request, on_stage=on_stage)


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
    columns = Columns.of(label, unit=unit)
    return build_bounds(table, BoundsRequest.of(columns, epsilon=epsilon, outside=outside))
