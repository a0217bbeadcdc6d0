"""A request and its ledger: look up earlier results, charge before the first draw, mark."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from bagwise._version import SOFTWARE
from bagwise.errors import BagwiseError, BudgetError, LedgerError
from bagwise.files.records import to_plain
from bagwise.ledger.entries import Charge, Subset
from bagwise.ledger.filters import Cost
from bagwise.ledger.fingerprints import ids_in
from bagwise.ledger.ledger import Ledger, now
from bagwise.privacy.certificate import Certificate
from bagwise.privacy.circumstances import Mark
from bagwise.privacy.mechanisms import Mechanism, mechanism_to_json
from bagwise.rng import NoiseSource
from bagwise.rows.table import Rows

Verb = Literal["release", "release-model", "evaluate"]


class Certified(Protocol):
    """The result of a request."""

    @property
    def digest(self) -> str | None:
        """The digest under which `verify` lists it."""

    @property
    def certificate(self) -> Certificate | None:
        """The guarantee of the result."""


C = TypeVar("C", bound=Certified)


@dataclass(kw_only=True)
class Account:
    """The place where a request is charged; without a ledger it is charged nowhere.

    Attributes
    ----------
    mark : Mark
        Id, day and data set, for the certificate.
    """

    mark: Mark = field(default_factory=Mark.new)

    def charge(self, events: tuple[Mechanism, ...]) -> None:
        """Charge for all mechanisms of the request; called before each draw, with all of them.

        Guarantee: when the first call returns, the charge is on disk. Later calls must ask for no
        more than was charged. Whatever raises here is raised before anything is drawn.
        """

    def stored(self, load: Callable[[Path], C]) -> C | None:  # noqa: ARG002
        """Return the paid result of an identical request, if `load` still finds it."""
        return None


@dataclass(kw_only=True)
class LedgerAccount(Account):
    """The account of one request that is charged to a ledger."""

    ledger: Ledger
    entry: Charge
    subset: Subset | None
    delta: float
    n_rows: int
    n_bytes: int
    charged: Cost | None = None

    def charge(self, events: tuple[Mechanism, ...]) -> None:
        """Charge the ledger once; see `Account.charge`."""
        cost = Cost.of(events, order=self.ledger.filter.order)
        if self.charged is None:
            if self.ledger.before_charge is not None:
                self.ledger.before_charge(self.n_rows, self.n_bytes)
            entry = msgspec.structs.replace(
                self.entry, events=tuple(mechanism_to_json(event) for event in events)
            )
            self.ledger.charge(entry, self.subset, delta=self.delta)
            self.charged = cost
        elif not self.charged.covers(cost):
            raise BudgetError(
                f"this request needs more noise than was charged to {self.ledger.path}. Nothing "
                "more is drawn; earlier charges remain."
            )

    def stored(self, load: Callable[[Path], C]) -> C | None:
        """Return the paid result of an identical request, if it is there and verifies."""
        if not self.ledger.reuse:
            return None
        for place in self.ledger.paid_files(self.entry):
            try:
                made = load(place.path)
            except (BagwiseError, OSError):
                continue  # moved, replaced or damaged since
            mark = None if made.certificate is None else made.certificate.mark
            if made.digest == place.digest and mark is not None and mark.id == place.id:
                return made
        return None


def open_account(
    ledger: Ledger | str | Path,
    rows: Rows,
    *,
    verb: Verb,
    request: object,
    label: str,
    unit: str | None,
    private: bool,
    delta: float = 0.0,
) -> LedgerAccount:
    """Return the account of a request about a table; nothing is charged yet.

    Parameters
    ----------
    request : object
        All arguments of the request, as records; a keyed fingerprint identifies them.
    label, unit : str
        Columns of the table.
    private : bool
        Whether the request promises anything.
    delta : float
        That it promises.
    """
    ledger = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    if not private:
        raise BudgetError(
            f"a NOT PRIVATE request cannot be charged to the ledger {ledger.path}, since its cost "
            "has no limit. Set an epsilon, or leave out the ledger (--ledger, BAGWISE_LEDGER)."
        )
    if ledger.chosen_by == "label":
        raise BudgetError(
            "the rows were chosen by their labels, so the choice itself reveals labels, and no "
            "noise hides that. Use the whole table, or rows chosen by public data."
        )
    if unit != ledger.terms.unit:
        mine, theirs = (
            "each row by itself" if one is None else f"unit {one!r}"
            for one in (ledger.terms.unit, unit)
        )
        raise LedgerError(
            f"the ledger {ledger.path} protects {mine}, but the request "
            f"protects {theirs}. Use the ledger's unit (--unit), or, if nothing has been "
            "charged to it, start another ledger (bagwise ledger init --unit)."
        )
    key, terms = ledger.store.key, ledger.terms
    subset = None
    if ledger.chosen_by == "public":
        kind, ids = ids_in(rows, unit=terms.unit, row_id=terms.row_id)
        subset = Subset(kind, key.of_ids(ids))
    mark = Mark.new(terms.dataset)
    entry = Charge(
        id=mark.id,
        time=now(),
        software=SOFTWARE,
        verb=verb,
        label=label,
        events=(),
        chosen_by="all" if subset is None else "public",
        subset=None if subset is None else subset.digest,
        request=key.of_values([verb, "all" if subset is None else "public", _plain(request)]),
        table=key.of_table(rows),
        purpose=ledger.purpose,
        recipient=ledger.recipient,
    )
    # Out of core, rows are brought into their order on disk before they are written. Labels have no
    # part in it: how many bytes they take is theirs to know.
    copies = 1 if rows.rows_at_once >= rows.num_rows else 2
    return LedgerAccount(
        ledger=ledger,
        entry=entry,
        subset=subset,
        mark=mark,
        delta=delta,
        n_rows=rows.num_rows,
        n_bytes=copies * rows.n_bytes([name for name in rows.column_names if name != label]),
    )


def _plain(value: Any) -> Any:
    """Return records of any kind as plain values, such that equal requests have equal values."""
    if value is None or isinstance(value, bool | int | float | str):
        finite = not isinstance(value, float) or math.isfinite(value)
        return value if finite else str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if isinstance(value, msgspec.Struct | NoiseSource):
        return value.name if isinstance(value, NoiseSource) else to_plain(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
        return [type(value).__qualname__, named]
    return token_hex(16)  # nobody knows what it is, so it is identical to nothing
