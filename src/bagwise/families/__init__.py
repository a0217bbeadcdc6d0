"""Exponential families of label distributions. One file each, and one line in `FAMILIES`."""

from bagwise.errors import StrategyError
from bagwise.families.bernoulli import Bernoulli
from bagwise.families.family import Family
from bagwise.families.gamma import Gamma
from bagwise.families.gaussian import Gaussian
from bagwise.families.inverse_gaussian import InverseGaussian
from bagwise.families.multinomial import Multinomial
from bagwise.families.poisson import Poisson

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Gaussian(),
        Bernoulli(),
        Poisson(),
        Gamma(),
        InverseGaussian(),
        Multinomial(),
    )
}


def find_family(family: str | Family, link: str | None = None) -> Family:
    """Return a family by name, or the instance as given; `link` replaces its link function.

    >>> find_family("gamma", link="log")
    Gamma(link='log')
    """
    if isinstance(family, Family):
        found = family
    elif family in FAMILIES:
        found = FAMILIES[family]
    else:
        raise StrategyError(f"unknown family {family!r}; known are {', '.join(FAMILIES)}.")
    return found if link is None else found.with_link(link)


__all__ = ["FAMILIES", "Family", "find_family"]
