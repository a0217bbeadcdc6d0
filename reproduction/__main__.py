"""The command that makes the paper's tables again: ``python -m reproduction``."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bagwise.cli.console import err, guarded, leave_quietly, print_grid, say
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
) -> None:
    """Make the paper's tables again: as printed, exactly, by theory, and by an early-stopped fit.

    Examples: [bold]python -m reproduction --quick[/], [bold]python -m reproduction --table 2 -o
    table-2[/], [bold]python -m reproduction --cell bag,iso,10,0.5,kmeans[/]. On your own table:
    [bold]python -m reproduction --data rents.csv --label rent[/]
    """
    from reproduction.cells import Cell
    from reproduction.report import write_report
    from reproduction.reproduce import QUICK, Scale, cell_jobs, table_jobs
    from reproduction.tables import make_cell_table

    if data is not None or label is not None:
        _compare(data, label, runs=runs or 5, seed=seed)
        return
    usual = QUICK if quick else Scale()
    scale = replace(usual, rows=rows or usual.rows, runs=runs or usual.runs)
    if cell is not None:
        if table is not None:
            raise StrategyError("give --table or --cell, not both.")
        results = _run(cell_jobs([Cell.parse(cell)], scale, seed=seed), workers)
        print_grid(f"{results[0].job.cell}: squared error", make_cell_table(results))
        return
    table = table or "all"
    if table not in ("1", "2", "3", "4", "5", "all"):
        raise StrategyError(f"--table is 1, 2, 3, 4, 5 or all, got {table!r}.")
    # Each kind of report has a place of its own, so that none replaces another.
    kind = "all" if table == "all" else f"table-{table}"
    directory = output or _PARENT / (f"{kind}-quick" if quick else kind)
    if directory.is_dir() and any(directory.iterdir()) and not (directory / "report.md").exists():
        raise StrategyError(f"{directory} has other files in it. Choose another name.")
    tables = range(1, 6) if table == "all" else [int(table)]
    results = _run(table_jobs(tables, scale, seed=seed), workers)
    # What was typed, as far as results depend on it.
    typed = ["python", "-m", "reproduction", "--table", table, *(["--quick"] if quick else [])]
    for name, value, default in (
        ("--runs", scale.runs, usual.runs),
        ("--rows", scale.rows, usual.rows),
        ("--seed", seed, 0),
        ("-o", output, None),
    ):
        typed += [name, str(value)] if value != default else []
    write_report(results, directory, scale=scale, command=shlex.join(typed))
    _show_tables(results, scale, directory)


def _compare(data: Path | None, label: str | None, *, runs: int, seed: int) -> None:
    """Show what strategies and losses keep on a table of one's own."""
    from reproduction.compare import compare

    if data is None or label is None:
        raise StrategyError("give --data with --label: the table, and its column of labels.")
    rows = [
        [one.strategy, str(one.bag_size), one.loss,
         f"{100 * one.kept.mean:.1f} ± {100 * one.kept.standard_error:.1f}"]
        for one in compare(data, label=label, runs=runs, seed=seed)
    ]  # fmt: skip
    heading = ["strategy", "bag size", "loss", "kept of a model of row labels, %"]
    print_grid(f"{data}: {label}, on held-out rows, not private", [heading, *rows])


def _run(jobs: "Sequence[Job]", workers: int | None) -> "list[Result]":
    from reproduction.reproduce import reproduce as run_jobs

    shown = TextColumn("runs of cells"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*shown, console=err, transient=True) as progress:
        task = progress.add_task("", total=len(jobs))
        return run_jobs(
            jobs,
            workers=workers or os.cpu_count() or 1,
            on_results=lambda results: progress.update(task, advance=len(results)),
        )


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
