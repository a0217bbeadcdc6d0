"""A release as a directory: two tables, two JSON files, and a digest over all of them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bagwise.atomic import new_directory
from bagwise.errors import ReleaseError
from bagwise.json_files import LARGEST_STATEMENT, read_json, write_json
from bagwise.parquet_files import read_plain, write_plain
from bagwise.regular_files import open_regular

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
            write_plain(table, draft / name)
        write_json(files.certificate, draft / CERTIFICATE)
        if files.scores is not None:
            write_json(files.scores, draft / SCORES)
        hashes = {file.name: _sha256(file) for file in sorted(draft.iterdir())}
        write_json({**files.manifest, "files": hashes}, draft / MANIFEST)


def read_release(path: Path) -> ReleaseFiles:
    """Read the directory, and refuse it when a file is missing, damaged or was edited."""
    if not path.is_dir():
        raise ReleaseError(f"{path} is not a directory. A release is the directory bagwise wrote.")
    if missing := [name for name in (*HASHED, MANIFEST) if not (path / name).is_file()]:
        raise ReleaseError(f"{path} is not a complete release: {', '.join(missing)} is missing.")
    manifest = read_json(path / MANIFEST, error=ReleaseError, what="a manifest")
    if manifest.get("schema") != SCHEMA:
        raise ReleaseError(
            f"{path} has schema {manifest.get('schema')!r}, this version reads {SCHEMA!r}."
        )
    check_hashes(path, manifest)
    return ReleaseFiles(
        instances=read_plain(path / INSTANCES, error=ReleaseError),
        bags=read_plain(path / BAGS, error=ReleaseError),
        certificate=_read_certificate(path / CERTIFICATE),
        manifest=manifest,
        scores=_read_scores(path / SCORES) if SCORES in manifest["files"] else None,
    )


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
        manifest = read_json(path / MANIFEST, error=ReleaseError, what="a manifest")
    except (OSError, ReleaseError):
        return False
    return str(manifest.get("schema", "")).startswith("bagwise-release/")


def _read_certificate(path: Path) -> dict[str, Any]:
    return read_json(path, error=ReleaseError, what="a certificate", limit=LARGEST_STATEMENT)


def _read_scores(path: Path) -> dict[str, Any]:
    return read_json(path, error=ReleaseError, what="a file of scores")


def _sha256(path: Path) -> str:
    with open_regular(path, error=ReleaseError) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
