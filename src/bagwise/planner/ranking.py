"""A plan: all candidates, ranked by the expected error of a learner."""

import dataclasses
import shlex
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.bagging import STRATEGIES, spell_settings
from bagwise.errors import StrategyError
from bagwise.files.atomic import new_file
from bagwise.files.json_files import canonical
from bagwise.planner.belief import Prior
from bagwise.planner.candidates import Candidate, at_rules, direct_release
from bagwise.planner.problem import PlanProblem
from bagwise.requests.verbs import Learner
from bagwise.show import charts, html
from bagwise.show.page import Figure, Grid, Page, render
from bagwise.theory.accuracy import Accuracy, shrunk
from bagwise.theory.exact import Risk

HEADING = ("", "strategy", "size", "bags", "label", "loss", "noise", "error", "keeps", "lost to")
LOST = "% lost"  # of what true labels would give
_LEAST_LOST = 0.01  # an axis of logarithms has no zero
# What decides comes first: a phone shows three or four columns.
_ORDER = ("", "strategy", "size", "error", "keeps", "lost to", "bags", "label", "loss", "noise")
_SHOWN = 10
_COMMANDS = 3
_WORTH_SAYING = 0.02  # of the signal, that is lost more than by the best of a scenario
_LINES = 4
_STEPS = (0.25, 0.5, 1, 2, 4)  # of epsilon, at which these are drawn
_MAINLY = {
    "label_noise": "labels",
    "privacy": "privacy",
    "choice": "choice",
    "bias": "shrinkage",
    "misfit": "misfit",
}


_A = {"weak signal": "a ", "strong signal": "a ", "large misfit": "a "}
_RANKED: dict[Learner, str] = {
    "linear": "Choices are ranked by how much more of the signal they lose than the best choice, "
    "on average over these assumptions and over a weaker and a stronger signal, no misfit and a "
    "large misfit. Choices with few bags are ranked a little lower.",
    "flexible": "Choices are ranked by how much boosted trees should lose to noise and to large "
    "bags, estimated from public tables. The errors are those of a linear model on the same bags, "
    "with labels that are nearly linear.",
}
_FEW_BAGS = (
    "fewer than three bags per coefficient: too few for intervals, and more sensitive to labels "
    "that are not linear in the features."
)


@dataclass(frozen=True, eq=False)
class Plan:
    """Candidates, ranked by their regret over the scenarios of the prior.

    Attributes
    ----------
    candidates : tuple of Candidate
    problem : Problem
        The features that were looked at, and what was asked for.
    label : str
        Name of the label, for commands.
    options : str
        Options about columns that belong into every command.
    table, output : str
        Words for the table and for what is written, for commands.
    """

    candidates: tuple[Candidate, ...]
    problem: PlanProblem = field(repr=False)
    label: str = "LABEL"
    options: str = ""
    table: str = "TABLE"
    output: str = "OUT"

    @property
    def prior(self) -> Prior:
        """The assumptions about the labels."""
        return self.problem.prior

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return self.problem.sample.n_rows

    @property
    def epsilon(self) -> float | None:
        """The epsilon to deliver, if any."""
        return None if self.problem.rule is None else self.problem.rule.epsilon

    @property
    def delta(self) -> float | None:
        """The delta that may be used, if any."""
        return None if self.problem.rule is None else self.problem.rule.delta

    @property
    def row_level(self) -> float:
        """Error of predictions of a model of the row labels themselves: sigma^2 p / n."""
        noise = self.problem.numbers * self.prior.label_noise_sd**2
        return noise * self.problem.coefficients / self.n_rows

    def accuracy(self, excess: float, scenario: str = "as stated") -> Accuracy:
        """Return the accuracy on single rows for this squared error around expected labels.

        The belief says what expected labels, and single ones around them, vary by.
        """
        prior = self.prior.scenarios()[scenario]
        signal, noise = prior.signal_sd**2, prior.label_noise_sd**2
        return Accuracy.of(
            excess / self.problem.numbers,  # of one class
            with_labels=shrunk(noise * self.problem.coefficients / self.n_rows, signal),
            signal=signal,
            noise=noise + prior.misfit * signal,
        )

    @cached_property
    def direct(self) -> Risk | None:
        """The error of a directly released linear model with the same guarantee."""
        rule = self.problem.rule
        if rule is None or self.problem.classes is not None:
            return None
        return direct_release(self.problem, rule)

    @cached_property
    def frontier(self) -> dict[str, tuple[tuple[float, float], ...]]:
        """For the best few choices, and the direct release, the error at other epsilons."""
        rule = self.problem.rule
        if rule is None:
            return {}
        rules = [dataclasses.replace(rule, epsilon=rule.epsilon * by) for by in _STEPS]
        chosen: dict[str, Candidate] = {}
        for candidate in self.candidates:
            if candidate.scores == "none" and len(chosen) < _LINES:
                chosen.setdefault(candidate.title, candidate)
        lines = {name_of(c): at_rules(self.problem, c, rules) for c in chosen.values()}
        if self.direct is not None:
            errors = [(one.epsilon, direct_release(self.problem, one).total) for one in rules]
            lines["linear model released directly"] = tuple(
                (epsilon, float(np.sqrt(error))) for epsilon, error in errors
            )
        return lines

    @property
    def best(self) -> Candidate:
        """The candidate with the smallest regret."""
        return self.candidates[0]

    def command(self, rank: int = 0) -> str:
        """Return the command that makes the release of a candidate."""
        chosen = self._at(rank)
        words = [f"bagwise release {self.table} --label {shlex.quote(self.label)}"]
        words += [self.options] if self.options else []
        bounds = self.problem.request.budget.bounds
        if bounds is not None and self.problem.classes is None:  # classes have bounds of their own
            words.append(f"--bounds {_exact(bounds[0])} {_exact(bounds[1])}")
        words.append(f"--bag-size {chosen.bag_size} --strategy {chosen.strategy}")
        words += [f"--set {shlex.quote(setting)}" for setting in spell_settings(chosen.bagging)]
        if chosen.noise != "auto":
            words.append(f"--noise {chosen.noise}")
        if chosen.label_kind != "mean":
            words.append(f"--label-kind {chosen.label_kind}")
        if self.epsilon is None or chosen.delta is None:
            words.append("--not-private")
        else:
            words.append(f"--epsilon {_exact(self.epsilon)} --delta {_exact(chosen.delta)}")
        if chosen.strategy not in STRATEGIES:
            words.append(f"# by bw.make_release: {chosen.strategy} is not registered")
            return " ".join(words)
        return " ".join([*words, f"-o {self.output}"])

    def explain(self, rank: int = 0) -> str:
        """Explain the expected error of a candidate and its causes in words."""
        chosen = self._at(rank)
        risk = chosen.predictions
        causes = ", ".join(
            f"{name.replace('_', ' ')} {share:.0%}"
            for name, share in risk.shares().items()
            if share >= 0.005
        )
        stated, flexible = self.accuracy(risk.total), self.problem.request.learner == "flexible"
        lines = [f"{name_of(chosen)}: {stated}.", f"The added error comes from {causes}."]
        for scenario, error in chosen.scenarios.items():
            if (kept := self.accuracy(error, scenario).about) != stated.about:
                lines.append(f"With {_A.get(scenario, '')}{scenario}: keeps {kept}.")
        if chosen.few_bags:
            lines.append(f"It has {_FEW_BAGS}")
        how = "--model boosted" if flexible else f"--loss {chosen.loss}"
        lines.append(f"To release: {self.command(rank)}")
        return "\n".join([*lines, f"To fit: bagwise fit {self.output} {how}"])

    def remarks(self) -> tuple[str, ...]:
        """Return remarks that help to read the plan."""
        remarks = []
        if self.direct is not None:  # first, as it may make all of this needless
            kept = self.accuracy(self.direct.total).about
            said = f"A linear model released directly would keep {kept}"
            if self.direct.total > self.best.predictions.total:
                remarks.append(f"{said}, less than the first choice (bagwise release-model).")
            else:
                remarks.append(
                    f"{said}, more than any bags. Bags are useful if someone needs data, for "
                    "another kind of model or an audit. If you only want a model, release one "
                    "instead (bagwise release-model)."
                )
        remarks.append(
            "error is the typical error of one prediction, and keeps is the share of what a model "
            f"of the true labels would explain. Both assume this: {self.prior.text()}."
        )
        remarks.append(_RANKED[self.problem.request.learner])
        # The first choice is compared with what has intervals too, if it has.
        rivals = [c for c in self.candidates if self.best.few_bags or not c.few_bags]
        for scenario in self.prior.scenarios() if self.problem.request.learner == "linear" else ():
            first = min(rivals, key=lambda c: c.scenarios[scenario])
            more = self.best.scenarios[scenario] - first.scenarios[scenario]
            signal = self.problem.numbers * self.prior.scenarios()[scenario].signal_sd ** 2
            if more > _WORTH_SAYING * signal:
                known = "As stated" if scenario == "as stated" else f"With {scenario}"
                remarks.append(f"{known}, {name_of(first)} would be first.")
        if any(candidate.few_bags for candidate in self.candidates[:_SHOWN]):
            remarks.append(f"Choices marked * have {_FEW_BAGS}")
        if self.accuracy(self.best.predictions.total).kept < 0.1:
            remarks.append("No choice is expected to be much better than predicting the mean.")
        if self.problem.family.name != "gaussian":
            remarks.append(
                "For this family, the results are correct to first order around a flat model."
            )
        if (used := len(self.problem.sample.X)) < self.n_rows:
            remarks.append(f"Bags were tried on a sample of {used} of {self.n_rows} rows.")
        if self.problem.request.budget.bounds is None:
            remarks.append("Without bounds, errors are in units of a label's standard deviation.")
        return tuple(remarks)

    def cells(self, most: int = _SHOWN) -> list[tuple[str, ...]]:
        """Return the first candidates as a table of text with a heading."""
        cells: list[tuple[str, ...]] = [HEADING]
        for rank, c in enumerate(self.candidates[:most]):
            accuracy = self.accuracy(c.predictions.total)
            law = "none" if c.delta is None else "Gaussian" if c.delta else "no delta"
            cells.append(
                (
                    str(rank + 1),
                    c.title if c.scores == "none" else f"{c.title} ({c.scores})",
                    f"{'≥' if c.bagging.free_sizes else ''}{c.bag_size}",
                    f"{c.n_bags}{'*' if c.few_bags else ''}",
                    c.label_kind,
                    c.loss,
                    law if c.noise == "auto" else c.noise,
                    f"{accuracy.error:.4g}",
                    accuracy.share,
                    _MAINLY[next(iter(c.predictions.shares()))],
                )
            )
        return cells

    def __repr__(self) -> str:
        return f"Plan({len(self.candidates)} choices, first {name_of(self.best)})"

    def __str__(self) -> str:
        cells = self.cells()
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        return "\n".join([*lines, *self.remarks()])

    def plot(self) -> Any:
        """Draw the loss of the best choices against epsilon, or bag size without an epsilon.

        It needs the extra ``bagwise[plot]``.
        """
        x = "epsilon" if self.frontier else "bag size"
        return charts.lines(_curves(self)[x], x=x, y=LOST, series="choice")

    def _repr_html_(self) -> str:
        return html.grid("Plan", self.cells(), note=" ".join(self.remarks()))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values; the same features give the same values."""
        return {
            "schema": "bagwise-plan/1",
            "n_rows": self.n_rows,
            "n_used": len(self.problem.sample.X),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "bounds": None
            if (found := self.problem.request.budget.bounds) is None
            else list(found),
            "family": self.problem.family.name,
            "learner": self.problem.request.learner,
            "classes": self.problem.classes,
            "prior": asdict(self.prior),
            "row_level": self.row_level,
            "direct": None if self.direct is None else asdict(self.direct),
            "candidates": [
                {**candidate.to_json(), "command": self.command(rank)}
                for rank, candidate in enumerate(self.candidates)
            ],
            "frontier": {name: [*map(list, points)] for name, points in self.frontier.items()},
            "remarks": list(self.remarks()),
        }

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the plan as .json, or as an .html page that needs no network."""
        target = Path(path)
        if target.suffix == ".json":
            content = canonical(self.to_json())
        elif target.suffix == ".html":
            content = make_page(self).encode("utf-8")
        else:
            raise StrategyError(f"a plan is written as .json or .html, got {target.name!r}.")
        with new_file(target, force=force) as draft:
            draft.write_bytes(content)
        return target

    def _at(self, rank: int) -> Candidate:
        if not 0 <= rank < len(self.candidates):
            raise StrategyError(f"the plan has candidates 0 to {len(self.candidates) - 1}.")
        return self.candidates[rank]


def name_of(candidate: Candidate) -> str:
    """Return a candidate in words."""
    scores = "" if candidate.scores == "none" else f" by {candidate.scores} scores"
    bags = f"bags of {candidate.bag_size}"
    if candidate.bagging.free_sizes:
        bags = f"{candidate.n_bags} bags of at least {candidate.bag_size}"
    noise = ", noise without a delta" if candidate.delta == 0 else ""
    return (
        f"{candidate.title}{scores}, {bags}, {candidate.label_kind} labels, "
        f"{candidate.loss} loss{noise}"
    )


def _exact(value: float) -> str:
    """Return a number that reads back as itself: a rounded epsilon would be another."""
    return repr(float(value)).removesuffix(".0")


# The page, which needs no network: the ranking, the frontier, and the commands.


def make_page(plan: Plan) -> str:
    """Return the page."""
    promise = "not private"
    if plan.epsilon is not None:
        promise = f"epsilon {plan.epsilon:g}, delta {plan.delta:g}"
    table, accuracy = plan.cells(), plan.accuracy(plan.best.predictions.total)
    places = [HEADING.index(name) for name in _ORDER]
    curves = _curves(plan)
    sizes = {row["bag size"] for row in curves["bag size"]}
    values = {
        "share": accuracy.share,
        "best": name_of(plan.best),
        "accuracy": str(accuracy),
        "belief": plan.prior.text(),
        "choices": Grid([tuple(row[place] for place in places) for row in table]),
        "commands": [
            (plan.command(i), name_of(one)) for i, one in enumerate(plan.candidates[:_COMMANDS])
        ],
        "by_epsilon": _figure(curves, "epsilon") if plan.frontier else None,
        "by_size": _figure(curves, "bag size") if len(sizes) > 1 else None,
        "bag_size": min(sizes),
        "remarks": plan.remarks(),
    }
    family = plan.problem.family.name
    lead = f"{plan.n_rows:,} rows, {promise}, {family} labels. No label was looked at."
    return render(Page("plan.html", "What to release", lead, values))


def _figure(curves: dict[str, list[dict[str, Any]]], x: str) -> Figure:
    rows = curves[x]
    best = min(rows, key=lambda row: float(row[LOST]))
    cells = [(str(row["choice"]), f"{row[x]:g}", f"{row[LOST]:.3g}") for row in rows]
    return Figure(
        charts.lines(rows, x=x, y=LOST, series="choice"),
        alt=f"Lines: what each choice loses by {x}. The smallest is {best[LOST]:.3g}, by "
        f"{best['choice']} at {x} {best[x]:g}.",
        caption="Share of what true labels would give that is lost, choice by choice. Both axes "
        "are logarithmic.",
        numbers=Grid([("choice", x, LOST), *cells], folded="The numbers of these lines"),
    )


def _curves(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """Return what the best choices lose by epsilon, and each strategy at least by bag size."""
    least: dict[tuple[str, float], float] = {}
    for candidate in plan.candidates:
        key = (candidate.title, candidate.bag_size)
        least[key] = min(least.get(key, np.inf), candidate.rmse)
    errors = {
        "epsilon": [(name, *point) for name, line in plan.frontier.items() for point in line],
        "bag size": [(*key, error) for key, error in least.items()],
    }
    return {
        x: [
            {"choice": choice, x: place, LOST: max(100 * (1 - kept), _LEAST_LOST)}
            for choice, place, error in points
            for kept in (plan.accuracy(error**2).kept,)
        ]
        for x, points in errors.items()
    }
