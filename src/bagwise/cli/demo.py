"""The verb that shows everything once, on built-in data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from bagwise.cli.console import emit, out, safe, say, show_progress
from bagwise.cli.options import AsJson, Force, Quiet
from bagwise.errors import MissingExtraError
from bagwise.files.atomic import check_file

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
    """Try everything on built-in data: bags, labels, models, their error, and pages of them.

    Pages of the private release and of a model of it lie beside it, if the extra plot is there.

    Example: [bold]bagwise demo -o bagwise-demo[/]
    """
    from threadpoolctl import threadpool_limits

    from bagwise.cli.demo_run import recipes, run_demo
    from bagwise.release.release import check_output

    check_output(output, force=force)
    for page in _pages(output):
        check_file(page, force=force)
    # Matrices of this size gain nothing from more threads, and lose a lot on a busy machine.
    threads = threadpool_limits(1)
    with threads, show_progress(quiet or as_json, steps=len(recipes()) + 3) as on_step:
        result = run_demo(n=rows, on_step=on_step)
        result.release.save(output, force=force)
        on_step("drawing pages")
        pages = _write_pages(result, output, force=force)
    if as_json:
        emit({"path": str(output), "pages": [*map(str, pages)], **result.to_json()})
    elif not quiet:
        _print_demo(result, output, pages)


def _pages(output: Path) -> list[Path]:
    """Return where the pages of the release and of the model go: beside the release."""
    return [output.with_name(f"{output.name}{end}.html") for end in ("", "-model")]


def _write_pages(result: "DemoResult", output: Path, *, force: bool) -> list[Path]:
    """Write the pages; none where the extra for them is missing, which is no reason to fail."""
    from bagwise.learn import fit_release
    from bagwise.report import report_on
    from bagwise.report.model_page import model_page
    from bagwise.report.release_page import ReleasePage, explain_or_say_why
    from bagwise.report.writing import write_page

    release, pages = result.release, _pages(output)
    model = fit_release(release)
    try:
        explained = explain_or_say_why(release)
        about = ReleasePage(release, output, report_on(release), explained)
        write_page(about.page(), pages[:1], force=force)
        shown = model_page(model, path=Path("model.json"), release=release)
        write_page(shown, pages[1:], force=force)
    except MissingExtraError:
        return []
    return pages


def _print_demo(result: "DemoResult", output: Path, pages: list[Path]) -> None:
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
    if pages:
        out.print(
            f"To look at in a browser: {safe(pages[0])} (the private release), {safe(pages[1])} "
            "(a model of it)",
            soft_wrap=True,
            highlight=False,
        )
    else:
        out.print("For pages to look at: pip install 'bagwise\\[plot]'")
