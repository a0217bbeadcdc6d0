"""Secrets: keys of rows, sealed labels, and sums that only the driver can read.

One master key of 32 bytes is drawn for a run. It is in the memory of the driver and of tasks, and
in no file: tasks get it as a cell of a one-row table that Spark broadcasts, and neither plans nor
event logs show cells. Sums are sealed for the driver alone, whose private key never leaves it.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import EngineError, MissingExtraError
from bagwise.rng import SecureNoise

LENGTH = 32


def new_secret() -> bytes:
    """Draw a master key."""
    return SecureNoise().words(LENGTH // 8).tobytes()


def row_keys(secret: bytes, purpose: str, first: int, count: int) -> NDArray[np.uint64]:
    """Return a key of 64 bits for each of the rows from `first` on, reproducible from the secret.

    AES in counter-like blocks of (row, 0) is a pseudo-random function of the row: without the
    secret, keys cannot be told from independent uniform words.

    >>> one, other = (row_keys(bytes(32), "order", first, 3) for first in (0, 1))
    >>> bool((one[1:] == other[:-1]).all()), len(set(one.tolist()))
    (True, 3)
    """
    return row_blocks(secret, purpose, first, count)[:, 0]


def row_blocks(secret: bytes, purpose: str, first: int, count: int) -> NDArray[np.uint64]:
    """Return two words of 64 bits for each row, (n, 2), that are distinct for distinct rows.

    AES is a permutation of blocks. So among any rows the smallest block is that of one of them, and
    of each as often as of any other, as far as AES cannot be told from a permutation by chance.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    blocks = np.zeros((count, 2), dtype="<u8")
    blocks[:, 0] = np.arange(first, first + count, dtype=np.uint64)
    # One block for each row, so that no mode can hide or show anything: no two are equal.
    cipher = Cipher(algorithms.AES(derived(secret, purpose)), modes.ECB())  # noqa: S305
    found = cipher.encryptor().update(blocks.tobytes())
    return np.frombuffer(found, dtype="<u8").reshape(-1, 2).astype(np.uint64)


def masked(secret: bytes, nonce: bytes, data: bytes) -> bytes:
    """Encrypt data by a stream with this nonce, or decrypt it; a nonce is used only once.

    >>> masked(bytes(32), bytes(16), masked(bytes(32), bytes(16), b"cost"))
    b'cost'
    """
    return under_stream(derived(secret, "labels"), nonce, data)


def under_stream(key: bytes, nonce: bytes, data: bytes) -> bytes:
    """Encrypt data by a stream of this nonce and the key for streams, or decrypt it."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    cipher = Cipher(algorithms.AES(key), modes.CTR(nonce))
    return cipher.encryptor().update(data)


class SealedBox:
    """A private key in the memory of the driver, to open what others have sealed for it.

    X25519 with a key pair of its own for each message, HKDF and AES-GCM: who has seen the public
    key, the plan and all files cannot open a message; nor can who sealed it, afterwards.

    >>> box = SealedBox()
    >>> box.open(seal(box.public, b"sums"))
    b'sums'
    """

    def __init__(self) -> None:
        from importlib.util import find_spec

        if find_spec("cryptography") is None:
            raise MissingExtraError("the engine for Spark", "spark")
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._private = X25519PrivateKey.generate()
        self.public: bytes = self._private.public_key().public_bytes_raw()

    def open(self, message: bytes) -> bytes:
        """Return a message's content; refuse one that was altered or sealed for another box."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        theirs, sealed = message[:LENGTH], message[LENGTH:]
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(theirs))
            return AESGCM(_box_key(shared, theirs, self.public)).decrypt(bytes(12), sealed, None)
        except (InvalidTag, ValueError):
            pass
        raise EngineError("a file of sums was changed, or was written for another run.")


def seal(public: bytes, content: bytes) -> bytes:
    """Return content sealed so that only the owner of the box can read it."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    ours = X25519PrivateKey.generate()
    shown = ours.public_key().public_bytes_raw()
    shared = ours.exchange(X25519PublicKey.from_public_bytes(public))
    # The key is used once, so that a nonce of zeros is.
    return shown + AESGCM(_box_key(shared, shown, public)).encrypt(bytes(12), content, None)


def _box_key(shared: bytes, sender: bytes, receiver: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), LENGTH, salt=None, info=b"bagwise sums" + sender + receiver).derive(
        shared
    )


def derived(secret: bytes, purpose: str) -> bytes:
    """Return a key for a purpose, which reveals nothing about the secret or other purposes."""
    return hashlib.blake2b(purpose.encode(), key=secret, digest_size=LENGTH).digest()
