"""The annotate commands: start, import, status, fit, next and serve."""

import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bagwise.cli.console import (
    answer,
    for_people,
    print_coefficients,
    print_grid,
    say,
    say_next,
    show_progress,
)
from bagwise.cli.options import Asked, Tables, add_verbs, shared, split_names, values_of, verb
from bagwise.cli.tables import csv_details, file_reserve, source_of

if TYPE_CHECKING:
    from bagwise.annotate.project import AnnotationProject

_ASKED = "label bounds classes id features exclude"
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="An annotation project.")]
Budget = Annotated[int, "How many labels to buy."]
Design = Annotated[
    str, "Which rows to label: kmeans (one row from each group of similar rows) or random."
]


@verb("force query read")
def start(
    table: Tables,
    asked: Annotated[Asked, _ASKED],
    budget: Budget,
    output: Annotated[Path, "Directory of the project.", "DIR"],
    design: Design = "kmeans",
    show: Annotated[
        str | None,
        "Columns to show to annotators, separated by commas. Default: the features.",
        "NAMES",
    ] = None,
    family: Annotated[str, "Kind of label. auto: gaussian, or multinomial; {families}."] = "auto",
    seed: Annotated[int | None, "Seed for the choice of rows."] = None,
) -> None:
    """Choose rows of a table to label, and write a list to fill in.

    Example: [bold]bagwise annotate start flats.csv --label rent --budget 200 -o flats[/]
    """
    from bagwise.annotate.project import AnnotationProject

    with show_progress(steps=3) as on_stage:
        project = AnnotationProject.start(
            source_of(table),
            output,
            **{name: value for name, value in values_of(asked).items() if name in _ASKED.split()},
            budget=budget,
            design=design,
            show=None if show is None else split_names(show),
            family=family,
            seed=seed,
            force=shared().force,
            on_stage=on_stage,
        )
    _show_round(project)


@verb("read")
def import_(
    directory: Directory,
    labels: Annotated[
        Path, typer.Argument(help="A list with labels: CSV, Parquet, or JSON from Label Studio.")
    ],
    correct: Annotated[bool, "Replace labels of rows that already have one."] = False,
) -> None:
    """Import labels from a list, in any order and in parts; a list with mistakes is rejected.

    Example: [bold]bagwise annotate import flats flats/to_label.csv[/]
    """
    from bagwise.rows.sources.dialect import Told

    project = _open(directory)
    imported = project.import_labels(labels, correct=correct, told=Told(**csv_details()))
    status = project.status()
    if answer({"new": imported.new, "known": imported.known, "open": status.open}):
        say(
            f"{imported.new} labels are new, {imported.known} were known, {imported.open} lines "
            f"are empty. {status.labelled} of {status.asked} labels are there."
        )
        if not (imported.new or imported.known):
            say(f"No label was found: they are expected under the name {project.kind.name!r}.")
        _say_what_next(directory, status.open)


@verb()
def status(directory: Directory) -> None:
    """Show how many rows have been labelled.

    Example: [bold]bagwise annotate status flats[/]
    """
    at_hand = _open(directory).status()
    rounds = [
        {"round": one.number, "design": one.design, "asked": asked, "labelled": labelled}
        for one, asked, labelled in at_hand.rounds
    ]
    counts = {"rows": at_hand.n_rows, "labelled": at_hand.labelled, "open": at_hand.open}
    if answer({**counts, "rounds": rounds}):
        heading = list(rounds[0])
        cells = [[str(one[name]) for name in heading] for one in rounds]
        print_grid(f"{directory}: {at_hand.n_rows} rows", [heading, *cells])
        _say_what_next(directory, at_hand.open)


@verb("force")
def fit(
    directory: Directory,
    output: Annotated[Path, "Model file to write."] = Path("model.json"),
    model: Annotated[str, "glm: coefficients with error bars; boosted: trees."] = "glm",
) -> None:
    """Fit a shrunken linear model or boosted trees to the labelled rows.

    Example: [bold]bagwise annotate fit flats -o model.json[/]
    """
    from bagwise.models.row_model import RowModel

    file_reserve(output)
    with show_progress(steps=4) as on_stage:
        on_stage("reading the project")
        project = _open(directory)
        on_stage("fitting the labels")
        fitted = project.fit(model=model)
        on_stage("predicting held-out labels")
        quality = project.quality(model=model)
        on_stage("writing the model")
        summary = fitted.summary() if isinstance(fitted, RowModel) else None
        fitted.save(output, force=shared().force)
    if answer(
        {
            "path": str(output),
            "labels": fitted.trained_on.n_labelled_rows,
            "quality": None if quality is None else asdict(quality),
            **(summary.to_json() if summary else {}),
        }
    ):
        if summary:
            print_coefficients(f"Model in {output}", summary)
            say(summary.note)
        else:
            say(f"Boosted trees in {output}.")
        if quality is not None:
            say(str(quality))
        say_next(["bagwise", "predict", output, "TABLE", "-o", "predictions.parquet"])


@verb()
def next_(
    directory: Directory,
    budget: Budget,
    design: Design = "kmeans",
) -> None:
    """Choose more rows to label.

    Example: [bold]bagwise annotate next flats --budget 100[/]
    """
    project = _open(directory)
    with show_progress(steps=1) as on_stage:
        project.next_round(budget=budget, design=design, on_stage=on_stage)
    _show_round(project)


@verb()
def serve(directory: Directory) -> None:
    """Label rows by keyboard on a local page, with undo; close it whenever you like.

    Example: [bold]bagwise annotate serve flats[/]
    """
    from bagwise.annotate.page import serve as serve_page

    def tell(link: str) -> None:
        sys.stdout.write(f"{link}\n")  # whole, even where it is longer than a line
        sys.stdout.flush()
        if for_people():
            say("Open this link in a browser; nobody else can. Press Ctrl-C to stop.")

    project = _open(directory)
    with suppress(KeyboardInterrupt):
        serve_page(project, on_ready=tell)
    if for_people():
        at_hand = project.status()
        say(f"{at_hand.labelled} of {at_hand.asked} labels are there.")
        _say_what_next(directory, at_hand.open)


def _open(directory: Path) -> "AnnotationProject":
    from bagwise.annotate.project import AnnotationProject

    return AnnotationProject(directory)


def _show_round(project: "AnnotationProject") -> None:
    from bagwise.annotate.files import list_paths
    from bagwise.annotate.rows import reason

    last, asked, _ = project.status().rounds[-1]
    path = list_paths(project.directory, last.number)[0]
    if answer({"path": str(path), "round": last.number, "design": last.design, "labels": asked}):
        say(f"{asked} rows by {last.design} are in {path}: fill in {project.kind.name!r}.")
        say(reason(last.design, n_rows=project.n_rows, budget=asked))
        verbs, place = ["bagwise", "annotate"], project.directory
        say_next([*verbs, "import", place, path], [*verbs, "serve", place])


def _say_what_next(directory: Path, n_open: int) -> None:
    if n_open:
        say(f"{n_open} are open.")
        say_next(["bagwise", "annotate", "serve", directory])
    else:
        say_next(["bagwise", "annotate", "fit", directory, "-o", "model.json"])


app = typer.Typer(
    help="Spend a labelling budget: choose rows, import their labels, fit a model.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
add_verbs(app, start, import_, status, fit, next_, serve)
