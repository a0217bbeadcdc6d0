"""A ledger as a page: what was spent of the budget, when, and for what."""

from bagwise.ledger import Ledger
from bagwise.ledger.ledger import Totals, course_cells
from bagwise.privacy.circumstances import exact
from bagwise.privacy.promise import odds_in_fractions
from bagwise.report.pages import tone_of
from bagwise.show import charts
from bagwise.show.page import Page, Tone

_NEARLY = 0.75  # of the budget: from there on a reader should be warned


def ledger_page(ledger: Ledger) -> Page:
    """Return the page of a ledger."""
    terms, totals, course = ledger.terms, ledger.totals(), ledger.course()
    whom = "each row by itself" if terms.unit is None else f"all rows of one {terms.unit} together"
    share = totals.filtered / totals.epsilon
    points = [(one.charge.time, one.total) for one in course]
    values = {
        "share": f"{100 * share:.0f} %",
        "spent": f"{totals.filtered:.3g}",
        "budget": exact(totals.epsilon),
        "odds": odds_in_fractions(totals.epsilon, totals.delta).lower(),
        "tone": _tone(share, totals),
        "totals": totals,
        "charges": course and course_cells(course, totals),
        "course": points and charts.spending(points, budget=totals.epsilon, begun=terms.date),
        "last": points and points[-1][0][:10],
        "digest": ledger.to_json()["digest"],
        "file": ledger.path.name,
    }
    lead = f"Begun on {terms.date}. It protects {whom}."
    return Page("ledger.html", f"Ledger of {terms.dataset}", lead, values)


def _tone(share: float, totals: Totals) -> Tone:
    """Return the worse of two colours: how much is left, and what the budget promises at all."""
    left: Tone = "bad" if share >= 1 else "warn" if share >= _NEARLY else "good"
    return max(left, tone_of(totals.epsilon), key=("good", "warn", "bad").index)
