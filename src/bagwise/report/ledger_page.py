"""A ledger as a page: what was spent of the budget, when, and for what."""

from pathlib import Path

from bagwise.ledger import Ledger
from bagwise.ledger.ledger import Spent, Totals
from bagwise.privacy.circumstances import exact
from bagwise.privacy.promise import odds_in_fractions
from bagwise.show import charts
from bagwise.show.page import (
    Block,
    Facts,
    Figure,
    Grid,
    Headline,
    Page,
    Points,
    Prose,
    Section,
    Step,
    Steps,
    Tone,
)

_NEARLY = 0.9  # of the budget: from there on a reader should be warned


def ledger_page(ledger: Ledger) -> Page:
    """Return the page of a ledger."""
    terms, totals, course = ledger.terms, ledger.totals(), ledger.course()
    whom = "each row by itself" if terms.unit is None else f"all rows of one {terms.unit} together"
    return Page(
        title=f"Ledger of {terms.dataset}",
        lead=f"Begun on {terms.date}. It protects {whom}.",
        label="bagwise ledger",
        top=[_headline(totals)],
        sections=[
            Section("Spent over time", _over_time(course, totals, begun=terms.date)),
            Section("Charges", _charges(course, totals)),
            Section("What still fits", _what_fits(totals)),
            Section("Keep it safe", _custody(ledger)),
        ],
    )


def _headline(totals: Totals) -> Headline:
    share = totals.filtered / totals.epsilon
    tone: Tone = "bad" if share >= 1 else "warn" if share >= _NEARLY else "good"
    return Headline(
        f"{100 * share:.0f} %",
        f"of the budget is spent: epsilon {totals.filtered:.3g} of {exact(totals.epsilon)}",
        "When all of it is spent, everything that was released takes a reader's guess about one "
        "label "
        + odds_in_fractions(totals.epsilon, totals.delta).lower()
        + ". From then on the ledger refuses every request.",
        tone=tone,
    )


def _over_time(course: tuple[Spent, ...], totals: Totals, *, begun: str) -> list[Block]:
    if not course:
        return [Prose("Nothing was charged yet.")]
    points = [(one.charge.time, one.total) for one in course]
    return [
        Figure(
            charts.spending(points, budget=totals.epsilon, begun=begun),
            alt=f"Steps: after {totals.charges} charges, the last on {points[-1][0][:10]}, epsilon "
            f"{totals.filtered:.3g} of {totals.epsilon:g} is spent.",
            caption=f"Epsilon at delta {totals.delta:g} of all charges so far, for the unit that "
            "has paid most. It holds even if later requests were chosen after reading earlier "
            "releases.",
        )
    ]


def _charges(course: tuple[Spent, ...], totals: Totals) -> list[Block]:
    if not course:
        return [Prose("None.")]
    rows = [("", "day", "for", "label", "epsilon alone", "total", "rows", "noise", "id")]
    first = totals.charges - len(course) + 1
    rows += [
        (
            str(number),
            one.charge.time[:10],
            one.charge.verb,
            one.charge.label,
            f"{one.alone:.3g}",
            f"{one.total:.3g}",
            one.charge.chosen_by,
            one.charge.kinds or "paid before",
            one.charge.id[:8],
        )
        for number, one in enumerate(course, start=first)
    ]
    return [Grid(rows, caption="The newest charges; the last is the newest" if first > 1 else "")]


def _what_fits(totals: Totals) -> list[Block]:
    gaussian = [("with Gaussian noise", f"epsilon {totals.fits_gaussian:.3g}")]
    return [
        Facts(
            [
                ("without a delta", f"epsilon {totals.fits_pure:.3g}"),
                *(gaussian if totals.delta else []),
                ("if all had been fixed in advance", f"{totals.fixed:.3g} spent"),
            ]
        ),
        Prose(
            "The last figure is smaller when there were many requests. The ledger cannot rely on "
            "it, because later requests may depend on what earlier ones showed."
        ),
    ]


def _custody(ledger: Ledger) -> list[Block]:
    path = Path(ledger.path)
    return [
        Points(
            [
                "A charge is never given back, even if the run failed afterwards.",
                "Keep copies of the ledger and of its key where only you can read them.",
                "If somebody replaces the ledger by an older copy, only its digest shows that. "
                f"Note it elsewhere: {ledger.to_json()['digest']}",
            ]
        ),
        Steps(
            [
                Step(
                    f"bagwise ledger check FOLDER --ledger {path.name}",
                    "Look for releases that were not charged.",
                ),
                Step(
                    f"bagwise ledger export {path.name} -o charges.json",
                    "Hand the charges to an auditor.",
                ),
            ]
        ),
    ]
