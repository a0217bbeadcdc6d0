"""Bagging strategies, one file each and one line in `strategies`.

A strategy sees features, which are public, and scores whose epsilon was charged before. It never
sees a label, so whatever it does is post-processing and costs no epsilon.
"""

import dataclasses
import math
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from bagwise.bagging.assigning import Given, assign_bags, check_bag_size, check_strata
from bagwise.bagging.strategies import STRATEGIES
from bagwise.bagging.strategy import BaggingStrategy, PublishedBags, measures_by_scores
from bagwise.errors import StrategyError, check_name, did_you_mean

__all__ = [
    "STRATEGIES",
    "BaggingStrategy",
    "Given",
    "PublishedBags",
    "assign_bags",
    "check_bag_size",
    "check_strata",
    "find_strategy",
    "measures_by_scores",
    "parameters_of",
    "settings_of",
    "spell_settings",
]


def find_strategy(
    strategy: str | BaggingStrategy, parameters: Mapping[str, str] | None = None
) -> BaggingStrategy:
    """Return a strategy by name, with parameters spelled as text, or the instance as given.

    An instance that a manifest could not describe is refused.

    >>> find_strategy("super", {"half": "true"})
    SuperBags(order='random', half=True)
    """
    if isinstance(strategy, str):
        check_name("strategy", strategy, STRATEGIES)
        kind = STRATEGIES[strategy]
        return kind(**_parse_parameters(kind, parameters or {}))
    if isinstance(strategy, type) or not isinstance(strategy, BaggingStrategy):
        raise StrategyError(f"{strategy!r} is not a bagging strategy; give a name or an instance.")
    if not hasattr(strategy, "__dataclass_fields__"):
        raise StrategyError(f"strategy {strategy.name!r} must be a dataclass: its fields are kept.")
    if STRATEGIES.get(strategy.name, type(strategy)) is not type(strategy):
        raise StrategyError(f"the name {strategy.name!r} belongs to another strategy.")
    if not all(
        math.isfinite(value)
        if isinstance(value, float)
        else type(value) in (type(None), str, int, bool)
        for value in parameters_of(strategy).values()
    ):
        raise StrategyError(
            f"the parameters of strategy {strategy.name!r} must be plain numbers and text."
        )
    return strategy


def parameters_of(strategy: BaggingStrategy) -> dict[str, Any]:
    """Return the parameters of a strategy by name."""
    return {field.name: getattr(strategy, field.name) for field in _fields(strategy)}


def settings_of(strategy: BaggingStrategy) -> dict[str, Any]:
    """Return the parameters of a strategy that differ from their defaults.

    >>> settings_of(find_strategy("super", {"half": "true"}))
    {'half': True}
    """
    given = parameters_of(strategy)
    return {f.name: given[f.name] for f in _fields(strategy) if given[f.name] != f.default}


def spell_settings(strategy: BaggingStrategy) -> list[str]:
    """Return a strategy's non-default parameters in the form that ``--set`` takes.

    >>> spell_settings(find_strategy("super", {"half": "true"}))
    ['half=true']
    """
    return [
        f"{name}={str(value).lower() if value is None or isinstance(value, bool) else value}"
        for name, value in settings_of(strategy).items()
    ]


def _fields(strategy: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(strategy)


def _parse_parameters(kind: type[BaggingStrategy], given: Mapping[str, str]) -> dict[str, Any]:
    types = typing.get_type_hints(kind)
    known = {f.name: types[f.name] for f in _fields(kind)}
    parsed: dict[str, Any] = {}
    for name, text in given.items():
        if name not in known:
            raise StrategyError(
                f"strategy {kind.name!r} has no parameter {name!r}; "
                f"it has {', '.join(known) or 'none'}.{did_you_mean(name, known)}"
            )
        value = None if text.lower() == "none" else text
        try:  # which words there are is checked by the strategy
            simple = known[name] in (bool, int, float, int | None, float | None)
            parsed[name] = msgspec.convert(value, known[name], strict=False) if simple else text
        except msgspec.ValidationError:
            what = "true or false" if known[name] is bool else "a number"
            raise StrategyError(f"parameter {name!r} is {what}, got {text!r}.") from None
    return parsed
