"""The manifest of a release, a record with exact fields, and a description for other tools.

``manifest.json`` lists everything that is not in the tables or the certificate. ``croissant.json``
is MLCommons Croissant 1.1, which catalogues and loaders of data sets read. It is made from the
other files, and holds generated words and numbers only, and a date. Whoever reads a release makes
it again and compares, so that nothing else can travel in it.

References
----------
Croissant format specification 1.1, http://mlcommons.org/croissant/1.1.
"""

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from bagwise._version import SOFTWARE_PATTERN
from bagwise.errors import ReleaseError
from bagwise.files.json_files import canonical
from bagwise.files.records import Record
from bagwise.requests.provenance import Provenance
from bagwise.rows.encode import Encoder

SCHEMA: Final = "bagwise-release/2"

BAG_ID: Final = "bag_id"

Software = Annotated[str, Meta(pattern=rf"^{SOFTWARE_PATTERN}\Z")]
Count = Annotated[int, Meta(ge=0)]


class TableColumns(Record, frozen=True):
    """The columns of both tables, each as ``name: type``."""

    instances: tuple[str, ...]
    bags: tuple[str, ...]


class Manifest(Record, frozen=True):
    """Everything about a release that is not in its tables or its certificate.

    Attributes
    ----------
    certificate : str
        The headline of the certificate, for a quick look.
    provenance : Provenance
    columns : TableColumns
    encoder : Encoder
        The recipe from feature columns to X.
    files : dict of str to str
        SHA-256 of every other file.
    """

    schema: Literal["bagwise-release/2"]
    software: Software
    certificate: str
    provenance: Provenance
    label_kind: Literal["mean", "pick"]
    n_rows: Count
    n_bags: Count
    n_left_out: Count
    columns: TableColumns
    encoder: Encoder
    files: dict[str, str]


# -- croissant -------------------------------------------------------------------------------------

CROISSANT = "croissant.json"

_NAME = "bagwise release"
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")

# The terms of the format, as its specification has them.
_TERMS = (
    "citeAs column equivalentProperty extract field fileObject fileProperty fileSet format "
    "includes isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated "
    "replace samplingRate separator source subField transform"
)
_CONTEXT: dict[str, Any] = dict(
    sorted(
        {
            **{term: f"cr:{term}" for term in _TERMS.split()},
            "@language": "en",
            "@vocab": "https://schema.org/",
            "conformsTo": "dct:conformsTo",
            "cr": "http://mlcommons.org/croissant/",
            "data": {"@id": "cr:data", "@type": "@json"},
            "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
            "dct": "http://purl.org/dc/terms/",
            "examples": {"@id": "cr:examples", "@type": "@json"},
            "rai": "http://mlcommons.org/croissant/RAI/",
            "sc": "https://schema.org/",
        }.items()
    )
)

_KINDS = {"instances": "instances.parquet", "bags": "bags.parquet"}

_PARTS = "instance-parts"
"""What the files of a table of rows that is divided are called together."""

_BAG_KEY = "bags/0"

_BAG_COLUMNS = {
    "bag_id": "the number of the bag",
    "size": "rows in the bag",
    "noise_sd": "standard deviation of the privacy noise on the bag's label",
}


def describe(
    manifest: Manifest,
    certificate: Mapping[str, Any],
    hashes: Mapping[str, str],
    *,
    date: str | None = None,
) -> bytes:
    """Return croissant.json as JSON-LD: the files with the hashes of the others, and the columns.

    Its date is that of the certificate. A release without a guarantee has none: it gets the given
    date, or today's.
    """
    day = certificate["date"] or date or datetime.datetime.now(datetime.UTC).date().isoformat()
    files: list[dict[str, Any]] = [
        {
            "@type": "cr:FileObject",
            "@id": name,
            "name": name,
            "contentUrl": name,
            "encodingFormat": f"application/{'json' if name.endswith('.json') else 'x-parquet'}",
            "sha256": hashes[name],
        }
        for name in sorted(set(hashes) - {CROISSANT})
    ]
    if _KINDS["instances"] not in hashes:
        files.append(
            {
                "@type": "cr:FileSet",
                "@id": _PARTS,
                "name": _PARTS,
                "encodingFormat": "application/x-parquet",
                "includes": "instances-*.parquet",
            }
        )
    tables = []
    for table, file in _KINDS.items():
        source = {"fileObject": {"@id": file}} if file in hashes else {"fileSet": {"@id": _PARTS}}
        tables.append(
            {
                "@type": "cr:RecordSet",
                "@id": table,
                "name": table,
                **({"key": {"@id": _BAG_KEY}} if table == "bags" else {}),
                "field": list(_fields(table, getattr(manifest.columns, table), source)),
            }
        )
    what = "the mean label" if manifest.label_kind == "mean" else "the label of one row"
    described = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": _NAME,
        "description": (
            f"{manifest.n_rows} rows of features in {manifest.n_bags} bags, and {what} of each "
            f"bag, from which row-level models can be learned. Made by {manifest.software}. "
            f"{certificate['headline']}. " + " ".join(certificate["statement"])
        ),
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "datePublished": day,
        "version": "1.0.0",
        "isLiveDataset": False,
        "rai:personalSensitiveInformation": " ".join(certificate["statement"]),
        "distribution": files,
        "recordSet": tables,
    }
    return canonical(described)


def date_in(croissant_file: Mapping[str, Any]) -> str:
    """Return the date of a description, the only part of it that a reader cannot recompute."""
    date = croissant_file.get("datePublished")
    if not isinstance(date, str) or not _DATE.fullmatch(date):
        raise ReleaseError(f"{CROISSANT} has no date.")
    return date


def _fields(
    table: str, columns: tuple[str, ...], source: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    for number, column in enumerate(columns):
        name, _, kind = column.rpartition(": ")
        # By number, since identifiers may hold no blanks, and names of columns may.
        field: dict[str, Any] = {"@type": "cr:Field", "@id": f"{table}/{number}", "name": name}
        if table == "bags" or name == "bag_id":
            said = _BAG_COLUMNS.get(name, "the aggregate label of the bag")
            field["description"] = said if table == "bags" else "the bag of the row, if it has one"
        field["dataType"] = _data_type(kind)
        field["source"] = {**source, "extract": {"column": name}}
        if table == "instances" and name == "bag_id":
            field["references"] = {"field": {"@id": _BAG_KEY}}
        yield field


def _data_type(kind: str) -> str:
    """Return the name that Croissant has for a type of Arrow.

    >>> [_data_type(kind) for kind in ("int64", "double", "bool", "string", "date32[day]")]
    ['sc:Integer', 'sc:Float', 'sc:Boolean', 'sc:Text', 'sc:Date']
    """
    if kind.startswith(("int", "uint")):
        return "sc:Integer"
    if kind in ("double", "float", "halffloat") or kind.startswith("decimal"):
        return "sc:Float"
    if kind == "bool":
        return "sc:Boolean"
    return "sc:Date" if kind.startswith(("date", "timestamp")) else "sc:Text"
