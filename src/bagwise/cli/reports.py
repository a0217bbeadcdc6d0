"""The commands report and audit."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bagwise.cli import ledgers
from bagwise.cli.console import (
    LABELS_SHOW,
    answer,
    fail,
    for_people,
    out,
    print_grid,
    safe,
    say,
    show_progress,
)
from bagwise.cli.options import shared, verb
from bagwise.errors import BudgetError, LedgerError
from bagwise.files.atomic import new_file
from bagwise.files.regular_files import open_regular

if TYPE_CHECKING:
    from bagwise.release.explain import Explanation
    from bagwise.report.questions import Report
    from bagwise.show.page import Page

_SQLITE = b"SQLite format 3\0"
_FOR = {
    "release": ("answers", "group", "model", "labels", "audit", "ledger"),
    "model": ("release",),
    "ledger": (),
}
"""Options of a report, by what it is about."""


@verb("force")
def report(
    path: Annotated[Path, typer.Argument(help="A release directory, a model file, or a ledger.")],
    output: Annotated[Path | None, "Page to write: .html, or .md for a model card."] = None,
    answers: Annotated[Path | None, "JSON file with the custodian's answers."] = None,
    group: Annotated[
        str | None, "Column: show the error of a model in each of its groups.", "COLUMN"
    ] = None,
    model: Annotated[
        Path | None, "With --group: the model. Default: one fitted to the bags."
    ] = None,
    labels: Annotated[
        Path | None, "With --group: a labelled table, for exact errors, which are confidential."
    ] = None,
    audit: Annotated[
        Path | None, "Output of `bagwise audit DIR --json` to show on the page."
    ] = None,
    ledger: Annotated[Path | None, "Ledger of the release, to show the total spent."] = None,
    release: Annotated[
        Path | None, "For a model: its release, to show how it fits the bags."
    ] = None,
) -> None:
    """Show a release, a model or a ledger as a page, or print it as text.

    A page is self-contained and needs no network. Without -o, the command answers the questions of
    NIST SP 800-226 about a release, and shows where a model's error comes from. --answers adds the
    answers that only the custodian knows.

    Example: [bold]bagwise report out -o release.html[/]

    Questions: [bold]bagwise report out --answers answers.json --group district[/]

    A model: [bold]bagwise report model.json --release out -o model.html[/]

    Its card for a model hub: [bold]bagwise report model.json -o README.md[/]
    """
    from bagwise.report.pages import check_page, write_page

    # 1. Refuse options that do not belong to what the path is, before anything is read.
    kind, force = "release", shared().force
    if not path.is_dir():
        with open_regular(path, error=LedgerError) as handle:
            kind = "ledger" if handle.read(len(_SQLITE)) == _SQLITE else "model"
    given: dict[str, Any] = {
        "answers": answers, "group": group, "model": model, "labels": labels, "audit": audit,
        "ledger": ledger, "release": release,
    }  # fmt: skip
    is_card = output is not None and output.suffix == ".md"
    if is_card and kind != "model":
        raise BudgetError(
            f"{output}: only model files have a card, and {path} is not a model file."
        )
    if output is not None and not is_card:
        check_page(output, force=force)
    if wrong := [f"--{name}" for name in given if given[name] and name not in _FOR[kind]]:
        raise BudgetError(f"{', '.join(wrong)}: cannot be used with a {kind} ({path}).")
    options = {name: given[name] for name in _FOR[kind]}
    # 2. Print it, or write its page or its card.
    with show_progress(steps=2) as on_stage:
        on_stage("reading")
        if kind == "ledger" and output is None:
            ledgers.show_ledger(path)
            return
        page = _PAGES[kind](path, output, **options)
        if output is None:
            return
        on_stage("drawing the page")
        if is_card:
            from bagwise.models import load_model
            from bagwise.report.model_page import model_card

            with new_file(output, force=force) as draft:
                draft.write_text(model_card(load_model(path), file=path.name), encoding="utf-8")
        else:
            write_page(page, output, force=force)
    if for_people():
        out.print(f"Page in {safe(output)}", soft_wrap=True)


def _release(
    path: Path,
    output: Path | None,
    *,
    answers: Path | None,
    group: str | None,
    model: Path | None,
    labels: Path | None,
    audit: Path | None,
    ledger: Path | None,
) -> "Page | None":
    """Print answers about a release, or return its page."""
    from bagwise.auditor import AuditReport
    from bagwise.learn import fit_release
    from bagwise.ledger import Ledger
    from bagwise.models.row_model import RowModel
    from bagwise.release.release import Release
    from bagwise.report import errors_by_group, report_on
    from bagwise.report.release_page import explain_or_say_why, release_page

    if group is None and (model is not None or labels is not None):
        raise BudgetError("--model and --labels are for errors by group: add --group COLUMN.")
    if output is None and (audit is not None or ledger is not None):
        raise BudgetError("--audit and --ledger are for a page: add -o FILE.html.")
    release = Release.load(path)
    release.verify()
    groups = None
    if group is not None:
        fitted = fit_release(release) if model is None else RowModel.load(model)
        groups = errors_by_group(release, fitted, group, labels=labels)
    answered = report_on(release, answers=answers, groups=groups)
    explained = explain_or_say_why(release)
    error = {"text": explained} if isinstance(explained, str) else explained.to_json()
    if answer({**answered.to_json(), "expected_error": error}) and output is None:
        _print_answers(path, answered, explained)
    if output is None:
        return None
    book = None if ledger is None else Ledger.open(ledger)
    mark = release.certificate.mark
    if book and (mark is None or not book.act(mark.id, release.certificate.events)):
        raise LedgerError(f"the release was not charged to {ledger}.")
    return release_page(
        release,
        path=path,
        report=answered,
        explanation=explained,
        audit=None if audit is None else AuditReport.load(audit, digest=release.digest),
        ledger=book,
    )


def _print_answers(path: Path, answered: "Report", explained: "Explanation | str") -> None:
    for line in answered.lines():
        say(line)
    if not isinstance(explained, str):
        print_grid("Expected squared error", explained.table())
    say(str(explained))
    if (groups := answered.groups) is not None:
        print_grid(f"Errors by {groups.column}", groups.cells())
        if groups.from_labels:
            say("These errors depend on the labels, and no certificate covers their publication.")
    out.print(f"As a page: [bold]bagwise report {safe(path)} -o report.html[/]")


def _model(path: Path, output: Path | None, *, release: Path | None) -> "Page | None":
    """Print what a model has learned, or return its page."""
    from bagwise.models import load_model
    from bagwise.release.release import Release
    from bagwise.report.model_page import model_page, table_of

    model = load_model(path)
    text = table_of(model)
    if answer(text.values) and output is None:
        print_grid(text.title, text.cells)
        say(text.note)
        out.print(f"As a page: [bold]bagwise report {safe(path)} -o model.html[/]")
    if output is None or output.suffix == ".md":
        return None
    fitted_to = None if release is None else Release.load(release)
    return model_page(model, path=path, release=fitted_to)


def _ledger(path: Path, _output: Path | None) -> "Page":
    from bagwise.ledger import Ledger
    from bagwise.report.pages import ledger_page

    return ledger_page(Ledger.open(path))


_PAGES: dict[str, Callable[..., Any]] = {"release": _release, "model": _model, "ledger": _ledger}


_COLOURS = {"green": "green", "amber": "yellow", "red": "bold red"}


@verb()
def audit(
    path: Annotated[
        Path, typer.Argument(help="A release directory, or a model or evaluation file.")
    ],
    labels: Annotated[
        Path | None, "The original table: also guess its labels from the release."
    ] = None,
    draws: Annotated[int, "How often noise is drawn for one estimate."] = 200_000,
) -> None:
    """Attack what was published: recompute it, redraw its noise, and guess labels.

    Exit code 4: a claim was refuted, or labels can be read. With --labels the figures depend on the
    labels; they are for whoever may see those.

    Example: [bold]bagwise audit out --labels rents.csv[/]
    """
    from bagwise.auditor import audit as audit_of

    audited = audit_of(path, labels=labels, draws=draws, trials=draws // 2)
    if answer(audited.to_json()):
        for line in audited.lines():
            out.print(safe(line), soft_wrap=True, highlight=False)
        shown = f"[{_COLOURS[audited.colour]}]{audited.colour}[/]: {safe(audited.verdict)}"
        out.print(shown, soft_wrap=True, highlight=False)
    if audited.colour == "red":
        fail(f"{path}: {audited.verdict}", 0)
        raise typer.Exit(LABELS_SHOW)
