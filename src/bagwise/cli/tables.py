"""Code that commands about tables share: source, confirmation of columns, ledger, receipt."""

import functools
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import typer

from bagwise.cli.console import (
    answer,
    for_people,
    has_terminal,
    hold,
    paused_progress,
    print_grid,
    say,
)
from bagwise.cli.options import Charging, shared
from bagwise.errors import StrategyError, TableError, check_name

SMALL_FILE = 2**24
"""Bytes that must be free for a model or scores, or beside the rows of a release."""

Reserve = Callable[[int, int], AbstractContextManager[None]]


def source_of(tables: list[str]) -> Any:
    """Return the source for the given argument: files, a query, or CSV files with details."""
    query, details = shared().query, csv_details()
    if query is not None:
        from bagwise.rows.sources import Query

        if len(tables) != 1 or details:
            raise TableError("--query goes with one database, and without --read.")
        return Query(tables[0], query)
    where = tables[0] if len(tables) == 1 else tables
    if not details:
        return where
    from bagwise.rows.sources import Csv

    return Csv(where, **details)


def csv_details() -> dict[str, str]:
    """Return the details of a CSV file that --read states."""
    details = dict(shared().read or {})
    for name in details:
        check_name("detail of --read", name, ("delimiter", "decimal", "encoding"), TableError)
    if details.get("delimiter") in ("tab", "\\t"):  # shells make it hard to type one
        details["delimiter"] = "\t"
    return details


def confirmation(*, yes: bool, piped: bool, dry_run: bool = False) -> Callable[[Any], bool]:
    """Return a function that shows the columns to be published, and asks if there is a doubt.

    `piped` is for a table that comes through standard input: nobody can answer there.
    """

    def confirm(preview: Any) -> bool:
        with paused_progress():
            if for_people() or (dry_run and answer({"columns": preview.to_json()})):
                rows = preview.cells()
                print_grid(f"Columns that will be published: {len(rows) - 1}", rows)
            asked = has_terminal() and sys.stdin.isatty() and not piped and for_people()
            if (asked or yes or dry_run) and for_people():
                for line in preview.open_flags:
                    say(f"Look twice: {line}", style="yellow")
            if dry_run:
                raise typer.Exit
            if yes or not preview.open_flags:
                return True
            return asked and typer.confirm("Publish all of these columns?", err=True)

    return confirm


def file_reserve(output: Path | None) -> Reserve | None:
    """Return a function that reserves a file for this run; it refuses an existing one."""
    from bagwise.files.atomic import check_file, reserved

    if output is None:
        return None
    check = functools.partial(check_file, output, force=shared().force)
    check()
    return lambda _rows, _bytes: reserved(output, check=check, size=SMALL_FILE)


def open_ledger(charging: Charging, reserve: Reserve | None, **notes: str | None) -> Any:
    """Return the ledger to charge, or None; options without one are refused.

    `reserve` keeps the output, from before the charge until the command ends. `notes` are what a
    charge is for, and who gets it.
    """
    from bagwise.ledger import Ledger

    if charging.ledger is None:
        if charging.chosen_by != "all" or charging.anew or any(notes.values()):
            raise StrategyError(
                "--chosen-by, --anew, --purpose and --recipient belong to a ledger; give --ledger."
            )
        return None
    ledger = Ledger.open(charging.ledger).part(charging.chosen_by).noting(**notes)
    if reserve is not None:
        ledger = ledger.reserving(lambda *size: hold(reserve(*size)))
    return ledger.drawing_anew() if charging.anew else ledger


def keep_in(ledger: Any, path: Path | None, made: Any) -> str:
    """Record in a ledger where files are; return the message about the charge."""
    if ledger is None:
        return ""
    from bagwise.errors import ReleaseError
    from bagwise.files.regular_files import sha256_of
    from bagwise.release.files import MANIFEST

    mark = made.certificate.mark
    paid_before = any(place.id == mark.id for place in ledger.store.places())
    if path is not None:
        directory = path.is_dir()  # a release, whose digest is that of its manifest
        digest = sha256_of(path / MANIFEST, error=ReleaseError) if directory else made.digest
        ledger.remember(path, id=mark.id, digest=digest)
    if paid_before:
        return f"Answered with what {mark.id} has paid for in {ledger.path}; nothing was drawn."
    show = f"bagwise ledger show {shlex.quote(str(ledger.path))}"
    return f"Charged to {ledger.path} as {mark.id}. What is left: {show}"
