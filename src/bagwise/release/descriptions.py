"""The description of a release for other tools, made from its own files.

``croissant.json`` is MLCommons Croissant 1.1, which catalogues and loaders of data sets read. It
holds generated words and numbers only, and a date. Whoever reads a release makes it again and
compares, so that nothing else can travel in it.

References
----------
Croissant format specification 1.1, http://mlcommons.org/croissant/1.1.
"""

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bagwise.errors import ReleaseError
from bagwise.files.json_files import canonical
from bagwise.release.manifest import Manifest

CROISSANT = "croissant.json"

_NAME = "bagwise release"
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")

# The terms of the format, as its specification has them.
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}

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
    """Return the file, given the hashes of the others.

    It has the date of the certificate. What promises nothing has none: it gets the one that is
    given, or today's.
    """
    day = certificate["date"] or date or datetime.datetime.now(datetime.UTC).date().isoformat()
    return canonical(croissant(manifest, certificate, hashes, date=day))


def date_in(croissant_file: Mapping[str, Any]) -> str:
    """Return the date of a description; it is the only thing in it that a reader cannot make."""
    date = croissant_file.get("datePublished")
    if not isinstance(date, str) or not _DATE.fullmatch(date):
        raise ReleaseError(f"{CROISSANT} has no date.")
    return date


def croissant(
    manifest: Manifest, certificate: Mapping[str, Any], hashes: Mapping[str, str], *, date: str
) -> dict[str, Any]:
    """Return the description as JSON-LD: the files, their hashes, and every column."""
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": _NAME,
        "description": _description(manifest, certificate),
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "datePublished": date,
        "version": "1.0.0",
        "isLiveDataset": False,
        "rai:personalSensitiveInformation": " ".join(certificate["statement"]),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": name,
                "name": name,
                "contentUrl": name,
                "encodingFormat": "application/json"
                if name.endswith(".json")
                else "application/x-parquet",
                "sha256": hashes[name],
            }
            for name in sorted(set(hashes) - {CROISSANT})
        ]
        + ([] if _KINDS["instances"] in hashes else [_file_set()]),
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": table,
                "name": table,
                **({"key": {"@id": _BAG_KEY}} if table == "bags" else {}),
                "field": list(
                    _fields(
                        table,
                        getattr(manifest.columns, table),
                        {"fileObject": {"@id": file}}
                        if file in hashes
                        else {"fileSet": {"@id": _PARTS}},
                    )
                ),
            }
            for table, file in _KINDS.items()
        ],
    }


def _file_set() -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": _PARTS,
        "name": _PARTS,
        "encodingFormat": "application/x-parquet",
        "includes": "instances-*.parquet",
    }


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
    """Return what a type of Arrow is called there.

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


def _description(manifest: Manifest, certificate: Mapping[str, Any]) -> str:
    what = "the mean label" if manifest.label_kind == "mean" else "the label of one row"
    return (
        f"{manifest.n_rows} rows of features in {manifest.n_bags} bags, and {what} of each bag, "
        f"from which row-level models can be learned. Made by {manifest.software}. "
        f"{certificate['headline']}. " + " ".join(certificate["statement"])
    )
