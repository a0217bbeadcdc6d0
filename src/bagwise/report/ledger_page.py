"""A ledger as a page: what was spent of the budget, when, and for what."""

from bagwise.ledger import Ledger
from bagwise.ledger.ledger import Spent, Totals, course_cells
from bagwise.privacy.circumstances import exact
from bagwise.privacy.promise import odds_in_fractions
from bagwise.report.pages import tone_of
from bagwise.show import charts
from bagwise.show.page import Figure, Grid, Page, Tone

_NEARLY = 0.75  # of the budget: from there on a reader should be warned


def ledger_page(ledger: Ledger) -> Page:
    """Return the page of a ledger."""
    terms, totals, course = ledger.terms, ledger.totals(), ledger.course()
    whom = "each row by itself" if terms.unit is None else f"all rows of one {terms.unit} together"
    share = totals.filtered / totals.epsilon
    values = {
        "share": f"{100 * share:.0f} %",
        "spent": f"{totals.filtered:.3g}",
        "budget": exact(totals.epsilon),
        "odds": odds_in_fractions(totals.epsilon, totals.delta).lower(),
        "tone": _tone(share, totals),
        "totals": totals,
        "charges": Grid(course_cells(course, totals)) if course else None,
        "course": _over_time(course, totals, begun=terms.date) if course else None,
        "digest": ledger.to_json()["digest"],
        "file": ledger.path.name,
    }
    lead = f"Begun on {terms.date}. It protects {whom}."
    return Page("ledger.html", f"Ledger of {terms.dataset}", lead, values)


def _tone(share: float, totals: Totals) -> Tone:
    """Return the worse of two colours: how much is left, and what the budget promises at all."""
    left: Tone = "bad" if share >= 1 else "warn" if share >= _NEARLY else "good"
    return max(left, tone_of(totals.epsilon), key=("good", "warn", "bad").index)


def _over_time(course: tuple[Spent, ...], totals: Totals, *, begun: str) -> Figure:
    points = [(one.charge.time, one.total) for one in course]
    return Figure(
        charts.spending(points, budget=totals.epsilon, begun=begun),
        alt=f"Steps: after {totals.charges} charges, the last on {points[-1][0][:10]}, epsilon "
        f"{totals.filtered:.3g} of {totals.epsilon:g} is spent.",
        caption=f"Epsilon at delta {totals.delta:g} of all charges so far, for the unit that has "
        "paid most. It holds even if later requests were chosen after reading earlier releases.",
    )
