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
    """What was spent so far, for the unit that paid most.

    Attributes
    ----------
    charges : int
        Number of charges.
    filtered : float
        Epsilon, at the ledger's delta, that holds however later requests were chosen. It decides.
    fixed : float
        Epsilon, at the same delta, if all requests had been fixed in advance.
    fits_pure, fits_gaussian : float
        The largest epsilon that still fits: without a delta, and by Gaussian noise at `delta`.
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
        Epsilon, at the ledger's delta, of this charge by itself.
    total : float
        Epsilon, at the same delta, of all charges up to it, for the unit that paid most.
    """

    charge: Charge
    alone: float
    total: float


def course_cells(course: Sequence[Spent], totals: Totals) -> list[tuple[str, ...]]:
    """Return charges as a table, a heading first; columns that say nothing are left out."""
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
    """A budget for one data set, kept in one file: what is charged to it is never given back.

    Hand it to `make_release`, `release_model` and `evaluate_rows_privately`. Each
    charges it before noise is drawn, or is refused.

    Guarantee
    ---------
    Everything that was charged is together (epsilon, delta)-differentially private for the ledger's
    unit, also if requests were chosen after reading earlier releases; as long as every release of
    the data set is charged to it, and the tables hold the same labels.

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
        """Write a new ledger, and its key beside it.

        Parameters
        ----------
        path : path
            The file; the key is in ``path.key``. Only the owner may read either.
        epsilon_total, delta_total : float
            What all charges may cost together.
        dataset : str, optional
            What certificates call the data. Default: the name of the file.
        unit : str, optional
            The column that names people with several rows: every request must protect it.
        row_id : str, optional
            Without a unit: the column that tells rows apart, for charging parts side by side.
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
        """Open a ledger, and check that nobody edited it."""
        ledger = cls(Store.open(Path(path)))
        _ = ledger.terms
        return ledger

    @property
    def path(self) -> Path:
        """The file."""
        return self.store.path

    @cached_property
    def terms(self) -> Terms:
        """What the ledger is about."""
        return self.store.read().terms

    @cached_property
    def filter(self) -> PrivacyFilter:
        """What decides whether a request still fits."""
        return PrivacyFilter(self.terms.epsilon, self.terms.delta)

    def part(self, chosen_by: str) -> Self:
        """Return the ledger for tables that hold a part of the data set.

        Parameters
        ----------
        chosen_by : {"all", "public", "label"}
            "all": the table may hold everybody. "public": its rows were chosen by what is public,
            such as a date, an id or a coin; it is charged to those in it alone, as the ids show.
            "label": by the labels, which no release can be private about; it is refused.
        """
        check_name("way to choose rows", chosen_by, CHOSEN_BY, LedgerError)
        return dataclasses.replace(self, chosen_by=chosen_by)

    def noting(self, *, purpose: str | None = None, recipient: str | None = None) -> Self:
        """Return the ledger that writes into its charges what they are for and who gets them."""
        _check_text("a purpose", purpose)
        _check_text("a recipient", recipient)
        return dataclasses.replace(self, purpose=purpose, recipient=recipient)

    def drawing_anew(self) -> Self:
        """Return the ledger for requests that are drawn and charged again, if identical to one."""
        return dataclasses.replace(self, reuse=False)

    def reserving(self, before_charge: BeforeCharge) -> Self:
        """Return the ledger that calls this before anything is charged.

        It is given the number of rows of the table, and about how many bytes a release of it
        writes. Whatever it raises, nothing is charged.
        """
        return dataclasses.replace(self, before_charge=before_charge)

    def charges(self) -> tuple[Charge, ...]:
        """Return all charges, oldest first, after checking that none was edited or removed."""
        return self.store.read().charges

    def totals(self, *, delta: float | None = None) -> Totals:
        """Return what was spent; `delta` is for the epsilon of Gaussian noise that fits."""
        state = self.store.read()
        paid = self._paid(state)
        spent = max(paid, key=self.filter.total)
        wanted = self.terms.delta if delta is None else delta
        pure, gaussian = self.filter.what_fits(spent, delta=wanted)
        return Totals(
            charges=len(state.charges),
            epsilon=self.terms.epsilon,
            delta=self.terms.delta,
            filtered=self.filter.total(spent),
            fixed=max(
                epsilon_of_releases([cost.events for cost in costs], self.terms.delta)
                for costs in paid
            ),
            fits_pure=pure,
            fits_gaussian=gaussian,
        )

    def total_with(self, others: Sequence[Sequence[Mechanism]]) -> float:
        """Return the epsilon that is spent if others were drawn from the same labels as well."""
        more = [Cost.of(tuple(events), order=self.filter.order) for events in others]
        return max(self.filter.total([*paid, *more]) for paid in self._paid(self.store.read()))

    def course(self, *, most: int = 200) -> tuple[Spent, ...]:
        """Return the newest charges, `most` at most, oldest first, and the total after each."""
        state = self.store.read()
        course = []
        for i in range(max(len(state.charges) - most, 0), len(state.charges)):
            until = dataclasses.replace(state, charges=state.charges[: i + 1])
            alone = self.filter.total([self._cost(state.charges[i])])
            total = max(self.filter.total(paid) for paid in self._paid(until))
            course.append(Spent(state.charges[i], alone, total))
        return tuple(course)

    def charge(self, entry: Charge, subset: Subset | None, *, delta: float) -> Charge:
        """Add a charge, on disk when this returns; refuse one that does not fit the budget.

        Parameters
        ----------
        delta : float
            That the request was made with, for saying what would fit.
        """

        def decide(state: State) -> tuple[Charge, Subset | None]:
            cost = self._cost(entry)
            for before in self._paid(state, joining=subset):
                if not self.filter.admits([*before, cost]):
                    raise BudgetError(self._refusal(before, cost, delta))
            return entry, subset

        return self.store.append(decide)

    def act(self, id: str, events: Sequence[Mechanism]) -> Charge | None:
        """Return the charge that pays for a certificate with this id; None if it is not enough."""
        charge, order = self.store.read().find(id), self.filter.order
        if charge is None:
            return None
        spent = Cost.of(tuple(events), order=order)
        return charge if Cost.of(charge.mechanisms, order=order).covers(spent) else None

    def remember(self, path: str | Path, *, id: str, digest: str) -> None:
        """Keep where the files of a charge are, for an identical request later.

        `digest` is what `verify` says of them.
        """
        if self.store.read().find(id) is None:
            raise LedgerError(f"{path} was not charged to {self.path}.")
        self.store.remember(Place(id, Path(path).absolute(), digest))

    def paid_files(self, asked: Charge) -> list[Place]:
        """Return where files of identical requests are, the newest first."""
        same = {
            one.id
            for one in self.charges()
            if (one.verb, one.request, one.table) == (asked.verb, asked.request, asked.table)
        }
        return [place for place in reversed(self.store.places()) if place.id in same]

    def to_json(self) -> dict[str, Any]:
        """Return terms and charges as plain values: enough to check chain and totals again.

        The key, the members of parts and the places of files stay.
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
        """Return what each kind of unit has paid; only kinds in the part that is `joining`."""
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
