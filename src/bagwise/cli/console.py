"""Output of the command line: progress, tables, warnings, and errors without a traceback."""

import functools
import json
import logging
import os
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any, ParamSpec

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from bagwise._printable import printable
from bagwise.errors import (
    BagwiseError,
    BagwiseWarning,
    LowMemoryError,
    OutputError,
    StageError,
    is_low_memory,
)
from bagwise.files.atomic import new_file
from bagwise.show.operator_notes import operator_notes_to
from bagwise.show.stages import ignore_stage, progress_to

P = ParamSpec("P")

UNFORESEEN, BAD_INPUT, LESS_PRIVATE_THAN_ASKED, INTERRUPTED = 1, 2, 3, 130
LABELS_SHOW = 4
PATIENCE = 30.0  # seconds that a run may be silent if nobody watches it
_MOST_COEFFICIENTS = 40  # on a screen
CLOSED_PIPE = 128 + 13  # what a shell tells of a program that SIGPIPE ended

_ending: ContextVar[ExitStack] = ContextVar("ending")
_manner: ContextVar[tuple[bool, bool]] = ContextVar("manner", default=(False, False))
_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)

out = Console()
err = Console(stderr=True)


def talk(*, quiet: bool, as_json: bool) -> None:
    """Set how much is printed from here on."""
    _manner.set((quiet, as_json))


def is_quiet() -> bool:
    """Return whether only errors are printed."""
    return _manner.get()[0]


def is_json() -> bool:
    """Return whether the output is JSON."""
    return _manner.get()[1]


def for_people() -> bool:
    """Return whether people read the output."""
    return _manner.get() == (False, False)


def answer(values: Mapping[str, Any]) -> bool:
    """Print one JSON object if the output is JSON; return whether people read the output."""
    if is_json():
        sys.stdout.write(json.dumps(values, indent=2, allow_nan=False) + "\n")
    return for_people()


def guarded(run: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that errors become one line and an exit code, never a traceback."""

    @functools.wraps(run)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        path = kwargs.get("notes")
        notes = path if isinstance(path, Path) else None
        with warnings.catch_warnings():
            warnings.simplefilter("always", BagwiseWarning)
            warnings.showwarning = functools.partial(_show_warning, set())
            listener = functools.partial(_show_note, notes)
            with operator_notes_to(listener), ExitStack() as ending:
                _ending.set(ending)
                code = _run(lambda: run(*args, **kwargs))
        if code:
            raise typer.Exit(code)

    return wrapper


def hold(resource: AbstractContextManager[object]) -> None:
    """Enter a context that is closed when the command ends, even after an error."""
    _ending.get().enter_context(resource)


def _run(action: Callable[[], None]) -> int:
    try:
        action()
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise  # of a broken pipe `leave_quietly` knows what to do
    except KeyboardInterrupt:
        return fail("interrupted; no output is incomplete.", INTERRUPTED)
    except Exception as error:
        message, code = _account_of(error)
        if not is_json():
            return fail(message, code)
        kind = type(error).__name__ if isinstance(error, BagwiseError) else "Error"
        return fail_as_json(message, code, kind=kind)
    return 0


def fail_as_json(message: str, code: int, *, kind: str) -> int:
    """Print an error for a machine, and return its exit code."""
    said = {"error": {"code": code, "kind": kind, "message": printable(message, keep="\n")}}
    sys.stderr.write(json.dumps(said, indent=2) + "\n")
    return code


def _account_of(error: Exception) -> tuple[str, int]:
    """Return the message of an error, and the exit code."""
    if is_low_memory(error):
        error = LowMemoryError()
    if isinstance(error, StageError | LowMemoryError):
        return str(error), UNFORESEEN
    if isinstance(error, BagwiseError):
        return str(error), BAD_INPUT
    if isinstance(error, OSError):
        reason = error.strerror or type(error).__name__
        where = f": {error.filename}" if error.filename else ", while printing."
        return f"{reason}{where}", BAD_INPUT
    return str(StageError("the command", error)), UNFORESEEN


def leave_quietly(run: Callable[[], None]) -> None:
    """Run the command line, and end it silently if the reader of the output closes it.

    A reader such as ``head`` closes the pipe when it has enough. What was to be written is written
    by then, but a check whose outcome was cut off must not look as if it had passed: so the exit
    code is the one that shells know, and not 0. Likewise, SIGTERM and SIGHUP end a run as Ctrl-C
    does: drafts are removed on the way out.
    """
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has its reasons
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    try:
        try:
            run()
        finally:
            sys.stdout.flush()
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):  # rich and click exit with 1 then
            _drop_output()
            sys.exit(CLOSED_PIPE)
        raise
    except BrokenPipeError:
        _drop_output()
        sys.exit(CLOSED_PIPE)
    except Exception as error:  # before a verb began, or after it ended
        _drop_output()
        sys.exit(fail(*_account_of(error)))


def _drop_output() -> None:
    """Redirect output to null, so that the interpreter does not complain about the closed pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def safe(text: object) -> str:
    """Escape untrusted text, so that it cannot colour, move or hide anything."""
    return escape(printable(str(text)))


def say(text: str, *, style: str = "") -> None:
    """Print lines of plain, possibly untrusted text without breaking them."""
    out.print(Text(printable(text, keep="\n"), style=style), soft_wrap=True)


def say_next(*commands: Sequence[object]) -> None:
    """Print the next commands on one line, ready to be copied."""
    say("Next: " + " · ".join(shlex.join(map(str, words)) for words in commands))


def fail(message: str, code: int) -> int:
    """Print an error and return its exit code."""
    shown = escape(printable(message, keep="\n"))  # all that is wrong, line by line
    err.print(f"[bold red]Error:[/] {shown}", soft_wrap=True)
    return code


def _show_warning(
    said: set[str],
    message: Warning | str,
    category: type[Warning],
    *_args: Any,
    **_kwargs: Any,
) -> None:
    # Warnings of other libraries may quote data; only our own are known not to.
    if issubclass(category, BagwiseWarning) and not is_quiet() and str(message) not in said:
        said.add(str(message))  # a plan and its release may find the same
        err.print(f"[yellow]Warning:[/] {safe(message)}", soft_wrap=True)


def has_terminal() -> bool:
    """Return whether standard error is a terminal."""
    # Asked of the file itself: FORCE_COLOR makes rich take the log of a build for a terminal.
    return err.is_terminal and err.file.isatty()


def _show_note(notes: Path | None, text: str) -> None:
    if notes is not None:
        with notes.open("a", encoding="utf-8") as handle:
            handle.write(f"\n{printable(text)}\n")
    elif not is_quiet() and has_terminal():
        err.print(f"[cyan]Note:[/] {safe(text)}", soft_wrap=True, highlight=False)


def start_notes(notes: Path | None, output: Path) -> None:
    """Begin a file for notes that depend on labels, which only its owner may read.

    It replaces that of an earlier run, and is there whatever the labels are. A directory that is
    published is no place for it.
    """
    if notes is None:
        return
    if output.resolve() in (notes.resolve(), *notes.resolve().parents):
        raise OutputError(f"--notes {notes} is inside {output}, which will be published.")
    with new_file(notes, force=True, private=True) as draft:
        draft.write_text("Notes of bagwise. They may depend on labels: keep them with these.\n")


NOT_COMPARED = (
    "bagwise did not show whether a column reveals the labels, since such notes appear only on a "
    "terminal or in a file that only you can read. To see them, add --notes FILE."
)
"""The same text for all labels."""


def say_where_notes_are(notes: Path | None) -> None:
    """Print where to find notes that depend on labels; the text itself never depends on them."""
    if notes is not None:
        say(f"How columns compare with the label: {notes}. Read it before you publish.")
    elif not has_terminal():
        say(f"Note: {NOT_COMPARED}")


@contextmanager
def show_progress(steps: int) -> Iterator[Callable[[str], None]]:
    """Show the current stage on the terminal; without one, log the stages of a long run."""
    if not for_people():
        log = logging.getLogger("bagwise")
        before = log.level
        log.setLevel(logging.ERROR)  # notices such as "compiling kernels, once" are for people, too
        try:
            yield ignore_stage
        finally:
            log.setLevel(before)
        return
    if not err.is_terminal:
        with _logged_stages() as on_stage:
            yield on_stage
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=err, transient=True) as progress:
        _progress.set(progress)
        task = progress.add_task("starting", total=steps)

        current, done = "starting", 0

        def on_stage(name: str) -> None:
            nonlocal current, done
            current, done = name, done + 1
            # Never full before the end, or the clock would stop.
            progress.update(task, description=name, completed=done, total=max(steps, done + 1))

        def on_progress(what: str, share: float) -> None:
            progress.update(task, description=f"{current}: {what} {share:.0%}")

        with progress_to(on_progress):
            yield on_stage
        _progress.set(None)


@contextmanager
def _logged_stages() -> Iterator[Callable[[str], None]]:
    """Log the stage that a run is in after `PATIENCE` seconds, and each one that follows."""
    current, due = "starting", time.monotonic() + PATIENCE

    def log() -> None:
        sys.stderr.write(f"{datetime.now().isoformat(' ', 'seconds')} {current}\n")
        sys.stderr.flush()

    def on_stage(name: str) -> None:
        nonlocal current
        current = name
        if time.monotonic() >= due:
            log()

    timer = threading.Timer(PATIENCE, log)
    timer.daemon = True
    timer.start()
    try:
        yield on_stage
    finally:
        timer.cancel()


@contextmanager
def paused_progress() -> Iterator[None]:
    """Hide the progress bar in order to print or ask something."""
    progress = _progress.get()
    if progress is not None:
        progress.stop()
    yield
    if progress is not None:
        progress.start()


def readable(score: float | int | str | None) -> str:
    """Format a score for people."""
    if score is None:
        return "hidden by the privacy noise"
    return f"{score:.4g}" if isinstance(score, float) else str(score)


def print_grid(title: str, rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells as a table; the first row is the heading."""
    grid = _titled(title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    heading, *body = rows
    for i, name in enumerate(heading):
        grid.add_column(safe(name), justify="right" if i else "left", overflow="fold")
    for cells in body:
        grid.add_row(*(safe(cell) for cell in cells))
    out.print(grid)


def print_coefficients(title: str, summary: Any) -> None:
    """Print coefficients; of very many, those that differ from 0 most clearly."""
    heading, *rows = summary.cells()
    clear = sorted(range(len(rows)), key=lambda i: min(2.0, summary.p_value[i]))  # NaN last
    print_grid(title, [heading, *(rows[i] for i in sorted(clear[:_MOST_COEFFICIENTS]))])
    if len(rows) > _MOST_COEFFICIENTS:
        say(f"Shown are {_MOST_COEFFICIENTS} of {len(rows)} coefficients; bagwise report, all.")


def _titled(title: str, **options: Any) -> Table:
    """Return a table that is wide enough for its title, which rich would otherwise break."""
    return Table(title=safe(title), min_width=min(cell_len(title), out.width), **options)


def print_pairs(title: str, values: Mapping[str, Any]) -> None:
    """Print pairs of names, as in JSON, and values as a table."""
    grid = _titled(title, show_header=False)
    for name, value in values.items():
        grid.add_row(safe(name.removeprefix("n_").replace("_", " ")), safe(value))
    out.print(grid)
