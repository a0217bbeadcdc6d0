"""The verbs about models: fit, release-model, predict and evaluate."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from bagwise.cli.console import (
    emit,
    out,
    print_grid,
    print_pairs,
    readable,
    say,
    say_next,
    say_where_notes_are,
    show_progress,
    start_notes,
)
from bagwise.cli.options import (
    Anew,
    AsJson,
    ChosenBy,
    Engine,
    Exclude,
    Features,
    Force,
    Label,
    LedgerFile,
    MaxLevels,
    MemoryLimit,
    Notes,
    Nulls,
    Quiet,
    Read,
    SparkSettings,
    SqlQuery,
    Tables,
    Tighten,
    Unit,
    Yes,
    confirmation,
    file_reserve,
    is_spark,
    keep_in,
    open_ledger,
    parse_settings,
    read_bounds,
    source_of,
    split_names,
)
from bagwise.cli.trees import fit_trees, refuse_for_trees
from bagwise.errors import BudgetError, OutputExistsError, StrategyError, check_name
from bagwise.files.atomic import check_file
from bagwise.files.records import to_plain
from bagwise.requests.records import Engine as EngineSettings
from bagwise.requests.records import Privacy, Reading

if TYPE_CHECKING:
    from bagwise.models.row_model import RowModel
    from bagwise.models.trees import TreeModel
    from bagwise.scoring.privately import PrivateScores


READ_IN_PARTS = "1GB"
"""Memory from which on predictions go over parts of a table, where nobody sets a limit."""

_EXACT_SCORES = (
    "Exact scores describe the labels of these rows: keep them with the labels, or give --epsilon "
    "for scores that may be published."
)


def fit(
    directory: Annotated[Path, typer.Argument(help="A release directory.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")] = Path(
        "model.json"
    ),
    model: Annotated[
        str, typer.Option(help="glm: coefficients with error bars; boosted: trees.")
    ] = "glm",
    family: Annotated[
        str,
        typer.Option(help="What a label is. auto: gaussian, multinomial or poisson; {families}."),
    ] = "auto",
    link: Annotated[str, typer.Option(help="canonical; or {links}.")] = "canonical",
    loss: Annotated[
        str, typer.Option(help="auto, bag, instance, aggregate; mixture for picked labels.")
    ] = "auto",
    target: Annotated[
        str | None, typer.Option(help="The class to predict, for a label with classes.")
    ] = None,
    debias: Annotated[
        bool, typer.Option("--debias", help="Undo the shrinkage of instance loss.")
    ] = False,
    ridge: Annotated[
        str,
        typer.Option(help="Penalty on large coefficients: a number, or auto: by the known noise."),
    ] = "auto",
    no_intercept: Annotated[
        bool, typer.Option("--no-intercept", help="Fit without an intercept.")
    ] = False,
    rows: Annotated[
        Path | None, typer.Option(help="A table of your own labelled rows, used in addition.")
    ] = None,
    rows_noise_sd: Annotated[
        float, typer.Option(help="Known noise on the labels of --rows, a standard deviation.")
    ] = 0.0,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the coefficients: .html, .svg or .png.")
    ] = None,
    memory_limit: MemoryLimit = None,
    engine: Engine = "local",
    spark: SparkSettings = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit a row-level model to a release, with error bars that account for all noise.

    Example: [bold]bagwise fit out --family poisson -o model.json --plot coefficients.html[/]

    On Spark, by bag loss: [bold]bagwise fit out --engine spark -o model.json[/]
    """
    from bagwise.learn import fit_release
    from bagwise.learn.from_release import error_to_expect
    from bagwise.release.release import Release

    for path in (output, *([] if plot is None else [plot])):
        check_file(path, force=force)
    on_spark = is_spark(engine, spark)
    if on_spark:
        options = {"--model": model != "glm", "--debias": debias,
                   "--rows": rows is not None}  # fmt: skip
        if asked := [name for name, given in options.items() if given]:
            raise StrategyError(f"not on Spark yet: {asked[0]}. Leave out --engine spark.")
    check_name("--model", model, ("glm", "boosted"))
    if model == "boosted":
        options = {"--link": link != "canonical", "--loss": loss != "auto", "--debias": debias,
                   "--ridge": ridge != "auto", "--no-intercept": no_intercept,
                   "--plot": plot is not None}  # fmt: skip
        refuse_for_trees(name for name, given in options.items() if given)
        fit_trees(
            directory, output, family=family, target=target, rows=rows,
            rows_noise_sd=rows_noise_sd, force=force, quiet=quiet, as_json=as_json,
        )  # fmt: skip
        return
    with show_progress(quiet or as_json, steps=3) as on_stage:
        on_stage("reading the release")
        if on_spark:
            fitted = _fit_on_spark(
                directory, spark, family=family, link=link, loss=loss, target=target,
                ridge=_read_ridge(ridge), fit_intercept=not no_intercept,
            )  # fmt: skip
        else:
            loaded = Release.load(directory)
            loaded.verify()
            on_stage("fitting")
            fitted = fit_release(
                loaded,
                family=family,
                link=link,
                loss=loss,
                target=target,
                debias=debias,
                ridge=_read_ridge(ridge),
                fit_intercept=not no_intercept,
                rows=rows,
                rows_noise_sd=rows_noise_sd,
                memory_limit=memory_limit,
            )
        found = fitted.summary(level=level)
        expected = None if on_spark else error_to_expect(fitted, loaded)
        on_stage("writing the model")
        if plot is not None:
            found.save_plot(plot, force=force)
        fitted.save(output, force=force)
    if as_json:
        emit({"path": str(output), **found.to_json(), **to_plain(fitted.trained_on)})
    elif not quiet:
        print_grid(f"Model in {output}: {found.title}", found.cells())
        say(found.note)
        if expected:
            say(expected)
        say_next(["bagwise", "predict", output, "TABLE", "-o", "predictions.parquet"])


def _fit_on_spark(directory: Path, settings: list[str] | None, **options: Any) -> "RowModel":
    from bagwise.learn.on_spark import fit_on_spark

    return fit_on_spark(
        directory, spark=parse_settings(settings or [], option="--spark"), **options
    )


def _read_ridge(text: str) -> float | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise StrategyError(f"--ridge is a number or auto, got {text!r}.") from None


def release_model(
    table: Tables,
    label: Label,
    epsilon: Annotated[
        float,
        typer.Option(
            help="How private: smaller is more private, about 1 is usual (label-DP epsilon)."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")],
    delta: Annotated[
        float | None,
        typer.Option(
            help="Chance that more is revealed, far below 1/rows (label-DP delta). Default: none."
        ),
    ] = None,
    bounds: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Public range LO HI of a label. auto: found privately."),
    ] = None,
    family: Annotated[
        str,
        typer.Option(help="What a label is: {families} but multinomial."),
    ] = "gaussian",
    link: Annotated[
        str, typer.Option(help="auto: canonical, or log where that needs positive predictors.")
    ] = "auto",
    tighten: Tighten = "auto",
    unit: Unit = None,
    features: Features = None,
    exclude: Exclude = None,
    nulls: Nulls = "indicator",
    max_levels: MaxLevels = 32,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    memory_limit: MemoryLimit = None,
    query: SqlQuery = None,
    read: Read = None,
    ledger: LedgerFile = None,
    chosen_by: ChosenBy = "all",
    anew: Anew = False,
    yes: Yes = False,
    notes: Notes = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Release a private model instead of bags, with error bars, if a model is all you need.

    Example: [bold]bagwise release-model visits.csv --label visits --family poisson --bounds 0 40
    --epsilon 1 --delta 1e-6 -o model.json[/]
    """
    from bagwise.api import release_model as make

    check_file(output, force=force)
    start_notes(notes, output)
    charged = open_ledger(ledger, chosen_by, anew, file_reserve(output, force=force))
    with show_progress(quiet or as_json, steps=6) as on_stage:
        model = make(
            source_of(table, query, read),
            label=label,
            bounds=read_bounds(bounds),
            epsilon=epsilon,
            delta=delta,
            family=family,
            link=link,
            unit=unit,
            features=split_names(features),
            exclude=split_names(exclude) or (),
            privacy=Privacy(tighten=cast(Any, tighten)),  # checked with the request
            reading=Reading(nulls=nulls, max_levels=max_levels),
            engine=EngineSettings(
                memory_limit=memory_limit, spill=output.absolute().parent, on_stage=on_stage
            ),
            ledger=charged,
            confirmed=confirmation(
                yes=yes, dry_run=False, quiet=quiet, as_json=as_json, piped="-" in table
            ),
        )
        model.save(output, force=force)
        receipt = keep_in(charged, output, model)
    found = model.summary(level=level)
    headline = None if model.certificate is None else model.certificate.headline
    if as_json:
        emit({"path": str(output), "privacy": headline, **found.to_json()})
    elif not quiet:
        print_grid(f"Model in {output}: {headline}", found.cells())
        say(found.note)
        if receipt:
            say(receipt)
        say_where_notes_are(notes)
        say_next(["bagwise", "predict", output, "TABLE", "-o", "predictions.parquet"])


def predict(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    table: Tables,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write: .parquet or .csv.")
    ],
    id_: Annotated[
        str | None, typer.Option("--id", help="Column to copy beside the predictions.")
    ] = None,
    rate: Annotated[
        bool,
        typer.Option("--rate", help="For a model with an exposure: predict per unit of it."),
    ] = False,
    no_clip: Annotated[
        bool,
        typer.Option(
            "--no-clip", help="Do not clip predictions to the stated bounds of the label."
        ),
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(help="Add a range that has this share of the labels, such as 0.9."),
    ] = None,
    memory_limit: MemoryLimit = None,
    engine: Engine = "local",
    spark: SparkSettings = None,
    query: SqlQuery = None,
    read: Read = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Predict the label of every row of a table.

    Example: [bold]bagwise predict model.json new.parquet -o predictions.parquet[/]

    On Spark, to a directory: [bold]bagwise predict model.json new/ --engine spark -o predictions[/]
    """
    from bagwise.models import load_model
    from bagwise.rows.opening import open_rows
    from bagwise.rows.sources import open_source
    from bagwise.rows.sources.arrow_files import DatasetSource, ParquetFiles
    from bagwise.rows.spilled import Memory
    from bagwise.rows.table import write_table

    if is_spark(engine, spark):
        if interval is not None:
            raise StrategyError("not on Spark yet: --interval. Leave out --engine spark.")
        _predict_on_spark(
            model, table, output, spark, id=id_, rate=rate, clip=not no_clip, force=force
        )
        return
    check_file(output, force=force)
    loaded = load_model(model)
    with show_progress(quiet or as_json, steps=2) as on_stage:
        on_stage("reading the table")
        source = open_source(source_of(table, query, read))
        # Files that can be read in parts are: nothing of them has to be written elsewhere.
        if memory_limit is None and isinstance(source, ParquetFiles | DatasetSource):
            memory_limit = READ_IN_PARTS
        memory = Memory.of(memory_limit, output.absolute().parent)
        rows = open_rows(source, memory=memory)
        on_stage("predicting and writing")
        parts = loaded.predict_parts(rows, id=id_, rate=rate, clip=not no_clip, interval=interval)
        n_rows = write_table(parts, output, force=force)
    if as_json:
        emit({"path": str(output), "rows": n_rows})
    elif not quiet:
        say(f"{n_rows} predictions in {output}")


def _predict_on_spark(
    model: Path,
    tables: list[str],
    output: Path,
    settings: list[str] | None,
    *,
    id: str | None,
    rate: bool,
    clip: bool,
    force: bool,
) -> None:
    """Write predictions as a directory of Parquet files, by the tasks of Spark."""
    from bagwise.models import load_model
    from bagwise.models.model import predict_on_spark
    from bagwise.rows.spark.session import open_session
    from bagwise.rows.spark.tasks import run_job

    if output.exists() or force:
        raise OutputExistsError(
            f"{output} must be a new directory; nothing is replaced on Spark. Choose another name."
        )
    loaded = load_model(model)
    session = open_session(parse_settings(settings or [], option="--spark"))
    frame = run_job(lambda: session.read.parquet(*tables))
    predicted = predict_on_spark(loaded, frame, id=id, rate=rate, clip=clip)
    run_job(lambda: predicted.write.parquet(str(output.absolute())))


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...", help="A labelled table, or a release.", show_default=False
        ),
    ],
    label: Annotated[
        str | None, typer.Option(help="Label column of the table. Default: the model's.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Score confidential labels privately; every evaluation spends this much."
        ),
    ] = None,
    bounds: Annotated[
        tuple[str, str] | None,
        typer.Option(help="With --epsilon: public range of a label. auto: found privately."),
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="With --epsilon: squared (the default) or absolute.")
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(help="With --epsilon: the largest loss that one row may contribute."),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="With --epsilon: column naming people with several rows.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="With --epsilon: file for scores and certificate."),
    ] = None,
    query: SqlQuery = None,
    read: Read = None,
    ledger: LedgerFile = None,
    chosen_by: ChosenBy = "all",
    anew: Anew = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Score a model on rows with labels, or on the bags of a release.

    Without --epsilon, scores on rows are exact: they belong with the labels.

    Example: [bold]bagwise evaluate model.json holdout.csv --label rent[/]

    Privately: [bold]bagwise evaluate model.json holdout.csv --label rent --bounds 0 5000
    --epsilon 0.5 -o scores.json[/]
    """
    from bagwise.models import load_model

    where = "the rows of a query" if query is not None else ", ".join(data)
    if epsilon is None:
        options = {
            "--bounds": bounds,
            "--loss": loss,
            "--clip": clip,
            "--unit": unit,
            "--output": output,
        }
        if given := [name for name, value in options.items() if value is not None]:
            raise BudgetError(
                f"{', '.join(given)}: only for a private evaluation. "
                "Add --epsilon, or leave this out."
            )
        scores, expected = _score_openly(load_model(model), data, query, read, label)
        if as_json:
            emit(scores)
        elif not quiet:
            _print_exact(scores, f"{model} on {where}", expected)
        return
    from bagwise.scoring.privately import evaluate_rows_privately

    if _release_in(data) is not None:
        raise BudgetError(
            f"{where} is a release, whose bag labels are public, so that scoring on them costs "
            "nothing: leave out --epsilon. Or give a table with secret labels."
        )
    if output is not None:
        check_file(output, force=force)
    charged = open_ledger(ledger, chosen_by, anew, file_reserve(output, force=force))
    with show_progress(quiet or as_json, steps=4) as on_stage:
        found = evaluate_rows_privately(
            load_model(model),
            source_of(data, query, read),
            epsilon=epsilon,
            bounds=read_bounds(bounds),
            label=label,
            loss=loss or "squared",
            clip=clip,
            unit=unit,
            ledger=charged,
            on_stage=on_stage,
        )
    if output is not None:
        found.save(output, force=force)
    receipt = keep_in(charged, output, found)
    if as_json:
        emit(found.to_json())
    elif not quiet:
        kept = None if output is None else f"Scores and certificate are in {output}."
        _print_private(found, f"{model} on {where}", kept, receipt)


def _score_openly(
    model: "RowModel | TreeModel",
    data: list[str],
    query: str | None,
    read: list[str] | None,
    label: str | None,
) -> tuple[dict[str, Any], str | None]:
    """Return scores, and a sentence on the error of one prediction."""
    from bagwise.learn.from_release import error_to_expect
    from bagwise.release.release import Release
    from bagwise.scoring.openly import evaluate_release, evaluate_rows

    release = _release_in(data)
    if release is None:
        found = evaluate_rows(model, source_of(data, query, read), label=label)
        return found.to_json(), found.text()
    if label is not None:
        raise StrategyError("--label belongs to a table; a release has only bag labels.")
    checked = Release.load(release)
    checked.verify()
    return evaluate_release(model, checked).to_json(), error_to_expect(model, checked)


def _release_in(data: list[str]) -> Path | None:
    """Return the directory of a release, if that is what was given; others may hold tables."""
    from bagwise.release.files import MANIFEST

    path = Path(data[0])
    return path if len(data) == 1 and (path / MANIFEST).is_file() else None


def _print_exact(scores: Mapping[str, Any], title: str, expected: str | None) -> None:
    print_pairs(title, {name: readable(value) for name, value in scores.items()})
    if expected:
        say(expected)
    if "privacy" in scores:  # not those on bags, which are public already
        out.print(_EXACT_SCORES, soft_wrap=True, highlight=False)


def _print_private(found: "PrivateScores", title: str, *notes: str | None) -> None:
    low, high = found.interval
    familiar = {"rmse": found.rmse} if found.loss == "squared" else {"mae": found.mae}
    scores = {
        "privacy": found.certificate.headline,
        "n_rows": found.n_rows,
        f"mean {found.loss} loss": f"{found.mean_loss:.4g}",
        "95 % interval": f"{low:.4g} to {high:.4g} (for the privacy noise only)",
        "sd of the privacy noise": f"{found.noise_sd:.3g}",
        **{name: readable(value) for name, value in familiar.items()},
    }
    print_pairs(title, scores)
    for remark in found.certificate.remarks:
        say(f"Note: {remark}")
    for note in notes:
        if note:
            say(note)
