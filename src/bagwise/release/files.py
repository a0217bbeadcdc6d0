"""A release as a directory: tables, certificate, descriptions, and a digest of all.

The table of rows is one file, or several of the same number of rows: ``instances-00001.parquet``
and so on. The manifest lists whatever there is.
"""

import dataclasses
import hashlib
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bagwise.errors import ReleaseError, shielded
from bagwise.files import signatures
from bagwise.files.atomic import DirectoryKind, create_private, new_directory
from bagwise.files.json_files import LARGEST_STATEMENT, canonical, read_json, write_json
from bagwise.files.parquet_files import (
    WrittenTable,
    read_parts,
    read_plain,
    write_parts,
    write_plain,
)
from bagwise.files.records import read_file, to_plain
from bagwise.files.regular_files import open_regular, sha256_of
from bagwise.release.manifest import CROISSANT, SCHEMA, Manifest, date_in, describe

INSTANCES, BAGS = "instances.parquet", "bags.parquet"
CERTIFICATE, MANIFEST = "certificate.json", "manifest.json"
SCORES = "scores.json"  # only where rows were sorted by a private model
SIGNATURE = "manifest.sig"  # only where the custodian signed the manifest
MOST_PARTS = 99_999
_PART = re.compile(r"instances-\d{5}\.parquet")


@dataclass(frozen=True)
class ReleaseFiles:
    """The contents of the files: tables, as Arrow has them.

    To write them, instances may also come as a stream of batches, and both as `WrittenTable`, of
    which instances may have several: those are moved, and that of the bags is copied.

    `digest` is the SHA-256 of the manifest, which covers every other file by its hash.
    """

    instances: Any
    bags: Any
    certificate: Mapping[str, Any]
    manifest: Manifest
    scores: Mapping[str, Any] | None = None
    digest: str | None = None


def write_release(
    files: ReleaseFiles,
    target: Path,
    *,
    force: bool,
    rows_per_file: int | None = None,
    sign: Callable[[bytes], bytes] | None = None,
) -> None:
    """Write the directory in one step: afterwards it exists either completely or not at all.

    `sign` makes a signature of the manifest's bytes.
    """
    n_rows = files.manifest.n_rows
    with new_directory(target, force=force, kind=RELEASE) as draft:
        hashes: dict[str, str] = {}
        if isinstance(files.instances, Sequence):
            names = _instance_names(len(files.instances))
            for name, part in zip(names, files.instances, strict=True):
                shutil.move(part.path, draft / name)
                hashes[name] = part.sha256
        else:
            each = n_rows if rows_per_file is None else min(rows_per_file, n_rows)
            paths = (create_private(draft / name) for name in _instance_names(-(-n_rows // each)))
            write_parts(files.instances, paths, rows_per_file=each)
        if isinstance(files.bags, WrittenTable):
            shutil.copyfile(files.bags.path, create_private(draft / BAGS))
        else:
            write_plain(files.bags, create_private(draft / BAGS))
        write_json(files.certificate, create_private(draft / CERTIFICATE))
        if files.scores is not None:
            write_json(files.scores, create_private(draft / SCORES))
        for file in sorted(draft.iterdir()):
            if file.name not in hashes:
                hashes[file.name] = sha256_of(file, error=ReleaseError)
        described = describe(files.manifest, files.certificate, hashes)
        create_private(draft / CROISSANT).write_bytes(described)
        hashes[CROISSANT] = hashlib.sha256(described).hexdigest()
        manifest = msgspec.structs.replace(files.manifest, files=dict(sorted(hashes.items())))
        write_json(to_plain(manifest), create_private(draft / MANIFEST))
        if sign is not None:
            signature = sign(canonical(to_plain(manifest)))
            create_private(draft / SIGNATURE).write_bytes(signature)


def read_release(path: Path, *, key: Path | None = None) -> ReleaseFiles:
    """Read the directory; refuse it if a file is missing, damaged or edited.

    With the file of a public `key`, its owner must have signed the manifest. What is read is what
    was signed and hashed, also if names come to mean other files meanwhile.
    """
    files = read_without_rows(path, key=key)
    hashes = files.manifest.files
    parts = instance_files(hashes)
    rows = read_parts(
        [path / name for name in parts],
        error=ReleaseError,
        sha256=[hashes[name] for name in parts],
    )
    return dataclasses.replace(files, instances=rows)


def read_without_rows(path: Path, *, key: Path | None = None) -> ReleaseFiles:
    """Read all files of the directory except those of its rows, as `read_release` does."""
    if not path.is_dir():
        raise ReleaseError(f"{path} is not a directory. A release is the directory bagwise wrote.")
    _refuse_missing(path, [BAGS, CERTIFICATE, MANIFEST])
    manifest = read_file(
        Manifest, path / MANIFEST, schema=SCHEMA, error=ReleaseError, what="a manifest"
    )
    content = canonical(to_plain(manifest))  # the very bytes that were read, in their one spelling
    if key is not None:
        signatures.check_signature(content, path / SIGNATURE, signatures.read_public_key(key))
    _check_names(path, manifest)
    hashes = manifest.files
    certificate = _read_hashed(
        path / CERTIFICATE, hashes, what="a certificate", limit=LARGEST_STATEMENT
    )
    _check_description(path, manifest, certificate)
    return ReleaseFiles(
        instances=None,
        bags=read_plain(path / BAGS, error=ReleaseError, sha256=hashes[BAGS]),
        certificate=certificate,
        manifest=manifest,
        scores=_read_hashed(path / SCORES, hashes, what="a file of scores")
        if SCORES in hashes
        else None,
        digest=hashlib.sha256(content).hexdigest(),
    )


def _has_our_manifest(path: Path) -> bool:
    try:
        manifest = read_json(path / MANIFEST, error=ReleaseError, what="a manifest")
    except (OSError, ReleaseError):
        return False
    return str(manifest.get("schema", "")).startswith("bagwise-release/")


RELEASE = DirectoryKind(
    "a bagwise release",
    frozenset({INSTANCES, BAGS, CERTIFICATE, CROISSANT, SCORES, MANIFEST, SIGNATURE}),
    _has_our_manifest,
    parts=_PART,
)


def _check_names(path: Path, manifest: Manifest) -> None:
    """Refuse a manifest whose list of files differs from the files that a release has."""
    scored = [SCORES] if SCORES in manifest.files else []
    always = (BAGS, CERTIFICATE, CROISSANT)
    if list(manifest.files) != sorted([*instance_files(manifest.files), *always, *scored]):
        raise ReleaseError(f"{path / MANIFEST} does not list the files of a release.")
    if strangers := {entry.name for entry in path.iterdir()} - {
        *manifest.files,
        MANIFEST,
        SIGNATURE,
    }:
        raise ReleaseError(f"{path} holds files that no release has: {sorted(strangers)}.")
    signature = path / SIGNATURE
    if signature.exists() and signature.stat().st_size != signatures.LENGTH:
        raise ReleaseError(f"{signature} is not a signature, which has {signatures.LENGTH} bytes.")
    _refuse_missing(path, manifest.files)


def _refuse_missing(path: Path, names: Collection[str]) -> None:
    if missing := [name for name in names if not (path / name).is_file()]:
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        raise ReleaseError(f"{path} is not a complete release: {shown} is missing.")


def instance_files(names: Collection[str]) -> list[str]:
    """Return the files that hold the table of rows, in order, if that many are listed."""
    return _instance_names(sum(_PART.fullmatch(name) is not None for name in names))


def _instance_names(count: int) -> list[str]:
    several = [f"instances-{number:05}.parquet" for number in range(1, count + 1)]
    return several if count > 1 else [INSTANCES]


def check_rows_per_file(rows_per_file: int | None, n_rows: int) -> None:
    """Refuse files without rows, and more files than their numbers can count."""
    if rows_per_file is None:
        return
    if type(rows_per_file) is not int or rows_per_file < 1:
        raise ReleaseError(
            f"rows_per_file must be a whole number of at least 1, got {rows_per_file!r}."
        )
    if -(-n_rows // rows_per_file) > MOST_PARTS:
        raise ReleaseError(
            f"{rows_per_file} rows per file would make more than {MOST_PARTS} files. Use more "
            "rows per file."
        )


def _check_description(path: Path, manifest: Manifest, certificate: Mapping[str, Any]) -> None:
    """Recreate the description for other tools; refuse one that says more than the release."""
    hashes = manifest.files
    date = date_in(_read_hashed(path / CROISSANT, hashes, what="a description"))
    others = {name: sha for name, sha in hashes.items() if name != CROISSANT}
    expected = shielded(
        lambda: describe(manifest, certificate, others, date=date),
        ReleaseError(f"{path / CERTIFICATE} is damaged: a field is missing."),
    )
    with open_regular(path / CROISSANT, error=ReleaseError) as handle:
        found = handle.read(len(expected) + 1)
    if found != expected or hashlib.sha256(expected).hexdigest() != hashes[CROISSANT]:
        raise ReleaseError(f"{path / CROISSANT} does not describe this release.")


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
