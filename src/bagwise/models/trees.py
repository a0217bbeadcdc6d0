"""Boosted trees as plain arrays, saved as JSON and evaluated with NumPy alone.

They are not saved in the format of the library that grew them: its parser was not made for
untrusted files, and predictions would need that library.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import expit

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import ModelFileError
from bagwise.files.records import Record, to_plain
from bagwise.models.model import Model, Software, TrainedOn
from bagwise.rows.encode import Encoder
from bagwise.show import html

_LEAVES = 4096  # of one tree: more is not a boosted tree
_MOST = 30.0  # of a score with a logarithm: a mean of 1e13, a chance of 1 - 1e-13


@dataclass(frozen=True)
class Link:
    """A link from scores to means, for models with one score per row.

    Attributes
    ----------
    mean, slope : callable
        The mean of each score, and its derivative given scores and means.
    score : callable
        The score of a mean.
    """

    mean: Callable[[FloatArray], FloatArray]
    slope: Callable[[FloatArray], FloatArray]
    score: Callable[[FloatArray], FloatArray]


def _bounded(scores: FloatArray) -> FloatArray:
    return np.clip(scores, -_MOST, _MOST)


LINKS: dict[str, Link] = {
    "identity": Link(lambda s: s, np.ones_like, lambda mean: mean),
    "log": Link(lambda s: np.exp(_bounded(s)), lambda mean: mean, np.log),
    "logit": Link(
        lambda s: np.asarray(expit(_bounded(s))),
        lambda mean: mean * (1 - mean),
        lambda mean: np.log(mean) - np.log1p(-mean),
    ),
}
SOFTMAX = "softmax"


def means_of(scores: FloatArray, link: str) -> FloatArray:
    """Return expected labels, (n,), or chances, (n, classes), of scores of the same shape.

    >>> means_of(np.array([[0.0, 0.0]]), "softmax")
    array([[0.5, 0.5]])
    """
    if link != SOFTMAX:
        return LINKS[link].mean(scores)
    # By class, (classes, n): few long rows are quicker to add up than many short ones.
    grown = np.exp(scores.T - scores.T.max(axis=0))
    return np.asarray(grown / grown.sum(axis=0)).T


class Tree(Record, frozen=True, omit_defaults=True):
    """A tree of yes-or-no questions; inner node 0 is asked first, leaves are numbered apart.

    Attributes
    ----------
    column : (inner,) ints
        Which column each inner node asks about.
    cut : (inner,) floats
        A number: yes if the value is at most this. A category: yes if the value is this.
    is_level : (inner,) bools
        Whether the column is a category.
    yes, no : (inner,) ints
        The next node; a leaf is written as -1 - its number.
    value : (leaves,) floats
    gain : (inner,) floats
        By how much each question has lowered the loss; none where nobody has kept it.
    """

    column: tuple[int, ...]
    cut: tuple[float, ...]
    is_level: tuple[bool, ...]
    yes: tuple[int, ...]
    no: tuple[int, ...]
    value: tuple[float, ...]
    gain: tuple[float, ...] = ()

    def add_to(self, columns: Sequence[AnyArray], scores: FloatArray) -> None:
        """Add the value of each row's leaf to `scores`, (n,); columns are one array each."""
        waiting: list[tuple[int, IntArray | slice]] = [(0 if self.column else -1, slice(None))]
        while waiting:
            node, rows = waiting.pop()
            if node < 0:
                scores[rows] += self.value[-1 - node]
                continue
            values = columns[self.column[node]][rows]
            says_yes = values == self.cut[node] if self.is_level[node] else values <= self.cut[node]
            numbers = np.arange(len(scores)) if isinstance(rows, slice) else rows
            waiting.append((self.yes[node], numbers[says_yes]))
            waiting.append((self.no[node], numbers[~says_yes]))

    def check(self, n_columns: int) -> None:
        """Refuse questions about columns that are not there, and ways that lead in a circle."""
        inner, leaves = len(self.column), len(self.value)
        lengths = {len(part) for part in (self.cut, self.is_level, self.yes, self.no)} | {inner}
        follows = [*self.yes, *self.no]
        # Each node but the first follows one other, so that no way can lead back.
        everyone = sorted([*range(-leaves, 0), *range(1, inner)]) if inner else []
        if (
            lengths != {inner}
            or len(self.gain) not in (0, inner)
            or leaves != inner + 1
            or leaves > _LEAVES
            or sorted(follows) != everyone
            or any(not 0 <= column < n_columns for column in self.column)
            or any(
                0 <= child <= node
                for side in (self.yes, self.no)
                for node, child in enumerate(side)
            )
            or not np.isfinite([*self.cut, *self.value, *self.gain]).all()
        ):
            raise ModelFileError("a tree of the model is malformed.")

    @classmethod
    def from_lightgbm(cls, structure: dict[str, Any]) -> Self:
        """Read a tree from LightGBM's ``dump_model``; nodes are numbered from the top."""
        inner: list[tuple[int, float, bool, float, list[int]]] = []
        values: list[float] = []

        def visit(node: dict[str, Any]) -> int:
            if "split_feature" not in node:
                values.append(float(node["leaf_value"]))
                return -len(values)
            is_level = node["decision_type"] == "=="
            children = [0, 0]
            number = len(inner)
            gain = float(f"{node['split_gain']:.6g}")
            inner.append(
                (int(node["split_feature"]), float(node["threshold"]), is_level, gain, children)
            )
            children[:] = visit(node["left_child"]), visit(node["right_child"])
            return number

        visit(structure)
        return cls(
            column=tuple(node[0] for node in inner),
            cut=tuple(node[1] for node in inner),
            is_level=tuple(node[2] for node in inner),
            yes=tuple(node[4][0] for node in inner),
            no=tuple(node[4][1] for node in inner),
            value=tuple(values),
            gain=tuple(node[3] for node in inner),
        )


class Member(Record, frozen=True):
    """One fit: a linear start in the encoded columns, and trees that add to its scores.

    Attributes
    ----------
    weight : float
        Its share of the prediction.
    coef : (outputs, d) floats
        All zero where the start is a constant.
    intercept, low, high : (outputs,) floats
        The start is kept within the limits that it had on the rows it was fitted to: far from
        them, a straight line is a guess.
    trees : (outputs, rounds) trees
    """

    weight: float
    coef: tuple[tuple[float, ...], ...]
    intercept: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    trees: tuple[tuple[Tree, ...], ...]

    def scores(self, X: FloatArray, columns: Sequence[AnyArray]) -> FloatArray:
        """Return the scores of each row, (n, outputs)."""
        linear = X @ np.array(self.coef).T + np.array(self.intercept)
        scores = np.asarray(np.clip(linear, self.low, self.high))
        for output, trees in enumerate(self.trees):
            column = np.ascontiguousarray(scores[:, output])
            for tree in trees:
                tree.add_to(columns, column)
            scores[:, output] = column
        return scores

    def check(self, width: int, n_columns: int, outputs: int) -> None:
        """Refuse parts that do not fit together."""
        parts = (self.coef, self.intercept, self.low, self.high, self.trees)
        numbers = [self.weight, *self.intercept, *self.low, *self.high, *sum(self.coef, ())]
        if any(len(part) != outputs for part in parts) or not np.isfinite(numbers).all():
            raise ModelFileError("the parts of a boosted model do not fit together.")
        if any(len(row) != width for row in self.coef):
            raise ModelFileError("the number of coefficients does not fit the encoder.")
        for tree in sum(self.trees, ()):
            tree.check(n_columns)


class Levels(Record, frozen=True):
    """The mapping of columns of X to those of the trees: runs of indicators form one category.

    Attributes
    ----------
    runs : (k, 2) ints
        First column of each run and the one after its last; a run of one is a number.
    """

    runs: tuple[tuple[int, int], ...]

    @classmethod
    def find(cls, X: FloatArray) -> Self:
        """Combine neighbouring columns of zeros and ones into categories if no row has two ones.

        That is what an encoder makes of a category; and where columns exclude each other by
        chance, asking "is it this one?" is all the same.

        >>> Levels.find(np.array([[2.5, 0, 1, 1], [0.1, 1, 0, 1], [3.0, 0, 0, 0]])).runs
        ((0, 1), (1, 3), (3, 4))
        """
        is_binary = np.all((X == 0) | (X == 1), axis=0)
        starts, taken = [0], np.zeros(len(X))
        for place in range(X.shape[1]):
            new = not is_binary[place] or np.any(taken + X[:, place] > 1)
            if new and place > 0:
                starts.append(place)
            if new or place == 0:
                taken = np.zeros(len(X))
            taken = taken + X[:, place] if is_binary[place] else np.full(len(X), 2.0)
        return cls(runs=tuple(pairwise([*starts, X.shape[1]])))

    @property
    def categories(self) -> list[int]:
        """The columns of the trees that are categories."""
        return [place for place, (first, end) in enumerate(self.runs) if end - first > 1]

    def columns(self, X: FloatArray) -> list[FloatArray]:
        """Return the columns that trees see; a category is 0 where it is none of its levels."""
        columns = []
        for first, end in self.runs:
            if end - first == 1:
                columns.append(np.ascontiguousarray(X[:, first]))
                continue
            is_level = X[:, first:end] > 0.5
            columns.append(np.where(is_level.any(axis=1), 1.0 + np.argmax(is_level, axis=1), 0.0))
        return columns


def shares_of_gain(members: Sequence[Member], levels: Levels) -> FloatArray:
    """Return the share of each column of X in the gain of questions, weighted by the blend.

    A category's share is divided equally among its columns. Shares add up to 1, unless no tree has
    asked anything.
    """
    total = np.zeros(levels.runs[-1][1])
    for member in members:
        gains = np.zeros(len(levels.runs))
        for tree in sum(member.trees, ()):
            if tree.gain:
                np.add.at(gains, np.array(tree.column), tree.gain)
        gains *= member.weight / (gains.sum() or 1.0)
        for gain, (first, end) in zip(gains, levels.runs, strict=True):
            total[first:end] += gain / (end - first)
    return total / (total.sum() or 1.0)


def committee_means(
    members: Sequence[Member], levels: Levels, X: FloatArray, link: str
) -> FloatArray:
    """Return the joint prediction of the members: the weighted mean of their expected labels."""
    columns = levels.columns(X)
    total: FloatArray = np.zeros(())
    for member in members:
        scores = member.scores(X, columns)
        total = total + member.weight * means_of(scores if link == SOFTMAX else scores[:, 0], link)
    return total


class _TreesFile(Record, frozen=True):
    """The fields of a file of boosted trees."""

    schema: Literal["bagwise-trees/2"]
    software: Software
    family: str
    link: str
    label: str
    bounds: tuple[float, float] | None
    target: str | None
    classes: tuple[str, ...] | None
    levels: Levels
    members: tuple[Member, ...]
    encoder: Encoder
    trained_on: TrainedOn
    sha256: str


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TreeModel(Model):
    """Boosted trees of rows that need nothing but a table with their feature columns.

    It predicts as `RowModel` does, and needs no other package for it.

    Attributes
    ----------
    levels : Levels
        Which columns of X the trees see as one category.
    members : tuple of Member
        Fits whose expected labels are blended.
    family, link, label, encoder, trained_on, target, classes, bounds
        As in `Model`.
    """

    encoder: Encoder
    levels: Levels
    members: tuple[Member, ...]

    SCHEMA: ClassVar[str] = "bagwise-trees/2"
    FILE: ClassVar[Any] = _TreesFile
    WHAT: ClassVar[str] = "a file of boosted trees"

    def predict_encoded(self, X: FloatArray) -> FloatArray:
        """Return the expected label of each row of X, already encoded, and never clipped."""
        means = committee_means(self.members, self.levels, X, self.link)
        is_share = self.classes is not None and means.ndim == 1
        return np.column_stack([1 - means, means]) if is_share else means

    @property
    def n_trees(self) -> int:
        """Number of trees in all members."""
        return sum(len(trees) for member in self.members for trees in member.trees)

    def _repr_html_(self) -> str:
        gains = zip(self.encoder.feature_names, self.feature_importances_, strict=True)
        rows = [(name, f"{gain:.1%}") for name, gain in sorted(gains, key=lambda one: -one[1])]
        return html.grid(f"{self.label}: {self.n_trees} trees", [("", "share of the gain"), *rows])

    @property
    def feature_importances_(self) -> FloatArray:
        """Share of each column of X in what the trees have gained, as scikit-learn calls it.

        In the order of `get_feature_names_out`. A linear start is no part of it.
        """
        return shares_of_gain(self.members, self.levels)

    def importance(self) -> dict[str, float]:
        """Return how often trees ask about each feature, weighted by the blend, as shares.

        Which features trees ask about says little about how much they matter.
        """
        owners = [column.name for column in self.encoder.columns for _ in column.outputs]
        asked = dict.fromkeys(self.encoder.inputs, 0.0)
        for member in self.members:
            for tree in sum(member.trees, ()):
                for column in tree.column:
                    asked[owners[self.levels.runs[column][0]]] += member.weight
        total = sum(asked.values()) or 1.0
        return {name: count / total for name, count in asked.items()}

    def _own_fields(self) -> dict[str, Any]:
        return {
            "levels": to_plain(self.levels),
            "members": [to_plain(member) for member in self.members],
        }

    @classmethod
    def _from_file(cls, file: _TreesFile, common: dict[str, Any]) -> Self:
        width = len(file.encoder.feature_names)
        ends = [0, *(end for _, end in file.levels.runs)]
        starts = [*(first for first, _ in file.levels.runs), width]
        if ends != starts or any(first >= end for first, end in file.levels.runs):
            raise ModelFileError("the columns of the trees do not fit the encoder.")
        if file.link not in (*LINKS, SOFTMAX) or (file.link == SOFTMAX and not file.classes):
            raise ModelFileError("the link of the model is unknown or does not fit its classes.")
        outputs = len(file.classes or ()) if file.link == SOFTMAX else 1
        for member in file.members:
            member.check(width, len(file.levels.runs), outputs)
        if not file.members or abs(sum(member.weight for member in file.members) - 1) > 1e-6:
            raise ModelFileError("the weights of the members do not add up to 1.")
        return cls(**common, levels=file.levels, members=file.members)
