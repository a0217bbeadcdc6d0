"""Arguments of tests and benchmarks by name, moved into the records that the functions take."""

import inspect
from collections.abc import Callable
from typing import Any

from bagwise.requests.records import PLACES, RECORDS


def filed(verb: Callable[..., Any] | None = None, /, **named: Any) -> dict[str, Any]:
    """Return arguments with every setting among them moved into its record.

    Arguments of the verb itself stay where they are.

    >>> filed(label="y", seed=3, by="town")["bagging"]
    Bagging(min_bag_size=None, by='town', within=(), label_kind='mean', strategies=None,
            family='auto', scores='auto', seed=3)
    """
    if isinstance(named.get("engine"), str):
        named["name"] = named.pop("engine")
    own = {} if verb is None else inspect.signature(verb).parameters
    places = {name: None if name in own else PLACES.get(name) for name in named}
    kept = {name: value for name, value in named.items() if places[name] is None}
    for place in set(places.values()) - {None}:
        settings = {name: named[name] for name in named if places[name] == place}
        kept[str(place)] = RECORDS[str(place)](**settings)
    return kept
