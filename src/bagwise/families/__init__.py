"""Exponential families of label distributions: one class each, and one line here.

The line is an import, from which `FAMILIES`, the help, the tables of the documentation and the
contract tests follow, in this order.
"""

import inspect

from bagwise.errors import check_name
from bagwise.families.family import Family

# isort: off
from bagwise.families.distributions import Gaussian as Gaussian
from bagwise.families.distributions import Bernoulli as Bernoulli
from bagwise.families.distributions import Poisson as Poisson
from bagwise.families.distributions import Gamma as Gamma
from bagwise.families.distributions import InverseGaussian as InverseGaussian
from bagwise.families.distributions import Multinomial as Multinomial
# isort: on

FAMILIES: dict[str, Family] = {
    kind.name: kind()
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, Family) and not inspect.isabstract(kind)
}


_ALSO = {"binomial": "bernoulli", "normal": "gaussian"}  # what others call them


def find_family(family: str | Family, link: str | None = None) -> Family:
    """Return a family by name, or the instance as given; a `link` that is named must be its own.

    >>> find_family("normal")
    Gaussian()
    """
    if not isinstance(family, Family):
        family = _ALSO.get(family, family)
        check_name("family", family, FAMILIES)
        family = FAMILIES[family]
    if link is not None:
        check_name(f"link of the family {family.name}", link, (family.link,))
    return family


__all__ = ["FAMILIES", "Family", "find_family"]
