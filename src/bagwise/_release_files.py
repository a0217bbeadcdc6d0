"""A release as a directory: two tables, two JSON files, and a digest over all of them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.atomic import new_directory
from bagwise.errors import ReleaseError, shielded
from bagwise.table import read_parquet

SCHEMA = "bagwise-release/1"

INSTANCES, BAGS = "instances.parquet", "bags.parquet"
CERTIFICATE, MANIFEST = "certificate.json", "manifest.json"
SCORES = "scores.json"  # only where rows were sorted by a private model
HASHED = (INSTANCES, BAGS, CERTIFICATE)


@dataclass(frozen=True)
class ReleaseFiles:
    """The contents of the files."""

    instances: pa.Table
    bags: pa.Table
    certificate: Mapping[str, Any]
    manifest: Mapping[str, Any]
    scores: Mapping[str, Any] | None = None


def write_release(files: ReleaseFiles, target: Path, *, force: bool) -> None:
    """Write the directory in one step: it is there whole, or not at all."""
    with new_directory(target, force=force, replaceable=is_release) as draft:
        for name, table in ((INSTANCES, files.instances), (BAGS, files.bags)):
            pq.write_table(table, draft / name, compression="zstd")
        _write_json(files.certificate, draft / CERTIFICATE)
        if files.scores is not None:
            _write_json(files.scores, draft / SCORES)
        hashes = {file.name: _sha256(file) for file in sorted(draft.iterdir())}
        _write_json({**files.manifest, "files": hashes}, draft / MANIFEST)


def read_release(path: Path) -> ReleaseFiles:
    """Read the directory, and refuse it when a file is missing, damaged or was edited."""
    if not path.is_dir():
        raise ReleaseError(f"{path} is not a directory. A release is the directory bagwise wrote.")
    if missing := [name for name in (*HASHED, MANIFEST) if not (path / name).is_file()]:
        raise ReleaseError(f"{path} is not a complete release: {', '.join(missing)} is missing.")
    manifest = _read_json(path / MANIFEST)
    if manifest.get("schema") != SCHEMA:
        raise ReleaseError(
            f"{path} has schema {manifest.get('schema')!r}, this version reads {SCHEMA!r}."
        )
    check_hashes(path, manifest)
    return ReleaseFiles(
        instances=_read_parquet(path / INSTANCES),
        bags=_read_parquet(path / BAGS),
        certificate=_read_json(path / CERTIFICATE),
        manifest=manifest,
        scores=_read_json(path / SCORES) if SCORES in manifest["files"] else None,
    )


def as_parquet_keeps_it(table: pa.Table) -> pa.Table:
    """Return a table with the types that it will have when it is read back from Parquet."""
    buffer = pa.BufferOutputStream()
    pq.write_table(table.schema.empty_table(), buffer)
    return table.cast(pq.read_schema(pa.BufferReader(buffer.getvalue())))


def check_hashes(path: Path, manifest: Mapping[str, Any]) -> None:
    """Compare each file with the hash in the manifest; nothing else may lie in the directory."""
    recorded = manifest.get("files")
    if not isinstance(recorded, dict) or set(recorded) - {SCORES} != set(HASHED):
        raise ReleaseError(f"{path / MANIFEST} does not list the files of a release.")
    for name in recorded:
        if not (path / name).is_file():
            raise ReleaseError(f"{path} is not a complete release: {name} is missing.")
        if _sha256(path / name) != recorded[name]:
            raise ReleaseError(
                f"{path / name} was changed after the release was written (its SHA-256 is not the "
                "one in the manifest). Ask for the release again."
            )
    if strangers := {entry.name for entry in path.iterdir()} - {*recorded, MANIFEST}:
        raise ReleaseError(f"{path} holds files that no release has: {sorted(strangers)}.")


def release_digest(path: Path) -> str:
    """Return the SHA-256 of the manifest, which covers every other file by its hash."""
    return _sha256(path / MANIFEST)


def is_release(path: Path) -> bool:
    """Tell whether a directory was written by bagwise, judging by its manifest."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and str(manifest.get("schema", "")).startswith(
        "bagwise-release/"
    )


def _write_json(values: Mapping[str, Any], path: Path) -> None:
    path.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    values = shielded(
        lambda: json.loads(path.read_text(encoding="utf-8")),
        lambda _: ReleaseError(f"{path} is not readable JSON: it is damaged or was edited."),
    )
    if not isinstance(values, dict):
        raise ReleaseError(f"{path} does not hold a JSON object.")
    return values


def _read_parquet(path: Path) -> pa.Table:
    return shielded(
        lambda: read_parquet(path),
        lambda _: ReleaseError(f"{path} is not a readable Parquet file."),
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
