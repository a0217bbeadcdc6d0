"""The verb that comes before a release: plan."""

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated

import typer

from bagwise.cli.console import emit, print_grid, say, show_progress
from bagwise.cli.options import (
    AsJson,
    Exclude,
    Features,
    Force,
    Learner,
    MaxLevels,
    Nulls,
    Quiet,
    Read,
    SqlQuery,
    Tables,
    source_of,
    split_names,
)
from bagwise.errors import StrategyError
from bagwise.files.atomic import check_file
from bagwise.requests.records import Bagging, Reading


def plan(
    table: Tables,
    label: Annotated[
        str, typer.Option(help="The column to protect; it is dropped before anything else.")
    ],
    bounds: Annotated[
        tuple[float, float] | None, typer.Option(help="Public range LO HI of a label.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="How private: smaller is more private, about 1 is usual (label-DP epsilon)."
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Chance that more is revealed, far below 1/rows (label-DP delta)."),
    ] = None,
    error: Annotated[
        float | None,
        typer.Option(
            help="Instead of epsilon: find the smallest one whose first choice has at most this "
            "typical error of one prediction."
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="Public classes of a label that is not a number, separated by commas."),
    ] = None,
    not_private: Annotated[
        bool, typer.Option("--not-private", help="Plan a release without noise.")
    ] = False,
    family: Annotated[str, typer.Option(help="Distribution of a label, as for fit.")] = "auto",
    bag_sizes: Annotated[
        str | None,
        typer.Option(
            help="Bag sizes to consider, separated by commas. Default: 10,20,50,100 and so on."
        ),
    ] = None,
    min_bag_size: Annotated[
        int | None, typer.Option(help="Smallest bag that may be published. Default: 10.")
    ] = None,
    strategies: Annotated[
        str | None, typer.Option(help="Strategies to consider, separated by commas. Default: all.")
    ] = None,
    learner: Learner = "linear",
    single_labels: Annotated[
        bool,
        typer.Option(
            "--single-labels", help="Also rank single labels, each reported with randomness."
        ),
    ] = False,
    prior: Annotated[
        tuple[float, float] | None,
        typer.Option(help="How much expected labels vary, and single labels around them."),
    ] = None,
    misfit: Annotated[
        float | None,
        typer.Option(
            help="With --prior: share of the signal's variance that no linear model explains."
        ),
    ] = None,
    id_: Annotated[
        str | None, typer.Option("--id", help="Key column, not used as a feature.")
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(help="Column naming people with several rows, protected together."),
    ] = None,
    features: Features = None,
    exclude: Exclude = None,
    nulls: Nulls = "indicator",
    max_levels: MaxLevels = 32,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the plan: .html or .json.")
    ] = None,
    query: SqlQuery = None,
    read: Read = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Rank possible releases of a table by the expected error of a model, without using any label.

    Example: [bold]bagwise plan rents.parquet --label rent --bounds 0 5000 --epsilon 1
    --delta 1e-6 -o plan.html[/]

    For boosted trees: add [bold]--learner flexible[/]. For the smallest epsilon that serves:
    [bold]--error 300[/] instead of an epsilon.
    """
    from bagwise.planner import features_of
    from bagwise.planner import plan as make_plan
    from bagwise.requests.columns import Columns

    if output is not None:
        check_file(output, force=force)
    # Options that a release must repeat, or it would read or publish something else.
    repeated = [
        (name, str(value))
        for name, value in (
            *(("--read", detail) for detail in read or []),
            ("--query", query),
            ("--classes", classes),
            ("--id", id_),
            ("--unit", unit),
            ("--features", features),
            ("--exclude", exclude),
            ("--nulls", None if nulls == "indicator" else nulls),
            ("--max-levels", None if max_levels == 32 else max_levels),
        )
        if value is not None
    ]
    with show_progress(quiet or as_json, steps=3) as on_stage:
        on_stage("reading the features")
        rows = features_of(
            source_of(table, query, read),
            Columns.of(
                label,
                features=split_names(features),
                exclude=split_names(exclude),
                id=id_,
                unit=unit,
            ),
        )
        on_stage("planning")
        found = make_plan(
            rows,
            bounds=bounds,
            epsilon=epsilon,
            delta=delta,
            error=error,
            not_private=not_private,
            bag_sizes=_sizes(bag_sizes),
            prior=_prior(prior, misfit),
            classes=split_names(classes),
            learner=learner,
            single_labels=single_labels,
            unit=unit,
            bagging=Bagging(
                min_bag_size=min_bag_size, family=family, strategies=split_names(strategies)
            ),
            reading=Reading(nulls=nulls, max_levels=max_levels),
            label=label,
            options=shlex.join(word for pair in repeated for word in pair),
        )
        found = dataclasses.replace(found, table=shlex.join(table), output="release")
        if output is not None:
            on_stage("writing the plan")
            found.save(output, force=force)
    if as_json:
        emit(found.to_json())
    elif not quiet:
        if error is not None:
            say(f"The smallest epsilon with an error of at most {error:g}: {found.epsilon:g}")
        print_grid("What to release, the safest choice first", found.cells())
        for remark in found.remarks():
            say(f"· {remark}")
        say(found.explain())
        if output is not None:
            say(f"The plan is in {output}.")


def _prior(pair: tuple[float, float] | None, misfit: float | None) -> tuple[float, ...] | None:
    """Return the belief as typed; a misfit is a share of a signal that must be stated too."""
    if misfit is None:
        return pair
    if pair is None:
        raise StrategyError("--misfit goes with --prior: it is a share of the signal stated there.")
    return (*pair, misfit)


def _sizes(text: str | None) -> list[int] | None:
    names = split_names(text)
    if names is None:
        return None
    if not names or not all(name.isdecimal() for name in names):
        raise StrategyError(f"--bag-sizes are whole numbers separated by commas, got {text!r}.")
    return [int(name) for name in names]
