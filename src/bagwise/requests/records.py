"""What a request may say beyond its everyday arguments, as four records with defaults.

Each setting has its help text once, here: the documentation of Python and the options of the
command line are made from it. Nothing is imported that takes time, since help should not wait.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from bagwise.errors import StrategyError
from bagwise.show.stages import OnStage, ignore_stage

if TYPE_CHECKING:
    from bagwise.bagging import BaggingStrategy
    from bagwise.privacy.calibrate import NoiseKind
    from bagwise.rng import NoiseSource

P = ParamSpec("P")
T = TypeVar("T")

Names = str | Sequence[str] | None


def setting(default: T, text: str, *, typed: object = None, **shown: str) -> T:
    """Return a field with its help.

    `typed` is what the command line reads: str, int, float, bool, "names" separated by commas or
    "pairs" of NAME=VALUE; None for what only Python can say. `shown` may have other `names` of the
    option and a `metavar`.
    """
    made: T = field(default=default, metadata={"help": text, "typed": typed, **shown})
    return made


@dataclass(frozen=True)
class Settings:
    """A record of settings: its documentation is made from their help."""

    def __init_subclass__(cls) -> None:
        """Add the fields to the docstring."""
        entries = [
            f"{name} : {kind if isinstance(kind, str) else inspect.formatannotation(kind)}\n"
            f"        {vars(cls)[name].metadata['help']}"
            for name, kind in inspect.get_annotations(cls).items()
        ]
        heading = "\n\n    Attributes\n    ----------\n    "
        cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}{heading}" + "\n    ".join(entries) + "\n"

    def only(self, *names: str, what: str) -> None:
        """Refuse settings other than these, which are all that `what` has a use for."""
        for one in fields(self):
            if one.name not in names and getattr(self, one.name) != one.default:
                raise StrategyError(
                    f"{one.name} of {type(self).__name__} is not for {what}; leave it out."
                )


@dataclass(frozen=True, kw_only=True)
class Bagging(Settings):
    """How rows are put into bags, beyond bag size, strategy and learner."""

    min_bag_size: int | None = setting(
        None, "Smallest bag that the planner may choose; 10 by default.", typed=int
    )
    by: Names = setting(
        (),
        "Public columns that define the bags, such as campaign or census block: rows that agree in "
        "all of them share a bag, and groups smaller than a bag are merged with the most similar. "
        "They are published, and are features only if `features` names them.",
        typed="names",
    )
    within: Names = setting(
        (),
        "Public columns whose strata no bag crosses, whatever the strategy. They are published.",
        typed="names",
    )
    label_kind: str = setting(
        "mean", "mean: the average of a bag's labels; pick: the label of one row.", typed=str
    )
    strategies: "str | Sequence[str | BaggingStrategy] | None" = setting(
        None, "Strategies that the planner may choose from, few large bags among them if named."
    )
    family: str = setting(
        "auto",
        "Distribution of a label, for the planner and private models; auto is gaussian for "
        "numbers, shares of all classes otherwise.",
        typed=str,
    )
    scores: str = setting(
        "auto",
        "What a sorting strategy sorts by: auto, none, model, noisy-labels; labels only if not "
        "private.",
        typed=str,
    )
    score_share: float | Literal["auto"] = setting(
        "auto",
        "Share of the budget for scores: of mu squared with Gaussian noise, of epsilon with "
        "Laplace noise; auto is about the best.",
    )
    seed: int | None = setting(
        None,
        "Seed of the partition only, recorded in the release: it shows which positions of the "
        "table share a bag. Noise, picks and the row order have no seed.",
        typed=int,
    )


@dataclass(frozen=True, kw_only=True)
class Privacy(Settings):
    """How a promise is kept, beyond epsilon and delta."""

    noise: "NoiseKind" = setting(
        "auto",
        "auto: the least variance that keeps the promise; laplace, staircase, gaussian; unbiased: "
        "every label by itself, without bags.",
        typed=str,
    )
    tighten: Literal["auto", "range", "none"] = setting(
        "auto",
        "First find a tighter range within the bounds privately, for a few hundredths of epsilon: "
        "auto, range, or none for tight bounds.",
        typed=str,
    )
    centre: Literal["auto", "model", "none"] = setting(
        "auto",
        "First centre labels on a private model, so that noise covers only what it leaves: auto "
        "where it should pay, model, none.",
        typed=str,
    )
    noise_source: "NoiseSource | None" = setting(
        None, "For experiments: rng.SimulatedNoise(seed), together with not_private and epsilon."
    )


@dataclass(frozen=True, kw_only=True)
class Reading(Settings):
    """How the columns and rows of a table are read."""

    exposure: str | None = setting(
        None,
        "Public column with positive numbers that a label is counted over, such as years. It is "
        "published; a fit models the rate.",
        typed=str,
    )
    nulls: str = setting("indicator", "Missing features: indicator or error.", typed=str)
    max_levels: int = setting(
        32, "Categories of a text column before the rest are pooled.", typed=int
    )
    drop_missing_labels: bool = setting(
        False,
        "Leave out rows whose label is missing; how many is published. Otherwise such rows are "
        "refused.",
        typed=bool,
    )
    keep_order: bool = setting(
        False,
        "Publish rows in the order of the table instead of a secret one; recorded in the release.",
        typed=bool,
    )


@dataclass(frozen=True, kw_only=True)
class Engine(Settings):
    """Where the work is done, and who hears of its stages."""

    name: Literal["auto", "local", "spark"] = setting(
        "auto",
        "local: this machine, on disk where memory is short; spark: many (extra spark). auto is "
        "spark for a DataFrame of Spark.",
        typed=str,
        names="--engine",
    )
    spark: Mapping[str, str] | None = setting(
        None,
        "Settings of Spark for a session that is opened here, such as "
        "spark.master=spark://host:7077.",
        typed="pairs",
    )
    memory_limit: str | int | None = setting(
        None,
        "Such as 8GB; larger tables stay on disk. Default: half of the machine's memory.",
        typed=str,
    )
    spill: str | Path | None = setting(
        None, "Where a private directory for them is made; on Spark all machines must reach it."
    )
    on_stage: OnStage = setting(ignore_stage, "Called with the name of each stage as it begins.")


RECORDS: dict[str, type[Settings]] = {
    "bagging": Bagging,
    "privacy": Privacy,
    "reading": Reading,
    "engine": Engine,
}


PLACES = {one.name: place for place, kind in RECORDS.items() for one in fields(kind)}
"""The argument that takes the record of a setting, by the setting's name."""


def filed(verb: Callable[..., Any] | None = None, /, **named: Any) -> dict[str, Any]:
    """Return arguments with all settings among them filed in their records.

    What is an argument of the verb itself stays one.

    >>> filed(label="y", seed=3, by="town")["bagging"]
    Bagging(min_bag_size=None, by='town', within=(), label_kind='mean', strategies=None,
            family='auto', scores='auto', score_share='auto', seed=3)
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


def says_where(verb: Callable[P, T]) -> Callable[P, T]:
    """Let a verb that gets a setting as an argument say which record it belongs to."""
    known = inspect.signature(verb).parameters

    @functools.wraps(verb)
    def checked(*args: P.args, **named: P.kwargs) -> T:
        for name in named:
            place = PLACES.get(name)
            if name not in known and place is not None and place in known:
                kind = RECORDS[place].__name__
                raise TypeError(
                    f"{name} is a setting of {kind}: {place}=bw.{kind}({name}=…), and not an "
                    f"argument of {verb.__name__}."
                )
        return verb(*args, **named)

    return checked
