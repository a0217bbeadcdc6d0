"""The promise of a certificate as the first thing on a page: in odds, and in plain words."""

from bagwise.privacy import Certificate
from bagwise.privacy.promise import WEAK_EPSILON, chance_of_guessing, odds_in_fractions
from bagwise.show.page import Headline

_MODEST = 4.0  # an epsilon above which a guess may be right 98 times in 100


def promise_of(certificate: Certificate) -> Headline:
    """Return the promise, or that there is none.

    >>> nothing = Certificate(None, None, None, (), smallest_bag=None, noise_source="none")
    >>> promise_of(nothing).figure
    'NOT PRIVATE'
    """
    if certificate.epsilon is None or certificate.delta is None:
        return Headline(
            "NOT PRIVATE",
            "Nothing is promised about labels",
            "Together with what a reader knows of other rows, this can show the label of a single "
            "row.",
            tone="bad",
        )
    epsilon, delta = certificate.epsilon, certificate.delta
    whose = "one label" if certificate.unit is None else f"the labels of one {certificate.unit}"
    return Headline(
        f"≤ {100 * chance_of_guessing(epsilon, delta):.3g} %",
        odds_in_fractions(epsilon, delta),
        f"Somebody who knows everything except {whose}, and finds two values equally likely, "
        "guesses right one time in two. After reading this they can guess right no more often than "
        f"said here, whatever else they know. The technical term is {certificate.headline}.",
        tone="bad" if epsilon > WEAK_EPSILON else "warn" if epsilon > _MODEST else "good",
    )
