"""The command that makes the paper's tables again: ``python -m reproduction``."""

import os
import shlex
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bagwise.cli.console import (
    answer,
    err,
    guarded,
    leave_quietly,
    print_grid,
    say,
    talk,
)
from bagwise.cli.options import Command
from bagwise.errors import StrategyError

if TYPE_CHECKING:
    from reproduction.measured import Job, Result
    from reproduction.reproduce import Scale

_PARENT = Path("bagwise-reproduction")


def reproduce(
    table: Annotated[
        str | None,
        typer.Option(help="Which of the paper's tables: 1, 2, 3, 4, 5, or all. Default: all."),
    ] = None,
    cell: Annotated[
        str | None,
        typer.Option(help="One cell: LOSS,DATA,SIZE,NOISE,STRATEGY, and EPSILON for table 2."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="A table of your own: compare strategies and losses on it."),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Its label, a column of numbers.")] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of each cell. Default: 15.")] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Rows of the data. Default: 50000.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A look: 20000 rows and 3 runs, about a minute.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of data and draws; another seed gives other ones.")
    ] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; results are the same. Default: all cores.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help=f"Directory for the report. Default: a place in {_PARENT}; nothing for a cell.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make the paper's tables again: as printed, exactly, by theory, and by an early-stopped fit.

    Examples: [bold]python -m reproduction --quick[/], [bold]python -m reproduction --table 2 -o
    table-2[/], [bold]python -m reproduction --cell bag,iso,10,0.5,kmeans[/]. On your own table:
    [bold]python -m reproduction --data rents.csv --label rent[/]
    """
    from reproduction.cells import Cell
    from reproduction.report import summary, write_report
    from reproduction.reproduce import QUICK, Scale, cell_jobs, table_jobs

    talk(quiet=quiet, as_json=as_json)
    if data is not None or label is not None:
        _compare(data, label, runs=runs or 5, seed=seed, as_json=as_json)
        return
    scale = _scale(QUICK if quick else Scale(), rows, runs)
    if cell is not None:
        if table is not None:
            raise StrategyError("give --table or --cell, not both.")
        found = _run(cell_jobs([Cell.parse(cell)], scale, seed=seed), workers, quiet or as_json)
        _show_cell(found, as_json=as_json, quiet=quiet)
        return
    table = table or "all"
    tables = _tables(table)
    directory = output or _default_directory(table, quick)
    if directory.is_dir() and any(directory.iterdir()) and not (directory / "report.md").exists():
        raise StrategyError(f"{directory} has other files in it. Choose another name.")
    found = _run(table_jobs(tables, scale, seed=seed), workers, quiet or as_json)
    command = _command(table, scale, seed, quick, output)
    write_report(found, directory, scale=scale, command=command)
    if as_json:
        answer({"path": str(directory), **summary(found, scale)})
    elif not quiet:
        _show_tables(found, scale, directory)


def _compare(data: Path | None, label: str | None, *, runs: int, seed: int, as_json: bool) -> None:
    """Show what strategies and losses keep on a table of one's own."""
    from dataclasses import asdict

    from reproduction.compare import compare

    if data is None or label is None:
        raise StrategyError("give --data with --label: the table, and its column of labels.")
    found = compare(data, label=label, runs=runs, seed=seed)
    if as_json:
        answer({"ways": [asdict(one) for one in found]})
        return
    rows = [
        [one.strategy, str(one.bag_size), one.loss,
         f"{100 * one.kept.mean:.1f} ± {100 * one.kept.standard_error:.1f}"]
        for one in found
    ]  # fmt: skip
    heading = ["strategy", "bag size", "loss", "kept of a model of row labels, %"]
    print_grid(f"{data}: {label}, on held-out rows, not private", [heading, *rows])


def _run(jobs: "Sequence[Job]", workers: int | None, quiet: bool) -> "list[Result]":
    from reproduction.reproduce import reproduce as run_jobs

    jobs = list(dict.fromkeys(jobs))
    shown = TextColumn("runs of cells"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*shown, console=err, transient=True, disable=quiet) as progress:
        task = progress.add_task("", total=len(jobs))
        return run_jobs(
            jobs,
            workers=workers or os.cpu_count() or 1,
            on_results=lambda results: progress.update(task, advance=len(results)),
        )


def _tables(text: str) -> list[int]:
    known = [1, 2, 3, 4, 5]
    if text == "all":
        return known
    if text not in map(str, known):
        raise StrategyError(f"--table is 1, 2, 3, 4, 5 or all, got {text!r}.")
    return [int(text)]


def _scale(scale: "Scale", rows: int | None, runs: int | None) -> "Scale":
    from dataclasses import replace

    return replace(scale, rows=rows or scale.rows, runs=runs or scale.runs)


def _default_directory(table: str, quick: bool) -> Path:
    """Return a place for each kind of report, so that none replaces another."""
    name = "all" if table == "all" else f"table-{table}"
    return _PARENT / (f"{name}-quick" if quick else name)


def _command(table: str, scale: "Scale", seed: int, quick: bool, output: Path | None) -> str:
    """Return what was typed, as far as results depend on it."""
    from reproduction.reproduce import QUICK, Scale

    usual = QUICK if quick else Scale()
    options = {
        "--table": table,
        "--quick": "" if quick else None,
        "--runs": scale.runs if scale.runs != usual.runs else None,
        "--rows": scale.rows if scale.rows != usual.rows else None,
        "--seed": seed or None,
        "-o": output,
    }
    given = [(name, str(value)) for name, value in options.items() if value is not None]
    return shlex.join(["python", "-m", "reproduction", *filter(None, chain.from_iterable(given))])


def _show_cell(results: "Sequence[Result]", *, as_json: bool, quiet: bool) -> None:
    from reproduction.tables import describe_cell, make_cell_table

    if as_json:
        answer(describe_cell(results))
    elif not quiet:
        print_grid(f"{results[0].job.cell}: squared error", make_cell_table(results))


def _show_tables(results: "Sequence[Result]", scale: "Scale", directory: Path) -> None:
    from reproduction.claims import judge_claims
    from reproduction.measured import Measured
    from reproduction.report import explained_text

    measured = Measured(results, rows=scale.rows)
    rows = [
        [verdict.claim.text, verdict.word, str(verdict.runs)] for verdict in judge_claims(measured)
    ]
    if rows:
        print_grid("What the paper says of its tables", [["claim", "verdict", "runs"], *rows])
    if scale.is_papers and (line := explained_text(measured)):
        say(f"· {line}")
    say(f"The tables are in {directory / 'report.md'}.")


app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")
app.command(cls=Command)(guarded(reproduce))

if __name__ == "__main__":
    leave_quietly(app)
