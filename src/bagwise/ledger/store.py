"""The file of a ledger: SQLite, durable on commit, locked across processes, append-only.

**Durable.** A rollback journal (``journal_mode=DELETE``) with ``synchronous=EXTRA``: a commit
returns after the journal, the file and the directory that the journal was removed from have
reached the disk, so that a power cut right after it does not undo a charge. A write-ahead log would
be faster, and keeps what is newest in a second file that is easily left behind when somebody copies
the first; a ledger writes once per release.

**Locked.** Every charge is one ``BEGIN IMMEDIATE`` transaction: of two processes one waits until
the other has committed, and then sees its charge. Each opens the file anew, so that nothing is
shared with a forked process.

**Append-only.** Entries are chained by digests from the terms on, and each has a seal made with the
key; so has the last one together with their number. Whoever edits or removes an entry without the
key is noticed by whoever opens the ledger. So is a schema other than ours: a trigger or a view
could drop what is written. A new entry is read again before it is committed. A whole file that was
replaced by an older copy of itself is not noticed: compare the digest that ``bagwise ledger show``
prints.
"""

import functools
import hmac
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bagwise.errors import BagwiseError, LedgerError, OutputExistsError, shielded
from bagwise.files.atomic import new_file
from bagwise.files.json_files import canonical
from bagwise.files.records import read_record, to_plain
from bagwise.ledger.entries import SCHEMA, Charge, Subset, Terms, digest_of
from bagwise.ledger.fingerprints import Key

T = TypeVar("T")

_PATIENCE = 60.0  # seconds to wait for another process

# SQLite keeps this text, and ledgers are compared with it: not one space of it may change.
_TABLES = """
CREATE TABLE terms (body TEXT NOT NULL, seal TEXT NOT NULL);
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, body TEXT NOT NULL, digest TEXT NOT NULL, seal TEXT NOT NULL
);
CREATE TABLE head (number INTEGER NOT NULL, digest TEXT NOT NULL, seal TEXT NOT NULL);
CREATE TABLE subsets (digest TEXT PRIMARY KEY, kind TEXT NOT NULL, members BLOB NOT NULL);
CREATE TABLE places (
    id TEXT NOT NULL, path TEXT NOT NULL, digest TEXT NOT NULL, seal TEXT NOT NULL
);
CREATE TRIGGER entries_stay BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never removed'); END;
CREATE TRIGGER entries_keep BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never changed'); END;
"""


@dataclass(frozen=True)
class State:
    """The contents of a ledger at one moment, checked."""

    terms: Terms
    charges: tuple[Charge, ...]
    digest: str

    def find(self, id: str) -> Charge | None:
        """Return the charge with an id."""
        return next((charge for charge in self.charges if charge.id == id), None)


@dataclass(frozen=True)
class Place:
    """The place of files that a charge has paid for."""

    id: str
    path: Path
    digest: str


def key_path(path: Path) -> Path:
    """Return the path of a ledger's key, which is beside the ledger."""
    return path.with_name(path.name + ".key")


@dataclass(frozen=True)
class Store:
    """A ledger's file and its key."""

    path: Path
    key: Key

    @classmethod
    def create(cls, path: Path, terms: Terms) -> "Store":
        """Write a new ledger, and its key beside it; refuse a name that is taken."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # The name is taken first, by an empty file that only its owner may read: of two that
            # are made at once, one must not replace the other.
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise OutputExistsError(
                f"{path} already exists, and a ledger is never replaced. Choose another name."
            ) from None
        try:
            store = cls(path, Key.create(key_path(path)))
        except LedgerError:
            path.unlink()
            raise
        begin = digest_of(terms)
        with new_file(path, force=True, private=True) as draft, closing(_connect(draft)) as file:
            file.executescript(_TABLES)
            file.execute("INSERT INTO terms VALUES (?, ?)", (_body(terms), store.key.seal(begin)))
            head = (0, begin, store._head_seal(0, begin))
            file.execute("INSERT INTO head VALUES (?, ?, ?)", head)
        return store

    @classmethod
    def open(cls, path: Path) -> "Store":
        """Open an existing ledger."""
        if not path.is_file():
            raise LedgerError(f"{path} does not exist. Make it with: bagwise ledger init {path}")
        if path.stat().st_size == 0:
            raise LedgerError(
                f"{path} is empty: its creation was interrupted. Delete it and start again."
            )
        if not key_path(path).exists():
            raise LedgerError(
                f"{key_path(path)} does not exist: the ledger's key. Restore it from a copy."
            )
        return cls(path, Key.read(key_path(path)))

    def read(self) -> State:
        """Return the contents of the ledger; refuse one that was edited."""
        with self._opened() as file:
            return self._state(file)

    def append(self, decide: Callable[[State], tuple[Charge, Subset | None]]) -> Charge:
        """Append the entry that `decide` returns for the present state; it raises to add none.

        Guarantee: nobody else adds one in between, and when this returns, the entry has reached
        the disk.
        """
        with self._opened(to_write=True) as file:
            state = self._state(file)
            charge, subset = decide(state)
            number, digest = len(state.charges) + 1, digest_of(charge, state.digest)
            if subset is not None:
                file.execute(
                    "INSERT OR IGNORE INTO subsets VALUES (?, ?, ?)",
                    (subset.digest, subset.kind, subset.to_bytes()),
                )
            row = (number, _body(charge), digest, self.key.seal(str(number), digest))
            file.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", row)
            head = (number, digest, self._head_seal(number, digest))
            file.execute("UPDATE head SET number = ?, digest = ?, seal = ?", head)
            if self._state(file).digest != digest:
                raise self._edited("it does not keep what is written to it")
            file.execute("COMMIT")
        return charge

    def subsets(self, digests: set[str]) -> dict[str, Subset]:
        """Return parts of the data set by their digests."""
        with self._opened() as file:
            subsets = {
                digest: Subset.from_bytes(kind, members)
                for digest, kind, members in file.execute(
                    "SELECT digest, kind, members FROM subsets"
                )
                if digest in digests
            }
        if any(subset.digest != digest for digest, subset in subsets.items()):
            raise self._edited("a part of the data set is not the one that was charged")
        if missing := digests - subsets.keys():
            raise self._edited(f"{len(missing)} part(s) of the data set are missing")
        return subsets

    def remember(self, place: Place) -> None:
        """Record where files are."""
        parts = (place.id, str(place.path), place.digest)
        with self._opened(to_write=True) as file:
            row = (*parts, self.key.seal("place", *parts))
            file.execute("INSERT INTO places VALUES (?, ?, ?, ?)", row)
            file.execute("COMMIT")

    def places(self) -> list[Place]:
        """Return where files are, newest last, without those recorded by others."""
        with self._opened() as file:
            rows = file.execute("SELECT id, path, digest, seal FROM places ORDER BY rowid")
            return [
                Place(charge, Path(path), digest)
                for charge, path, digest, seal in rows
                if hmac.compare_digest(seal, self.key.seal("place", charge, path, digest))
            ]

    def _state(self, file: sqlite3.Connection) -> State:
        try:
            return self._checked(file)
        except BagwiseError:
            raise
        except (TypeError, ValueError):  # a cell of another type than was written
            failure = self._edited("a field has another type")
        raise failure

    def _checked(self, file: sqlite3.Connection) -> State:
        terms_rows = file.execute("SELECT body, seal FROM terms").fetchall()
        if len(terms_rows) != 1:
            raise self._edited("it does not have one set of terms")
        ((body, seal),) = terms_rows
        plain = self._parse(body)
        if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
            raise LedgerError(f"{self.path} is not a ledger that this version reads ({SCHEMA}).")
        terms = read_record(Terms, plain, error=LedgerError, what=f"the terms of {self.path}")
        digest = digest_of(terms)
        if not hmac.compare_digest(seal, self.key.seal(digest)):
            raise self._edited("its terms are not those it was made with, or its key is another's")
        charges = []
        rows = file.execute("SELECT number, body, digest, seal FROM entries ORDER BY number")
        for expected, (number, body, claimed, seal) in enumerate(rows, start=1):
            if number != expected:
                raise self._edited(f"entry {expected} is missing")
            what = f"an entry of {self.path}"
            charge = read_record(Charge, self._parse(body), error=LedgerError, what=what)
            digest = digest_of(charge, digest)
            genuine = hmac.compare_digest(seal, self.key.seal(str(number), digest))
            if claimed != digest or not genuine:
                raise self._edited(f"entry {number}, or one before it, was changed")
            charges.append(charge)
        head = file.execute("SELECT number, digest, seal FROM head").fetchall()
        if head != [(len(charges), digest, self._head_seal(len(charges), digest))]:
            raise self._edited("its last entries were removed or added by hand")
        return State(terms, tuple(charges), digest)

    def _head_seal(self, number: int, digest: str) -> str:
        return self.key.seal("head", str(number), digest)

    def _parse(self, body: str) -> object:
        failure = self._edited("an entry is not readable")
        return shielded(lambda: json.loads(body), failure)

    def _edited(self, how: str) -> LedgerError:
        return LedgerError(
            f"{self.path} was edited or damaged: {how}. Nothing is charged to it. Restore it from "
            "a copy that has every release in it: bagwise ledger check."
        )

    @contextmanager
    def _opened(self, *, to_write: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield the file, in one transaction: one state, whoever writes meanwhile.

        Whatever SQLite says becomes an error of ours, and undoes the block.
        """
        failure = None
        try:
            with closing(_connect(self.path)) as file:
                try:
                    file.execute("BEGIN IMMEDIATE" if to_write else "BEGIN")
                    if _schema(file) != _expected_schema():
                        raise self._edited("it has other tables, views or triggers than a ledger")
                    yield file
                finally:
                    if file.in_transaction:
                        file.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            failure = LedgerError(
                f"{self.path} cannot be used: {error}. Nothing was drawn. Try again when no other "
                "process uses it and its disk has free space."
            )
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            failure = self._edited(str(error))  # damaged names break the message itself
        if failure is not None:
            raise failure


def _body(record: Terms | Charge) -> str:
    return canonical(to_plain(record)).decode("ascii")


def _schema(file: sqlite3.Connection) -> list[tuple[str, ...]]:
    return file.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
    ).fetchall()


@functools.cache
def _expected_schema() -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as file:
        file.executescript(_TABLES)
        return _schema(file)


def _connect(path: Path) -> sqlite3.Connection:
    where = f"{path.absolute().as_uri()}?mode=rw"
    file = sqlite3.connect(where, uri=True, timeout=_PATIENCE, isolation_level=None)
    file.execute("PRAGMA journal_mode = DELETE")
    file.execute("PRAGMA synchronous = EXTRA")
    return file
