"""Public functions of the custodian: each makes a request and passes it to the layer below."""

from collections.abc import Sequence
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
from bagwise.errors import StrategyError, check_name
from bagwise.ledger import Account, Ledger, open_account
from bagwise.ledger.account import Verb
from bagwise.models.row_model import RowModel
from bagwise.release.build import build, build_model
from bagwise.release.preview import Confirm
from bagwise.release.release import Release
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns
from bagwise.requests.records import Bagging, Engine, Privacy, Reading, says_where
from bagwise.requests.verbs import ModelRequest, ReleaseRequest, Request, may_search
from bagwise.rng import Seed, make_generator
from bagwise.rows.columns import find_column
from bagwise.rows.opening import Memory, leave_out_missing, open_rows
from bagwise.rows.spark.session import is_frame
from bagwise.rows.table import Rows
from bagwise.show.stages import Stages


def make_bags(
    X: Any,
    bag_size: int,
    *,
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
        An array, or a SciPy sparse matrix for strategies that accept one (`accepts_sparse`).
    bag_size : int
        Smallest number of rows in a bag.
    strategy : str or BaggingStrategy
        A name from ``bagwise.STRATEGIES`` or an instance with its parameters.
    scores : (n,) floats, optional
        What a sorting strategy sorts by. If the scores depend on labels, so do the bags.
    groups : (n,) ids, optional
        Needed by the strategy "groups": rows with the same id share a bag.
    strata : (n,) ids, optional
        All rows of a bag have the same id.
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
    if chosen.keeps_groups and groups is None:
        raise StrategyError(
            f"strategy {chosen.name!r} needs groups. Pass groups, one id per row, or use another "
            "strategy, such as 'kmeans'."
        )
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
    """Return X as a two-dimensional matrix of finite floats."""
    if sparse.issparse(X):
        if not strategy.accepts_sparse:
            takers = [name for name, kind in STRATEGIES.items() if kind.accepts_sparse]
            raise StrategyError(
                f"strategy {strategy.name!r} needs dense features; pass X.toarray(), or use a "
                f"strategy that accepts sparse ones: {', '.join(takers)}."
            )
        X = sparse.csr_array(X, dtype=np.float64)
        values = X.data
    else:
        X = values = np.asarray(X, dtype=np.float64)
    if X.ndim != 2:
        raise StrategyError(f"X must have two dimensions, rows and features, got {X.ndim}.")
    if not np.isfinite(values).all():
        raise StrategyError("X contains NaN or infinite values.")
    return X


@says_where
def make_release(
    table: Any,
    *,
    label: str,
    bounds: Sequence[float] | Literal["auto"] | None = None,
    classes: Sequence[str] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    not_private: bool = False,
    unit: str | None = None,
    id: str | None = None,
    features: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    bag_size: int | Literal["auto"] | None = None,
    strategy: str | BaggingStrategy = "auto",
    learner: Literal["linear", "flexible"] = "linear",
    bagging: Bagging | None = None,
    privacy: Privacy | None = None,
    reading: Reading | None = None,
    engine: Engine | None = None,
    ledger: Ledger | str | Path | None = None,
    confirmed: bool | Confirm = False,
) -> Release:
    """Turn a labelled table into bags with one aggregate label each.

    Parameters
    ----------
    table : path or paths, frame, stream, or Source
        Parquet, CSV or Arrow files, a directory or pattern of them, a pandas, polars or pyarrow
        frame, a DuckDB relation, a `Query`, and more (docs/sources.md). A Spark DataFrame,
        classic or Connect, is processed on Spark.
    label : str
        The column to protect.
    bounds : (lo, hi) or "auto"
        Range of possible labels, known without looking at this table; labels outside are clipped.
        Required with epsilon, except for true/false labels and classes. "auto" finds a range
        privately, for 2 to 10 percent of epsilon.
    classes : list of str, optional
        Public names of the classes, if the label is one of several classes. Bag labels are then the
        share of each class, or the class of one row, with an epsilon by randomised response.
    epsilon, delta : float
        Required label differential privacy, unless `not_private`. Without a delta, the guarantee is
        pure epsilon. Even with a delta, noise that needs none is used if it is smaller; the
        certificate states the resulting guarantee.
    not_private : bool
        Release exact aggregates. The certificate says NOT PRIVATE. If they reveal single labels, a
        `LeakWarning` says so, and a note on the terminal says how many.
    unit : str, optional
        A column that identifies people (or other units with several rows): all labels of a unit are
        then protected together. The column is not published.
    id : str, optional
        A key column that is published with the rows, for joins.
    features, exclude : str or list of str
        Columns to use, or to exclude. Excluded columns are not published either.
    bag_size : int or "auto", optional
        Minimum number of rows in a bag. "auto", the default with an epsilon, is the planner's
        choice. Without privacy, the size is required.
    strategy : str or BaggingStrategy
        How rows are grouped. "auto" is the planner's first choice for these features (`plan`), with
        bags of about `bag_size` if that is given; the release records the reason. The planner never
        sorts by labels, and chooses fewer than three bags per coefficient only if more bags would
        lose most of the signal.
    learner : {"linear", "flexible"}
        Which models the bags are for, if strategy or bag size are "auto". "flexible" is for boosted
        trees and networks: k-means bags in the metric of a private model
        (``KMeansBags(scale="model")``), if the budget suffices for a useful one, with sizes that
        suit such learners.
    bagging : Bagging, optional
        Further settings of bags: groups and strata, kinds of labels and scores, the seed.
    privacy : Privacy, optional
        How the guarantee is achieved: the noise distribution, and private queries before bags are
        formed.
    reading : Reading, optional
        How the table is read: missing values, categories, the exposure, the order of rows.
    engine : Engine, optional
        Where the work is done: memory, disk or Spark (docs/scale.md). Spark returns a
        `PartsRelease`, which `save` writes.
    ledger : Ledger or path, optional
        Charged before noise is drawn; a request that exceeds the budget is refused. An identical
        request on the same table returns the recorded files and costs nothing.
    confirmed : bool or callable
        Whether someone has confirmed the columns that will be published. If not, columns that look
        like names of people, free text, ids or dates are rejected before anything is drawn, except
        those that `features` names. A callable gets the list of all columns (`Preview`) and
        returns whether to go on.

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
    reading, engine = reading or Reading(), engine or Engine()
    columns = Columns.of(
        label, classes=classes, features=features, exclude=exclude, id=id, unit=unit,
        bagging=bagging, reading=reading,
    )  # fmt: skip
    budget = Budget.of(
        epsilon, delta, bounds=bounds, unit=unit, classes=classes is not None,
        not_private=not_private, privacy=privacy,
        family="auto" if bagging is None else bagging.family,
    )  # fmt: skip
    request = ReleaseRequest.of(
        columns, budget, bag_size=bag_size, strategy=strategy, learner=learner,
        bagging=bagging, privacy=privacy, keep_order=reading.keep_order,
    )  # fmt: skip
    stage = Stages(engine.on_stage)
    check_name("engine", engine.name, ("auto", "local", "spark"))
    if engine.name == "spark" or is_frame(table):
        rows: Any = _open_on_spark(stage, table, request, reading, engine)
        request = request.of_type(rows.schema.field(label).type)
    else:
        searched = may_search(strategy, bagging)
        memory = Memory.of(engine.memory_limit, engine.spill or gettempdir(), searched=searched)
        with stage("reading the table"):
            rows = open_rows(table, named=columns.named, memory=memory, label=label)
            if reading.drop_missing_labels:
                rows, missing = leave_out_missing(rows, label, columns.classes)
                request = replace(request, missing_labels=missing)
        if not request.budget.has_bounds:
            request = request.of_type(find_column(rows, label, role="label").type)
    account = _account(stage, ledger, rows, "release", request)
    if (paid := account.stored(_verified)) is not None:
        return paid
    made = build(rows, request, account=account, confirmed=confirmed, on_stage=engine.on_stage)
    return cast(Release, made)  # on Spark, a release with the same methods


def _open_on_spark(
    stage: Stages, table: Any, request: ReleaseRequest, reading: Reading, engine: Engine
) -> Any:
    """Open a table on Spark; only this function imports Spark's modules."""
    from bagwise.release.parts_table import refuse_in_parts
    from bagwise.rows.spark.opening import open_on_spark

    # Reject impossible requests before Spark starts.
    if engine.name == "local":
        raise StrategyError("the local engine cannot read a Spark DataFrame.")
    if reading.drop_missing_labels:
        raise StrategyError(
            "not on Spark: drop_missing_labels (--drop-missing-labels). Drop rows without a label "
            "from the table first, and say so to whoever gets the release."
        )
    refuse_in_parts(request)
    columns = request.columns
    with stage("starting Spark, reading the table"):
        return open_on_spark(
            table,
            label=columns.label,
            classes=columns.classes,
            named=columns.named,
            spill=engine.spill,
            settings=engine.spark,
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
    request: Request,
) -> Account:
    """Return the account that a request is charged to; without a ledger, an empty one."""
    if ledger is None:
        return Account()
    columns, budget = request.columns, request.budget
    rule = budget.calibration
    with stage("looking into the ledger"):
        return open_account(
            ledger,
            rows,
            verb=verb,
            request=request,
            label=columns.label,
            unit=columns.unit,
            private=budget.promises,
            delta=0.0 if rule is None else rule.delta,
        )


@says_where
def release_model(
    table: Any,
    *,
    label: str,
    bounds: Sequence[float] | Literal["auto"] | None = None,
    epsilon: float,
    delta: float | None = None,
    family: str = "gaussian",
    unit: str | None = None,
    features: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    privacy: Privacy | None = None,
    reading: Reading | None = None,
    engine: Engine | None = None,
    ledger: Ledger | str | Path | None = None,
    confirmed: bool | Confirm = False,
) -> RowModel:
    """Release a generalised linear model with label privacy, instead of bags.

    The release consists of noisy sums over the labels. The model is computed from them, shrunk
    according to their noise, with standard errors. For a linear model, no bags with Gaussian noise
    are better: bag means with an unbiased decoder are themselves such a release, and this one has
    the smallest privacy error (theory page, the direct release). Bags are useful for someone who
    needs data, for another model or an audit.

    Parameters
    ----------
    delta : float, optional
        Without a delta, the guarantee is pure epsilon. With a delta, the noise is Gaussian or
        Laplace noise, whichever gives the smaller error.
    family : str
        Kind of label: gaussian, bernoulli, poisson, gamma or inverse_gaussian.

    Notes
    -----
    The other parameters are those of `make_release`. Of their settings, only `tighten`, `nulls`,
    `max_levels`, `memory_limit`, `spill` and `on_stage` may be set.

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
    privacy, reading, engine = privacy or Privacy(), reading or Reading(), engine or Engine()
    privacy.only("tighten", what="a released model")
    reading.only("nulls", "max_levels", what="a released model")
    engine.only("memory_limit", "spill", "on_stage", what="a released model")
    columns = Columns.of(label, features=features, exclude=exclude, unit=unit, reading=reading)
    budget = Budget.of(epsilon, delta, bounds=bounds, unit=unit, family=family)
    request = ModelRequest.of(columns, budget, family=family, tighten=privacy.tighten)
    stage = Stages(engine.on_stage)
    memory = Memory.of(engine.memory_limit, engine.spill or gettempdir())
    with stage("reading the table"):
        rows = open_rows(table, named=columns.named, memory=memory, label=label)
    if not request.budget.has_bounds:
        request = request.of_type(find_column(rows, label, role="label").type)
    account = _account(stage, ledger, rows, "release-model", request)
    if (paid := account.stored(RowModel.load)) is not None:
        return paid
    return build_model(
        rows, request, account=account, confirmed=confirmed, on_stage=engine.on_stage
    )
