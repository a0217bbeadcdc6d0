"""A release as a directory: two tables, two JSON files, and a digest over all of them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from bagwise.errors import ReleaseError
from bagwise.files.atomic import DirectoryKind, new_directory
from bagwise.files.json_files import LARGEST_STATEMENT, canonical, read_json, write_json
from bagwise.files.parquet_files import read_plain, write_plain
from bagwise.files.records import read_file, to_plain
from bagwise.files.regular_files import sha256_of
from bagwise.release.manifest import SCHEMA, Manifest

INSTANCES, BAGS = "instances.parquet", "bags.parquet"
CERTIFICATE, MANIFEST = "certificate.json", "manifest.json"
SCORES = "scores.json"  # only where rows were sorted by a private model
HASHED = (INSTANCES, BAGS, CERTIFICATE)


@dataclass(frozen=True)
class ReleaseFiles:
    """The contents of the files; to write them, instances may also come as a stream of batches.

    `digest` is the SHA-256 of the manifest, which covers every other file by its hash.
    """

    instances: pa.Table | pa.RecordBatchReader
    bags: pa.Table
    certificate: Mapping[str, Any]
    manifest: Manifest
    scores: Mapping[str, Any] | None = None
    digest: str | None = None


def write_release(files: ReleaseFiles, target: Path, *, force: bool) -> None:
    """Write the directory in one step: it is there whole, or not at all."""
    with new_directory(target, force=force, kind=RELEASE) as draft:
        for name, table in ((INSTANCES, files.instances), (BAGS, files.bags)):
            write_plain(table, draft / name)
        write_json(files.certificate, draft / CERTIFICATE)
        if files.scores is not None:
            write_json(files.scores, draft / SCORES)
        hashes = {
            file.name: sha256_of(file, error=ReleaseError) for file in sorted(draft.iterdir())
        }
        manifest = msgspec.structs.replace(files.manifest, files=hashes)
        write_json(to_plain(manifest), draft / MANIFEST)


def read_release(path: Path) -> ReleaseFiles:
    """Read the directory, and refuse it when a file is missing, damaged or was edited.

    Every file is opened once: what is read is what was hashed.
    """
    if not path.is_dir():
        raise ReleaseError(f"{path} is not a directory. A release is the directory bagwise wrote.")
    if missing := [name for name in (*HASHED, MANIFEST) if not (path / name).is_file()]:
        raise ReleaseError(f"{path} is not a complete release: {', '.join(missing)} is missing.")
    manifest = read_file(
        Manifest, path / MANIFEST, schema=SCHEMA, error=ReleaseError, what="a manifest"
    )
    _check_names(path, manifest)
    hashes = manifest.files
    return ReleaseFiles(
        instances=read_plain(path / INSTANCES, error=ReleaseError, sha256=hashes[INSTANCES]),
        bags=read_plain(path / BAGS, error=ReleaseError, sha256=hashes[BAGS]),
        certificate=_read_hashed(
            path / CERTIFICATE, hashes, what="a certificate", limit=LARGEST_STATEMENT
        ),
        manifest=manifest,
        scores=_read_hashed(path / SCORES, hashes, what="a file of scores")
        if SCORES in hashes
        else None,
        digest=hashlib.sha256(canonical(to_plain(manifest))).hexdigest(),
    )


def _has_our_manifest(path: Path) -> bool:
    try:
        manifest = read_json(path / MANIFEST, error=ReleaseError, what="a manifest")
    except (OSError, ReleaseError):
        return False
    return str(manifest.get("schema", "")).startswith("bagwise-release/")


RELEASE = DirectoryKind(
    "a bagwise release", frozenset({*HASHED, SCORES, MANIFEST}), _has_our_manifest
)


def _check_names(path: Path, manifest: Manifest) -> None:
    """Refuse a manifest that lists other files than a release has, and files that it does not."""
    scored = [SCORES] if SCORES in manifest.files else []
    if list(manifest.files) != sorted([*HASHED, *scored]):
        raise ReleaseError(f"{path / MANIFEST} does not list the files of a release.")
    if strangers := {entry.name for entry in path.iterdir()} - {*manifest.files, MANIFEST}:
        raise ReleaseError(f"{path} holds files that no release has: {sorted(strangers)}.")
    if missing := [name for name in manifest.files if not (path / name).is_file()]:
        raise ReleaseError(f"{path} is not a complete release: {', '.join(missing)} is missing.")


def _read_hashed(
    path: Path, hashes: Mapping[str, str], *, what: str, **options: Any
) -> dict[str, Any]:
    values = read_json(path, error=ReleaseError, what=what, **options)
    # The reader accepts one spelling only, so this is the hash of the file's own bytes.
    if hashlib.sha256(canonical(values)).hexdigest() != hashes[path.name]:
        raise ReleaseError(
            f"{path} was changed after the release was written (its SHA-256 is not the one in the "
            "manifest). Ask for the release again."
        )
    return values
