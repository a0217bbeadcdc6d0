"""What all pages share: a promise in odds, its colour, and the files that a page goes to."""

from pathlib import Path

from bagwise.errors import OutputError
from bagwise.files.atomic import check_file, new_file
from bagwise.privacy import Certificate
from bagwise.privacy.promise import WEAK_EPSILON, chance_of_guessing, odds_in_fractions
from bagwise.show.page import Page, Tone, render

_MODEST = 4.0  # an epsilon above which a guess may be right 98 times in 100


def tone_of(epsilon: float) -> Tone:
    """Return the colour of a promise.

    >>> tone_of(1.0), tone_of(8.0), tone_of(20.0)
    ('good', 'warn', 'bad')
    """
    return "bad" if epsilon > WEAK_EPSILON else "warn" if epsilon > _MODEST else "good"


def odds_of(certificate: Certificate) -> dict[str, str] | None:
    """Return a promise in odds, and their colour; None if there is none."""
    epsilon, delta = certificate.epsilon, certificate.delta
    if epsilon is None or delta is None:
        return None
    return {
        "chance": f"{100 * chance_of_guessing(epsilon, delta):.3g} %",
        "words": odds_in_fractions(epsilon, delta),
        "tone": tone_of(epsilon),
    }


def check_page(target: Path, *, force: bool) -> None:
    """Refuse names of no page, and files that are there, before any work is done."""
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
