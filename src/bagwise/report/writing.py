"""Write a page as the kind of file that its name asks for."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bagwise.errors import OutputError
from bagwise.files.atomic import check_file, new_file
from bagwise.show.page import Page, render
from bagwise.show.printing import write_pdf


def _write_html(html: str, target: Path) -> None:
    target.write_text(html, encoding="utf-8")


WRITERS: Mapping[str, Callable[[str, Path], None]] = {".html": _write_html, ".pdf": write_pdf}
"""By the end of the file's name."""


def check_targets(targets: Sequence[Path], *, force: bool) -> None:
    """Refuse names that say no kind of file, and files that are there, before any work is done."""
    for target in targets:
        if target.suffix not in WRITERS:
            raise OutputError(f"a page is {' or '.join(WRITERS)}, got {target.name!r}.")
        check_file(target, force=force)


def write_page(page: Page, targets: Sequence[Path], *, force: bool) -> None:
    """Write the page to each target, whole or not at all."""
    check_targets(targets, force=force)
    html = render(page)
    for target in targets:
        with new_file(target, force=force) as draft:
            WRITERS[target.suffix](html, draft)
