"""A release as a page: first the guarantee, then its basis and the next steps."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bagwise.auditor.report import AuditReport
from bagwise.errors import BagwiseError
from bagwise.learn.from_release import explain_by_fit
from bagwise.ledger import Ledger
from bagwise.privacy.accounting import total_epsilon
from bagwise.privacy.certificate import Certificate
from bagwise.privacy.circumstances import exact
from bagwise.release.explain import Explanation
from bagwise.release.files import SIGNATURE
from bagwise.release.preview import preview_columns
from bagwise.release.release import Release
from bagwise.report.pages import odds_of
from bagwise.report.questions import ASK, Report
from bagwise.requests.columns import Columns
from bagwise.requests.records import Bagging, Reading
from bagwise.rows.summary import ColumnSummary
from bagwise.show import charts
from bagwise.show.page import Grid, Page

_HIDDEN = {
    "bounds": "the search for bounds of the labels",
    "range": "the search for a tighter range of the labels",
    "limit": "the search for a limit of what the model leaves",
    "labels": "noisy labels, to sort rows by",
    "model": "a private model of the labels",
    "bag means": "the mean label of each bag",
    "class shares": "the share of each class in each bag",
    "bag picks": "the label of one row of each bag",
    "class picks": "the class of one row of each bag",
    "mean loss": "the mean loss of a model",
    "single labels": "the label of each row, reported at random",
}


def release_page(
    release: Release,
    *,
    path: Path,
    report: Report,
    explanation: Explanation | str,
    audit: AuditReport | None = None,
    ledger: Ledger | None = None,
) -> Page:
    """Return the page of a release.

    Parameters
    ----------
    release : Release
        One that was verified.
    path : Path
        Where it is, for the commands on the page.
    report : Report
        Questions, answers, and errors by group.
    explanation : Explanation or str
        The error to expect of a model, or why there is none.
    ledger : Ledger, optional
        What it was charged to.
    """
    certificate, made, sizes = release.certificate, release.provenance, release.bags.sizes
    kind = "each row" if sizes.max() == 1 else "each bag"
    labels = f"one {'' if kind == 'each row' else release.label_kind + ' '}label for {kind}"
    explained = None if isinstance(explanation, str) else explanation
    private = certificate.epsilon is not None
    curve, quality = certificate.curve() if private else [], release.quality()
    values: dict[str, Any] = {
        "release": release,
        "made": made,
        "certificate": certificate,
        "odds": odds_of(certificate),
        # Whether figures were computed from labels, and no certificate covers them.
        "tells_of_labels": (report.groups is not None and report.groups.from_labels)
        or (audit is not None and audit.label_inference is not None),
        "identity": _identity(release, path, report, ledger),
        "labels": labels,
        **_columns(release),
        "accuracy": None if explained is None else explained.accuracy,
        "explained": str(explanation).split("\n"),
        "explanation": explained,
        "causes": explained
        and ", ".join(f"{share:.0%} from {name}" for name, share in explained.shares().items()),
        "charged": ledger is not None,
        "spent": _spent(certificate) if private else [],
        "events": _events(certificate) if private else [],
        "audit": audit,
        "audited": [] if audit is None else _audited(audit),
        "groups": report.groups,
        # Without columns that nothing is known for.
        "by_group": [] if report.groups is None else _filled(report.groups.cells()),
        "answers": report.answers,
        "ask": ASK,
        "path": path,
        "sizes": sizes,
        "rows_in_a_bag": _range(sizes.min(), sizes.max(), "d"),
        "noise": _range(release.noise_sd.min(), release.noise_sd.max(), ".3g"),
        # Its forecast was made before anything was asked; the page has one, of the release.
        "why": made.chosen_because and made.chosen_because.text().partition(". ")[0],
        "curve": curve,
        "curve_cells": [(f"{epsilon:g}", f"{delta:.3g}") for epsilon, delta in curve],
        "curve_chart": private and certificate.plot(),
        "sizes_chart": sizes.min() != sizes.max() and charts.bag_sizes(sizes),
        "quality": quality,
        "kept": [(str(i), f"{100 * k:.3g} %") for i, k in enumerate(quality.kept[:200], start=1)],
        "quality_chart": quality.directions and charts.kept_shares(quality.kept),
    }
    dataset = certificate.mark and certificate.mark.dataset
    return Page(
        "release.html",
        f"Release{f' of {dataset}' if dataset else ''}: bags labelled with {made.label}",
        f"{release.bags.n_rows:,} rows in {release.bags.n_bags:,} bags. "
        f"It holds {labels}, and not the true label of any row.",
        values,
    )


def _identity(
    release: Release, path: Path, report: Report, ledger: Ledger | None
) -> list[tuple[str, str | None]]:
    """Return what identifies this release, for the person who signs for it."""
    mark, said = release.certificate.mark, report.facts
    purpose = recipient = None
    charged = "not shown: give the ledger (--ledger)"
    if ledger is not None and mark is not None:
        charge = next(one for one in ledger.charges() if one.id == mark.id)
        purpose, recipient, totals = charge.purpose, charge.recipient, ledger.totals()
        charged = (
            f"{ledger.path.name}, as {mark.id[:8]}; in all {totals.filtered:.3g} of "
            f"{totals.epsilon:.3g} is spent"
        )
    return [
        ("made on", None if mark is None else mark.date),
        ("data set", None if mark is None else mark.dataset),
        ("publisher", said.get("publisher")),
        ("purpose", said.get("purpose") or purpose),
        ("recipient", said.get("recipient") or recipient),
        ("charged to", charged if release.certificate.is_private else "nothing"),
        ("signed", "yes" if (path / SIGNATURE).is_file() else "no"),
        ("digest", release.digest),
    ]


def explain_or_say_why(release: Release) -> Explanation | str:
    """Return the expected error of a model, or why none can be stated."""
    expected = (release.why_chosen or "").partition(". ")[2]
    planned = f" From the features alone, the planner expected this: {expected}" if expected else ""
    if release.classes is not None:
        return f"For classes, bags are not asked about the error of a model.{planned}"
    try:
        return explain_by_fit(release)
    except BagwiseError as error:
        return f"The bags do not tell the error of a model: {error}{planned}"


def _columns(release: Release) -> dict[str, Any]:
    """List the columns of the release, with what a custodian should think about."""
    made, table = release.provenance, release.instances
    facts = {name: ColumnSummary.of(name, table.column(name)) for name in table.column_names}
    roles = Columns.of(
        made.label,
        id=made.id,
        bagging=Bagging(by=made.by, within=made.within),
        reading=Reading(exposure=made.exposure),
    )
    preview = preview_columns(facts, release.encoder, roles)
    flags = [f"{one.name!r} {'; '.join(one.flags)}" for one in preview.columns if one.flags]
    marks = ("look twice", *("yes" if one.flags else "" for one in preview.columns))
    cells = [(*row, mark) for row, mark in zip(preview.cells(), marks, strict=True)]
    return {"columns": Grid(cells if flags else preview.cells()), "flags": flags}


def _spent(certificate: Certificate) -> list[tuple[str, str]]:
    """Return the guarantee, and what it amounts to for several rows or units."""
    several = "rows" if certificate.unit is None else "units"
    return [
        ("epsilon", exact(certificate.epsilon or 0.0)),
        ("delta", exact(certificate.delta or 0.0)),
        ("protected", certificate.protected),
        *(
            (f"epsilon for {size} {several} together", f"{epsilon:.3g}")
            for size, epsilon in certificate.group().items()
        ),
    ]


def _events(certificate: Certificate) -> list[tuple[str, str, str]]:
    """Return the cost of each event by itself."""
    alone = [total_epsilon((event,), certificate.delta or 0.0) for event in certificate.events]
    return [
        (_HIDDEN.get(event.hides, event.hides), event.kind, "" if math.isinf(e) else f"{e:.3g}")
        for event, e in zip(certificate.events, alone, strict=True)
    ]


def _range(low: float, high: float, form: str) -> str:
    """Return two numbers as a range, or one if they look the same.

    >>> _range(3, 5, "d"), _range(0.1, 0.1, ".3g")
    ('3 to 5', '0.1')
    """
    ends = dict.fromkeys([format(low, form), format(high, form)])
    return " to ".join(ends)


def _audited(audit: AuditReport) -> list[Grid]:
    grids = []
    if audit.mechanisms.audits:
        rows = [
            (one.kind, _number(one.claimed), _number(one.shown), f"{one.draws:,}", one.verdict)
            for one in audit.mechanisms.audits
        ]
        confidence = f"All bounds hold together with confidence {audit.mechanisms.confidence:g}"
        heading = ("mechanism", "claims epsilon", "shown at least", "draws", "verdict")
        grids.append(Grid([heading, *rows], caption=f"Noise redrawn and attacked. {confidence}."))
    if audit.label_inference is not None:
        attacks = [
            (one.name, str(one.advantage or "nothing to guess"), f"{one.limit:.2f}", one.colour)
            for one in audit.label_inference.attacks
        ]
        caption = "Guesses about single labels"
        grids.append(Grid([("attacker", "advantage", "limit", ""), *attacks], caption=caption))
    return grids


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _filled(cells: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return a table without columns that are empty below their heading."""
    columns = [column for column in zip(*cells, strict=True) if any(column[1:])]
    return list(zip(*columns, strict=True))
