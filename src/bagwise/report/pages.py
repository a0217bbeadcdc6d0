"""Common parts of all pages: odds, colours and files; and the short page of a ledger."""

from pathlib import Path

from bagwise.errors import OutputError
from bagwise.files.atomic import check_file, new_file
from bagwise.ledger import Ledger
from bagwise.ledger.ledger import Totals, course_cells
from bagwise.privacy import Certificate
from bagwise.privacy.circumstances import exact
from bagwise.privacy.promise import WEAK_EPSILON, chance_of_guessing, odds_in_fractions
from bagwise.show import charts
from bagwise.show.page import Page, Tone, render

_MODEST = 4.0  # an epsilon above which a guess may be right 98 times in 100
_NEARLY = 0.75  # of a budget: from there on a reader should be warned


def tone_of(epsilon: float) -> Tone:
    """Return the colour of a promise.

    >>> tone_of(1.0), tone_of(8.0), tone_of(20.0)
    ('good', 'warn', 'bad')
    """
    return "bad" if epsilon > WEAK_EPSILON else "warn" if epsilon > _MODEST else "good"


def tone_of_ledger(totals: Totals) -> Tone:
    """Return the worse of two colours: how much is left, and what the budget promises at all."""
    share = totals.filtered / totals.epsilon
    left: Tone = "bad" if share >= 1 else "warn" if share >= _NEARLY else "good"
    return max(left, tone_of(totals.epsilon), key=("good", "warn", "bad").index)


def odds_of(certificate: Certificate) -> dict[str, str] | None:
    """Return a guarantee as odds, and their colour; None if there is none."""
    epsilon, delta = certificate.epsilon, certificate.delta
    if epsilon is None or delta is None:
        return None
    return {
        "chance": f"{100 * chance_of_guessing(epsilon, delta):.3g} %",
        "words": odds_in_fractions(epsilon, delta),
        "tone": tone_of(epsilon),
    }


def check_page(target: Path, *, force: bool) -> None:
    """Refuse names that no page can have, and existing files, before any work is done."""
    if target.suffix != ".html":
        raise OutputError(
            f"a page is .html, got {target.name!r}. For a PDF, print the page from a browser."
        )
    check_file(target, force=force)


def write_page(page: Page, target: Path, *, force: bool = False) -> None:
    """Write the page, whole or not at all."""
    check_page(target, force=force)
    html = render(page)
    with new_file(target, force=force) as draft:
        draft.write_text(html, encoding="utf-8")


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
        "tone": tone_of_ledger(totals),
        "totals": totals,
        "charges": course and course_cells(course, totals),
        "course": points and charts.spending(points, budget=totals.epsilon, begun=terms.date),
        "last": points and points[-1][0][:10],
        "digest": ledger.to_json()["digest"],
        "file": ledger.path.name,
    }
    lead = f"Begun on {terms.date}. It protects {whom}."
    return Page("ledger.html", f"Ledger of {terms.dataset}", lead, values)
