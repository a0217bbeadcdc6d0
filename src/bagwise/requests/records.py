"""Settings of a request beyond its common arguments, as four records with defaults.

Each setting has its help text once, here: the documentation of Python and the options of the
command line are made from it. Nothing is imported that takes time, since help should not wait.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

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
    """A record of settings, whose documentation is made from their help."""

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
        """Refuse settings other than these, the only ones that `what` can use."""
        for one in fields(self):
            if one.name not in names and getattr(self, one.name) != one.default:
                raise StrategyError(
                    f"{one.name} of {type(self).__name__} is not for {what}; leave it out."
                )


@dataclass(frozen=True, kw_only=True)
class Bagging(Settings):
    """How bags are formed, beyond bag size, strategy and learner."""

    min_bag_size: int | None = setting(
        None, "Smallest bag size that the planner may choose; 10 by default.", typed=int
    )
    by: Names = setting(
        (),
        "Columns that define the bags, such as campaign or census block: rows with the same values "
        "share a bag, and small groups are merged with the most similar ones. The columns are "
        "published, and are features only if `features` names them.",
        typed="names",
    )
    within: Names = setting(
        (),
        "Columns that define strata: every bag stays within one stratum. They are published.",
        typed="names",
    )
    label_kind: str = setting(
        "mean", "mean: the average label of a bag; pick: a secretly drawn label of it.", typed=str
    )
    strategies: "str | Sequence[str | BaggingStrategy] | None" = setting(
        None, "Strategies that the planner may choose from; if given, few large bags are allowed."
    )
    family: str = setting(
        "auto",
        "Distribution of a label, used by the planner and private models. auto: gaussian for "
        "numbers, shares of all classes otherwise.",
        typed=str,
    )
    scores: str = setting(
        "auto",
        "What sorting strategies sort by: auto, none, model, noisy-labels, or, if not private, "
        "labels.",
        typed=str,
    )
    seed: int | None = setting(
        None,
        "Seed of the bags only, recorded in the release. Noise, picks and row order have no seed.",
        typed=int,
    )


@dataclass(frozen=True, kw_only=True)
class Privacy(Settings):
    """How the guarantee is achieved, beyond epsilon and delta."""

    noise: "NoiseKind" = setting(
        "auto",
        "auto: the smallest noise with this guarantee; laplace, staircase, gaussian; unbiased: a "
        "noisy label for every row instead of bags.",
        typed=str,
    )
    tighten: Literal["auto", "range", "none"] = setting(
        "auto",
        "Spend a few hundredths of epsilon to find a tighter range within the bounds: auto, range, "
        "or none if the bounds are tight.",
        typed=str,
    )
    centre: Literal["auto", "model", "none"] = setting(
        "auto",
        "Subtract the predictions of a private model first, so that noise covers only residuals: "
        "auto (if that should reduce the noise), model, none.",
        typed=str,
    )
    noise_source: "NoiseSource | None" = setting(
        None, "For experiments: rng.SimulatedNoise(seed), together with not_private and epsilon."
    )


@dataclass(frozen=True, kw_only=True)
class Reading(Settings):
    """How the rows and columns of a table are read."""

    exposure: str | None = setting(
        None,
        "Column with the positive exposure of a count, such as years. It is published, and a fit "
        "models the rate.",
        typed=str,
    )
    nulls: str = setting("indicator", "For missing features: indicator or error.", typed=str)
    max_levels: int = setting(
        32, "Number of categories of a text column; the rest are pooled.", typed=int
    )
    drop_missing_labels: bool = setting(
        False,
        "Drop rows without a label, and publish how many there were. Otherwise, missing labels are "
        "an error.",
        typed=bool,
    )
    keep_order: bool = setting(
        False,
        "Publish rows in the order of the table, not a secret one; recorded in the release.",
        typed=bool,
    )


@dataclass(frozen=True, kw_only=True)
class Engine(Settings):
    """Where the work is done, and who is told about its stages."""

    name: Literal["auto", "local", "spark"] = setting(
        "auto",
        "local: this machine, using the disk for large tables; spark: a cluster (extra spark). "
        "auto: spark for a Spark DataFrame, otherwise local.",
        typed=str,
        names="--engine",
    )
    spark: Mapping[str, str] | None = setting(
        None,
        "Settings for the Spark session, such as spark.master=spark://host:7077.",
        typed="pairs",
    )
    memory_limit: str | int | None = setting(
        None,
        "Memory limit, such as 8GB; larger tables stay on disk. Default: half of the memory.",
        typed=str,
    )
    spill: str | Path | None = setting(
        None, "Where to make a private directory; on Spark, all machines must be able to reach it."
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


def says_where(verb: Callable[P, T]) -> Callable[P, T]:
    """Make a verb that gets a setting as an argument report which record the setting belongs to."""
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
