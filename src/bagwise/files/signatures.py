r"""Ed25519 signatures (RFC 8032), which prove who made a release and that it is unchanged.

What is signed are the bytes of one file: of a release its manifest, which has the hash of every
other file. The signature is 64 bytes in a file of its own, and keys are PEM files, so that OpenSSL
makes the keys and checks the signatures as well:

.. code-block:: sh

    bagwise ledger key custodian.pem          # stays with the custodian, mode 600
    openssl pkeyutl -verify -pubin -inkey custodian.pem.pub -rawin -in out/manifest.json \
        -sigfile out/manifest.sig
"""

import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bagwise.errors import MissingExtraError, SignatureError, shielded
from bagwise.files.atomic import check_file, new_file
from bagwise.files.regular_files import open_regular

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

LENGTH = 64
"""Bytes of a signature."""

_LARGEST_KEY = 2**14


def create_keys(path: Path) -> Path:
    """Write a new private key, and its public one to ``path.pub``; refuse names that are taken."""
    ed25519, serialization = _library()
    public = path.with_name(f"{path.name}.pub")
    check_file(public, force=False)
    key = ed25519.Ed25519PrivateKey.generate()
    form = serialization.Encoding.PEM
    kept = key.private_bytes(form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    shown = key.public_key().public_bytes(form, serialization.PublicFormat.SubjectPublicKeyInfo)
    with new_file(path, force=False, private=True) as draft:
        draft.write_bytes(kept)
    with new_file(public, force=False) as draft:
        draft.write_bytes(shown)
    return public


def read_signing_key(path: Path) -> "Ed25519PrivateKey":
    """Read a private key; refuse one that others may read, or of another kind."""
    ed25519, serialization = _library()
    key: Ed25519PrivateKey = _read_key(
        path,
        partial(serialization.load_pem_private_key, password=None),
        ed25519.Ed25519PrivateKey,
        "is not a private key without a password. Make one with: bagwise ledger key FILE",
        private=True,
    )
    return key


def read_public_key(path: Path) -> "Ed25519PublicKey":
    """Read a public key; refuse one of another kind, and a private one."""
    ed25519, serialization = _library()
    key: Ed25519PublicKey = _read_key(
        path,
        serialization.load_pem_public_key,
        ed25519.Ed25519PublicKey,
        "is not a public key. Make it of the private one with: openssl pkey -in KEY -pubout -out "
        "KEY.pub",
    )
    return key


def _read_key(
    path: Path, parse: Callable[[bytes], Any], kind: type, problem: str, *, private: bool = False
) -> Any:
    with open_regular(path, error=SignatureError) as handle:
        mode = stat.S_IMODE(os.fstat(handle.fileno()).st_mode)
        content = handle.read(_LARGEST_KEY)
    if private and os.name == "posix" and mode & 0o077:
        raise SignatureError(
            f"{path} may be read by others than its owner (mode {mode:o}). It is a private key: "
            "chmod 600 it."
        )
    key = shielded(lambda: parse(content), SignatureError(f"{path} {problem}"))
    if not isinstance(key, kind):
        raise SignatureError(f"{path} is a key of another kind than Ed25519.")
    return key


def sign(content: bytes, key: "Ed25519PrivateKey") -> bytes:
    """Return the signature of some bytes."""
    return bytes(key.sign(content))


def check_signature(content: bytes, signature: Path, key: "Ed25519PublicKey") -> None:
    """Raise SignatureError unless the owner of the key has signed these bytes."""
    if not signature.exists():
        raise SignatureError(f"{signature.parent} is not signed: there is no {signature.name}.")
    with open_regular(signature, error=SignatureError) as handle:
        signed = handle.read(LENGTH + 1)
    if len(signed) != LENGTH:
        raise SignatureError(f"{signature} is not a signature of {LENGTH} bytes.")
    shielded(
        lambda: key.verify(signed, content),
        SignatureError(
            f"{signature} is not a signature of the manifest beside it by this key: it was made by "
            "somebody else, or the manifest was changed since."
        ),
    )


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtraError("signing", "sign") from None
    return ed25519, serialization
