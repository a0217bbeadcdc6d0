"""The budget of one data set, with all charges."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from bagwise._version import SOFTWARE
from bagwise.errors import BudgetError, ColumnError, LedgerError, check_name
from bagwise.files.records import to_plain
from bagwise.ledger.entries import SCHEMA, Charge, Subset, Terms, histories
from bagwise.ledger.filters import Cost, PrivacyFilter
from bagwise.ledger.store import Place, State, Store
from bagwise.privacy.accounting import epsilon_of_releases
from bagwise.privacy.circumstances import LONGEST_NAME, Mark, exact, is_name
from bagwise.privacy.mechanisms import Mechanism

BeforeCharge = Callable[[int, int], object]

CHOSEN_BY = ("all", "public", "label")
"""How the rows of a table were chosen from the data set."""


@dataclass(frozen=True)
class Totals:
    """The epsilon spent so far by the unit that was charged most, and what is left.

    Attributes
    ----------
    charges : int
        Number of charges.
    filtered : float
        Epsilon, at the ledger's delta, no matter how later requests were chosen. It decides.
    fixed : float
        Epsilon, at the same delta, if all requests had been fixed in advance.
    fits_pure, fits_gaussian : float
        The largest remaining epsilon, without a delta, and with Gaussian noise at `delta`.
    """

    charges: int
    epsilon: float
    delta: float
    filtered: float
    fixed: float
    fits_pure: float
    fits_gaussian: float


@dataclass(frozen=True)
class Spent:
    """One charge in the course of a ledger.

    Attributes
    ----------
    charge : Charge
    alone : float
        Epsilon, at the ledger's delta, of this charge alone.
    total : float
        Epsilon, at the same delta, of all charges up to this one, for the unit charged most.
    """

    charge: Charge
    alone: float
    total: float


def course_cells(course: Sequence[Spent], totals: Totals) -> list[tuple[str, ...]]:
    """Return charges as a table with a heading; empty columns are omitted."""
    first = totals.charges - len(course) + 1
    heading = ("", "day", "for", "label", "epsilon", "total", "rows", "noise", "purpose",
               "recipient", "id")  # fmt: skip
    rows = [
        (
            str(number),
            one.charge.time[:10],
            one.charge.verb,
            one.charge.label,
            f"{one.alone:.3g}",
            f"{one.total:.3g}",
            one.charge.chosen_by,
            one.charge.kinds,
            one.charge.purpose or "",
            one.charge.recipient or "",
            one.charge.id[:8],
        )
        for number, one in enumerate(course, start=first)
    ]
    columns = [column for column in zip(heading, *rows, strict=True) if any(column[1:])]
    return list(zip(*columns, strict=True))


@dataclass(frozen=True)
class Ledger:
    """The budget of one data set, in one file. Charges are never refunded.

    Pass it to `make_release`, `release_model` and `evaluate_rows_privately`. Each request is
    charged before noise is drawn, or refused.

    Guarantee
    ---------
    All charged requests together are (epsilon, delta)-differentially private for the ledger's unit,
    even if requests were chosen after reading earlier releases, provided that every release of the
    data set is charged to this ledger and all tables contain the same labels.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.create(Path(folder.name) / "rents", epsilon_total=2.0, delta_total=1e-6)
    >>> ledger.totals().fits_pure
    2.0
    >>> folder.cleanup()
    """

    store: Store
    chosen_by: str = "all"
    reuse: bool = True
    purpose: str | None = None
    recipient: str | None = None
    before_charge: BeforeCharge | None = field(default=None, repr=False, compare=False)

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        epsilon_total: float,
        delta_total: float = 0.0,
        dataset: str | None = None,
        unit: str | None = None,
        row_id: str | None = None,
    ) -> Self:
        """Create a ledger, with its key in the same directory.

        Parameters
        ----------
        path : path
            The file; the key is in ``path.key``. Only the owner can read them.
        epsilon_total, delta_total : float
            Total budget of all charges.
        dataset : str, optional
            Name of the data set in certificates. Default: the name of the file.
        unit : str, optional
            The column that identifies people with several rows; every request must protect it.
        row_id : str, optional
            Without a unit: the column that identifies rows, for charging disjoint parts.
        """
        path = Path(path)
        name = path.stem if dataset is None else dataset
        PrivacyFilter(epsilon_total, delta_total)  # refuses what is no budget
        _check_text("the name of a data set", name)
        if unit is not None and row_id is not None:
            raise ColumnError("give a unit or a row id, not both: rows of a unit go together.")
        mark = Mark.new(name)
        terms = Terms(
            schema=SCHEMA,
            software=SOFTWARE,
            id=mark.id,
            date=mark.date,
            dataset=name,
            unit=unit,
            row_id=row_id,
            epsilon=float(epsilon_total),
            delta=float(delta_total),
        )
        return cls(Store.create(path, terms))

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a ledger, and check that it was not edited."""
        ledger = cls(Store.open(Path(path)))
        _ = ledger.terms
        return ledger

    @property
    def path(self) -> Path:
        """The file."""
        return self.store.path

    @cached_property
    def terms(self) -> Terms:
        """The terms of the ledger."""
        return self.store.read().terms

    @cached_property
    def filter(self) -> PrivacyFilter:
        """The filter that decides whether a request fits."""
        return PrivacyFilter(self.terms.epsilon, self.terms.delta)

    def part(self, chosen_by: str) -> Self:
        """Return the ledger for tables that contain a part of the data set.

        Parameters
        ----------
        chosen_by : {"all", "public", "label"}
            "all": the table may contain everyone. "public": rows were chosen by public data, such
            as a date, an id or a coin toss, and only the units in the table are charged, as their
            ids show. "label": rows were chosen by their labels; such requests are refused.
        """
        check_name("way to choose rows", chosen_by, CHOSEN_BY, LedgerError)
        return dataclasses.replace(self, chosen_by=chosen_by)

    def noting(self, *, purpose: str | None = None, recipient: str | None = None) -> Self:
        """Return the ledger with a purpose and a recipient for its charges."""
        _check_text("a purpose", purpose)
        _check_text("a recipient", recipient)
        return dataclasses.replace(self, purpose=purpose, recipient=recipient)

    def drawing_anew(self) -> Self:
        """Return the ledger for drawing and charging identical requests again."""
        return dataclasses.replace(self, reuse=False)

    def reserving(self, before_charge: BeforeCharge) -> Self:
        """Return the ledger that calls a function before anything is charged.

        The function gets the number of rows of the table, and the approximate size of a release
        in bytes. If it raises an error, nothing is charged.
        """
        return dataclasses.replace(self, before_charge=before_charge)

    def charges(self) -> tuple[Charge, ...]:
        """Return all charges, oldest first, after checking that none was edited or removed."""
        return self.store.read().charges

    def totals(self, *, delta: float | None = None) -> Totals:
        """Return what was spent; `delta` is used for the remaining epsilon with Gaussian noise."""
        state, terms = self.store.read(), self.terms
        paid = self._paid(state)
        spent = max(paid, key=self.filter.total)
        wanted = terms.delta if delta is None else delta
        pure, gaussian = self.filter.what_fits(spent, delta=wanted)
        every = [[cost.events for cost in costs] for costs in paid]
        return Totals(
            charges=len(state.charges),
            epsilon=terms.epsilon,
            delta=terms.delta,
            filtered=self.filter.total(spent),
            fixed=max(epsilon_of_releases(releases, terms.delta) for releases in every),
            fits_pure=pure,
            fits_gaussian=gaussian,
        )

    def total_with(self, others: Sequence[Sequence[Mechanism]]) -> float:
        """Return the epsilon spent if other events used the same labels as well."""
        more = [Cost.of(tuple(events), order=self.filter.order) for events in others]
        return max(self.filter.total([*paid, *more]) for paid in self._paid(self.store.read()))

    def course(self, *, most: int = 200) -> tuple[Spent, ...]:
        """Return at most `most` of the newest charges, oldest first, with the total after each."""
        state, course = self.store.read(), []
        for i, charge in list(enumerate(state.charges))[-most:]:
            until = dataclasses.replace(state, charges=state.charges[: i + 1])
            total = max(map(self.filter.total, self._paid(until)))
            course.append(Spent(charge, self.filter.total([self._cost(charge)]), total))
        return tuple(course)

    def charge(self, entry: Charge, subset: Subset | None, *, delta: float) -> Charge:
        """Add a charge, which is on disk when this returns; refuse it if it exceeds the budget.

        Parameters
        ----------
        delta : float
            Delta of the request, for the message about what would fit.
        """

        def decide(state: State) -> tuple[Charge, Subset | None]:
            cost = self._cost(entry)
            for before in self._paid(state, joining=subset):
                if not self.filter.admits([*before, cost]):
                    raise BudgetError(self._refusal(before, cost, delta))
            return entry, subset

        return self.store.append(decide)

    def act(self, id: str, events: Sequence[Mechanism]) -> Charge | None:
        """Return the charge that covers a certificate with this id, or None."""
        charge, order = self.store.read().find(id), self.filter.order
        if charge is None:
            return None
        spent = Cost.of(tuple(events), order=order)
        return charge if Cost.of(charge.mechanisms, order=order).covers(spent) else None

    def remember(self, path: str | Path, *, id: str, digest: str) -> None:
        """Record where the files of a charge are, for identical requests later.

        `digest` is the digest that `verify` reports.
        """
        if self.store.read().find(id) is None:
            raise LedgerError(f"{path} was not charged to {self.path}.")
        self.store.remember(Place(id, Path(path).absolute(), digest))

    def paid_files(self, asked: Charge) -> list[Place]:
        """Return the paths of files of identical requests, newest first."""
        same = {
            one.id
            for one in self.charges()
            if (one.verb, one.request, one.table) == (asked.verb, asked.request, asked.table)
        }
        return [place for place in reversed(self.store.places()) if place.id in same]

    def to_json(self) -> dict[str, Any]:
        """Return terms and charges as plain values, from which chain and totals can be checked.

        The key, the members of parts and the paths of files are not included.
        """
        state = self.store.read()
        return {
            "terms": to_plain(state.terms),
            "charges": [to_plain(charge) for charge in state.charges],
            "digest": state.digest,
        }

    def _cost(self, charge: Charge) -> Cost:
        return Cost.of(charge.mechanisms, order=self.filter.order)

    def _paid(self, state: State, *, joining: Subset | None = None) -> list[list[Cost]]:
        """Return what each kind of unit has paid; only kinds in the part `joining`."""
        parts = [charge.subset for charge in state.charges]
        names = {part for part in parts if part is not None}
        subsets = self.store.subsets(names) if names else {}
        if joining is not None:
            subsets[joining.digest] = joining
        costs = [self._cost(charge) for charge in state.charges]
        asked = None if joining is None else joining.digest
        return [[costs[i] for i in one] for one in histories(parts, subsets, asked)]

    def _refusal(self, before: Sequence[Cost], cost: Cost, delta: float) -> str:
        budget = self.filter
        pure, gaussian = budget.what_fits(before, delta=delta)
        fits = [f"epsilon {exact(pure)} without a delta"] if pure else []
        if gaussian:
            fits.append(f"epsilon {exact(gaussian)} with delta {exact(delta)} and Gaussian noise")
        asked = budget.total([*before, cost])
        would = "more than can be told" if math.isinf(asked) else f"epsilon {asked:.4g}"
        return (
            f"the ledger {self.path} allows epsilon {exact(budget.epsilon)} and delta "
            f"{exact(budget.delta)} for {self.terms.dataset!r}. {budget.total(before):.4g} of that "
            f"epsilon is spent, and this request would make it {would}. What would still fit: "
            + (" or ".join(fits) if fits else "nothing")
            + ". Nothing was drawn, and nothing charged."
        )


def _check_text(what: str, text: str | None) -> None:
    if text is not None and not is_name(text):
        raise LedgerError(
            f"{what} is one line of 1 to {LONGEST_NAME} printable characters, got {text!r}."
        )


def now() -> str:
    """Return the time, in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
