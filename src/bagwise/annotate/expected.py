"""The error to expect of each design before any label is bought, from the features alone.

A label that is bought belongs to a known row. It can be used for that row, for its bag as a whole
(its centroid), or for every row of its bag. Each use is a linear estimator, so that its expected
squared error of predictions over all rows is exact given the rows that a design chose, for a
stated belief about signal, noise and misfit (`planner.Prior`). Designs that draw their rows are
averaged over some draws.

References
----------
F1-F4 of the theory page, averaged over the prior (`theory.moments`). A label for its own row is a
bag of one row: there is no choice, and what a linear model leaves of that row is its misfit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bagwise._types import IntArray
from bagwise.annotate.designs import Design, Pick, Selection
from bagwise.annotate.pool import Pool
from bagwise.bagging.bags import LEFT_OUT, Bags
from bagwise.planner.prior import Prior
from bagwise.theory.exact import Risk
from bagwise.theory.moments import BagMoments, prior_risk

OWN_ROW, CENTROID, EVERY_ROW = "own row", "centroid of its bag", "every row of its bag"
YARDSTICK = "rows-random"
_ALIKE = 0.02  # errors that differ by less are not worth a word
_SURE = 3.0  # standard errors that a difference must have


@dataclass(frozen=True)
class Expected:
    """What a design and a use of its labels are expected to leave.

    Attributes
    ----------
    design, use : str
    risk : Risk
        Expected mean square of the error of predictions over all rows, under the stated belief.
    chance : float
        Standard error of its total, from the draws of a design that chooses rows by chance.
    scenarios : dict of str to float
        The same in total, for the belief and its ends (`Prior.scenarios`).
    regret : float
        Mean over the scenarios of how much more of the signal is lost than with the best of those
        that it was compared with.
    """

    design: str
    use: str
    risk: Risk
    chance: float
    scenarios: dict[str, float]
    regret: float = 0.0

    @property
    def rmse(self) -> float:
        """The root of the error."""
        return float(np.sqrt(self.risk.total))


@dataclass(frozen=True)
class Outlook:
    """Designs beside each other, the least regretted one first."""

    entries: tuple[Expected, ...]
    budget: int

    @property
    def best(self) -> Expected:
        """The first choice."""
        return self.entries[0]

    def of(self, design: str, use: str = OWN_ROW) -> Expected | None:
        """Return the entry of a design, or None if it was not compared."""
        return next((e for e in self.entries if (e.design, e.use) == (design, use)), None)

    def cells(self) -> list[list[str]]:
        """Return a table for people, its heading first."""
        yard = self.of(YARDSTICK)
        rows = [["design", "label used for", "expected error", "of random rows"]]
        for entry in self.entries:
            ratio = "" if yard is None else f"{entry.rmse / yard.rmse:.2f}"
            rows.append([entry.design, entry.use, f"{entry.rmse:.4g}", ratio])
        return rows

    def verdict(self) -> str:
        """Say in words whether bags help."""
        return " ".join(part for part in (self._on_choosing(), self._on_using()) if part)

    def _on_choosing(self) -> str:
        yard = self.of(YARDSTICK)
        bags = [e for e in self.entries if e.design.startswith("bags-") and e.use == OWN_ROW]
        if yard is None or not bags:
            return ""
        best = min(bags, key=lambda entry: entry.risk.total)
        ratio = best.rmse / yard.rmse
        by_chance = _SURE * np.hypot(best.chance, yard.chance)
        if ratio > 1 - _ALIKE or yard.risk.total - best.risk.total < by_chance:
            return (
                f"Bags do not help to choose rows here: {best.design} is expected to leave "
                f"{ratio:.2f} times the error of as many random rows."
            )
        return (
            f"Bags help to choose rows here: {best.design} is expected to leave {ratio:.2f} times "
            "the error of as many random rows."
        )

    def _on_using(self) -> str:
        shared = [e for e in self.entries if e.use != OWN_ROW]
        own = [e for e in self.entries if e.use == OWN_ROW]
        if not shared or not own:
            return ""
        best, alone = (min(some, key=lambda e: e.risk.total) for some in (shared, own))
        ratio = best.rmse / alone.rmse
        if ratio > 1 - _ALIKE:
            return (
                "A label says most about its own row: used for its bag, the best design is "
                f"expected to leave {ratio:.2f} times the error."
            )
        return (
            f"Used for the {best.use} ({best.design}), labels are expected to leave {ratio:.2f} "
            "times the error that they leave for their own rows."
        )


def look_ahead(
    pool: Pool, designs: Sequence[Design], *, budget: int, pick: Pick, rng: np.random.Generator
) -> Outlook:
    """Compare designs by what they are expected to leave."""
    found: list[Expected] = []
    for design in designs:
        drawn = design.draw(pool, budget=budget, pick=pick, rng=rng, times=design.draws)
        found += _of_design(pool, design.name, drawn)
    return Outlook(_ranked(found, pool.prior), budget)


def expected_of(pool: Pool, selection: Selection, *, design: str) -> tuple[Expected, ...]:
    """Return what one selection is expected to leave, for each use of its labels."""
    return tuple(_of_design(pool, design, [selection]))


def _of_design(pool: Pool, name: str, drawn: Sequence[Selection]) -> list[Expected]:
    entries = []
    for use, moments_of, loss in _USES:
        # Bags are the same in each draw: only the rows that are picked from them differ.
        different = drawn if use == OWN_ROW else drawn[:1]
        moments = [moments_of(pool, selection) for selection in different]
        known = [m for m in moments if m is not None]
        if known:
            entries.append(_expected(pool.prior, name, use, known, loss))
    return entries


def _expected(
    prior: Prior, design: str, use: str, moments: Sequence[BagMoments], loss: str
) -> Expected:
    risks = {
        scenario: [_risk(m, believed, loss) for m in moments]
        for scenario, believed in prior.scenarios().items()
    }
    means = {scenario: _mean_risk(each) for scenario, each in risks.items()}
    totals = [risk.total for risk in risks["as stated"]]
    chance = float(np.std(totals, ddof=1) / np.sqrt(len(totals))) if len(totals) > 1 else 0.0
    return Expected(
        design,
        use,
        means["as stated"],
        chance,
        {scenario: risk.total for scenario, risk in means.items()},
    )


def _risk(moments: BagMoments, prior: Prior, loss: str) -> Risk:
    return prior_risk(
        moments,
        signal_sd=prior.signal_sd,
        label_noise_sd=prior.label_noise_sd,
        misfit=prior.misfit,
        label_kind="pick",
        loss=loss,
    )


def _mean_risk(risks: Sequence[Risk]) -> Risk:
    causes = ("bias", "choice", "label_noise", "privacy", "misfit")
    return Risk.of(
        **{cause: float(np.mean([getattr(risk, cause) for risk in risks])) for cause in causes}
    )


def _own_rows(pool: Pool, selection: Selection) -> BagMoments:
    """Return the moments of labelled rows, each a bag of its own; earlier ones count too."""
    return _single_rows(pool, np.concatenate([pool.labelled, selection.rows]))


def _single_rows(pool: Pool, rows: IntArray) -> BagMoments:
    index = np.full(len(pool.X), LEFT_OUT, dtype=np.int64)
    index[rows] = np.arange(rows.size)
    return BagMoments.of(pool.white, Bags(index), pool.functions, pool.root)


def _bags(pool: Pool, selection: Selection) -> BagMoments | None:
    """Return the moments of each label's bag; None where there are no bags.

    A bag with several labels is there once for each, with its part of the rows.
    """
    if selection.bags is None or pool.labelled.size:
        return None
    moments = BagMoments.of(pool.white, selection.bags, pool.functions, pool.root)
    of_label = selection.bags.index[selection.rows]
    labels = np.bincount(of_label, minlength=selection.bags.n_bags)[of_label]
    return replace(
        moments,
        sizes=moments.sizes[of_label] / labels,
        sums=moments.sums[of_label] / labels[:, None],
        spread=moments.spread[of_label],
        signal_spread=moments.signal_spread[of_label],
        misfit=moments.misfit[of_label],
        misfit_spread=moments.misfit_spread[of_label],
    )


_USES = (
    (OWN_ROW, _own_rows, "bag"),
    (CENTROID, _bags, "bag"),
    (EVERY_ROW, _bags, "instance"),
)


def _ranked(entries: Sequence[Expected], prior: Prior) -> tuple[Expected, ...]:
    """Return entries by their mean regret over the scenarios, as plans are ranked."""
    total = np.zeros(len(entries))
    scenarios = prior.scenarios()
    for name, believed in scenarios.items():
        scale = (believed.signal_sd or believed.label_noise_sd) ** 2
        errors = np.array([entry.scenarios[name] for entry in entries])
        total += (errors - errors.min()) / scale
    total /= len(scenarios)
    order = np.argsort(total, kind="stable")
    return tuple(replace(entries[i], regret=float(total[i])) for i in order)
