"""Command-line options made from records, and parsing of their values.

A command takes records of settings; each field with a type for the command line becomes an option,
with the help text of the field. Options that all commands share (`Shared`, and the settings of an
`Engine`) are declared once, and may be typed anywhere on the line.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import Field, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from bagwise.cli.console import BAD_INPUT, fail_as_json, guarded, is_json, talk
from bagwise.errors import BoundsError, StrategyError
from bagwise.requests.records import Engine, Settings, setting

REQUIRED: Any = ...


@dataclass(frozen=True, kw_only=True)
class Shared(Settings):
    """Options that every command shares if it can use them."""

    quiet: bool = setting(
        False, "Print nothing but errors: no warnings, no notes.", typed=bool, names="--quiet -q"
    )
    as_json: bool = setting(
        False, "Print one JSON object, for machines; errors too.", typed=bool, names="--json"
    )
    force: bool = setting(False, "Replace an existing output.", typed=bool)
    query: str | None = setting(
        None,
        "SELECT that returns the rows; TABLE is then a SQLite file or postgresql://…",
        typed=str,
        metavar="SQL",
    )
    read: dict[str, str] | None = setting(
        None,
        "Format of a CSV file: delimiter, decimal, encoding; repeatable. Default: detected.",
        typed="pairs",
    )


@dataclass(frozen=True, kw_only=True)
class Promise(Settings):
    """The common options of everything that is released."""

    label: str = setting(REQUIRED, "The column to protect.", typed=str, metavar="COLUMN")
    bounds: Any = setting(
        None,
        "Public range of the labels; labels outside are clipped. auto: find a range privately.",
        typed="bounds",
    )
    epsilon: float | None = setting(
        None,
        "Privacy parameter (label-DP epsilon): smaller is more private, and about 1 is usual.",
        typed=float,
    )
    delta: float | None = setting(
        None,
        "Small exception to the guarantee (label-DP delta), far below 1/rows. Default: none.",
        typed=float,
        panel="Privacy",
    )
    unit: str | None = setting(
        None,
        "Column that identifies people: all their rows are protected together. Not published.",
        typed=str,
        metavar="COLUMN",
    )
    features: Any = setting(
        None,
        "Feature columns, separated by commas. Default: all.",
        typed="names",
        panel="Columns",
    )
    exclude: Any = setting((), "Columns to exclude, separated by commas.", typed="names")


@dataclass(frozen=True, kw_only=True)
class Asked(Promise):
    """The common options of a release and of a plan."""

    classes: Any = setting(
        None,
        "Classes of a label that is not a number, separated by commas. They are public.",
        typed="names",
    )
    not_private: bool = setting(
        False, "Release exact aggregates without noise.", typed=bool, panel="Privacy"
    )
    id: str | None = setting(
        None, "Key column, published with the rows.", typed=str, metavar="COLUMN"
    )
    learner: Any = setting(
        "linear",
        "Which models the bags are for: linear, or flexible ones such as boosted trees. For "
        "flexible models, a private model decides which rows are similar.",
        typed=str,
        panel="Bags",
    )


@dataclass(frozen=True, kw_only=True)
class Charging(Settings):
    """The ledger to charge."""

    ledger: Path | None = setting(
        None,
        "Ledger of the data set, charged before noise is drawn (bagwise ledger init).",
        typed=Path,
        envvar="BAGWISE_LEDGER",
    )
    chosen_by: str = setting(
        "all",
        "With --ledger: how rows were chosen from the data set. all: all rows; public: by public "
        "data, so only these rows are charged; label: refused.",
        typed=str,
    )
    anew: bool = setting(
        False,
        "With --ledger: draw and charge again instead of reusing an identical request.",
        typed=bool,
    )


@dataclass(frozen=True, kw_only=True)
class Publishing(Settings):
    """What the operator reads and confirms before columns are published."""

    yes: bool = setting(False, "Publish columns that look like names, ids or dates.", typed=bool)
    notes: Path | None = setting(
        None,
        "File for notes that depend on labels, such as columns that reveal them. Only you can read "
        "it, and an existing file is replaced.",
        typed=Path,
    )


Tables = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE",
        help="Parquet, CSV or Arrow: one or more files, a directory or 'a pattern*'; - for "
        "standard input; a database with --query.",
        show_default=False,
    ),
]

_shared: ContextVar[tuple[Shared, Engine]] = ContextVar("shared")
_PANELS = {
    "Privacy": "Privacy",
    "Bagging": "Bags",
    "Reading": "Reading",
    "Engine": "Engine",
    "Charging": "Privacy",
    "Publishing": "Columns",
}
_METAVARS: dict[object, str] = {
    int: "NUMBER",
    float: "NUMBER",
    str: "WORD",
    Path: "FILE",
    "names": "NAMES",
    "pairs": "NAME=VALUE",
    "bounds": "LO HI | auto",
}
_TYPES: dict[object, Any] = {"names": str, "pairs": list[str], "bounds": tuple[str, str]}


def shared() -> Shared:
    """Return the values of the options that every command understands."""
    return _shared.get()[0]


def engine() -> Engine:
    """Return the requested engine; settings of Spark without it are refused."""
    asked = _shared.get()[1]
    if asked.spark and asked.name != "spark":
        raise StrategyError("--spark works only with --engine spark.")
    return asked


def share(given: Shared, engine: Engine) -> None:
    """Store the shared options for the verb that follows."""
    _shared.set((given, engine))
    talk(quiet=given.quiet, as_json=given.as_json)


def verb(takes: str = "", **panels: str) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator for a verb: its records become options, its errors exit codes.

    `takes` names the shared options that it has a use for, beside --quiet and --json; `panels` say
    where the help shows an option of its own.
    """

    def decorate(run: Callable[..., None]) -> Any:
        @functools.wraps(run)
        def checked(**typed: Any) -> None:
            for record in _shared.get():
                for one in fields(record):
                    given = "engine" if one.name == "name" else one.name
                    known = given in ("quiet", "as_json", "spill", "on_stage", *takes.split())
                    if not known and getattr(record, one.name) != one.default:
                        name = run.__name__.strip("_").replace("_", "-")
                        raise StrategyError(f"{_option(one)} is not for {name}; leave it out.")
            run(**typed)

        made = expanded(checked, panels)
        made.takes = takes.split()
        return made

    return decorate


def expanded(run: Callable[..., None], panels: dict[str, str] | None = None) -> Any:
    """Return a function as typer reads it: with the fields of its records, and guarded.

    A record that is annotated with names has those fields only. Other parameters are options if
    their annotation is a help text, and otherwise what typer makes of them.
    """
    # 1. Every field of a record, and every other parameter, becomes a parameter of typer.
    hints = get_type_hints(run, include_extras=True)
    parameters: list[inspect.Parameter] = []
    records: dict[str, tuple[Any, list[Field[Any]]]] = {}
    for one in inspect.signature(run).parameters.values():
        kind, *extras = get_args(hints[one.name]) or (hints[one.name],)
        if is_dataclass(kind):
            only = extras[0].split() if extras else None
            chosen = [
                item
                for item in fields(kind)
                if item.metadata["typed"] is not None and (only is None or item.name in only)
            ]
            records[one.name] = (kind, chosen)
            panel = _PANELS.get(getattr(kind, "__name__", ""))
            parameters += [
                _parameter(item.name, item.default, panel, **item.metadata) for item in chosen
            ]
        elif isinstance(extras[0], str):
            shown = {"metavar": extras[1]} if len(extras) > 1 else {}
            default = ... if one.default is one.empty else one.default
            panel = (panels or {}).get(one.name)
            parameters.append(
                _parameter(one.name, default, panel, help=extras[0], typed=kind, **shown)
            )
        else:
            parameters.append(
                one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY)
            )

    # 2. What is typed is put back into the records before the function runs.
    def spelled(**typed: Any) -> None:
        for name, (kind, chosen) in records.items():
            typed[name] = kind(**{item.name: _read(item, typed.pop(item.name)) for item in chosen})
        run(**typed)

    made: Any = functools.update_wrapper(spelled, run)
    made.__signature__ = inspect.Signature(parameters)
    made.__annotations__ = {one.name: one.annotation for one in parameters}
    del made.__wrapped__
    return guarded(made)


def _option(one: Field[Any]) -> str:
    """Return the name of the option for a field."""
    return str(one.metadata.get("names", "--" + one.name.replace("_", "-")).split()[0])


def _parameter(
    name: str,
    default: Any,
    place: str | None,
    *,
    help: str,
    typed: Any,
    names: str | None = None,
    metavar: str | None = None,
    envvar: str | None = None,
    **shown: str,
) -> inspect.Parameter:
    """Return a parameter that typer makes an option of, whose value is spelled as a word."""
    plain = next((kind for kind in get_args(typed) if kind is not NoneType), typed)
    if get_origin(typed) is list:
        plain = typed
    kind = _TYPES.get(plain, plain)
    usual = f"--{name.replace('_', '-')}" + (" -o" if name == "output" else "")
    optional = plain in ("names", "pairs", "bounds") or default is None
    option = typer.Option(
        *(names or usual).split(),
        help=help,
        metavar=None if plain is bool else metavar or _METAVARS.get(plain, "FILE"),
        envvar=envvar,
        rich_help_panel=shown.get("panel", place),
        show_default=not optional and plain is not bool,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is ... else None if optional else default,
        annotation=Annotated[kind | None if optional else kind, option],
    )


def _read(one: Field[Any], value: Any) -> Any:
    """Return an option's text converted to the type in its record."""
    typed, option = one.metadata["typed"], _option(one)
    if value is None or value == []:
        return one.default
    if typed == "names":
        return split_names(value)
    if typed == "pairs":
        return parse_settings(value, option=option)
    if typed == "bounds":
        return _read_bounds(value)
    return value


def _read_bounds(words: tuple[str, str]) -> Any:
    if words == ("auto", "auto"):
        return "auto"
    try:
        return (float(words[0]), float(words[1]))
    except ValueError:
        raise BoundsError(
            f"--bounds are two numbers, or auto, got {' '.join(words)!r}. For example: "
            "--bounds 0 100"
        ) from None


def refuse(given: Mapping[str, object], why: str) -> None:
    """Refuse options given to a command that cannot use them."""
    if named := [name for name, value in given.items() if value is not None and value is not False]:
        raise StrategyError(f"{', '.join(named)}: {why}")


def values_of(record: Settings) -> dict[str, Any]:
    """Return the fields of a record, as arguments."""
    return {one.name: getattr(record, one.name) for one in fields(record)}


def typed_again(record: Settings, names: str) -> list[str]:
    """Return the options, among these fields, that another command must repeat."""
    words: list[str] = []
    for one in fields(record):
        value = getattr(record, one.name)
        if one.name not in names.split() or value == one.default:
            continue
        if one.metadata["typed"] == "pairs":
            words += [word for pair in value.items() for word in (_option(one), "=".join(pair))]
        else:
            listed = one.metadata["typed"] == "names"
            words += [_option(one), ",".join(value) if listed else str(value)]
    return words


def split_names(names: str) -> list[str]:
    """Return the names between the commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


def parse_settings(settings: Iterable[str], *, option: str = "--set") -> dict[str, str]:
    """Return NAME=VALUE pairs as a mapping."""
    parsed = {}
    for one in settings:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise StrategyError(f"{option} takes NAME=VALUE, got {one!r}.")
        parsed[name] = value
    return parsed


class Program(TyperGroup):
    """The program: options that every command understands may stand after its name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move them to the front."""
        known = {name: option for option in self.params for name in option.opts}
        front: list[str] = []
        rest: list[str] = []
        words = iter(args)
        for word in words:
            option = known.get(word.partition("=")[0])
            if word == "--":
                rest += [word, *words]
            elif option is None:
                rest.append(word)
            else:
                takes_value = not getattr(option, "is_flag", False) and "=" not in word
                front += [word, *([value] if takes_value and (value := next(words, None)) else [])]
        return super().parse_args(ctx, [*front, *rest])

    def invoke(self, ctx: Any) -> Any:
        """Report mistyped commands as JSON, too, if a machine reads the output."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if not (is_json() and hasattr(error, "format_message")):
                raise
            raise typer.Exit(
                fail_as_json(error.format_message(), BAD_INPUT, kind="UsageError")
            ) from None


EVERYDAY = ["label", "bounds", "classes", "epsilon", "output", "id", "exclude", "unit", "ledger"]
"""Options that the help of a verb begins with, in this order."""

_EXAMPLES = {
    "bounds": "--bounds 0 100",
    "epsilon": "--epsilon 1",
    "delta": "--delta 1e-6",
    "label": "--label rent",
}
_PAIR = re.compile(r"[^,;:]+[,;:][^,;:]+")


class Command(TyperCommand):
    """A verb that understands what people type, and whose help begins with everyday options.

    The help names what is registered, found when it is shown: registries import numpy and scipy,
    and a verb that runs need not wait for its help.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read ``--bounds 0,100`` as two words; add an example to whatever cannot be read."""
        read: list[str] = []
        for word in args:
            first = bool(read) and read[-1] == "--bounds"
            if first and word == "auto":
                read += [word, word]  # for both ends
            elif first and _PAIR.fullmatch(word.strip("()[]")):
                read += re.split("[,;:]", word.strip("()[]"))
            else:
                read.append(word)
        try:
            return super().parse_args(ctx, read)
        except typer.BadParameter as error:
            name = "" if error.param is None else error.param.name or ""
            if name in _EXAMPLES:
                error.message = f"{error.message.rstrip('.')}. For example: {_EXAMPLES[name]}"
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Put everyday options first; let paragraphs fill the terminal."""
        # Lines of a docstring end where those of its file do.
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        self.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        options: list[Any] = list(self.params)
        for option in options:
            text = getattr(option, "help", None)
            if text and "{" in text:
                option.help = text.format_map(registered())
            if getattr(option, "is_flag", False):
                option.display_type_rich = lambda **_: None  # it takes no value
        rank = {name: place for place, name in enumerate(EVERYDAY)}
        self.params = sorted(options, key=lambda one: rank.get(one.name, len(rank)))
        self.epilog = f"Also: {', '.join(self.shared)} (bagwise --help)."
        super().format_help(ctx, formatter)

    @property
    def shared(self) -> list[str]:
        """The shared options that this command can use."""
        takes = getattr(self.callback, "takes", ())
        return ["--quiet", "--json", *(f"--{name.replace('_', '-')}" for name in takes)]


def add_verbs(app: typer.Typer, *verbs: Callable[..., None]) -> None:
    """Add verbs under the names of their functions."""
    for one in verbs:
        app.command(name=one.__name__.strip("_").replace("_", "-"), cls=Command)(one)


@functools.cache
def registered() -> dict[str, str]:
    """Return what help texts list by these names; registries import numpy and scipy."""
    from bagwise.bagging import STRATEGIES
    from bagwise.families import FAMILIES

    return {
        "strategies": "; ".join(f"{name}: {kind.summary}" for name, kind in STRATEGIES.items()),
        "families": "; ".join(f"{name}: {family.summary}" for name, family in FAMILIES.items()),
    }
