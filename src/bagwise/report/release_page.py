"""A release as a page: the promise first, then what it rests on and what to do with it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.auditor.report import AuditReport
from bagwise.errors import BagwiseError
from bagwise.learn.from_release import explain_by_fit
from bagwise.ledger import Ledger
from bagwise.privacy.accounting import total_epsilon
from bagwise.privacy.certificate import Certificate
from bagwise.privacy.circumstances import exact
from bagwise.release.explain import Explanation
from bagwise.release.files import SIGNATURE
from bagwise.release.preview import Preview, preview_columns
from bagwise.release.release import Release
from bagwise.report.groups import GroupErrors
from bagwise.report.pages import odds_of
from bagwise.report.questions import ASK, Report
from bagwise.requests.columns import Columns
from bagwise.requests.records import Bagging, Reading
from bagwise.rows.summary import ColumnSummary
from bagwise.show import charts
from bagwise.show.page import Figure, Grid, Page

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


@dataclass(frozen=True)
class ReleasePage:
    """What a page about a release is made of.

    Attributes
    ----------
    release : Release
        One that was verified.
    path : Path
        Where it is, for the commands on the page.
    report : Report
        Questions, answers, and errors by group.
    explanation : Explanation or str
        The error to expect of a model, or why there is none.
    audit : AuditReport, optional
    ledger : Ledger, optional
        What it was charged to.
    """

    release: Release
    path: Path
    report: Report
    explanation: Explanation | str
    audit: AuditReport | None = None
    ledger: Ledger | None = None

    @property
    def tells_of_labels(self) -> bool:
        """Whether figures on the page were computed from labels, and no certificate covers them."""
        exact_groups = self.report.groups is not None and self.report.groups.from_labels
        guessed = self.audit is not None and self.audit.label_inference is not None
        return exact_groups or guessed

    def page(self) -> Page:
        """Return the page."""
        release, certificate = self.release, self.release.certificate
        kind = "each row" if release.bags.sizes.max() == 1 else "each bag"
        labels = f"one {'' if kind == 'each row' else release.label_kind + ' '}label for {kind}"
        preview, reason = _columns(release), release.provenance.chosen_because
        explained = None if isinstance(self.explanation, str) else self.explanation
        values: dict[str, Any] = {
            "release": release,
            "made": release.provenance,
            "certificate": certificate,
            "odds": odds_of(certificate),
            "tells_of_labels": self.tells_of_labels,
            "identity": self._identity(),
            "labels": labels,
            "columns": _with_flags(preview),
            "flags": [
                f"{one.name!r} {'; '.join(one.flags)}" for one in preview.columns if one.flags
            ],
            "accuracy": None if explained is None else explained.accuracy,
            "explained": str(self.explanation).split("\n"),
            "charged": self.ledger is not None,
            **_spent(certificate),
            "audit": self.audit,
            "audited": [] if self.audit is None else _audited(self.audit),
            "groups": None if self.report.groups is None else _by_group(self.report.groups),
            "answers": self.report.answers,
            "ask": ASK,
            "path": self.path,
            "bags": _bags(release),
            # Its forecast was made before anything was asked; the page has one, of the release.
            "why": "" if reason is None else f"{reason.text().partition('. ')[0]}.",
            "figures": [
                *_curve(certificate),
                *([] if explained is None else [_shares(explained)]),
                *_drawn_bags(release),
            ],
        }
        mark = certificate.mark
        about = "" if mark is None or mark.dataset is None else f" of {mark.dataset}"
        return Page(
            "release.html",
            f"Release{about}: bags labelled with {release.provenance.label}",
            f"{release.bags.n_rows:,} rows in {release.bags.n_bags:,} bags. "
            f"It holds {labels}, and not the true label of any row.",
            values,
        )

    def _identity(self) -> list[tuple[str, str | None]]:
        """Return what tells this release from any other: for whoever signs for it."""
        mark, said = self.release.certificate.mark, self.report.facts
        purpose = recipient = None
        charged = "not shown: give the ledger (--ledger)"
        if self.ledger is not None and mark is not None:
            charge = next(one for one in self.ledger.charges() if one.id == mark.id)
            purpose, recipient = charge.purpose, charge.recipient
            totals = self.ledger.totals()
            charged = (
                f"{self.ledger.path.name}, as {mark.id[:8]}; in all {totals.filtered:.3g} of "
                f"{totals.epsilon:.3g} is spent"
            )
        return [
            ("made on", None if mark is None else mark.date),
            ("data set", None if mark is None else mark.dataset),
            ("publisher", said.get("publisher")),
            ("purpose", said.get("purpose") or purpose),
            ("recipient", said.get("recipient") or recipient),
            ("charged to", charged if self.release.certificate.is_private else "nothing"),
            ("signed", "yes" if (self.path / SIGNATURE).is_file() else "no"),
            ("digest", self.release.digest),
        ]


def explain_or_say_why(release: Release) -> Explanation | str:
    """Return the error to expect of a model, or why nothing can be said."""
    if release.classes is not None:
        return (
            "The error of a model of classes is explained for one of them at a time, in Python: "
            "Release.explain."
        )
    try:
        return explain_by_fit(release)
    except BagwiseError as error:
        return f"Nothing can be said about the error of a model: {error}"


def _columns(release: Release) -> Preview:
    """List the columns of the release, with what a custodian should think about."""
    made, table = release.provenance, release.instances
    facts = {name: ColumnSummary.of(name, table.column(name)) for name in table.column_names}
    roles = Columns.of(
        made.label,
        id=made.id,
        bagging=Bagging(by=made.by, within=made.within),
        reading=Reading(exposure=made.exposure),
    )
    return preview_columns(facts, release.encoder, roles)


def _with_flags(preview: Preview) -> Grid:
    cells = preview.cells()
    if not any(one.flags for one in preview.columns):
        return Grid(cells)
    marks = ("look twice", *("yes" if one.flags else "" for one in preview.columns))
    return Grid([(*row, mark) for row, mark in zip(cells, marks, strict=True)])


def _spent(certificate: Certificate) -> dict[str, Any]:
    """Return what was spent on what, alone and together."""
    epsilon, delta = certificate.epsilon, certificate.delta
    if epsilon is None or delta is None:
        return {"spent": [], "events": None, "together": []}
    several = "rows" if certificate.unit is None else "units"
    alone = [total_epsilon((event,), delta) for event in certificate.events]
    rows = [
        (_HIDDEN.get(event.hides, event.hides), event.kind, "" if math.isinf(e) else f"{e:.3g}")
        for event, e in zip(certificate.events, alone, strict=True)
    ]
    composed = (
        f"Together they cost epsilon {epsilon:.3g} at delta {delta:g}: the accountant composes "
        "their noise, which is never more than the sum."
    )
    return {
        "spent": [
            ("epsilon", exact(epsilon)),
            ("delta", exact(delta)),
            ("protected", certificate.protected),
            *(
                (f"epsilon for {size} {several} together", f"{together:.3g}")
                for size, together in certificate.group().items()
            ),
        ],
        "events": Grid(
            [("for", "by", "epsilon alone"), *rows], caption="Everything that looked at a label"
        ),
        "together": [
            composed if len(rows) > 1 else "",
            *certificate.looks,
            certificate.spends_less or "",
        ],
    }


def _curve(certificate: Certificate) -> Sequence[Figure]:
    epsilon, delta = certificate.epsilon, certificate.delta
    if epsilon is None or delta is None:
        return ()
    curve = certificate.curve()
    figure = Figure(
        charts.privacy_curve(curve, promised=(epsilon, delta)),
        alt=f"Line: delta falls from {curve[0][1]:.2g} at epsilon {curve[0][0]:g} to "
        f"{curve[-1][1]:.2g} at epsilon {curve[-1][0]:g}. Promised is epsilon {epsilon:.3g} with "
        f"delta {delta:.2g}.",
        caption="The same noise keeps every promise on this line: at each epsilon, delta is the "
        "chance that is left for outcomes that tell more.",
        numbers=Grid(
            [("epsilon", "delta"), *((f"{e:g}", f"{d:.3g}") for e, d in curve)],
            folded="The numbers of this line",
        ),
    )
    return (figure,)


def _bags(release: Release) -> list[tuple[str, str]]:
    sizes, noise = release.bags.sizes, release.noise_sd
    return [
        ("bags", f"{release.bags.n_bags:,}"),
        ("rows in a bag", _range(sizes.min(), sizes.max(), "d")),
        ("rows in no bag", f"{int((~release.bags.in_bag).sum()):,}"),
        ("put together by", release.provenance.strategy),
        (
            "privacy noise of a bag label",
            f"± {_range(noise.min(), noise.max(), '.3g')}" if noise.max() else "none",
        ),
    ]


def _range(low: float, high: float, form: str) -> str:
    """Return two numbers as a range, or one if they look the same.

    >>> _range(3, 5, "d"), _range(0.1, 0.1, ".3g")
    ('3 to 5', '0.1')
    """
    ends = dict.fromkeys([format(low, form), format(high, form)])
    return " to ".join(ends)


def _drawn_bags(release: Release) -> list[Figure]:
    sizes, quality = release.bags.sizes, release.quality()
    figures = []
    if sizes.min() != sizes.max():
        figures.append(
            Figure(
                charts.bag_sizes(sizes),
                alt=f"Bars: {sizes.size} bags by their number of rows, {sizes.min()} to "
                f"{sizes.max()}, half of them at most {int(np.median(sizes))}.",
                caption="How many bags have how many rows.",
            )
        )
    if quality.directions:
        cells = [(str(i + 1), f"{100 * k:.3g} %") for i, k in enumerate(quality.kept[:200])]
        figures.append(
            Figure(
                charts.kept_shares(quality.kept),
                alt=f"Bars: bag means keep {quality.kept.max():.0%} of the variance of rows in the "
                f"best direction and {quality.least_kept:.0%} in the worst of "
                f"{quality.directions}.",
                caption="How much of the variance of the features the bag means keep, in each "
                "direction. Where little is kept, a model can learn little.",
                numbers=Grid(
                    [("direction", "share kept"), *cells], folded="The numbers of these bars"
                ),
            )
        )
    return figures


def _shares(explanation: Explanation) -> Figure:
    causes = ", ".join(f"{share:.0%} from {name}" for name, share in explanation.shares().items())
    return Figure(
        explanation.plot(),
        alt=f"Bars: the expected squared error comes to {causes}.",
        caption="Where the expected squared error of a model comes from.",
        numbers=Grid(explanation.table(), folded="Expected squared error by cause"),
    )


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
            (
                one.name,
                "nothing to guess"
                if one.advantage is None
                else f"{one.advantage.estimate:.2f} ({one.advantage.low:.2f} to "
                f"{one.advantage.high:.2f})",
                f"{one.limit:.2f}",
                one.colour,
            )
            for one in audit.label_inference.attacks
        ]
        grids.append(
            Grid(
                [("attacker", "advantage", "limit", ""), *attacks],
                caption="Guesses about single labels",
            )
        )
    return grids


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _by_group(groups: GroupErrors) -> Grid:
    """Return the errors by group, without columns that nothing is known for."""
    columns = [column for column in zip(*groups.cells(), strict=True) if any(column[1:])]
    return Grid(
        list(zip(*columns, strict=True)),
        caption=f"Mean prediction minus mean label, by {groups.column}",
    )
