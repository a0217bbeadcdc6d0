"""What a forger does after editing a file of a release: make everything else agree with it."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from bagwise.errors import BagwiseError
from bagwise.files.json_files import canonical
from bagwise.files.records import read_record
from bagwise.release.manifest import CROISSANT, Manifest, describe

BROKEN = (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError, BagwiseError)
"""What an edited file may lead to here; the reader has its own way to say so."""


def rehash(directory: Path, *, describe_again: bool = True) -> None:
    """Make the description for others, and the manifest, agree with the files where they can."""
    if describe_again:
        with suppress(*BROKEN):
            _describe_again(directory)
    with suppress(*BROKEN):
        manifest = json.loads((directory / "manifest.json").read_bytes())
        manifest["files"] |= {name: _sha256(directory / name) for name in manifest["files"]}
        (directory / "manifest.json").write_bytes(canonical(manifest))


def _describe_again(directory: Path) -> None:
    content = json.loads((directory / "manifest.json").read_bytes())
    manifest = read_record(Manifest, content, error=ValueError, what="a manifest")
    certificate = json.loads((directory / "certificate.json").read_bytes())
    others = [name for name in manifest.files if name != CROISSANT]
    hashes = {name: _sha256(directory / name) for name in others}
    made = describe(manifest, certificate, hashes, date="2026-01-01")
    (directory / CROISSANT).write_bytes(made)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
