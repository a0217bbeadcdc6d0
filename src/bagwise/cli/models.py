"""The verbs about models: fit, explain, release-model, predict and evaluate."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bagwise.cli.console import (
    emit,
    out,
    print_grid,
    print_pairs,
    readable,
    safe,
    say,
    show_progress,
)
from bagwise.cli.options import (
    AsJson,
    BoundsFile,
    Exclude,
    Features,
    Force,
    Label,
    MaxLevels,
    Nulls,
    Quiet,
    TablePath,
    Unit,
    read_bounds,
    split_names,
)
from bagwise.errors import BudgetError, StrategyError
from bagwise.files.atomic import check_file
from bagwise.files.records import to_plain

if TYPE_CHECKING:
    from bagwise.evaluate.privately import PrivateScores
    from bagwise.models.row_model import RowModel


_EXACT_SCORES = (
    "Exact scores describe the labels of these rows: keep them with the labels, or give --epsilon "
    "for scores that may leave."
)


def fit(
    directory: Annotated[Path, typer.Argument(help="A release directory.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")] = Path(
        "model.json"
    ),
    family: Annotated[
        str,
        typer.Option(help="What a label is. auto: gaussian, or multinomial; {families}."),
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
    no_intercept: Annotated[bool, typer.Option("--no-intercept", help="Fit without one.")] = False,
    rows: Annotated[
        Path | None, typer.Option(help="A table of your own rows with labels, used as well.")
    ] = None,
    rows_noise_sd: Annotated[
        float, typer.Option(help="Known noise on the labels of --rows, a standard deviation.")
    ] = 0.0,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the coefficients: .html, .svg or .png.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit a row-level model to a release, with error bars that hold all of its noise.

    Example: [bold]bagwise fit out --family poisson -o model.json --plot coefficients.html[/]
    """
    from bagwise.learn import fit_release
    from bagwise.release.release import Release

    for path in (output, *([] if plot is None else [plot])):
        check_file(path, force=force)
    with show_progress(quiet or as_json, steps=3) as on_stage:
        on_stage("reading the release")
        loaded = Release.load(directory)
        loaded.verify()
        on_stage("fitting")
        model = fit_release(
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
        )
        found = model.summary(level=level)
        on_stage("writing the model")
        if plot is not None:
            found.save_plot(plot, force=force)
        model.save(output, force=force)
    if as_json:
        emit({"path": str(output), **found.to_json(), **to_plain(model.trained_on)})
    elif not quiet:
        print_grid(f"Model in {output}: {found.title}", found.cells())
        say(found.note)
        out.print(f"Next: [bold]bagwise predict {safe(output)} TABLE -o predictions.parquet[/]")


def _read_ridge(text: str) -> float | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise StrategyError(f"--ridge is a number or auto, got {text!r}.") from None


def explain(
    directory: Annotated[Path, typer.Argument(help="A release directory.")],
    family: Annotated[str, typer.Option(help="Distribution of a label, as for fit.")] = "auto",
    link: Annotated[str, typer.Option(help="canonical or log, as for fit.")] = "canonical",
    loss: Annotated[str, typer.Option(help="auto, bag, aggregate, instance or debiased.")] = "auto",
    target: Annotated[
        str | None, typer.Option(help="The class to predict, for a label with classes.")
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(help="How much a label varies around the model. Default: from a fit."),
    ] = None,
    misfit: Annotated[
        float,
        typer.Option(help="What the model is believed to lack, a share of the signal's variance."),
    ] = 0.05,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Explain where the error of a model of this release comes from, before fitting one.

    Coefficients, and the label noise unless given, are taken from a fit to the release itself.

    Example: [bold]bagwise explain out --sigma 120[/]
    """
    from bagwise.learn.from_release import explain_by_fit
    from bagwise.release.release import Release

    with show_progress(quiet or as_json, steps=2) as on_stage:
        on_stage("reading the release")
        loaded = Release.load(directory)
        loaded.verify()
        on_stage("explaining")
        found = explain_by_fit(
            loaded,
            family=family,
            link=link,
            loss=loss,
            target=target,
            sigma=sigma,
            misfit=misfit,
        )
    if as_json:
        emit(found.to_json())
    elif not quiet:
        print_grid("Expected squared error", found.table())
        say(found.text())


def release_model(
    table: TablePath,
    label: Label,
    epsilon: Annotated[float, typer.Option(help="Label-DP epsilon to deliver.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")],
    delta: Annotated[
        float | None, typer.Option(help="Label-DP delta, far below 1/rows. Default: none at all.")
    ] = None,
    bounds: Annotated[
        tuple[float, float] | None, typer.Option(help="Public range LO HI of a label.")
    ] = None,
    bounds_file: BoundsFile = None,
    family: Annotated[
        str,
        typer.Option(help="What a label is: {families} but multinomial."),
    ] = "gaussian",
    link: Annotated[
        str, typer.Option(help="auto: canonical, or log where that needs positive predictors.")
    ] = "auto",
    unit: Unit = None,
    features: Features = None,
    exclude: Exclude = None,
    nulls: Nulls = "indicator",
    max_levels: MaxLevels = 32,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Release a private model instead of bags, with error bars: for when a model is all you need.

    Example: [bold]bagwise release-model visits.csv --label visits --family poisson --bounds 0 40
    --epsilon 1 --delta 1e-6 -o model.json[/]
    """
    from bagwise.api import release_model as make

    check_file(output, force=force)
    with show_progress(quiet or as_json, steps=6) as on_stage:
        model = make(
            table,
            label=label,
            bounds=read_bounds(bounds, bounds_file),
            epsilon=epsilon,
            delta=delta,
            family=family,
            link=link,
            unit=unit,
            features=split_names(features),
            exclude=split_names(exclude) or (),
            nulls=nulls,
            max_levels=max_levels,
            on_stage=on_stage,
        )
        found = model.summary(level=level)
        model.save(output, force=force)
    headline = None if model.certificate is None else model.certificate.headline
    if as_json:
        emit({"path": str(output), "privacy": headline, **found.to_json()})
    elif not quiet:
        print_grid(f"Model in {output}: {headline}", found.cells())
        say(found.note)
        out.print(f"Next: [bold]bagwise predict {safe(output)} TABLE -o predictions.parquet[/]")


def predict(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    table: Annotated[Path, typer.Argument(help="A table with the model's feature columns.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to: .parquet or .csv.")],
    id_: Annotated[
        str | None, typer.Option("--id", help="Column to copy beside the predictions.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Predict the label of every row of a table.

    Example: [bold]bagwise predict model.json new.parquet -o predictions.parquet[/]
    """
    from bagwise.data.table import read_table, write_table
    from bagwise.models.row_model import RowModel

    check_file(output, force=force)
    loaded = RowModel.load(model)
    with show_progress(quiet or as_json, steps=3) as on_stage:
        on_stage("reading the table")
        rows = read_table(table)
        on_stage("predicting")
        predictions = loaded.predict_table(rows, id=id_)
        on_stage("writing")
        write_table(predictions, output, force=force)
    if as_json:
        emit({"path": str(output), "rows": predictions.num_rows})
    elif not quiet:
        say(f"{predictions.num_rows} predictions in {output}")


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    data: Annotated[Path, typer.Argument(help="A labelled table, or a release directory.")],
    label: Annotated[
        str | None, typer.Option(help="Label column of the table. Default: the model's.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Score secret labels privately; this is spent on every evaluation."),
    ] = None,
    bounds: Annotated[
        tuple[float, float] | None, typer.Option(help="With --epsilon: public range of a label.")
    ] = None,
    bounds_file: BoundsFile = None,
    loss: Annotated[
        str | None, typer.Option(help="With --epsilon: squared (the default) or absolute.")
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(help="With --epsilon: largest loss that one row counts with."),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="With --epsilon: column naming people with several rows.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="With --epsilon: file for scores and certificate."),
    ] = None,
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
    from bagwise.models.row_model import RowModel

    if epsilon is None:
        _refuse_without_epsilon(
            {
                "--bounds": bounds,
                "--bounds-file": bounds_file,
                "--loss": loss,
                "--clip": clip,
                "--unit": unit,
                "--output": output,
            }
        )
        scores = _score_openly(RowModel.load(model), data, label)
        if as_json:
            emit(scores)
        elif not quiet:
            _print_exact(scores, f"{model} on {data}")
        return
    from bagwise.evaluate.privately import evaluate_rows_privately

    if data.is_dir():
        raise BudgetError(
            f"{data} is a directory. The bag labels of a release are public, so that scoring on "
            "them costs nothing: leave out --epsilon. Or give a table with secret labels."
        )
    if output is not None:
        check_file(output, force=force)
    with show_progress(quiet or as_json, steps=4) as on_stage:
        found = evaluate_rows_privately(
            RowModel.load(model),
            data,
            epsilon=epsilon,
            bounds=read_bounds(bounds, bounds_file),
            label=label,
            loss=loss or "squared",
            clip=clip,
            unit=unit,
            on_stage=on_stage,
        )
    if output is not None:
        found.save(output, force=force)
    if as_json:
        emit(found.to_json())
    elif not quiet:
        _print_private(found, f"{model} on {data}")
        if output is not None:
            say(f"Scores and certificate are in {output}.")


def _refuse_without_epsilon(options: Mapping[str, object]) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise BudgetError(
            f"{', '.join(given)}: only for a private evaluation. Add --epsilon, or leave this out."
        )


def _score_openly(model: "RowModel", data: Path, label: str | None) -> dict[str, Any]:
    from bagwise.evaluate.openly import evaluate_release, evaluate_rows
    from bagwise.release.release import Release

    if not data.is_dir():
        return evaluate_rows(model, data, label=label).to_json()
    if label is not None:
        raise StrategyError("--label belongs to a table; a release has only bag labels.")
    checked = Release.load(data)
    checked.verify()
    return evaluate_release(model, checked).to_json()


def _print_exact(scores: Mapping[str, Any], title: str) -> None:
    print_pairs(title, {name: readable(value) for name, value in scores.items()})
    if "privacy" in scores:  # not those on bags, which are public already
        out.print(_EXACT_SCORES, soft_wrap=True, highlight=False)


def _print_private(found: "PrivateScores", title: str) -> None:
    low, high = found.interval
    familiar = {"rmse": found.rmse} if found.loss == "squared" else {"mae": found.mae}
    scores = {
        "privacy": found.certificate.headline,
        "n_rows": found.n_rows,
        f"mean {found.loss} loss": f"{found.mean_loss:.6g}",
        "95 % interval": f"{low:.6g} to {high:.6g} (for the privacy noise only)",
        "sd of the privacy noise": f"{found.noise_sd:.3g}",
        **{name: readable(value) for name, value in familiar.items()},
    }
    print_pairs(title, scores)
    for remark in found.certificate.remarks:
        say(f"Note: {remark}")
