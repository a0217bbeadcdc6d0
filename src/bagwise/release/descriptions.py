"""Descriptions of a release for the tools and registries of others, made from its own files.

- ``croissant.json``: MLCommons Croissant 1.1, the description that catalogues and loaders of data
  sets read.
- ``deployment.yaml``: an entry for OpenDP's registry of deployments of differential privacy.

Both hold generated words and numbers only, and a date. Whoever reads a release makes them again and
compares, so that nothing else can travel in them. What bagwise cannot know, such as who publishes
the data and for what, is left to the custodian, who fills it into a copy (``bagwise report``).

References
----------
Croissant format specification 1.1, http://mlcommons.org/croissant/1.1.
OpenDP deployments registry, https://github.com/opendp/deployments-registry-data, schema of 2026.
"""

import datetime
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bagwise.errors import ReleaseError
from bagwise.files.json_files import canonical
from bagwise.release.manifest import Manifest

CROISSANT, DEPLOYMENT = "croissant.json", "deployment.yaml"

ASK = "The custodian must answer."

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
) -> dict[str, bytes]:
    """Return both files, given the hashes of the others.

    They have the date of the certificate. What promises nothing has none: it gets the one that is
    given, or today's.
    """
    day = certificate["date"] or date or datetime.datetime.now(datetime.UTC).date().isoformat()
    return {
        CROISSANT: canonical(croissant(manifest, certificate, hashes, date=day)),
        DEPLOYMENT: to_yaml(deployment(manifest, certificate, date=day)).encode("ascii"),
    }


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
            for name in sorted(set(hashes) - {CROISSANT, DEPLOYMENT})
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


def deployment(manifest: Manifest, certificate: Mapping[str, Any], *, date: str) -> dict[str, Any]:
    """Return an entry for the registry: everything that bagwise knows; the rest is asked for."""
    entry: dict[str, Any] = {
        "basic": {
            "name": _NAME,
            "data_curators": [ASK],
            "intended_use": ASK,
            "data_product_type": "Dataset",
            "data_product_region": ASK,
            "description": _description(manifest, certificate),
            "publication_date": date,
        }
    }
    if certificate["private"]:
        entry |= _promise(certificate)
    entry["deployment_model"] = {
        "model_name": "Central",
        "actors": "The custodian sees labels and adds noise. Whoever has the release sees "
        "features, bags and bag labels.",
        "release_type": "One release",
        "release_type_details": "Each further release of the same table spends anew. " + ASK,
        "data_source_type": "Static",
        "access_type": "Non-interactive",
    }
    if certificate["private"]:
        entry["accounting"] = {
            "post_processing": "Bags and models are made from features and noisy numbers only.",
            "composition": "All mechanisms of the release together, by their privacy-loss "
            "distributions or in closed form.",
        }
        entry["implementation"] = _implementation(manifest, certificate)
    entry["administrative"] = {
        "notes": "Verify the release with bagwise verify, and compare its digest with the "
        "custodian's.",
        "registry_authors": [ASK],
    }
    return {
        "url_slug": "bagwise_release",
        "status": "Draft",
        "tier": 3 if certificate["private"] else 1,
        "deployment": entry,
    }


def _promise(certificate: Mapping[str, Any]) -> dict[str, Any]:
    pure = certificate["delta"] == 0
    return {
        "dp_variant": {
            "variant_name": "Pure DP" if pure else "Approximate DP",
            "data_domain": "Tables of public features with one secret label in each row"
            + (
                "."
                if certificate["bounds"] is None
                else f", clipped to {certificate['bounds'][0]:g} to {certificate['bounds'][1]:g}."
            ),
            "unprotected_quantities": "Features, ids, the number of rows, and which rows share a "
            "bag, as far as that does not follow from labels.",
        },
        "privacy_loss": {
            "privacy_unit": "The label of one row"
            if certificate["unit"] is None
            else "All labels of one person or other unit",
            "privacy_unit_details": f"Neighbouring tables: {certificate['neighbouring']}. "
            "Labels are replaced; rows are neither added nor removed.",
            "privacy_parameters": {
                "epsilon": certificate["epsilon"],
                "delta": certificate["delta"],
            },
            "privacy_parameters_details": "The whole curve of epsilon and delta is in "
            "certificate.json.",
        },
    }


def _implementation(manifest: Manifest, certificate: Mapping[str, Any]) -> dict[str, Any]:
    kinds = ", ".join(dict.fromkeys(event["kind"] for event in certificate["events"]))
    return {
        "preprocessing_and_hyperparameter_tuning": "Labels are clipped to public bounds, or to "
        "bounds that were found privately, which the certificate counts in.",
        "mechanisms": f"{kinds}, by {manifest.software}. Noise is drawn on whole numbers from "
        f"{certificate['noise_source']}, by exact samplers, so that no rounding of floating-point "
        "numbers shows labels.",
        "justification": ASK,
    }


def to_yaml(values: Mapping[str, Any]) -> str:
    r"""Return nested mappings, lists of text, text and numbers as YAML, in one spelling.

    Text is always quoted and all ASCII; numbers are written so that readers of YAML 1.1, too, take
    them for numbers.

    >>> print(to_yaml({"a": {"b": 1e-6, "c": ["x: é"]}, "d": 3}), end="")
    a:
      b: 1.0e-06
      c:
        - "x: \u00e9"
    d: 3
    """
    return "".join(f"{line}\n" for line in _yaml_lines(values))


def _yaml_lines(values: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _yaml_lines(value, indent + "  ")
        elif isinstance(value, list):
            yield f"{indent}{name}:"
            yield from (f"{indent}  - {_yaml_scalar(entry)}" for entry in value)
        else:
            yield f"{indent}{name}: {_yaml_scalar(value)}"


def _yaml_scalar(value: Any) -> str:
    if isinstance(value, str):
        # JSON writes characters beyond the first plane as two escapes, which YAML has as one.
        plain = "".join(char if ord(char) < 0x10000 else f"\0{ord(char):08x}" for char in value)
        return re.sub(r"\\u0000([0-9a-f]{8})", r"\\U\1", json.dumps(plain))
    if isinstance(value, float) and not math.isfinite(value):
        raise ReleaseError("a number of the certificate is not finite.")
    text = repr(value)
    return text.replace("e", ".0e", 1) if "e" in text and "." not in text else text
