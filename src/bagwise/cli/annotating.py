"""The verbs about a labelling budget: annotate start, import, status, fit, next and serve."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bagwise.cli.console import emit, guarded, out, print_grid, say, say_next, show_progress, word
from bagwise.cli.options import (
    AsJson,
    Command,
    Exclude,
    Features,
    Force,
    MaxLevels,
    Nulls,
    Quiet,
    Read,
    SqlQuery,
    Tables,
    csv_details,
    source_of,
    split_names,
)
from bagwise.files.atomic import check_file

if TYPE_CHECKING:
    from bagwise.annotate.project import AnnotationProject

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="An annotation project.")]
Budget = Annotated[int, typer.Option(help="How many labels to buy.")]
Design = Annotated[
    str,
    typer.Option(
        help="Which rows to label: kmeans, one of each group of similar rows, or random, any."
    ),
]


def start(
    table: Tables,
    label: Annotated[str, typer.Option(help="Name of the label.")],
    budget: Budget,
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the project.")],
    design: Design = "kmeans",
    show: Annotated[
        str | None,
        typer.Option(
            help="Columns that an annotator sees, separated by commas. Default: the features."
        ),
    ] = None,
    id_: Annotated[
        str | None, typer.Option("--id", help="Key column. Default: ids from a row's content.")
    ] = None,
    family: Annotated[
        str, typer.Option(help="What a label is. auto: gaussian, or multinomial; {families}.")
    ] = "auto",
    bounds: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Range LO HI of a label; others are refused."),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="Classes of a label that is not a number, separated by commas."),
    ] = None,
    features: Features = None,
    exclude: Exclude = None,
    nulls: Nulls = "indicator",
    max_levels: MaxLevels = 32,
    seed: Annotated[int | None, typer.Option(help="Drives which rows are chosen.")] = None,
    query: SqlQuery = None,
    read: Read = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Choose which rows of a table to label, and write a list to fill in.

    Example: [bold]bagwise annotate start flats.csv --label rent --budget 200 -o flats[/]
    """
    from bagwise.annotate.project import AnnotationProject

    with show_progress(quiet or as_json, steps=3) as on_stage:
        project = AnnotationProject.start(
            source_of(table, query, read),
            output,
            label=label,
            budget=budget,
            design=design,
            show=split_names(show),
            id=id_,
            family=family,
            bounds=bounds,
            classes=split_names(classes),
            features=split_names(features),
            exclude=split_names(exclude) or (),
            nulls=nulls,
            max_levels=max_levels,
            seed=seed,
            force=force,
            on_stage=on_stage,
        )
    _tell_of_round(project, quiet=quiet, as_json=as_json)


def import_(
    directory: Directory,
    labels: Annotated[
        Path, typer.Argument(help="A list with labels: CSV, Parquet, or JSON from Label Studio.")
    ],
    correct: Annotated[
        bool, typer.Option("--correct", help="Replace labels of rows that already have one.")
    ] = False,
    read: Read = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Import labels from a list, in any order and in parts; refuse a list with a mistake.

    Example: [bold]bagwise annotate import flats flats/to_label.csv[/]
    """
    from bagwise.annotate.project import AnnotationProject
    from bagwise.rows.sources.dialect import Told

    project = AnnotationProject(directory)
    told = Told(**csv_details(read or []))
    found = project.import_labels(labels, correct=correct, told=told)
    status = project.status()
    if as_json:
        emit({"new": found.new, "known": found.known, "open": status.open})
    elif not quiet:
        say(
            f"{found.new} labels are new, {found.known} were known, {found.open} lines have none. "
            f"{status.labelled} of {status.asked} labels are there."
        )
        _say_what_next(directory, status.open)


def status(directory: Directory, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Show how many labels there are, and how many are missing.

    Example: [bold]bagwise annotate status flats[/]
    """
    from bagwise.annotate.project import AnnotationProject

    found = AnnotationProject(directory).status()
    rounds = [
        {"round": one.number, "design": one.design, "asked": asked, "labelled": labelled}
        for one, asked, labelled in found.rounds
    ]
    if as_json:
        emit({"rows": found.n_rows, "labelled": found.labelled, "open": found.open,
              "rounds": rounds})  # fmt: skip
    elif not quiet:
        heading = list(rounds[0])
        cells = [[str(one[name]) for name in heading] for one in rounds]
        print_grid(f"{directory}: {found.n_rows} rows", [heading, *cells])
        _say_what_next(directory, found.open)


def fit(
    directory: Directory,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")] = Path(
        "model.json"
    ),
    model: Annotated[
        str, typer.Option(help="glm: coefficients with error bars; boosted: trees.")
    ] = "glm",
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to the labelled rows: linear and shrunk as far as the labels suggest, or trees.

    Example: [bold]bagwise annotate fit flats -o model.json[/]
    """
    from bagwise.annotate.project import AnnotationProject
    from bagwise.models.row_model import RowModel

    check_file(output, force=force)
    with show_progress(quiet or as_json, steps=4) as on_stage:
        on_stage("reading the project")
        project = AnnotationProject(directory)
        on_stage("fitting the labels")
        fitted = project.fit(model=model)
        on_stage("predicting held-out labels")
        quality = project.quality(model=model)
        on_stage("writing the model")
        summary = fitted.summary(level=level) if isinstance(fitted, RowModel) else None
        fitted.save(output, force=force)
    if as_json:
        emit(
            {
                "path": str(output),
                "labels": fitted.trained_on.n_labelled_rows,
                "quality": None if quality is None else asdict(quality),
                **(summary.to_json() if summary else {}),
            }
        )
    elif not quiet:
        if summary:
            print_grid(f"Model in {output}", summary.cells())
            say(summary.note)
        else:
            say(f"Boosted trees in {output}.")
        if quality is not None:
            say(str(quality))
        say_next(["bagwise", "predict", output, "TABLE", "-o", "predictions.parquet"])


def next_(
    directory: Directory,
    budget: Budget,
    design: Design = "kmeans",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Choose more rows to label, among those that were not chosen yet.

    Example: [bold]bagwise annotate next flats --budget 100[/]
    """
    from bagwise.annotate.project import AnnotationProject

    project = AnnotationProject(directory)
    with show_progress(quiet or as_json, steps=1) as on_stage:
        project.next_round(budget=budget, design=design, on_stage=on_stage)
    _tell_of_round(project, quiet=quiet, as_json=as_json)


def serve(
    directory: Directory,
    port: Annotated[
        int,
        typer.Option(help="Port of this machine. Default: one that is free.", show_default=False),
    ] = 0,
    quiet: Quiet = False,
) -> None:
    """Label rows by keyboard on a local page, with undo; you can close it at any time.

    Example: [bold]bagwise annotate serve flats[/]
    """
    from bagwise.annotate.page import serve as serve_page
    from bagwise.annotate.project import AnnotationProject

    def tell(link: str) -> None:
        sys.stdout.write(f"{link}\n")  # whole, even where it is longer than a line
        sys.stdout.flush()
        if not quiet:
            say("Open this link; Ctrl-C ends the page. Nobody else can open it.")

    project = AnnotationProject(directory)
    with suppress(KeyboardInterrupt):
        serve_page(project, port=port, on_ready=tell)
    if not quiet:
        found = project.status()
        say(f"{found.labelled} of {found.asked} labels are there.")
        _say_what_next(directory, found.open)


def _tell_of_round(project: "AnnotationProject", *, quiet: bool, as_json: bool) -> None:
    from bagwise.annotate.files import list_paths
    from bagwise.annotate.rows import reason

    last, asked, _ = project.status().rounds[-1]
    path = list_paths(project.directory, last.number)[0]
    if as_json:
        emit({"path": str(path), "round": last.number, "design": last.design, "labels": asked})
    elif not quiet:
        say(f"{asked} rows by {last.design} are in {path}: fill in {project.kind.name!r}.")
        say(reason(last.design, n_rows=project.n_rows, budget=asked))
        out.print(
            f"Next: [bold]bagwise annotate import {word(project.directory)} {word(path)}[/], or "
            f"[bold]bagwise annotate serve {word(project.directory)}[/]"
        )


def _say_what_next(directory: Path, n_open: int) -> None:
    if n_open:
        out.print(f"{n_open} are open: [bold]bagwise annotate serve {word(directory)}[/]")
    else:
        say_next(["bagwise", "annotate", "fit", directory, "-o", "model.json"])


app = typer.Typer(
    help="Spend a labelling budget: choose rows, import their labels, fit a model.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
VERBS: Sequence[Any] = (start, import_, status, fit, next_, serve)
for verb in VERBS:
    app.command(name=verb.__name__.rstrip("_"), cls=Command)(guarded(verb))
