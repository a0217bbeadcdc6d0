"""Exponential families with their canonical link. One file each, and one line in `FAMILIES`."""

from bagwise.errors import StrategyError
from bagwise.families.family import Family
from bagwise.families.gaussian import Gaussian

FAMILIES: dict[str, Family] = {family.name: family for family in (Gaussian(),)}


def find_family(family: str | Family) -> Family:
    """Return a family by name, or the instance as given."""
    if isinstance(family, Family):
        return family
    if family not in FAMILIES:
        raise StrategyError(f"unknown family {family!r}; known are {', '.join(FAMILIES)}.")
    return FAMILIES[family]


__all__ = ["FAMILIES", "Family", "find_family"]
