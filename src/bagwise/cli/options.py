"""Options that several verbs share, and what their text stands for."""

import functools
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from bagwise.cli.console import emit, has_terminal, hold, paused_progress, print_grid, say
from bagwise.errors import BoundsError, StrategyError, TableError, check_name

Tables = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE...",
        help="Parquet, CSV or Arrow: a file, several, a directory, 'a pattern*'; - for standard "
        "input; a database for --query.",
        show_default=False,
    ),
]
SqlQuery = Annotated[
    str | None,
    typer.Option(
        "--query", help="SELECT of the rows, where TABLE is a SQLite file or postgresql://…"
    ),
]
Read = Annotated[
    list[str] | None,
    typer.Option(
        "--read",
        help="How a CSV file is written, NAME=VALUE: delimiter, decimal, encoding; repeatable. "
        "Default: found from the file.",
    ),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        help="Such as 8GB; larger tables stay on disk. Default: half of the machine's memory."
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        help="local: this machine, out of core where memory is short; spark: many (extra spark)."
    ),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--spark",
        help="With --engine spark: a setting NAME=VALUE of Spark, such as "
        "spark.master=spark://host:7077; repeatable. Default: all cores of this machine.",
    ),
]
Label = Annotated[str, typer.Option(help="The column to protect.")]
Learner = Annotated[
    str,
    typer.Option(
        help="Who the bags are for: linear models, or flexible ones such as boosted trees, for "
        "which rows are compared as a private model sees them."
    ),
]
Tighten = Annotated[
    str,
    typer.Option(
        help="First find a tighter range privately: auto, range, or none for tight bounds."
    ),
]
Unit = Annotated[
    str | None,
    typer.Option(
        help="Column naming people with several rows, protected together; it is not published."
    ),
]
Features = Annotated[
    str | None, typer.Option(help="Feature columns, separated by commas. Default: all.")
]
Exclude = Annotated[str | None, typer.Option(help="Columns to exclude, separated by commas.")]
By = Annotated[
    str | None,
    typer.Option(
        help="Public columns that define the bags, separated by commas; small groups are merged."
    ),
]
Within = Annotated[
    str | None,
    typer.Option(help="Public columns whose strata no bag crosses, separated by commas."),
]
Exposure = Annotated[
    str | None,
    typer.Option(help="Public column that a label is counted over, such as years; not a feature."),
]
Nulls = Annotated[str, typer.Option(help="Missing features: indicator or error.")]
MaxLevels = Annotated[
    int, typer.Option(help="Categories of a text column before the rest are pooled.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors: no warnings, no notes.")
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Publish columns that look like names, ids or dates.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="List the columns that would be published, and stop.")
]
Notes = Annotated[
    Path | None,
    typer.Option(
        help="File for what depends on labels, such as columns that give them away; only you can "
        "read it. It is replaced."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing output.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
LedgerFile = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        envvar="BAGWISE_LEDGER",
        help="Ledger of the data set, charged before noise is drawn (bagwise ledger init).",
    ),
]
ChosenBy = Annotated[
    str,
    typer.Option(
        help="With --ledger: how rows were chosen from the data set: all of them; public: by what "
        "is public, charged to these alone; label: refused."
    ),
]
Anew = Annotated[
    bool,
    typer.Option(
        "--anew",
        help="With --ledger: draw and charge again instead of reusing an identical request.",
    ),
]
Purpose = Annotated[
    str | None, typer.Option(help="With --ledger: what it is for, kept with the charge.")
]
Recipient = Annotated[
    str | None, typer.Option(help="With --ledger: who gets it, kept with the charge.")
]
SignWith = Annotated[
    Path | None, typer.Option("--sign", help="Private key (Ed25519, PEM) to sign the manifest.")
]


def is_spark(engine: str, settings: list[str] | None) -> bool:
    """Tell whether to work on Spark; refuse settings without it."""
    check_name("--engine", engine, ("local", "spark"))
    if settings and engine != "spark":
        raise StrategyError("--spark belongs to --engine spark.")
    return engine == "spark"


def confirmation(
    *, yes: bool, dry_run: bool, quiet: bool, as_json: bool, piped: bool
) -> Callable[[Any], bool]:
    """Return what shows the columns that will be published, and asks where there is a doubt.

    `piped` is for a table that comes through standard input: nobody can answer there.
    """

    def confirm(preview: Any) -> bool:
        with paused_progress():
            if as_json and dry_run:
                emit({"columns": preview.to_json()})
            elif not quiet and not as_json:
                rows = preview.cells()
                print_grid(f"Columns that will be published: {len(rows) - 1}", rows)
            asked = has_terminal() and sys.stdin.isatty() and not (piped or quiet or as_json)
            if (asked or yes or dry_run) and not quiet and not as_json:
                for line in preview.open_flags:
                    say(f"Look twice: {line}", style="yellow")
            if dry_run:
                raise typer.Exit
            if yes or not preview.open_flags:
                return True
            return asked and typer.confirm("Publish all of these columns?", err=True)

    return confirm


SMALL_FILE = 2**24
"""Bytes that must be free for a model or scores, or beside the rows of a release."""

Reserve = Callable[[int, int], AbstractContextManager[None]]


def file_reserve(output: Path | None, *, force: bool) -> Reserve | None:
    """Return what keeps a file for this run."""
    from bagwise.files.atomic import check_file, reserved

    if output is None:
        return None
    check = functools.partial(check_file, output, force=force)
    return lambda _rows, _bytes: reserved(output, check=check, size=SMALL_FILE)


def open_ledger(
    path: Path | None,
    chosen_by: str,
    anew: bool,
    reserve: Reserve | None,
    **notes: str | None,
) -> Any:
    """Return the ledger to charge, or None; options without one are refused.

    `reserve` keeps the output, from before the charge until the command ends. `notes` are what a
    charge is for, and who gets it.
    """
    from bagwise.ledger import Ledger

    if path is None:
        if chosen_by != "all" or anew or any(notes.values()):
            raise StrategyError(
                "--chosen-by, --anew, --purpose and --recipient belong to a ledger; give --ledger."
            )
        return None
    ledger = Ledger.open(path).part(chosen_by).noting(**notes)
    if reserve is not None:
        ledger = ledger.reserving(lambda *size: hold(reserve(*size)))
    return ledger.drawing_anew() if anew else ledger


def check_signing_key(path: Path | None) -> None:
    """Refuse a key that cannot sign, before anything is charged or drawn."""
    if path is not None:
        from bagwise.files.signatures import read_signing_key

        read_signing_key(path)


def keep_in(ledger: Any, path: Path | None, made: Any) -> str | None:
    """Remember in a ledger where files are; return what to tell of the charge."""
    if ledger is None:
        return None
    from bagwise.errors import ReleaseError
    from bagwise.files.regular_files import sha256_of
    from bagwise.release.files import MANIFEST

    mark = made.certificate.mark
    paid_before = any(place.id == mark.id for place in ledger.store.places())
    if path is not None:
        directory = path.is_dir()  # a release, whose digest is that of its manifest
        digest = sha256_of(path / MANIFEST, error=ReleaseError) if directory else made.digest
        ledger.remember(path, id=mark.id, digest=digest)
    if paid_before:
        return f"Answered with what {mark.id} has paid for in {ledger.path}; nothing was drawn."
    show = f"bagwise ledger show {shlex.quote(str(ledger.path))}"
    return f"Charged to {ledger.path} as {mark.id}. What is left: {show}"


def read_bounds(given: tuple[str, str] | None) -> Any:
    """Return the bounds that were typed in: two numbers, or "auto"."""
    if given is None or given == ("auto", "auto"):
        return given and "auto"
    try:
        return (float(given[0]), float(given[1]))
    except ValueError:
        raise BoundsError(
            f"--bounds takes two numbers, or auto, not {' '.join(given)!r}. For example: "
            "--bounds 0 100"
        ) from None


def source_of(tables: list[str], query: str | None, read: list[str] | None) -> Any:
    """Return what was typed as a source: files, a query, or CSV files with details."""
    if query is not None:
        from bagwise.rows.sources import Query

        if len(tables) != 1 or read:
            raise TableError("--query goes with one database, and without --read.")
        return Query(tables[0], query)
    where = tables[0] if len(tables) == 1 else tables
    if not read:
        return where
    from bagwise.rows.sources import Csv

    return Csv(where, **csv_details(read))


def csv_details(read: list[str]) -> dict[str, str]:
    """Return what --read says of a CSV file."""
    details = parse_settings(read, option="--read")
    for name in details:
        check_name("detail of --read", name, ("delimiter", "decimal", "encoding"), TableError)
    if "delimiter" in details:  # shells make it hard to type a tab
        details["delimiter"] = {"tab": "\t", "\\t": "\t"}.get(
            details["delimiter"], details["delimiter"]
        )
    return details


def split_names(names: str | None) -> list[str] | None:
    """Return the names between the commas."""
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def parse_settings(settings: list[str], *, option: str = "--set") -> dict[str, str]:
    """Return NAME=VALUE pairs as a mapping."""
    parsed = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise StrategyError(f"{option} takes NAME=VALUE, got {setting!r}.")
        parsed[name] = value
    return parsed


EVERYDAY = ["label", "bounds", "classes", "epsilon", "output", "id_", "exclude", "unit", "ledger"]
"""Options that the help of a verb begins with, in this order."""

PANELS = {
    "Privacy": "delta error noise tighten centre not_private label_kind chosen_by anew "
    "purpose recipient sign",
    "Bags": "bag_size min_bag_size bag_sizes strategy strategies learner family set_ scores "
    "score_share by within seed keep_order single_labels prior misfit",
    "Columns": "features exposure drop_missing_labels nulls max_levels yes dry_run notes",
    "Reading and writing": "query read rows_per_file memory_limit engine spark force quiet as_json",
}
"""Where the other options of `plan`, `release` and `release-model` are shown."""

_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names.split()}
_METAVARS = {
    "bounds": "LO HI | auto",
    "prior": "SIGNAL NOISE",
    "set_": "NAME=VALUE",
    "spark": "NAME=VALUE",
}
_EXAMPLES = {
    "bounds": "--bounds 0 100",
    "epsilon": "--epsilon 1",
    "delta": "--delta 1e-6",
    "label": "--label rent",
    "prior": "--prior 200 150",
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
                continue
            pair = first and _PAIR.fullmatch(word.strip("()[]"))
            read += re.split("[,;:]", word.strip("()[]")) if pair else [word]
        try:
            return super().parse_args(ctx, read)
        except typer.BadParameter as error:
            name = "" if error.param is None else error.param.name or ""
            if name in _EXAMPLES:
                error.message = f"{error.message.rstrip('.')}. For example: {_EXAMPLES[name]}"
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Put everyday options first and others in panels; let paragraphs fill the terminal."""
        # Lines of a docstring end where those of its file do.
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        self.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        panels = self.name in ("plan", "release", "release-model")
        options: list[Any] = list(self.params)
        for option in options:
            text = getattr(option, "help", None)
            for word, spell in REGISTERED.items():
                if text and word in text:
                    text = option.help = text.replace(word, spell())
            option.metavar = _METAVARS.get(option.name, option.metavar)
            if getattr(option, "is_flag", False):
                option.display_type_rich = lambda **_: None  # it takes no value
            if panels and option.name in _PANEL_OF:
                option.rich_help_panel = _PANEL_OF[option.name]
        rank = {name: place for place, name in enumerate(EVERYDAY)}
        self.params = sorted(options, key=lambda one: rank.get(one.name, len(rank)))
        super().format_help(ctx, formatter)


def _strategies() -> str:
    from bagwise.bagging import STRATEGIES

    return "; ".join(f"{name}: {kind.summary}" for name, kind in STRATEGIES.items())


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
