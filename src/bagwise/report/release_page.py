"""A release as a page: the promise first, then what it rests on and what to do with it."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bagwise.errors import BagwiseError
from bagwise.learn.from_release import explain_by_fit
from bagwise.ledger import Ledger
from bagwise.privacy.accounting import total_epsilon
from bagwise.privacy.circumstances import exact
from bagwise.privacy.mechanisms import Mechanism
from bagwise.release.explain import Explanation
from bagwise.release.files import SIGNATURE
from bagwise.release.preview import preview_columns
from bagwise.release.release import Release
from bagwise.report.audit_files import AuditFile
from bagwise.report.promise import promise_of
from bagwise.report.questions import ASK, Report
from bagwise.requests.columns import Columns
from bagwise.requests.records import Bagging, Reading
from bagwise.rows.summary import ColumnSummary
from bagwise.show import charts
from bagwise.show.page import (
    Block,
    Card,
    Cards,
    Facts,
    Figure,
    Grid,
    Notice,
    Page,
    Points,
    Prose,
    Question,
    Questions,
    Section,
    Step,
    Steps,
    Tone,
)

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
_TONES: dict[str, Tone] = {"green": "good", "amber": "warn", "red": "bad"}


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
    audit : AuditFile, optional
    ledger : Ledger, optional
        What it was charged to.
    """

    release: Release
    path: Path
    report: Report
    explanation: Explanation | str
    audit: AuditFile | None = None
    ledger: Ledger | None = None

    @property
    def tells_of_labels(self) -> bool:
        """Whether figures on the page were computed from labels, and no certificate covers them."""
        exact_groups = self.report.groups is not None and self.report.groups.from_labels
        guessed = self.audit is not None and self.audit.label_inference is not None
        return exact_groups or guessed

    def page(self) -> Page:
        """Return the page."""
        made = self.release
        sections = [
            Section(
                "What is published, and what is not",
                [*_identity(made, self.path), *_what_leaves(made)],
            ),
            Section("Every published column", _columns(made)),
            Section("What a model can expect", _expected(self.explanation)),
            Section("What was spent", _spent(made, self.ledger)),
            *([] if self.audit is None else [Section("Audit", _audited(self.audit))]),
            *_by_group(self.report),
            Section("Questions of an evaluation", _questions(self.report)),
            Section("What the learner runs next", (_next_steps(self.path),)),
            Section("Appendix: the bags", _bags(made)),
        ]
        marked = made.certificate.mark
        about = "" if marked is None or marked.dataset is None else f" of {marked.dataset}"
        return Page(
            title=f"Release{about}: bags labelled with {made.provenance.label}",
            lead=f"{made.bags.n_rows:,} rows in {made.bags.n_bags:,} bags. "
            f"It holds {_labels(made)}, and not the true label of any row.",
            label="bagwise release",
            top=_promise(made, tells_of_labels=self.tells_of_labels),
            sections=sections,
        )


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


def _promise(release: Release, *, tells_of_labels: bool) -> list[Block]:
    promise: list[Block] = [promise_of(release.certificate)]
    if tells_of_labels:
        promise.append(
            Notice(
                "Some figures on this page were computed from labels. No certificate covers them: "
                "keep the page with the labels.",
                tone="bad",
            )
        )
    return promise


def _identity(release: Release, path: Path) -> list[Block]:
    """Return what tells this release from any other: for whoever signs for it."""
    mark = release.certificate.mark
    charged = [] if mark is None else [("made on", mark.date), ("id of the charge", mark.id)]
    if mark is not None and mark.dataset is not None:
        charged.insert(1, ("data set", mark.dataset))
    signed = "yes" if (path / SIGNATURE).is_file() else "no"
    digest = [] if release.digest is None else [("digest", release.digest)]
    return [Facts([*charged, *digest, ("signed", signed)])]


def _columns(release: Release) -> list[Block]:
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
    looked: list[Block] = [Notice(f"Look twice: {flag}.") for flag in flags]
    fine = Prose("No column looks like names, free text, ids or dates.")
    return [*(looked or [fine]), Grid(preview.cells())]


def _what_leaves(release: Release) -> list[Block]:
    made, certificate = release.provenance, release.certificate
    names = list(release.encoder.inputs)
    noise = "exact, without noise" if not certificate.events else "with noise"
    leaves = [
        f"{len(names)} feature columns, which are listed below",
        "which rows share a bag",
        f"{_labels(release)}, {noise}",
        *([f"the column {made.id!r}, to join rows by"] if made.id else []),
        *(["coefficients of a private model"] if release.model is not None else []),
        "how all of this was made, and the certificate",
    ]
    stays = [
        f"the true {made.label} of any row",
        *([f"the column {certificate.unit!r}"] if certificate.unit else []),
        *(["the order of the rows"] if made.row_order != "kept" else []),
        "columns that were left out",
    ]
    open_to_all = [
        "features, ids and the number of rows: they are public",
        "which rows share a bag",
        *([] if certificate.unit else ["several rows of one person are protected one by one"]),
        "what anybody can predict from the features alone, without this release",
    ]
    cards = [
        Card("Is published", leaves, tone="warn"),
        Card("Stays with the custodian", stays, tone="good"),
        Card("Is not protected", open_to_all),
    ]
    remarks = (*certificate.remarks, *made.remarks)
    return [Cards(cards), *(Notice(remark, tone="plain") for remark in remarks)]


def _labels(release: Release) -> str:
    if release.bags.sizes.max() == 1:
        return "one label for each row"
    return f"one {release.label_kind} label for each bag"


def _spent(release: Release, ledger: Ledger | None) -> list[Block]:
    certificate = release.certificate
    if certificate.epsilon is None or certificate.delta is None:
        return [Prose("Nothing was spent, because nothing is promised.")]
    delta = certificate.delta
    several = "rows" if certificate.unit is None else "units"
    facts = [
        ("epsilon", exact(certificate.epsilon)),
        ("delta", exact(delta)),
        ("protected", certificate.protected),
        *(
            (f"epsilon for {size} {several} together", f"{epsilon:.3g}")
            for size, epsilon in certificate.group().items()
        ),
    ]
    rows = [("for", "by", "epsilon alone")]
    rows += [
        (_HIDDEN.get(event.hides, event.hides), event.kind, _alone(event, delta))
        for event in certificate.events
    ]
    curve = certificate.curve()
    together = (
        f"Together they cost epsilon {certificate.epsilon:.3g} at delta {delta:g}: the accountant "
        "composes their noise, which is never more than the sum."
        if len(certificate.events) > 1
        else ""
    )
    return [
        Facts(facts),
        Grid(rows, caption="Everything that looked at a label"),
        Prose("\n".join([together, *certificate.looks, certificate.spends_less or ""])),
        Figure(
            charts.privacy_curve(curve, promised=(certificate.epsilon, delta)),
            alt=f"Line: delta falls from {curve[0][1]:.2g} at epsilon {curve[0][0]:g} to "
            f"{curve[-1][1]:.2g} at epsilon {curve[-1][0]:g}. Promised is epsilon "
            f"{certificate.epsilon:.3g} with delta {delta:.2g}.",
            caption="The same noise keeps every promise on this line: at each epsilon, delta is "
            "the chance that is left for outcomes that tell more.",
            numbers=Grid(
                [("epsilon", "delta"), *((f"{e:g}", f"{d:.3g}") for e, d in curve)],
                folded="The numbers of this line",
            ),
        ),
        *_all_together(ledger),
    ]


def _alone(event: Mechanism, delta: float) -> str:
    epsilon = total_epsilon((event,), delta)
    return "" if math.isinf(epsilon) else f"{epsilon:.3g}"


def _all_together(ledger: Ledger | None) -> list[Block]:
    if ledger is None:
        return [
            Notice(
                "Everything else that is released about the same labels adds to this. A ledger "
                "keeps account of it (bagwise ledger init; bagwise report DIR --ledger FILE).",
                tone="plain",
            )
        ]
    totals = ledger.totals()
    return [
        Facts(
            [
                (f"spent by all releases of {ledger.terms.dataset}", f"{totals.filtered:.3g}"),
                ("of a budget of", f"{totals.epsilon:.3g}"),
                ("charges", str(totals.charges)),
            ]
        )
    ]


def _bags(release: Release) -> list[Block]:
    bags, found = release.bags, release.quality()
    smallest, largest = int(bags.sizes.min()), int(bags.sizes.max())
    blocks: list[Block] = [
        Facts(
            [
                ("bags", f"{bags.n_bags:,}"),
                (
                    "rows in a bag",
                    str(smallest) if smallest == largest else f"{smallest} to {largest}",
                ),
                ("rows in no bag", f"{found.left_out:,}"),
                ("put together by", release.provenance.strategy),
                ("privacy noise of a bag label", _noise(release.noise_sd)),
            ]
        )
    ]
    if (reason := release.provenance.chosen_because) is not None:
        # Its forecast was made before anything was asked; the page has one, of the release.
        blocks.append(Prose(f"Why this way: {reason.text().partition('. ')[0]}."))
    if smallest != largest:
        blocks.append(
            Figure(
                charts.bag_sizes(bags.sizes),
                alt=f"Bars: {bags.n_bags} bags by their number of rows, {smallest} to {largest}, "
                f"half of them at most {int(np.median(bags.sizes))}.",
                caption="How many bags have how many rows.",
            )
        )
    if found.directions:
        blocks.append(
            Figure(
                charts.kept_shares(found.kept),
                alt=f"Bars: bag means keep {found.kept.max():.0%} of the spread of rows in the "
                f"best direction and {found.least_kept:.0%} in the worst of {found.directions}.",
                caption="How much of the spread of the features the bag means keep, in each "
                "direction. Where little is kept, a model can learn little.",
                numbers=Grid(
                    [
                        ("direction", "share kept"),
                        *((str(i + 1), f"{100 * k:.3g} %") for i, k in enumerate(found.kept[:200])),
                    ],
                    folded="The numbers of these bars",
                ),
            )
        )
    return blocks


def _noise(noise_sd: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> str:
    low, high = float(noise_sd.min()), float(noise_sd.max())
    if high == 0:
        return "none"
    return f"± {low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"± {low:.3g} to {high:.3g}"


def _expected(explanation: Explanation | str) -> list[Block]:
    if isinstance(explanation, str):
        return [Prose(explanation)]
    shares, accuracy = explanation.shares(), explanation.accuracy
    first, *rest = explanation.text().split("\n")
    heading, *parts = explanation.table()
    return [
        Facts(
            [
                ("kept of what true labels would give", accuracy.about),
                *(
                    []
                    if accuracy.error is None or accuracy.with_labels is None
                    else [
                        ("typical error of one prediction", f"{accuracy.error:.3g}"),
                        ("the same with true labels", f"{accuracy.with_labels:.3g}"),
                    ]
                ),
            ]
        ),
        Figure(
            explanation.plot(),
            alt="Bars: the expected squared error comes to "
            + ", ".join(f"{share:.0%} from {name}" for name, share in shares.items())
            + ".",
            caption=first,
            numbers=Grid([heading, *parts], folded="Expected squared error by cause"),
        ),
        Points(rest),
    ]


def _audited(audit: AuditFile) -> list[Block]:
    blocks: list[Block] = [Notice(f"{audit.colour}: {audit.verdict}", tone=_TONES[audit.colour])]
    if audit.mechanisms.audits:
        rows = [("mechanism", "claims epsilon", "shown at least", "draws", "verdict")]
        rows += [
            (one.kind, _number(one.claimed), _number(one.shown), f"{one.draws:,}", one.verdict)
            for one in audit.mechanisms.audits
        ]
        held = f"All bounds hold together with confidence {audit.mechanisms.confidence:g}"
        blocks.append(Grid(rows, caption=f"Noise redrawn and attacked. {held}."))
    if (guessed := audit.label_inference) is not None:
        attacks: list[tuple[str, ...]] = [("attacker", "advantage", "limit", "")]
        attacks += [
            (
                one.name,
                "nothing to guess"
                if one.advantage is None
                else f"{one.advantage.estimate:.2f} ({one.advantage.low:.2f} to "
                f"{one.advantage.high:.2f})",
                f"{one.limit:.2f}",
                one.colour,
            )
            for one in guessed.attacks
        ]
        blocks += [Grid(attacks, caption="Guesses about single labels"), Prose(guessed.note)]
    return blocks


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _by_group(report: Report) -> list[Section]:
    if report.groups is None:
        return []
    told = [column for column in zip(*report.groups.cells(), strict=True) if any(column[1:])]
    grid = Grid(list(zip(*told, strict=True)), caption="Mean prediction minus mean label, by group")
    return [Section(f"Errors by {report.groups.column}", (grid,), id="errors-by-group")]


def _questions(report: Report) -> list[Block]:
    return [
        Prose(
            "NIST SP 800-226 asks these questions. The files of the release answer what they can; "
            "only the custodian can answer the rest."
        ),
        Questions(
            [
                Question(
                    one.topic,
                    one.question,
                    answer=one.answer or "",
                    said=one.custodian or "",
                    missing=ASK if one.is_open else "",
                )
                for one in report.answers
            ]
        ),
    ]


def _next_steps(path: Path) -> Steps:
    return Steps(
        [
            Step(f"bagwise verify {path}", "Check that files, noise and promise agree."),
            Step(
                f"bagwise fit {path} -o model.json", "Fit a model of single rows, with intervals."
            ),
            Step(f"bagwise report model.json --release {path} -o model.html", "Look at the model."),
            Step("bagwise predict model.json TABLE -o predictions.parquet", "Predict other rows."),
        ]
    )
