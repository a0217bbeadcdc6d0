"""The verbs that show what was made, and attack it: report and audit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bagwise.cli import ledgers
from bagwise.cli.console import (
    LABELS_SHOW,
    emit,
    fail,
    for_people,
    is_json,
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
    from bagwise.ledger import Ledger
    from bagwise.release.release import Release
    from bagwise.report import GroupErrors
    from bagwise.show.page import Page

_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True)
class _Wanted:
    """What was typed."""

    path: Path
    output: Path | None
    answers: Path | None
    group: str | None
    model: Path | None
    labels: Path | None
    audit: Path | None
    ledger: Path | None
    release: Path | None

    def refuse(self, what: str, *names: str) -> None:
        """Refuse options that are not for `what`."""
        given = [f"--{name}" for name in names if getattr(self, name) is not None]
        if given:
            raise BudgetError(f"{', '.join(given)}: not for {what}, which {self.path} is.")


@verb("force")
def report(
    path: Annotated[Path, typer.Argument(help="A release directory, a model file, or a ledger.")],
    output: Annotated[Path | None, "Page to write, as .html; .md: a model's card."] = None,
    answers: Annotated[Path | None, "JSON file with the custodian's answers, by question."] = None,
    group: Annotated[
        str | None, "Public column: the error of a model in each of its groups.", "COLUMN"
    ] = None,
    model: Annotated[
        Path | None, "With --group: the model. Default: one fitted to the bags."
    ] = None,
    labels: Annotated[
        Path | None, "With --group: a table with labels, for exact errors; keep those confidential."
    ] = None,
    audit: Annotated[Path | None, "What `bagwise audit DIR --json` printed, for the page."] = None,
    ledger: Annotated[Path | None, "Ledger of the release: what was spent in total."] = None,
    release: Annotated[
        Path | None, "For a model: the release, to show how it fits the bags."
    ] = None,
) -> None:
    """Write a release, a model or a ledger as a page, or print answers as text.

    A page is complete in itself and needs no network. Without -o, a release answers what
    evaluations of privacy ask (NIST SP 800-226), and says where a model's error comes from. The
    custodian's part is open until --answers has it.

    Example: [bold]bagwise report out -o release.html[/]

    Questions: [bold]bagwise report out --answers answers.json --group district[/]

    A model: [bold]bagwise report model.json --release out -o model.html[/]

    Its card for a model hub: [bold]bagwise report model.json -o README.md[/]
    """
    from bagwise.report.pages import check_page, write_page

    is_card = output is not None and output.suffix == ".md"
    if is_card and _kind_of(path) != "model":
        raise BudgetError(f"{output}: a card is that of a model file, which {path} is not.")
    if output is not None and not is_card:
        check_page(output, force=shared().force)
    wanted = _Wanted(path, output, answers, group, model, labels, audit, ledger, release)
    show = _KINDS[_kind_of(path)]
    with show_progress(steps=2) as on_stage:
        on_stage("reading")
        page = show(wanted)
        if output is not None:
            on_stage("drawing the page")
            if is_card:
                _write_card(path, output, force=shared().force)
            else:
                write_page(page(), output, force=shared().force)
    if output is not None and for_people():
        out.print(f"Page in {safe(output)}", soft_wrap=True)


def _write_card(path: Path, card: Path, *, force: bool) -> None:
    from bagwise.models import load_model
    from bagwise.report.model_card import model_card

    with new_file(card, force=force) as draft:
        draft.write_text(model_card(load_model(path), file=path.name), encoding="utf-8")


def _kind_of(path: Path) -> str:
    if path.is_dir():
        return "release"
    with open_regular(path, error=LedgerError) as handle:
        return "ledger" if handle.read(len(_SQLITE)) == _SQLITE else "model"


def _release(wanted: _Wanted) -> Callable[[], "Page"]:
    from bagwise.release.release import Release
    from bagwise.report import report_on
    from bagwise.report.release_page import ReleasePage, explain_or_say_why

    wanted.refuse("a release", "release")
    if wanted.group is None and (wanted.model is not None or wanted.labels is not None):
        raise BudgetError("--model and --labels are for errors by group: add --group COLUMN.")
    if wanted.output is None and (wanted.audit is not None or wanted.ledger is not None):
        raise BudgetError("--audit and --ledger are for a page: add -o FILE.html.")
    release = Release.load(wanted.path)
    release.verify()
    groups = None if wanted.group is None else _errors_by_group(release, wanted)
    found = report_on(release, answers=wanted.answers, groups=groups)
    explained = explain_or_say_why(release)
    if is_json():
        error = {"text": explained} if isinstance(explained, str) else explained.to_json()
        emit({**found.to_json(), "expected_error": error})
    elif for_people() and wanted.output is None:
        for line in found.lines():
            say(line)
        if not isinstance(explained, str):
            print_grid("Expected squared error", explained.table())
        say(str(explained))
        if groups is not None:
            print_grid(f"Errors by {groups.column}", groups.cells())
            if groups.from_labels:
                say("These errors depend on the labels: no certificate covers their publication.")
        out.print(f"As a page: [bold]bagwise report {safe(wanted.path)} -o report.html[/]")

    def page() -> "Page":
        from bagwise.auditor import AuditReport

        audit = wanted.audit
        return ReleasePage(
            release=release,
            path=wanted.path,
            report=found,
            explanation=explained,
            audit=None if audit is None else AuditReport.load(audit, digest=release.digest),
            ledger=None if wanted.ledger is None else _ledger_of(release, wanted.ledger),
        ).page()

    return page


def _ledger_of(release: "Release", path: Path) -> "Ledger":
    from bagwise.ledger import Ledger

    ledger, certificate = Ledger.open(path), release.certificate
    if certificate.mark is None or not ledger.act(certificate.mark.id, certificate.events):
        raise LedgerError(f"the release was not charged to {path}.")
    return ledger


def _errors_by_group(release: "Release", wanted: _Wanted) -> "GroupErrors":
    from bagwise.learn import fit_release
    from bagwise.models.row_model import RowModel
    from bagwise.report import errors_by_group

    model = fit_release(release) if wanted.model is None else RowModel.load(wanted.model)
    return errors_by_group(release, model, str(wanted.group), labels=wanted.labels)


def _model(wanted: _Wanted) -> Callable[[], "Page"]:
    from bagwise.models import load_model
    from bagwise.release.release import Release
    from bagwise.report.model_page import model_page, table_of

    wanted.refuse("a model", "answers", "group", "model", "labels", "audit", "ledger")
    model = load_model(wanted.path)
    text = table_of(model)
    if is_json():
        emit(text.values)
    elif for_people() and wanted.output is None:
        print_grid(text.title, text.cells)
        say(text.note)
        out.print(f"As a page: [bold]bagwise report {safe(wanted.path)} -o model.html[/]")

    def page() -> "Page":
        release = None if wanted.release is None else Release.load(wanted.release)
        return model_page(model, path=wanted.path, release=release)

    return page


def _ledger(wanted: _Wanted) -> Callable[[], "Page"]:
    from bagwise.ledger import Ledger

    wanted.refuse("a ledger", "answers", "group", "model", "labels", "audit", "ledger", "release")
    if wanted.output is None:
        ledgers.show_ledger(wanted.path)

    def page() -> "Page":
        from bagwise.report.ledger_page import ledger_page

        return ledger_page(Ledger.open(wanted.path))

    return page


_KINDS: Mapping[str, Callable[[_Wanted], Callable[[], "Page"]]] = {
    "release": _release,
    "model": _model,
    "ledger": _ledger,
}


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

    found = audit_of(path, labels=labels, draws=draws, trials=draws // 2)
    if is_json():
        emit(found.to_json())
    elif for_people():
        for line in found.lines():
            out.print(safe(line), soft_wrap=True, highlight=False)
        shown = f"[{_COLOURS[found.colour]}]{found.colour}[/]: {safe(found.verdict)}"
        out.print(shown, soft_wrap=True, highlight=False)
    if found.colour == "red":
        fail(f"{path}: {found.verdict}", 0)
        raise typer.Exit(LABELS_SHOW)
