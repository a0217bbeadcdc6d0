"""A list of the columns that will be published, for the custodian to confirm.

A release publishes its features as they are. So the columns are listed before anything
is written, with a flag on each column that a custodian may not want to publish: names of people,
free text, ids with repeated values, dates. A flag stops the release until someone confirms the
column. Nothing in this module sees a label; notes that depend on labels are only for the operator
(`bagwise.rows.labels`).
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import UnconfirmedColumnsError
from bagwise.requests.columns import Columns
from bagwise.rows.columns import is_numeric, is_text
from bagwise.rows.encode import Encoder, LevelsColumn
from bagwise.rows.summary import ColumnSummary

_MOST = 0.9  # of the values, that must look alike
_MANY_TEXTS = 32  # different texts from which on they may be names
_ROWS_PER_TEXT = 10  # on average; texts that are rarer may be names
_ROWS_PER_ID = 1000  # on average; people have fewer
_FEWEST_IDS = 20
_FEWEST_NAMES = 2
_WORDS_OF_FREE_TEXT = 4


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PERSON = _set(
    "person people patient subject customer client user member household employee respondent "
    "participant student officer driver citizen applicant insured tenant voter who "
    "patientin kunde kundin mitarbeiter klient paciente cliente"
)
_IDS = _set("id ids uid uuid guid pid identifier ssn mrn passport iban")
_NUMBERS = _set("no nr num number nummer numero code key")
_NAMES = _set(
    "firstname lastname surname forename fullname nickname username vorname nachname prenom nom "
    "nombre apellido apellidos"
)
_BEFORE_NAME = _PERSON | _set("first last full given family middle maiden nick owner")
_CONTACTS = _set("email mail phone telephone mobile fax address street adresse strasse")
_FREE_TEXT = _set("comment comments note notes remark remarks text message narrative feedback")
_BIRTH = _set("birth birthday birthdate dob geburtsdatum")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

_MAIL = r"^[^@\s]+@[^@\s]+\.[^@\s]+$"
_NUMBER = r"^[-+\d\s.,%€$£¥]*$"  # text for its marks alone, of which the encoder warns
_DATE = r"^\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}:\d{2}.*)?\s*$"


@dataclass(frozen=True)
class ColumnPreview:
    """One column that will be published.

    Attributes
    ----------
    role : str
        What the column is published as: feature, id, exposure, or a column that defines bags.
    distinct : int or None
        Number of different values; None if there are too many to list.
    missing : float
        Share of rows without a value.
    encoding : str
        What a model sees of the column.
    flags : tuple of str
        What the custodian should think about; empty for most columns.
    confirmed : bool
        Whether the column was requested by name.
    """

    name: str
    role: str
    kind: str
    distinct: int | None
    missing: float
    encoding: str
    flags: tuple[str, ...] = ()
    confirmed: bool = False


@dataclass(frozen=True)
class Preview:
    """Every column that will be published."""

    columns: tuple[ColumnPreview, ...]

    @property
    def open_flags(self) -> list[str]:
        """The columns that must be confirmed, one line for each."""
        return _flagged({one.name: one.flags for one in self.columns if not one.confirmed})

    def cells(self) -> list[tuple[str, ...]]:
        """Return the list as a table; the first row is the heading."""
        cells: list[tuple[str, ...]] = [
            ("column", "kind", "different values", "missing", "a model sees")
        ]
        for one in self.columns:
            kind = one.kind if one.role == "feature" else f"{one.kind}, {one.role}"
            distinct = "many" if one.distinct is None else f"{one.distinct:,}"
            missing = f"{one.missing:.1%}" if one.missing else ""
            cells.append((one.name, kind, distinct, missing, one.encoding))
        return cells

    def to_json(self) -> list[dict[str, Any]]:
        """Return the list as plain values."""
        return [asdict(one) for one in self.columns]


Confirm = Callable[[Preview], bool]
"""Shows the columns to someone, and returns whether they agree."""


def confirm_columns(preview: Preview, confirmed: bool | Confirm) -> None:
    """Raise an error if a flagged column has not been confirmed.

    Raises
    ------
    UnconfirmedColumnsError
        With every column that needs a second look. Nothing has been charged or drawn yet.
    """
    agreed = confirmed(preview) if callable(confirmed) else confirmed
    if not agreed:
        _refuse(preview.open_flags)


def refuse_flagged(facts: Mapping[str, ColumnSummary], columns: Columns, *, said: str) -> None:
    """Refuse columns that need a second look, together with other errors of the same table.

    Columns that the errors in `said` already name are left out. This way nobody repairs a table
    only to be asked about columns that were there all the time.
    """
    confirmed = {*columns.named, *(name for name in facts if repr(name) in said)}
    _refuse(_flagged({n: _flags(n, fact) for n, fact in facts.items() if n not in confirmed}))


def _flagged(flags: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{name!r} {'; '.join(some)}" for name, some in flags.items() if some]


def _refuse(asked: Sequence[str]) -> None:
    """Refuse columns that need a second look, if there are any."""
    if not asked:
        return
    lines = "\n".join(f"  {line}" for line in asked)
    several = "columns need" if len(asked) > 1 else "column needs"
    raise UnconfirmedColumnsError(
        f"{len(asked)} {several} a second look before being published:\n{lines}\nNothing was "
        "published. Drop them with exclude=[...] (--exclude), or confirm them by naming them in "
        "features=[...] (--features), or all at once with confirmed=True (--yes)."
    )


def preview_columns(
    facts: Mapping[str, ColumnSummary], encoder: Encoder, columns: Columns
) -> Preview:
    """List the columns that will be published, from summaries of them.

    Parameters
    ----------
    facts : mapping
        Summaries of all published columns, features or not.
    encoder : Encoder
        The encoding of the features.

    Examples
    --------
    >>> table = pa.table({"patient_id": [1, 1, 2] * 20, "age": [30, 30, 41] * 20})
    >>> facts = {name: ColumnSummary.of(name, table[name]) for name in table.column_names}
    >>> encoder = Encoder.from_summaries(facts)
    >>> [one.distinct for one in preview_columns(facts, encoder, Columns.of("y")).columns]
    [2, 2]
    """
    recipes = {recipe.name: recipe for recipe in encoder.columns}
    roles = {columns.exposure: "exposure"}
    roles |= dict.fromkeys((*columns.by, *columns.within), "bags follow it")
    roles |= {columns.id: "id"}
    named, listed = set(columns.named), []
    for name, fact in facts.items():
        recipe = recipes.get(name)
        encoding = "nothing: not a feature"
        if isinstance(recipe, LevelsColumn):
            pooled = ", one of them for all rare values" if recipe.pooled else ""
            several = "s" if len(recipe.outputs) != 1 else ""
            encoding = f"{len(recipe.outputs)} yes-or-no column{several}{pooled}"
        elif recipe is not None:
            gaps = "" if recipe.fill is None else ", and whether it is missing"
            encoding = f"the number itself{gaps}"
        listed.append(
            ColumnPreview(
                name=name,
                role=roles.get(name, "feature"),
                kind=_kind(fact.type),
                distinct=fact.distinct,
                missing=fact.missing / max(fact.rows, 1),
                encoding=encoding,
                flags=() if name == columns.id else tuple(_flags(name, fact)),
                confirmed=name in named,
            )
        )
    return Preview(tuple(listed))


def _kind(kind: pa.DataType) -> str:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_boolean(plain):
        return "yes or no"
    if is_text(plain):
        return "text"
    if pa.types.is_integer(plain):
        return "whole number"
    return "number" if is_numeric(plain) else str(plain)


def _flags(name: str, fact: ColumnSummary) -> list[str]:
    """Return reasons for a second look, from the name and the values, which are public."""
    words = [word.lower() for word in _WORDS.findall(name)]
    # 1. Dates, since a day can identify a person.
    if _is_date(fact) or (_BIRTH & set(words)):
        return ["looks like dates: publish an age, a year or a month instead"]
    # 2. Names of people, and free text.
    if fact.levels is not None and (text := _text_flag(words, fact.levels, fact)):
        return [text]
    # 3. Ids with repeated values, which may stand for people with several rows.
    if _is_id(words, fact):
        return [
            "looks like an id with repeated values. If it identifies people, protect all rows of a "
            f"person together, which also drops it: unit={name!r} "
            f"(--unit {shlex.quote(name)})"
        ]
    return []


def _is_date(fact: ColumnSummary) -> bool:
    if fact.levels is not None:
        return _share(fact.levels, _DATE) >= _MOST
    if fact.values is None or not pa.types.is_integer(fact.values.type):
        return False
    days = fact.values.to_numpy(zero_copy_only=False)  # 20240131 is a day
    in_range = fact.low >= 1900_01_01 and fact.high <= 2099_12_31
    month, day = days // 100 % 100, days % 100
    return bool(in_range and np.all((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)))


def _text_flag(words: Sequence[str], levels: pa.Table, fact: ColumnSummary) -> str | None:
    told, distinct = set(words), fact.distinct or 0
    # A first or last name says what it is; a mere name may be that of a product or a ward.
    personal = told & _NAMES or ("name" in told and told & _BEFORE_NAME)
    if (personal and distinct > _FEWEST_NAMES) or (words == ["name"] and distinct > _FEWEST_IDS):
        return "looks like names of people"
    if _share(levels, _MAIL) >= _MOST or (distinct > _FEWEST_IDS and told & _CONTACTS):
        return "looks like addresses or other contact details"
    if distinct <= _MANY_TEXTS:
        return None
    spaces = pc.mean(pc.count_substring(levels["values"], " ")).as_py()
    if told & _FREE_TEXT or spaces + 1 >= _WORDS_OF_FREE_TEXT:
        return "looks like free text, which can contain anything"
    rare = distinct * _ROWS_PER_TEXT > fact.rows - fact.missing
    if rare and _share(levels, _NUMBER) < _MOST:
        return "has few rows for each text, so these may be names, addresses or ids"
    return None


def _share(levels: pa.Table, pattern: str) -> float:
    """Return the share of different texts that match a pattern."""
    matches = pc.match_substring_regex(levels["values"].drop_null(), pattern)
    return float(pc.mean(matches).as_py() or 0.0)


def _is_id(words: Sequence[str], fact: ColumnSummary) -> bool:
    told = set(words)
    named = told & _IDS or (told & _PERSON and (told & _NUMBERS or words[-1] in _PERSON))
    several = fact.distinct is None or (
        fact.distinct >= _FEWEST_IDS and fact.distinct * _ROWS_PER_ID >= fact.rows
    )
    return bool(named) and several and (is_numeric(fact.type) or fact.levels is not None)
