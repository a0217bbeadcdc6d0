"""The commands of a learner: fit, predict and evaluate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bagwise.cli.console import (
    answer,
    out,
    print_coefficients,
    print_grid,
    print_pairs,
    readable,
    say,
    say_next,
    show_progress,
)
from bagwise.cli.options import Charging, Promise, Tables, engine, refuse, shared, verb
from bagwise.cli.tables import file_reserve, keep_in, open_ledger, source_of
from bagwise.errors import BudgetError, OutputExistsError, StrategyError, check_name
from bagwise.files.records import to_plain

if TYPE_CHECKING:
    from bagwise.scoring.privately import PrivateScores

NOT_ON_SPARK = "not on Spark yet. Leave out --engine spark."

_EXACT_SCORES = (
    "Exact scores describe the labels of these rows: keep them as confidential as the labels, or "
    "add --epsilon for scores that may be published."
)


@verb("force memory_limit engine spark")
def fit(
    directory: Annotated[Path, typer.Argument(help="A release directory.")],
    output: Annotated[Path, "Model file to write."] = Path("model.json"),
    model: Annotated[str, "glm: coefficients with error bars; boosted: trees."] = "glm",
    family: Annotated[
        str, "Kind of label. auto: gaussian, multinomial or poisson; {families}."
    ] = "auto",
    loss: Annotated[str, "auto, bag, instance, aggregate, or mixture for picked labels."] = "auto",
    target: Annotated[str | None, "With classes: fit this class against the rest."] = None,
    debias: Annotated[bool, "Correct the shrinkage of instance loss."] = False,
    rows: Annotated[Path | None, "A table of your own labelled rows, used as well."] = None,
    level: Annotated[float, "Confidence level of the intervals."] = 0.95,
    plot: Annotated[Path | None, "Plot of the coefficients to write: .html, .svg or .png."] = None,
) -> None:
    """Fit a row-level model to a release, with error bars that account for all noise.

    Example: [bold]bagwise fit out --family poisson -o model.json --plot coefficients.html[/]

    On Spark, by bag loss: [bold]bagwise fit out --engine spark -o model.json[/]
    """
    # 1. Refuse what would fail at the end, before anything is read.
    force, work = shared().force, engine()
    for path in (output, plot):
        file_reserve(path)
    check_name("--model", model, ("glm", "boosted"))
    if model == "boosted":
        linear = {"--loss": loss != "auto", "--plot": plot}
        refuse(
            {**linear, "--debias": debias},
            "only for --model glm. Trees have no coefficients, and always compare bag labels with "
            "mean predictions. Leave this out.",
        )
    if work.name == "spark":
        refuse({"--model": model != "glm", "--rows": rows, "--debias": debias}, NOT_ON_SPARK)

    # 2. Fit, by the tasks of Spark or here, and write the model.
    options: dict[str, Any] = {"family": family, "target": target}
    expected = None
    with show_progress(steps=3) as on_stage:
        on_stage("reading the release")
        if work.name == "spark":
            from bagwise.learn.on_spark import fit_on_spark

            fitted: Any = fit_on_spark(directory, spark=work.spark, loss=loss, **options)
        else:
            from bagwise.learn.from_release import error_to_expect, fit_release
            from bagwise.learner import fit_trees, load_release

            loaded = load_release(directory)
            on_stage("fitting")
            if model == "boosted":
                trees = fit_trees(loaded, rows=rows, **options)
                fitted, ways = trees.to_trees(), trees.estimator.ways_
            else:
                fitted = fit_release(
                    loaded,
                    loss=loss,
                    debias=debias,
                    rows=rows,
                    memory_limit=work.memory_limit,
                    **options,
                )
                expected = error_to_expect(fitted, loaded)
        on_stage("writing the model")
        summary = None if model == "boosted" else fitted.summary(level=level)
        if plot is not None and summary is not None:
            summary.save_plot(plot, force=force)
        fitted.save(output, force=force)

    # 3. Show what was learned.
    facts = {"trees": fitted.n_trees, "ways": ways} if summary is None else summary.to_json()
    if answer({"path": str(output), **facts, **to_plain(fitted.trained_on)}):
        if summary is None:
            print_grid(f"Boosted trees in {output}: {fitted.n_trees} trees", _cells(ways))
        else:
            print_coefficients(f"Model in {output}: {summary.title}", summary)
            say(summary.note)
        if expected:
            say(expected)
        say_next(["bagwise", "predict", output, "TABLE", "-o", "predictions.parquet"])


def _cells(ways: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return what boosting has tried as a table."""
    heading = ("start", "leaves", "cuts", "rounds", "error on held-out bags", "weight")
    rows = [
        (way["start"], str(way["leaves"]), "drawn" if way["random_cuts"] else "best",
         str(way["rounds"]), f"{way['error']:.5g}", f"{way['weight']:.2f}")
        for way in ways
    ]  # fmt: skip
    return [heading, *rows]


@verb("force query read memory_limit engine spark")
def predict(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    table: Tables,
    output: Annotated[Path, "File to write: .parquet or .csv."],
    id: Annotated[str | None, "Column to copy beside the predictions.", "COLUMN"] = None,
    rate: Annotated[bool, "For a model with an exposure: predict the rate."] = False,
    interval: Annotated[
        float | None, "Add a range that contains this share of the labels, such as 0.9."
    ] = None,
    mae: Annotated[
        float | None, "The mean absolute error that `evaluate` measured: ranges rest on it."
    ] = None,
    no_clip: Annotated[bool, "Do not clip predictions to the stated bounds of the label."] = False,
) -> None:
    """Predict the label of every row of a table.

    Example: [bold]bagwise predict model.json new.parquet -o predictions.parquet[/]

    On Spark, to a directory: [bold]bagwise predict model.json new/ --engine spark -o predictions[/]
    """
    from bagwise import load_model
    from bagwise.models.model import open_in_parts
    from bagwise.rows.table import write_table

    options: dict[str, Any] = {"id": id, "rate": rate, "clip": not no_clip}
    if engine().name == "spark":
        refuse({"--interval": interval, "--mae": mae}, NOT_ON_SPARK)
        _predict_on_spark(load_model(model), table, output, options)
        return
    file_reserve(output)
    loaded = load_model(model)
    with show_progress(steps=2) as on_stage:
        on_stage("reading the table")
        spill, limit = output.absolute().parent, engine().memory_limit
        rows = open_in_parts(source_of(table), limit=limit, spill=spill)
        on_stage("predicting and writing")
        parts = loaded.predict_parts(rows, interval=interval, mae=mae, **options)
        n_rows = write_table(parts, output, force=shared().force)
    if answer({"path": str(output), "rows": n_rows}):
        say(f"{n_rows} predictions in {output}")


def _predict_on_spark(model: Any, tables: list[str], output: Path, options: dict[str, Any]) -> None:
    """Write predictions as a directory of Parquet files, by the tasks of Spark."""
    from bagwise import predict_on_spark
    from bagwise.rows.spark.session import open_session
    from bagwise.rows.spark.tasks import run_job

    if output.exists() or shared().force:
        raise OutputExistsError(
            f"{output} must be a new directory; nothing is replaced on Spark. Choose another name."
        )
    session = open_session(engine().spark or {})
    frame = run_job(lambda: session.read.parquet(*tables))
    predicted = predict_on_spark(model, frame, **options)
    run_job(lambda: predicted.write.parquet(str(output.absolute())))


@verb("force query read")
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    data: Annotated[
        list[str],
        typer.Argument(metavar="TABLE", help="A labelled table, or a release.", show_default=False),
    ],
    promise: Annotated[Promise, "bounds epsilon unit"],
    charging: Charging,
    label: Annotated[
        str | None, "Label column of the table. Default: the model's.", "COLUMN"
    ] = None,
    loss: Annotated[str | None, "With --epsilon: squared (the default) or absolute."] = None,
    clip: Annotated[
        float | None, "With --epsilon: the largest loss that one row may contribute."
    ] = None,
    output: Annotated[Path | None, "With --epsilon: file for scores and certificate."] = None,
) -> None:
    """Score a model on rows with labels, or on the bags of a release.

    Without --epsilon, scores on rows are exact and must stay confidential. With --epsilon, labels
    within --bounds are scored privately, and every evaluation spends this epsilon.

    Example: [bold]bagwise evaluate model.json holdout.csv --label rent[/]

    Privately: [bold]bagwise evaluate model.json holdout.csv --label rent --bounds 0 5000
    --epsilon 0.5 -o scores.json[/]
    """
    from bagwise.release.files import MANIFEST

    # 1. Without an epsilon, scores are exact; bag labels of a release are public anyway.
    where = "the rows of a query" if shared().query is not None else ", ".join(data)
    # Other directories may hold tables.
    is_release = len(data) == 1 and (Path(data[0]) / MANIFEST).is_file()
    if promise.epsilon is None:
        refuse(
            {"--bounds": promise.bounds, "--loss": loss, "--clip": clip, "--unit": promise.unit,
             "--output": output},
            "only for a private evaluation. Add --epsilon, or leave this out.",
        )  # fmt: skip
        if is_release and label is not None:
            raise StrategyError("--label is for tables; a release has only bag labels.")
        _evaluate_openly(model, data, label, f"{model} on {where}", is_release=is_release)
        return
    if is_release:
        raise BudgetError(
            f"{where} is a release. Its bag labels are public, so scoring on them costs nothing: "
            "leave out --epsilon, or name a table with confidential labels."
        )
    # 2. With one, score the rows privately, and charge it.
    from bagwise import load_model
    from bagwise.scoring.privately import evaluate_rows_privately

    ledger = open_ledger(charging, file_reserve(output))
    with show_progress(steps=4) as on_stage:
        scores = evaluate_rows_privately(
            load_model(model),
            source_of(data),
            epsilon=promise.epsilon,
            bounds=promise.bounds,
            unit=promise.unit,
            label=label,
            loss=loss or "squared",
            clip=clip,
            ledger=ledger,
            on_stage=on_stage,
        )
    if output is not None:
        scores.save(output, force=shared().force)
    receipt = keep_in(ledger, output, scores)
    if answer(scores.to_json()):
        kept = "" if output is None else f"Scores and certificate are in {output}."
        _print_private(scores, f"{model} on {where}", kept, receipt)


def _evaluate_openly(
    model: Path, data: list[str], label: str | None, title: str, *, is_release: bool
) -> None:
    """Print scores on rows, or on the bags of a release, and the error of one prediction."""
    from bagwise import load_model, load_release
    from bagwise.learn.from_release import error_to_expect
    from bagwise.scoring.openly import evaluate_release, evaluate_rows

    loaded = load_model(model)
    if is_release:
        bags = load_release(data[0])
        scores, expected = evaluate_release(loaded, bags).to_json(), error_to_expect(loaded, bags)
    else:
        rows = evaluate_rows(loaded, source_of(data), label=label)
        scores, expected = rows.to_json(), rows.text()
    if answer(scores):
        print_pairs(title, {name: readable(score) for name, score in scores.items()})
        if expected:
            say(expected)
        if "privacy" in scores:  # not those on bags, which are public already
            out.print(_EXACT_SCORES, soft_wrap=True, highlight=False)


def _print_private(scores: "PrivateScores", title: str, *notes: str) -> None:
    low, high = scores.interval
    familiar = {"rmse": scores.rmse} if scores.loss == "squared" else {"mae": scores.mae}
    shown = {
        "privacy": scores.certificate.headline,
        "n_rows": scores.n_rows,
        f"mean {scores.loss} loss": f"{scores.mean_loss:.4g}",
        "95 % interval": f"{low:.4g} to {high:.4g} (for the privacy noise only)",
        "sd of the privacy noise": f"{scores.noise_sd:.3g}",
        **{name: readable(value) for name, value in familiar.items()},
    }
    print_pairs(title, shown)
    for remark in scores.certificate.remarks:
        say(f"Note: {remark}")
    for note in filter(None, notes):
        say(note)
