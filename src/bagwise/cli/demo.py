"""The verb that shows the whole way on built-in data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from bagwise.cli.console import emit, out, safe, say, show_progress
from bagwise.cli.options import AsJson, Force, Quiet

if TYPE_CHECKING:
    from bagwise.cli.demo_run import DemoResult


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
    from bagwise.cli.demo_run import recipes, run_demo
    from bagwise.release.release import check_output

    check_output(output, force=force)
    with show_progress(quiet or as_json, steps=len(recipes()) + 2) as on_step:
        result = run_demo(n=rows, on_step=on_step)
        result.release.save(output, force=force)
    if as_json:
        emit({"path": str(output), **result.to_json()})
    elif not quiet:
        _print_demo(result, output)


def _print_demo(result: "DemoResult", output: Path) -> None:
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
        say(f"· {remark}")
    where = safe(output)
    out.print(f"A private release is in {where}. Next: [bold]bagwise verify {where}[/]")
