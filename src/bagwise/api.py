"""The verbs: each makes a request, and hands it to the layer below."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Literal, cast

import numpy as np
from scipy import sparse

from bagwise._types import IntArray
from bagwise.bagging import (
    STRATEGIES,
    BaggingStrategy,
    Given,
    assign_bags,
    find_strategy,
)
from bagwise.bagging.bags import Bags
from bagwise.cluster.workers import interrupted_for_good
from bagwise.errors import StrategyError, check_name
from bagwise.ledger import Account, Ledger, Uncharged, open_account
from bagwise.ledger.account import Verb
from bagwise.models.row_model import RowModel
from bagwise.privacy.calibrate import Calibration, NoiseKind
from bagwise.privacy.private_bounds import PrivateBounds
from bagwise.release.build import build, build_bounds, build_model
from bagwise.release.preview import Confirm
from bagwise.release.release import Release
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns
from bagwise.requests.verbs import BoundsRequest, ModelRequest, ReleaseRequest
from bagwise.rng import NoiseSource, Seed, make_generator
from bagwise.rows import Rows
from bagwise.rows.encode import DEFAULT_MAX_LEVELS
from bagwise.rows.local import read_rows
from bagwise.rows.memory import Memory
from bagwise.rows.opening import leave_out_missing, open_rows
from bagwise.rows.spark.session import is_frame
from bagwise.show.stages import OnStage, Stages, ignore_stage


def make_bags(
    X: Any,
    *,
    bag_size: int,
    strategy: str | BaggingStrategy = "random",
    scores: Any = None,
    groups: Any = None,
    strata: Any = None,
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
    groups : (n,) ids, optional
        For the strategy "groups": rows with the same id share a bag.
    strata : (n,) ids, optional
        No bag has rows with different ones.
    seed : int, Generator or None

    Examples
    --------
    >>> make_bags(np.zeros((7, 2)), bag_size=3, seed=0).sizes
    array([3, 4])
    >>> X, town = np.array([[1.0], [1.0], [1.2], [5.0], [5.0], [5.0]]), list("aabccc")
    >>> make_bags(X, bag_size=3, strategy="groups", groups=town).index.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    chosen = find_strategy("random" if strategy == "auto" else strategy)
    X = _check_matrix(X, chosen)
    given = Given(_numbered(groups, "groups", X), _numbered(strata, "strata", X))
    rng = make_generator(seed)
    return assign_bags(chosen, X, scores, bag_size=bag_size, rng=rng, given=given)


def _numbered(ids: Any, what: str, X: Any) -> IntArray | None:
    """Return ids of any kind as numbers, one per row."""
    if ids is None:
        return None
    numbers = Bags.from_labels(ids).index
    if numbers.size != X.shape[0]:
        raise StrategyError(f"{what} must be one per row ({X.shape[0]}), got {numbers.size}.")
    return numbers


def _check_matrix(X: Any, strategy: BaggingStrategy) -> Any:
    """Return X as floats, finite and of two dimensions."""
    if sparse.issparse(X):
        if not strategy.accepts_sparse:
            takers = [name for name, kind in STRATEGIES.items() if kind.accepts_sparse]
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


@interrupted_for_good()
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
    learner: Literal["linear", "flexible"] = "linear",
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
    by: str | Sequence[str] = (),
    within: str | Sequence[str] = (),
    exposure: str | None = None,
    keep_order: bool = False,
    seed: int | None = None,
    drop_missing_labels: bool = False,
    nulls: str = "indicator",
    max_levels: int = DEFAULT_MAX_LEVELS,
    noise: NoiseKind = "auto",
    tighten: Literal["auto", "range", "none"] = "auto",
    centre: Literal["auto", "model", "none"] = "auto",
    noise_source: NoiseSource | None = None,
    calibration: Calibration | None = None,
    ledger: Ledger | str | Path | None = None,
    memory_limit: str | int | None = None,
    spill: str | Path | None = None,
    engine: Literal["auto", "local", "spark"] = "auto",
    spark: Mapping[str, str] | None = None,
    confirmed: bool | Confirm = False,
    on_stage: OnStage = ignore_stage,
) -> Release:
    """Turn a labelled table into bags with one aggregate label each.

    Parameters
    ----------
    table : path or paths, frame, stream, or Source
        Parquet, CSV or Arrow files, a directory or pattern of them, a pandas, polars or pyarrow
        frame, a DuckDB relation, a `Query`; docs/sources.md has them all. A DataFrame of Spark,
        classic or Connect, goes to the engine for it.
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
        given, or else among all it knows. It never sorts by labels, and chooses fewer than three
        bags for each coefficient only where more of them would lose most of the signal.
    strategy_parameters : mapping, optional
        Parameters for a strategy given by name, as text (the command line's ``--set``).
    strategies : list of str or BaggingStrategy, optional
        Those that the planner may choose from, few large bags among them if they are named.
    learner : {"linear", "flexible"}
        Who the bags are for, where strategy or bag size are "auto". "flexible" is for boosted
        trees, networks and the like: k-means bags by the metric of a private model
        (``KMeansBags(scale="model")``), where one can be bought that tells anything, and in sizes
        for such learners.
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
    by : str or list of str
        Public columns that bags are given by, such as campaign, hospital or census block: rows that
        agree in all of them share a bag. Groups of fewer than `bag_size` rows (10, if nothing is
        said under an epsilon) are merged with those of the most similar features. They leave with
        the rows, and are features only if `features` names them.
    within : str or list of str
        Public columns whose strata no bag crosses, whatever the strategy. They leave with the rows,
        and are features unless excluded. A plan takes no account of strata but for their size.
    exposure : str, optional
        A public column with positive numbers: how long, how often or how much a row was observed,
        where its label is a count or an amount over that. It leaves with the rows, and is a feature
        only if `features` names it. Labels are clipped to their own bounds and bags carry the mean
        of the labels as ever (`Release.rates` divides by exposure); a fit models the rate.
    keep_order : bool
        Let rows leave in the order of the table. By default their order is a secret permutation,
        since a table may be sorted by its label.
    seed : int or None
        Drives the partition only; it is recorded in the release, and tells anybody which
        *positions* of the table share a bag. Noise, picks and the row order have no seed.
    drop_missing_labels : bool
        Leave out rows whose label is missing (null, NaN, or empty where it has classes). The
        manifest then says how many there were, and so that missingness is public. By default such
        rows are refused. Not on Spark.
    nulls : {"indicator", "error"}
        Missing features: mark them (numbers are filled with the column's mean), or refuse.
    max_levels : int
        Levels of a text column that get a column of their own; the rarest are pooled.
    noise : {"auto", "laplace", "staircase", "gaussian", "unbiased"}
        "auto" is the noise of the least variance that keeps the promise; bags, units and delta
        decide which. The others insist on one; a `DominatedWarning` says what that costs. The last
        reports every label by itself, without bags, by an optimal unbiased randomizer.
    tighten : {"auto", "range", "none"}
        Look for a private range within the bounds first, by a few hundredths of epsilon, since
        noise grows with the range that labels can have. "auto" does so unless the bounds are 0 and
        1, or were found privately, or there are too few rows. "none" is for bounds that are tight.
    centre : {"auto", "model", "none"}
        Spend a part of epsilon on a private model of the labels and on a limit for what it leaves
        of them; bag labels then have noise for that limit alone. "auto" tries it where it should
        pay; the certificate says whether it did.
    noise_source : NoiseSource, optional
        For experiments: ``rng.SimulatedNoise(seed)``, together with `not_private` and epsilon.
    calibration : Calibration, optional
        For experiments: another rule for the noise, together with `not_private`, instead of
        epsilon and delta.
    ledger : Ledger or path, optional
        Charged before noise is drawn, or the request is refused. An identical request on the same
        table, whose files the ledger remembers, is answered with them and costs nothing.
    memory_limit : str or int, optional
        Such as "8GB"; half of the machine's memory by default. Files that would need more stay on
        disk, and so do their rows on the way (docs/scale.md).
    spill : path, optional
        Where a private directory for them is made; by default the system's for temporary files.
        On Spark all machines must be able to reach it, and it is best beside the output.
    engine : {"auto", "local", "spark"}
        "spark" is for tables past one machine (extra ``spark``, docs/scale.md): Parquet files are
        read by the tasks of a session, and what comes back is a `PartsRelease`, which `save`
        writes. "auto" is that for a DataFrame of Spark, and "local" for everything else.
    spark : mapping, optional
        Settings of Spark, ``spark.master`` for instance, for a session that is opened here.
    confirmed : bool or callable
        Whether somebody has looked at the columns that will be published. Unless so, columns that
        look like names of people, free text, ids or dates are refused before anything is drawn,
        but for those that `features` names. A callable gets the list of all of them (`Preview`),
        and returns whether to go on.
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
        nulls=nulls, max_levels=max_levels, by=by, within=within, exposure=exposure,
    )  # fmt: skip
    budget = Budget.of(
        epsilon, delta, bounds=bounds, unit=unit, classes=classes is not None,
        not_private=not_private, noise=noise, noise_source=noise_source, calibration=calibration,
    )  # fmt: skip
    request = ReleaseRequest.of(
        columns, budget, label_kind=label_kind, bag_size=bag_size, strategy=strategy,
        parameters=strategy_parameters, scores=scores, score_share=score_share,
        keep_order=keep_order, seed=seed, min_bag_size=min_bag_size, strategies=strategies,
        family=family, tighten=tighten, centre=centre, learner=learner,
    )  # fmt: skip
    stage = Stages(on_stage)
    check_name("engine", engine, ("auto", "local", "spark"))
    if engine == "spark" or is_frame(table):
        if engine == "local":
            raise StrategyError("a DataFrame of Spark is not read by the local engine.")
        if drop_missing_labels:
            raise StrategyError(
                "not on Spark: drop_missing_labels (--drop-missing-labels). Drop rows without a "
                "label from the table first, and say so to whoever gets the release."
            )
        spread: Any = _release_on_spark(
            stage, table, request, ledger, confirmed,
            bounds=bounds, spill=spill, settings=spark,
        )  # fmt: skip
        return cast(Release, spread)  # what a caller does with one, it can do with the other
    memory = Memory.of(memory_limit, gettempdir() if spill is None else spill)
    with stage("reading the table"):
        rows = open_rows(table, named=columns.named, memory=memory, label=label)
        if drop_missing_labels:
            rows, missing = leave_out_missing(rows, label, columns.classes)
            request = replace(request, missing_labels=missing)
    account = _account(stage, ledger, rows, "release", request, columns, budget, bounds)
    if (paid := account.stored(_verified)) is not None:
        return paid
    return build(rows, request, account=account, confirmed=confirmed, on_stage=on_stage)


def _release_on_spark(
    stage: Stages,
    table: Any,
    request: ReleaseRequest,
    ledger: Ledger | str | Path | None,
    confirmed: bool | Confirm,
    *,
    bounds: object,
    spill: str | Path | None,
    settings: Mapping[str, str] | None,
) -> Any:
    """Make a release on Spark, whose modules are imported by nobody else."""
    from bagwise.release.build_in_parts import build_in_parts, refuse_in_parts
    from bagwise.rows.spark.opening import open_on_spark

    columns, budget = request.columns, request.budget
    refuse_in_parts(request)  # what cannot be done, before Spark starts
    with stage("starting Spark, reading the table"):
        rows = open_on_spark(
            table,
            label=columns.label,
            classes=columns.classes,
            named=columns.named,
            spill=spill,
            settings=settings,
        )
    account = _account(stage, ledger, rows, "release", request, columns, budget, bounds)
    if (paid := account.stored(_verified)) is not None:
        return paid
    return build_in_parts(
        rows, request, account=account, confirmed=confirmed, on_stage=stage.on_stage
    )


def _verified(path: Path) -> Release:
    release = Release.load(path)
    release.verify()
    return release


def _account(
    stage: Stages,
    ledger: Ledger | str | Path | None,
    rows: Rows | Any,
    verb: Verb,
    request: object,
    columns: Columns,
    budget: Budget,
    bounds: object,
) -> Account:
    """Return where a request is charged; without a ledger nowhere."""
    if ledger is None:
        return Uncharged()
    rule = budget.calibration
    with stage("looking into the ledger"):
        return open_account(
            ledger,
            rows,
            verb=verb,
            request=request,
            label=columns.label,
            unit=columns.unit,
            private=rule is not None and rule.is_exact and budget.noise_source.is_secret,
            delta=0.0 if rule is None else rule.delta,
            bounds=bounds,
        )


def release_model(
    table: Any,
    *,
    label: str,
    bounds: Sequence[float] | PrivateBounds,
    epsilon: float,
    delta: float | None = None,
    family: str = "gaussian",
    link: str = "auto",
    tighten: Literal["auto", "range", "none"] = "auto",
    unit: str | None = None,
    features: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    nulls: str = "indicator",
    max_levels: int = DEFAULT_MAX_LEVELS,
    ledger: Ledger | str | Path | None = None,
    memory_limit: str | int | None = None,
    spill: str | Path | None = None,
    confirmed: bool | Confirm = False,
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
    tighten : {"auto", "range", "none"}
        Look for a private range within the bounds first (`make_release`).

    Notes
    -----
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
    request = ModelRequest.of(columns, budget, family=family, link=link, tighten=tighten)
    stage = Stages(on_stage)
    memory = Memory.of(memory_limit, gettempdir() if spill is None else spill)
    with stage("reading the table"):
        rows = open_rows(table, named=columns.named, memory=memory, label=label)
    account = _account(stage, ledger, rows, "release-model", request, columns, budget, bounds)
    if (paid := account.stored(RowModel.load)) is not None:
        return paid
    return build_model(rows, request, account=account, confirmed=confirmed, on_stage=on_stage)


def find_bounds(
    table: Any,
    *,
    label: str,
    epsilon: float,
    outside: float | None = None,
    unit: str | None = None,
    ledger: Ledger | str | Path | None = None,
) -> PrivateBounds:
    """Choose bounds for labels whose range is not known, privately.

    Parameters
    ----------
    table : path or frame
    label : str
    epsilon : float
        What the choice may spend, without a delta. It counts towards the epsilon of a release that
        is made with the result.
    outside : float, optional
        Share of labels that may lie beyond each bound. Without it labels are weighed against noise:
        a bound moves outwards if about ``4 / epsilon`` labels would be clipped otherwise.
    unit : str, optional
        A column that names people with several rows.
    ledger : Ledger or path, optional
        Charged before noise is drawn. A release with the result that is charged to the same ledger
        does not pay for it again.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"y": np.random.default_rng(0).uniform(-3, 700, size=20_000)})
    >>> low, high = find_bounds(table, label="y", epsilon=1.0).bounds
    >>> high
    1000.0
    """
    columns = Columns.of(label, unit=unit)
    request = BoundsRequest.of(columns, epsilon=epsilon, outside=outside)
    if ledger is None:
        return build_bounds(table, request)
    stage = Stages()
    with stage("reading the table"):
        rows = read_rows(table, named=columns.named)
    with stage("looking into the ledger"):
        account = open_account(
            ledger, rows, verb="bounds", request=request, label=label, unit=unit, private=True
        )
    if (paid := account.stored(PrivateBounds.load)) is not None:
        return paid
    return build_bounds(rows, request, account=account)
