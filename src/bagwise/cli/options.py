"""Options that several verbs share, and what their text stands for."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bagwise.errors import StrategyError

TablePath = Annotated[Path, typer.Argument(help="A .parquet, .csv or .arrow file.")]
Label = Annotated[str, typer.Option(help="The column to protect.")]
Unit = Annotated[
    str | None, typer.Option(help="Column naming people with several rows; it does not leave.")
]
Features = Annotated[
    str | None, typer.Option(help="Feature columns, separated by commas. Default: all.")
]
Exclude = Annotated[str | None, typer.Option(help="Columns to leave out, separated by commas.")]
BoundsFile = Annotated[
    Path | None, typer.Option(help="Bounds found by `bagwise bounds`; what they cost counts.")
]
Nulls = Annotated[str, typer.Option(help="Missing features: indicator or error.")]
MaxLevels = Annotated[int, typer.Option(help="Levels of a text column before pooling.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors: no warnings, no notes.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing output.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]


def read_bounds(given: tuple[float, float] | None, file: Path | None) -> Any:
    """Return the bounds that were typed in, or those of a file."""
    from bagwise.privacy.private_bounds import PrivateBounds

    if file is None:
        return given
    if given is not None:
        raise StrategyError("give --bounds or --bounds-file, not both.")
    return PrivateBounds.load(file)


def split_names(names: str | None) -> list[str] | None:
    """Return the names between the commas."""
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def parse_settings(settings: list[str]) -> dict[str, str]:
    """Return NAME=VALUE pairs as a mapping."""
    parsed = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise StrategyError(f"--set takes NAME=VALUE, got {setting!r}.")
        parsed[name] = value
    return parsed


class Command(TyperCommand):
    """A verb whose help names what is registered, found when the help is shown.

    The registries import numpy and scipy, and a verb that runs need not wait for its help.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Fill in {strategies}, {families} and {links}."""
        for option in self.params:
            text = getattr(option, "help", None)
            for word, spell in REGISTERED.items():
                if text and word in text:
                    text = option.help = text.replace(word, spell())  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def _strategies() -> str:
    from bagwise.bagging import STRATEGIES, traits_of

    return "; ".join(f"{name}: {traits_of(kind).summary}" for name, kind in STRATEGIES.items())


def _families() -> str:
    from bagwise.families import FAMILIES

    return "; ".join(f"{name}: {family.summary}" for name, family in FAMILIES.items())


def _links() -> str:
    from bagwise.families import FAMILIES

    names = {link: None for family in FAMILIES.values() for link in family.links}
    return "; ".join(
        f"{link}, for {', '.join(n for n, family in FAMILIES.items() if link in family.links)}"
        for link in names
        if link != "canonical"
    )


REGISTERED: Mapping[str, Callable[[], str]] = {
    "{strategies}": _strategies,
    "{families}": _families,
    "{links}": _links,
}
