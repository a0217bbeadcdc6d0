"""Certificates: the guarantee in words and numbers, computed from the recorded events."""

import importlib.resources
import json
import math
import operator
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Self, get_args, get_type_hints

import msgspec

from bagwise._printable import printable
from bagwise._version import SOFTWARE, SOFTWARE_PATTERN
from bagwise.errors import BoundsError, CertificateError, MissingExtraError, shielded
from bagwise.files.records import closed_schemas, read_record, to_plain
from bagwise.privacy.accounting import group_epsilon, privacy_curve, total_delta, total_epsilon
from bagwise.privacy.circumstances import Circumstance, Mark, exact
from bagwise.privacy.curves import MEANINGLESS_EPSILON
from bagwise.privacy.mechanisms import (
    Mechanism,
    is_known,
    mechanism_schema,
    mechanism_to_json,
    mechanisms_from_json,
)
from bagwise.privacy.private_range import is_choice, is_limit, is_range, search_prices
from bagwise.privacy.promise import check_limits
from bagwise.rng import SecureNoise, SimulatedNoise
from bagwise.rows.labels import Bounds, check_bounds
from bagwise.show import charts, html

SCHEMA = "bagwise-certificate/2"

NOT_PRIVATE = "NOT PRIVATE"
"""The headline of a certificate that promises nothing."""

_NUMBER = r"[0-9.e+-]{1,30}"
HEADLINE_PATTERN = rf"^(NOT PRIVATE|\({_NUMBER}, {_NUMBER}\)-label-DP)\Z"

GROUPS = (2, 5, 10)

_ROW_UNIT = "one row's label"
_SEARCHES = ("bounds", "range", "limit")
_MARK = get_type_hints(Mark)
_ASKED = ("asked_epsilon", "asked_delta")


@dataclass(frozen=True)
class Certificate:
    """The privacy statement of a release.

    Attributes
    ----------
    epsilon, delta : float or None
        What is delivered; None when nothing is promised.
    bounds : (float, float) or None
        Public label range; labels outside were clipped to it.
    events : tuple of Mechanism
        Everything that looked at a label on its way out.
    smallest_bag : int or None
        Rows in the smallest bag; None if there are no bags.
    noise_source : str
        Where the noise came from.
    unit : str or None
        The column whose values share protection; None protects each row on its own.
    unit_rows : int
        Rows of the unit that has the most; 1 without a unit.
    circumstances : tuple of Circumstance
        Further facts that a reader should know; `remarks` states them in words.
    covers : str or None
        SHA-256 of the content that the certificate belongs to, if both are in one file.
    software : str
        The software that made the release.
    asked_epsilon, asked_delta : float or None
        The guarantee that was asked for, if less is spent; None if it is what is delivered.
    tightened : (float, float) or None
        A range within the bounds that was chosen privately; labels outside were clipped to it.
    limit : float or None
        What a private model leaves of labels was clipped to plus or minus that.
    mark : Mark or None
        Id, day, and the name of the data set; None where nothing is promised.
    """

    epsilon: float | None
    delta: float | None
    bounds: Bounds | None
    events: tuple[Mechanism, ...]
    smallest_bag: int | None
    noise_source: str
    unit: str | None = None
    unit_rows: int = 1
    circumstances: tuple[Circumstance, ...] = ()
    covers: str | None = None
    software: str = SOFTWARE
    asked_epsilon: float | None = None
    asked_delta: float | None = None
    tightened: Bounds | None = None
    limit: float | None = None
    mark: Mark | None = None

    def __post_init__(self) -> None:
        # One way to say that what was asked for is delivered, so that equal ones compare as equal.
        if self.asked_epsilon == self.epsilon:
            object.__setattr__(self, "asked_epsilon", None)
        if self.asked_delta == self.delta:
            object.__setattr__(self, "asked_delta", None)

    @property
    def asked(self) -> tuple[float, float] | None:
        """The epsilon and delta that were asked for; None when nothing is promised."""
        if self.epsilon is None or self.delta is None:
            return None
        epsilon, delta = self.asked_epsilon, self.asked_delta
        return self.epsilon if epsilon is None else epsilon, self.delta if delta is None else delta

    @property
    def spends_less(self) -> str | None:
        """The guarantee that was asked for, in words, if less is spent."""
        if self.asked is None or self.asked == (self.epsilon, self.delta):
            return None
        epsilon, delta = self.asked
        return (
            f"Asked for was epsilon {exact(epsilon)} with delta {exact(delta)}; what is promised "
            "is all that was spent of it."
        )

    @property
    def is_private(self) -> bool:
        """Whether anything is promised."""
        return self.epsilon is not None

    @property
    def headline(self) -> str:
        """The promise in one line."""
        return headline_of(self.epsilon, self.delta)

    @property
    def protected(self) -> str:
        """What is protected, in words."""
        if self.unit is None:
            return _ROW_UNIT
        most = "one row each" if self.unit_rows == 1 else f"at most {self.unit_rows} rows"
        return f"all labels of the rows that share a value of {self.unit!r} ({most})"

    @property
    def _where(self) -> str:
        return "" if self.bounds is None else " within the bounds"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Further facts that a reader should know, in words."""
        return tuple(circumstance.text for circumstance in self.circumstances)

    @property
    def statement(self) -> tuple[str, ...]:
        """The promise in plain words."""
        if self.epsilon is None or self.delta is None:
            shown = (
                "about the other rows, this can show a single row's label."
                if self.smallest_bag is None
                else "about the other rows of a bag, bag labels can show a single row's label."
            )
            promise: tuple[str, ...] = (
                "NOT PRIVATE. Nothing is promised: together with what a reader knows or guesses "
                + shown,
            )
        else:
            promise = (
                f"Whatever a reader knows beforehand, replacing {self.protected} by anything else"
                f"{self._where} changes the probability of any outcome by at most a factor "
                f"of exp({exact(self.epsilon)}) = {math.exp(min(self.epsilon, 700)):.4g} and an "
                f"addition of {exact(self.delta)}.",
                "Not protected: features, ids, the number of rows"
                + ("." if self.smallest_bag is None else ", and which rows share a bag.")
                + ("" if self.unit else " Several rows of one person are protected one by one."),
                *((less,) if (less := self.spends_less) else ()),
            )
        return (*promise, *self.looks, *self.remarks)

    @property
    def looks(self) -> tuple[str, ...]:
        """The earlier private queries, in words, and what they cost."""
        said = []
        if cost := _spent(self.events, "bounds"):
            said.append(f"The bounds were chosen privately, for epsilon {cost}.")
        if self.tightened is not None:
            low, high = self.tightened
            of = "" if self.limit is None else " for the model that labels were centred on"
            said.append(
                f"Labels were clipped to {low:.4g} and {high:.4g}{of}: a range within the bounds "
                f"that was chosen privately, for epsilon {_spent(self.events, 'range')}."
            )
        if cost := _spent(self.events, "limit"):
            used = (
                "centring did not pay, and was not done"
                if self.limit is None
                else f"what it leaves of a label was clipped to {self.limit:.4g} either way"
            )
            said.append(
                f"A private model was made to centre labels on; {used}. Finding that limit cost "
                f"epsilon {cost}."
            )
        return tuple(said)

    @property
    def stated_bounds(self) -> Bounds | None:
        """The range of a label as somebody stated it; None if it was found privately."""
        return None if any(event.hides == "bounds" for event in self.events) else self.bounds

    @property
    def clipped_to(self) -> Bounds | None:
        """The range to which the labels of bags were clipped; for centred labels, the bounds."""
        return self.bounds if self.tightened is None or self.limit is not None else self.tightened

    @property
    def tells_of_model(self) -> bool:
        """Whether a private model was paid for."""
        return any(event.hides == "model" for event in self.events)

    def range_of(self, event: Mechanism) -> Bounds | None:
        """Return the range of the quantity that an event has hidden."""
        if event.query.labels_bags and self.limit is not None:
            return (-self.limit, self.limit)
        labels = event.query.labels_bags or event.hides in ("labels", "model")
        if labels and self.tightened is not None:
            return self.tightened
        return self.bounds

    def curve(self) -> list[tuple[float, float]]:
        """Return (epsilon, delta) at a dozen points; empty when there is no noise."""
        return list(privacy_curve(self.events)) if self.events else []

    def group(self) -> dict[int, float]:
        """Return the epsilon for the labels of 2, 5 and 10 units together, at the same delta."""
        if self.delta is None:
            return {}
        return {size: group_epsilon(self.events, self.delta, size) for size in GROUPS}

    def _check_numbers(self) -> None:
        """Refuse numbers that no mechanism can have, before anything is computed with them."""
        if self.bounds is not None:
            try:
                check_bounds(self.bounds)
            except BoundsError as error:
                raise CertificateError(f"the certificate has impossible bounds: {error}") from None
        asked = (self.asked_epsilon, self.asked_delta)
        for epsilon, delta in ((self.epsilon, self.delta), asked):
            possible = epsilon is None or 0 < epsilon <= MEANINGLESS_EPSILON
            if not possible or not (delta is None or 0 <= delta < 1):
                raise CertificateError("the certificate names an impossible epsilon or delta.")
        if (self.epsilon is None) != (self.delta is None):
            raise CertificateError("the certificate contradicts itself about being private.")
        if self.asked is None and asked != (None, None):
            raise CertificateError("the certificate was asked for privacy and promises none.")
        promised = (self.epsilon or 0.0, self.delta or 0.0)
        if self.asked and any(map(operator.lt, self.asked, promised)):
            raise CertificateError("the certificate promises less than what it was asked for.")

    def check(self) -> None:
        """Recompute the totals from the events; raise CertificateError if they promise too much."""
        self._check_numbers()
        self._check_facts()
        for event in self.events:
            if not is_known(event):  # also where nothing is promised, and nobody adds it up
                raise CertificateError(f"event {type(event).__name__} is not registered.")
            event.check(self.range_of(event))
        self._check_units()
        if self.epsilon is None or self.delta is None:
            known = (SecureNoise.name, SimulatedNoise.name) if self.events else ("none",)
            if self.noise_source not in known:
                raise CertificateError("the certificate's noise comes from a source nobody knows.")
            return
        if not self.events:
            raise CertificateError("the certificate promises privacy without an event.")
        if self.noise_source != SecureNoise.name:
            raise CertificateError("the certificate promises privacy without secret noise.")
        if not total_delta(self.events, self.epsilon) <= self.delta:
            true_epsilon = total_epsilon(self.events, self.delta)
            raise CertificateError(
                f"the certificate claims epsilon {exact(self.epsilon)} at delta "
                f"{exact(self.delta)}, but its events give {exact(true_epsilon)}."
            )

    def _check_facts(self) -> None:
        """Refuse facts that no release of ours would state, whatever it promises."""
        if not re.fullmatch(SOFTWARE_PATTERN, self.software):
            raise CertificateError("the certificate names software that is not a version of ours.")
        if self.unit_rows < 1 or (self.unit is None and self.unit_rows != 1):
            raise CertificateError("the certificate contradicts itself about units.")
        if self.covers is not None and not re.fullmatch("[0-9a-f]{64}", self.covers):
            raise CertificateError("what the certificate covers is not named by a SHA-256.")
        if self.mark is not None:
            self.mark.check()
        self._check_looks()

    def _check_looks(self) -> None:
        """Refuse a range or a limit that is impossible, or that nothing was spent on."""
        hidden = [event.hides for event in self.events]
        if (self.tightened is not None) != ("range" in hidden):
            raise CertificateError("the certificate does not pay for the range that it names.")
        if self.tightened is not None:
            (low, high), bounds = self.tightened, self.bounds
            if bounds is None or not bounds[0] <= low < high <= bounds[1]:
                raise CertificateError("the range of the certificate is not within its bounds.")
        if self.limit is None:
            return
        if "limit" not in hidden or "model" not in hidden or "bag means" not in hidden:
            raise CertificateError("the certificate does not pay for the limit that it names.")
        widest = self.tightened or self.bounds
        if widest is None or not 0 < 2 * self.limit < widest[1] - widest[0]:
            raise CertificateError("the limit of the certificate is not within its range.")

    def check_rows(self, n_rows: int) -> None:
        """Refuse facts impossible for this many rows: larger units, and searches that end nowhere.

        Candidates for a range or a limit, and the share of epsilon that a search for them gets,
        follow from what is public.
        """
        if self.unit_rows > n_rows:
            raise CertificateError(f"a unit cannot have {self.unit_rows} of {n_rows} rows.")
        searches = [event for event in self.events if event.hides in _SEARCHES]
        if len({event.hides for event in searches}) < len(searches):
            raise CertificateError("the certificate pays twice for the same search.")
        bounds, rows = self.bounds or (0.0, 0.0), self.unit_rows
        low, high = self.tightened or bounds
        left, found = math.inf if self.asked is None else self.asked[0], False
        for event in searches:
            if event.hides == "bounds":
                found = possible = is_choice(bounds)
            elif event.hides == "range":
                chosen = (low, high)
                possible = is_range(chosen, bounds, n_values=n_rows, event=event, found=found)
            else:
                possible = self.limit is None or is_limit(
                    self.limit, (high - low) / 2, n_values=n_rows, event=event
                )
            if event.unit_rows != rows or not possible:
                raise CertificateError(f"no search ends with the {event.hides} that is named.")
            known = None if found else bounds
            prices = search_prices(event.hides, left, known, n_rows=n_rows, unit_rows=rows)
            near = (math.isclose(event.epsilon, price, rel_tol=1e-9) for price in prices)
            if self.asked is not None and not any(near):
                raise CertificateError(f"no search for a {event.hides} costs what this one did.")
            left -= event.epsilon
            if not left > 0:
                raise CertificateError("the certificate spends more on searches than was asked.")

    def _check_units(self) -> None:
        """Refuse noise that was set for fewer rows than a unit has."""
        # Picks bring the bound for groups, which covers what was spent before them as well.
        grouped = any(event.query.bounds_groups for event in self.events)
        for event in self.events:
            covered = grouped and event.hides in ("labels", "model")
            if not covered and event.unit_rows < self.unit_rows:
                raise CertificateError(
                    f"event {event.kind!r} does not allow for units of {self.unit_rows} rows."
                )

    def within(
        self,
        *,
        max_epsilon: float | None = None,
        max_delta: float | None = None,
        n_rows: int | None = None,
    ) -> bool:
        """Return whether the release spends no more than this; a missing limit is no limit.

        With both limits the question is asked of the whole curve: a release made for another pair
        (epsilon, delta) may still meet this one. With `max_epsilon` alone, delta must be at most
        one in `n_rows`, where that is given: a larger one may show a label whatever epsilon says.
        """
        check_limits(max_epsilon=max_epsilon, max_delta=max_delta)
        if max_epsilon is None and max_delta is None:
            return True
        if self.epsilon is None or self.delta is None:
            return False
        if max_epsilon is None:
            return max_delta is None or self.delta <= max_delta
        if max_delta is not None:
            return total_delta(self.events, max_epsilon) <= max_delta
        meaningful = n_rows is None or self.delta <= 1 / n_rows
        return meaningful and self.epsilon <= max_epsilon

    def dp_events(self) -> list[Any]:
        """Return the events as those of Google's dp-accounting, for people who account with it.

        Its relation for the pick is add or remove, not replace: composed with scores, its total can
        fall short of the one here (see the theory page).
        """
        try:
            from dp_accounting import dp_event as google
        except ImportError:
            raise MissingExtraError("exporting events", "accounting") from None
        return [event for own in self.events for event in own.exported(google)]

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as plain values: words first, then numbers."""
        return {
            "schema": SCHEMA,
            **(dict.fromkeys(_MARK) if self.mark is None else asdict(self.mark)),
            "headline": self.headline,
            "statement": list(self.statement),
            "private": self.is_private,
            "epsilon": self.epsilon,
            "delta": self.delta,
            **dict(zip(_ASKED, self.asked or (None, None), strict=True)),
            "neighbouring": f"{self.protected} may be anything else{self._where}",
            "unit": self.unit,
            "unit_rows": self.unit_rows,
            "bounds": None if self.bounds is None else list(self.bounds),
            "tightened": None if self.tightened is None else list(self.tightened),
            "limit": self.limit,
            "smallest_bag": self.smallest_bag,
            "curve": [list(point) for point in self.curve()],
            "group_epsilon": {
                str(size): (epsilon if math.isfinite(epsilon) else None)
                for size, epsilon in self.group().items()
            },
            "events": [mechanism_to_json(event) for event in self.events],
            "noise_source": self.noise_source,
            "circumstances": [to_plain(one) for one in self.circumstances],
            "remarks": list(self.remarks),
            "covers": self.covers,
            "software": self.software,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any], *, sizes: Collection[int] | None = None) -> Self:
        """Read a certificate back; its words must be the ones its numbers produce.

        Where it is known what it is about, `sizes` are those that its bags have. A long list of
        others is refused before anything is computed with it.
        """
        if entry.get("schema") != SCHEMA:
            raise CertificateError(
                f"the certificate has schema {entry.get('schema')!r}; this version reads {SCHEMA}."
            )
        certificate = shielded(
            lambda: cls(
                events=mechanisms_from_json(entry["events"]),
                circumstances=read_record(
                    tuple[Circumstance, ...],
                    entry["circumstances"],
                    error=CertificateError,
                    what="what the certificate remarks",
                ),
                mark=None if entry["id"] is None else Mark(**_converted(entry, _MARK)),
                **_converted(entry, get_type_hints(cls), but=("events", "circumstances", "mark")),
            ),
            CertificateError("the certificate is damaged: a field is missing or malformed."),
        )
        lists = (event.query.bag_sizes for event in certificate.events)
        if sizes is not None and not set(chain.from_iterable(lists)) <= set(sizes):
            raise CertificateError("the certificate lists bags of sizes that there are none of.")
        certificate.check()
        if not _same(certificate.to_json(), dict(entry)):
            raise CertificateError("the certificate's words do not match its numbers.")
        return certificate

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """Return the JSON Schema of a certificate file.

        Queries, laws and circumstances come from their records, so that none is forgotten.
        """
        text = importlib.resources.files("bagwise.privacy").joinpath("certificate.schema.json")
        schema: dict[str, Any] = json.loads(text.read_text(encoding="utf-8"))
        schema["properties"]["events"]["items"] = mechanism_schema()
        kinds = closed_schemas(get_args(Circumstance))
        schema["properties"]["circumstances"]["items"] = {"oneOf": kinds}
        return schema

    def plot(self) -> charts.Chart:
        """Draw delta against epsilon; needs the extra ``bagwise[plot]``."""
        if self.epsilon is None or self.delta is None:
            raise CertificateError("nothing is promised, so that there is nothing to draw.")
        return charts.privacy_curve(self.curve(), promised=(self.epsilon, self.delta))

    def _repr_html_(self) -> str:
        headline, *lines = self.text().split("\n")
        return html.text(headline, lines)

    def text(self) -> str:
        """Return the certificate for reading."""
        lines = [self.headline, *self.statement]
        if self.is_private:
            what = "rows" if self.unit is None else "units"
            groups = (f"{epsilon:.3g} for {size}" for size, epsilon in self.group().items())
            lines.append(f"Epsilon for several {what} together: {', '.join(groups)}.")
        if self.mark is not None and self.mark.dataset is not None:
            lines.append(f"Of {self.mark.dataset!r}, {self.mark.date}, charge {self.mark.id}.")
        return "\n".join(printable(line) for line in lines)


def headline_of(epsilon: float | None, delta: float | None) -> str:
    """Return a promise in one line; None promises nothing.

    >>> headline_of(0.5, 1e-6), headline_of(None, None)
    ('(0.5, 1e-06)-label-DP', 'NOT PRIVATE')
    """
    if epsilon is None or delta is None:
        return NOT_PRIVATE
    return f"({exact(epsilon)}, {exact(delta)})-label-DP"


def promised_in(headline: str) -> tuple[float, float] | None:
    """Return the epsilon and delta of a headline; None if it promises nothing.

    >>> promised_in("(0.5, 1e-06)-label-DP"), promised_in("NOT PRIVATE")
    ((0.5, 1e-06), None)
    """
    found = re.match(rf"\(({_NUMBER}), ({_NUMBER})\)", headline)
    return (float(found[1]), float(found[2])) if found else None


def _converted(
    entry: Mapping[str, Any], kinds: Mapping[str, Any], but: Collection[str] = ()
) -> dict[str, Any]:
    return {name: msgspec.convert(entry[name], kinds[name]) for name in kinds if name not in but}


def _spent(events: Sequence[Mechanism], hides: str) -> str:
    """Return the epsilon of the events that hide this, as text; empty if there are none."""
    found = [event.pure_epsilon or 0 for event in events if event.hides == hides]
    return f"{float(sum(found)):.3g}" if found else ""


def _same(mine: Any, theirs: Any) -> bool:
    """Compare JSON values; recomputed floats may differ in the last digits on another machine."""
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, dict):
        return list(mine) == list(theirs) and all(_same(mine[k], theirs[k]) for k in mine)
    if isinstance(mine, list):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    if isinstance(mine, float):
        return math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-300)
    return bool(mine == theirs)
