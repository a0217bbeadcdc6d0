"""The command line: parse, call one public function, print. No arithmetic here.

Heavy modules are imported inside the verbs, so that help does not wait for them.

Exit codes: 0 done; 1 something unforeseen; 2 bad input or a release that does not verify;
3 a valid release that is less private than asked; 130 interrupted.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from bagwise._console import (
    LESS_PRIVATE_THAN_ASKED,
    emit,
    fail,
    guarded,
    out,
    print_pairs,
    readable,
    show_progress,
)
from bagwise._version import __version__
from bagwise.atomic import check_file
from bagwise.errors import StrategyError

if TYPE_CHECKING:
    from bagwise.quality import BagQuality
    from bagwise.release import Release

P = ParamSpec("P")

app = typer.Typer(
    name="bagwise",
    help="Share bags of rows with one aggregate label each; learn row-level models from them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they print local variables, and those hold labels
    rich_markup_mode="rich",
)
TablePath = Annotated[Path, typer.Argument(help="A .parquet, .csv or .arrow file.")]
Label = Annotated[str, typer.Option(help="The column to protect.")]
Unit = Annotated[
    str | None, typer.Option(help="Column naming people with several rows; it does not leave.")
]
Features = Annotated[
    str | None, typer.Option(help="Feature columns, separated by commas. Default: all.")
]
Exclude = Annotated[str | None, typer.Option(help="Columns to leave out, separated by commas.")]
BoundsFile = Annotated[
    Path | None, typer.Option(help="Bounds found by `bagwise bounds`; what they cost counts.")
]
Nulls = Annotated[str, typer.Option(help="Missing features: indicator or error.")]
MaxLevels = Annotated[int, typer.Option(help="Levels of a text column before pooling.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing output.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]


def main() -> None:
    """Run the command line."""
    app()


def command(run: Callable[P, None]) -> Callable[P, None]:
    """Register a verb under its name."""
    app.command(name=run.__name__.replace("_", "-"))(guarded(run))
    return run


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"bagwise {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    del version


@command
def release(
    table: TablePath,
    label: Label,
    bag_size: Annotated[int, typer.Option(help="Smallest number of rows in a bag.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write.")],
    bounds: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Public range LO HI of a label; labels outside are clipped."),
    ] = None,
    bounds_file: BoundsFile = None,
    epsilon: Annotated[float | None, typer.Option(help="Label-DP epsilon to deliver.")] = None,
    delta: Annotated[float | None, typer.Option(help="Label-DP delta, far below 1/rows.")] = None,
    not_private: Annotated[
        bool, typer.Option("--not-private", help="Release exact aggregates, without noise.")
    ] = False,
    classes: Annotated[
        str | None, typer.Option(help="Public classes of a label that is not a number, by commas.")
    ] = None,
    label_kind: Annotated[
        str, typer.Option(help="mean: average of a bag's labels; pick: the label of one row.")
    ] = "mean",
    strategy: Annotated[
        str,
        typer.Option(
            help="How rows are put together: auto, random, kmeans, optimal, sorted, super."
        ),
    ] = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Strategy parameter NAME=VALUE; repeatable.")
    ] = None,
    scores: Annotated[
        str, typer.Option(help="What bags are sorted by: auto, none, labels, noisy-labels, model.")
    ] = "auto",
    score_share: Annotated[
        float | None, typer.Option(help="Share of the budget for scores. Default: the best.")
    ] = None,
    unit: Unit = None,
    features: Features = None,
    exclude: Exclude = None,
    id_: Annotated[
        str | None, typer.Option("--id", help="Public key column that leaves with the rows.")
    ] = None,
    keep_order: Annotated[
        bool, typer.Option("--keep-order", help="Do not shuffle the rows; recorded.")
    ] = False,
    nulls: Nulls = "indicator",
    max_levels: MaxLevels = 32,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the partition only; recorded in the release.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Turn a labelled table into a release directory.

    Example: [bold]bagwise release rents.parquet --label rent --bounds 0 5000 --bag-size 50
    --epsilon 1 --delta 1e-6 -o out[/]
    """
    from bagwise.api import make_release
    from bagwise.release import check_output

    check_output(output, force=force)
    replaces = force and output.exists()
    with show_progress(quiet or as_json, steps=10) as on_stage:
        made = make_release(
            table,
            label=label,
            bag_size=bag_size,
            bounds=_read_bounds(bounds, bounds_file),
            classes=_split(classes),
            label_kind=label_kind,
            strategy=strategy,
            strategy_parameters=_parse_settings(set_ or []),
            scores=scores,
            score_share="auto" if score_share is None else score_share,
            unit=unit,
            epsilon=epsilon,
            delta=delta,
            not_private=not_private,
            features=_split(features),
            exclude=_split(exclude) or (),
            id=id_,
            keep_order=keep_order,
            seed=seed,
            nulls=nulls,
            max_levels=max_levels,
            on_stage=on_stage,
        )
        on_stage("measuring the bags")
        quality = _measure(made) if as_json or not quiet else None
        on_stage("writing the release")
        made.save(output, force=force)
    summary = made.summary()
    if as_json:
        emit({"path": str(output), **summary, "quality": quality and quality.to_dict()})
    elif not quiet:
        label_free = made.provenance["scores"] == "none"
        figures = quality.headlines(label_free=label_free) if quality else {}
        print_pairs(f"Release in {output}", summary | figures)
        for remark in made.certificate.remarks:
            out.print(f"Note: {escape(remark)}", soft_wrap=True, highlight=False)
        if made.certificate.is_private and replaces:
            out.print("Each private release spends epsilon anew: whoever saw the old one has both.")
        target = f" --target {made.classes[0]}" if made.classes else ""
        out.print(f"Next: [bold]bagwise verify {output}[/] · [bold]bagwise fit {output}{target}[/]")


@command
def bounds(
    table: TablePath,
    label: Label,
    epsilon: Annotated[float, typer.Option(help="What finding the bounds may spend.")],
    outside: Annotated[
        float, typer.Option(help="Share of labels that may lie beyond each bound.")
    ] = 0.001,
    unit: Unit = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for release --bounds-file.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Find label bounds privately, where nobody knows public ones. It spends epsilon.

    Example: [bold]bagwise bounds rents.csv --label rent --epsilon 0.1 -o bounds.json[/]
    """
    from bagwise.api import find_bounds

    if output is not None:
        check_file(output, force=force)
    found = find_bounds(table, label=label, epsilon=epsilon, outside=outside, unit=unit)
    if output is not None:
        found.save(output, force=force)
    low, high = found.bounds
    if as_json:
        emit({"bounds": [low, high], "epsilon": epsilon})
    elif not quiet:
        out.print(f"bounds {low:g} {high:g}, at epsilon {epsilon:g}", highlight=False)
        out.print(
            "This spent epsilon. Hand the file to release --bounds-file, which counts it in; "
            "given as --bounds it would not be counted.",
            soft_wrap=True,
        )


@command
def verify(
    directory: Annotated[Path, typer.Argument(help="A release directory.")],
    max_epsilon: Annotated[
        float | None, typer.Option(help="Exit with 3 if the release spends more.")
    ] = None,
    max_delta: Annotated[
        float | None, typer.Option(help="Exit with 3 if the release spends more.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Recheck a release: hashes, bag sizes, columns, and that the certificate adds up.

    Example: [bold]bagwise verify out --max-epsilon 1 --max-delta 1e-6[/]
    """
    from bagwise.release import Release

    loaded = Release.load(directory)
    found = loaded.verify()
    fits = loaded.certificate.within(max_epsilon=max_epsilon, max_delta=max_delta)
    if as_json:
        emit({**found.to_json(), "within_limits": fits})
    elif not quiet:
        for check in found.checks:
            out.print(f"[green]ok[/] {escape(check)}")
        out.print(f"[bold]{escape(loaded.certificate.text())}[/]", soft_wrap=True)
        out.print(f"digest {found.digest}\n{found.note}", soft_wrap=True, highlight=False)
    if not fits:
        fail(f"the release is valid, but {found.headline} is less private than asked for.", 0)
        raise typer.Exit(LESS_PRIVATE_THAN_ASKED)


@command
def fit(
    directory: Annotated[Path, typer.Argument(help="A release directory.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")] = Path(
        "model.json"
    ),
    family: Annotated[str, typer.Option(help="Distribution of a label: gaussian.")] = "gaussian",
    loss: Annotated[str, typer.Option(help="auto, bag, instance or aggregate.")] = "auto",
    target: Annotated[
        str | None, typer.Option(help="The class to predict, for a label with classes.")
    ] = None,
    debias: Annotated[
        bool, typer.Option("--debias", help="Undo the shrinkage of instance loss.")
    ] = False,
    ridge: Annotated[float, typer.Option(help="Penalty on the squared coefficients.")] = 0.0,
    no_intercept: Annotated[bool, typer.Option("--no-intercept", help="Fit without one.")] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit a row-level model to a release.

    Example: [bold]bagwise fit out --loss bag -o model.json[/]
    """
    from bagwise.learn import fit_release
    from bagwise.release import Release

    check_file(output, force=force)
    with show_progress(quiet or as_json, steps=3) as on_stage:
        on_stage("reading the release")
        loaded = Release.load(directory)
        loaded.verify()
        on_stage("fitting")
        model = fit_release(
            loaded,
            family=family,
            loss=loss,
            target=target,
            debias=debias,
            ridge=ridge,
            fit_intercept=not no_intercept,
        )
        on_stage("writing the model")
        model.save(output, force=force)
    if as_json:
        emit({"path": str(output), "coefficients": model.coefficients(), **model.trained_on})
    elif not quiet:
        shown = {name: f"{value:.6g}" for name, value in model.coefficients().items()}
        print_pairs(f"Model in {output}: {model.loss} loss", shown)
        out.print(f"Next: [bold]bagwise predict {output} TABLE -o predictions.parquet[/]")


@command
def release_model(
    table: TablePath,
    label: Label,
    epsilon: Annotated[float, typer.Option(help="Label-DP epsilon to deliver.")],
    delta: Annotated[float, typer.Option(help="Label-DP delta, far below 1/rows.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")],
    bounds: Annotated[
        tuple[float, float] | None, typer.Option(help="Public range LO HI of a label.")
    ] = None,
    bounds_file: BoundsFile = None,
    unit: Unit = None,
    features: Features = None,
    exclude: Exclude = None,
    nulls: Nulls = "indicator",
    max_levels: MaxLevels = 32,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Release a private linear model instead of bags: for a linear model nothing is more exact.

    Example: [bold]bagwise release-model rents.csv --label rent --bounds 0 5000 --epsilon 1
    --delta 1e-6 -o model.json[/]
    """
    from bagwise.api import release_model as make

    check_file(output, force=force)
    with show_progress(quiet or as_json, steps=6) as on_stage:
        model = make(
            table,
            label=label,
            bounds=_read_bounds(bounds, bounds_file),
            epsilon=epsilon,
            delta=delta,
            unit=unit,
            features=_split(features),
            exclude=_split(exclude) or (),
            nulls=nulls,
            max_levels=max_levels,
            on_stage=on_stage,
        )
        model.save(output, force=force)
    promise = model.certificate
    if as_json:
        emit(
            {
                "path": str(output),
                "privacy": promise.headline if promise else None,
                "coefficients": model.coefficients(),
            }
        )
    elif not quiet:
        shown = {name: f"{value:.6g}" for name, value in model.coefficients().items()}
        print_pairs(f"Model in {output}: {promise.headline if promise else ''}", shown)
        out.print(f"Next: [bold]bagwise predict {output} TABLE -o predictions.parquet[/]")


@command
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
    from bagwise.row_model import RowModel
    from bagwise.table import read_table, write_table

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
        out.print(f"{predictions.num_rows} predictions in {output}")


@command
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    data: Annotated[Path, typer.Argument(help="A labelled table, or a release directory.")],
    label: Annotated[
        str | None, typer.Option(help="Label column of the table. Default: the model's.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Score a model on rows with labels, or on the bags of a release.

    Example: [bold]bagwise evaluate model.json holdout.csv --label rent[/]
    """
    from bagwise.evaluate import evaluate_release, evaluate_rows
    from bagwise.release import Release
    from bagwise.row_model import RowModel

    loaded = RowModel.load(model)
    if data.is_dir():
        if label is not None:
            raise StrategyError("--label belongs to a table; a release has only bag labels.")
        checked = Release.load(data)
        checked.verify()
        scores = evaluate_release(loaded, checked).to_json()
    else:
        scores = evaluate_rows(loaded, data, label=label).to_json()
    if as_json:
        emit(scores)
    elif not quiet:
        shown = {name: readable(value) for name, value in scores.items()}
        print_pairs(f"{model} on {data}", shown)


@command
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to leave a release to look at.")
    ] = Path("bagwise-demo"),
    rows: Annotated[int, typer.Option(min=1000, help="Rows of synthetic data.")] = 50_000,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run the whole way on built-in data: bags, labels, models, and their error.

    Example: [bold]bagwise demo -o bagwise-demo[/]
    """
    from bagwise.experiments.demo import recipes, run_demo
    from bagwise.release import check_output

    check_output(output, force=force)
    with show_progress(quiet or as_json, steps=len(recipes()) + 2) as on_step:
        result = run_demo(n=rows, on_step=on_step)
        result.release.save(output, force=force)
    if as_json:
        emit({"path": str(output), **result.to_json()})
    elif not quiet:
        _print_demo(result, output)


def _print_demo(result: Any, output: Path) -> None:
    grid = Table(
        title=f"Squared error of the coefficients: {result.n:,} rows, {result.d} features",
        caption=(
            f"Least squares on the true labels: {result.row_level_error:.2g}. "
            f"Knowing nothing (all zero): {result.truth_norm:.1f}."
        ),
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("ε", "strategy", "size", "label"):
        grid.add_column(column, no_wrap=True)
    for name in result.loss_names:
        grid.add_column(name, justify="right", no_wrap=True)
    for row in result.rows:
        cells = [f"{error:.2g}" for error in row.errors]
        private = f"{result.release.certificate.epsilon:g}" if row.private else "none"
        grid.add_row(private, row.strategy, str(row.bag_size), row.label_kind, *cells)
    out.print(grid)
    for remark in result.remarks:
        out.print(f"· {remark}", soft_wrap=True, highlight=False)
    out.print(f"A private release is in {output}. Next: [bold]bagwise verify {output}[/]")


def _measure(made: "Release") -> "BagQuality | None":
    found = made.quality()
    return found if found.directions else None  # rows that do not differ have nothing to lose


def _read_bounds(given: tuple[float, float] | None, file: Path | None) -> Any:
    from bagwise.privacy.private_bounds import PrivateBounds

    if file is None:
        return given
    if given is not None:
        raise StrategyError("give --bounds or --bounds-file, not both.")
    return PrivateBounds.load(file)


def _split(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def _parse_settings(settings: list[str]) -> dict[str, str]:
    parsed = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise StrategyError(f"--set takes NAME=VALUE, got {setting!r}.")
        parsed[name] = value
    return parsed
