"""What every strategy promises, run over the registry: a new one is tested by being listed."""

import dataclasses
import itertools
import typing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from bagwise.bagging import (
    STRATEGIES,
    BaggingStrategy,
    assign_bags,
    find_strategy,
    spell_settings,
)
from bagwise.bagging.bags import Bags
from bagwise.errors import BagTooSmallError, StrategyError


def variants():
    """Every strategy with every value of its literal and boolean parameters."""
    for kind in STRATEGIES.values():
        hints = typing.get_type_hints(kind)
        options = {}
        for field in dataclasses.fields(kind):
            hint = hints[field.name]
            if typing.get_origin(hint) is typing.Literal:
                options[field.name] = typing.get_args(hint)
            elif hint is bool:
                options[field.name] = (False, True)
        for values in itertools.product(*options.values()):
            yield kind(**dict(zip(options, values, strict=True)))


def marks_of(strategy):
    """Longer searches keep the same promises, in tests that take longer."""
    return () if getattr(strategy, "effort", "fast") == "fast" else pytest.mark.slow


ALL = [
    pytest.param(strategy, id=repr(strategy), marks=marks_of(strategy)) for strategy in variants()
]
LABEL_AGNOSTIC = [param for param in ALL if not param.values[0].uses_scores]
each = pytest.mark.parametrize("strategy", ALL)


def leaves_rows_out(strategy):
    return bool(getattr(strategy, "half", False))


def assign(strategy, n=53, *, bag_size=5, seed=0, X=None, scores=None):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 3)) if X is None else X
    scores = rng.normal(size=n) if scores is None else scores
    generator = np.random.default_rng(seed)
    return assign_bags(strategy, X, scores, bag_size=bag_size, rng=generator)


@each
def test_it_is_a_frozen_strategy_found_by_its_name(strategy):
    assert isinstance(strategy, BaggingStrategy)
    assert dataclasses.is_dataclass(strategy)
    assert type(find_strategy(strategy.name)) is type(strategy)
    with pytest.raises(dataclasses.FrozenInstanceError):
        strategy.anything = 1


@each
def test_it_says_what_it_is(strategy):
    assert strategy.summary
    assert len(strategy.summary) < 60
    assert ";" not in strategy.summary  # it stands in lists
    for trait in ("accepts_sparse", "needs_features", "compact", "free_sizes", "planned"):
        assert type(getattr(strategy, trait)) is bool


@each
def test_settings_read_back(strategy):
    settings = dict(setting.split("=", 1) for setting in spell_settings(strategy))
    assert find_strategy(strategy.name, settings) == strategy


@each
def test_sparse_features_where_it_says_so(strategy):
    if not strategy.accepts_sparse:
        return
    X = np.random.default_rng(1).normal(size=(53, 3))
    assert assign(strategy, X=sparse.csr_array(X)).sizes.min() >= 5


@each
@given(
    n=st.integers(1, 80), bag_size=st.integers(1, 20), seed=st.integers(0, 5), ties=st.booleans()
)
def test_sizes_and_coverage(strategy, n, bag_size, seed, ties):
    if n < bag_size:
        return
    scores = np.zeros(n) if ties else None
    X = np.ones((n, 2)) if ties else None
    bags = assign(strategy, n, bag_size=bag_size, seed=seed, scores=scores, X=X)
    assert isinstance(bags, Bags)
    assert bags.n_rows == n
    assert bags.sizes.min() >= bag_size
    if leaves_rows_out(strategy):
        assert bags.in_bag.sum() >= (n - bags.n_bags) // 2
    else:
        assert bags.in_bag.all()
        assert bags.n_bags <= n // bag_size


def together_with_the_next(bags):
    """How many rows share their bag with the row below."""
    index = bags.index
    return int(np.sum((index[1:] == index[:-1]) & (index[1:] >= 0)))


@each
@pytest.mark.parametrize("features", ["constant", "boolean", "none"])
def test_bags_do_not_follow_the_order_of_the_table(strategy, features):
    # A table may be sorted by its label. If rows that no feature tells apart were put together by
    # their place, bags would show labels, whatever the noise.
    n, seeds = 400, 10
    X = {
        "constant": np.ones((n, 2)),
        "boolean": (np.arange(n) % 2).astype(float)[:, None],
        "none": np.ones((n, 0)),
    }[features]
    counted = sum(
        together_with_the_next(assign(strategy, n, X=X, scores=np.zeros(n), seed=seed))
        for seed in range(seeds)
    )
    # At random a row shares its bag of 5 to 9 with a given other one with probability 8/399 at
    # most: 80 of 3990 in all, with a standard deviation of 9. Consecutive bags would give 3192.
    assert counted < 80 + 6 * 9
    in_order = Bags(np.arange(n) // 5)
    assert together_with_the_next(in_order) * seeds > 3000


@each
def test_the_same_seed_gives_the_same_bags_and_features_stay_as_they_are(strategy):
    X = np.random.default_rng(1).normal(size=(53, 3))
    kept, first = X.copy(), assign(strategy, seed=3, X=X)
    assert np.array_equal(first.index, assign(strategy, seed=3, X=X).index)
    assert np.array_equal(X, kept)


@each
def test_ties_are_broken_by_the_generator_and_not_by_the_row_order(strategy):
    tied = [assign(strategy, seed=seed, X=np.ones((53, 3)), scores=np.zeros(53)) for seed in (1, 2)]
    if tied[0].n_bags > 1:
        assert not np.array_equal(tied[0].index, tied[1].index)


@pytest.mark.parametrize("strategy", LABEL_AGNOSTIC)
def test_label_agnostic_strategies_do_not_read_scores(strategy):
    other = np.random.default_rng(9).normal(size=53)
    expected = assign(strategy).index
    assert np.array_equal(assign(strategy, scores=other).index, expected)
    without = assign_bags(
        strategy,
        np.random.default_rng(1).normal(size=(53, 3)),
        None,
        bag_size=5,
        rng=np.random.default_rng(0),
    )
    assert np.array_equal(without.index, expected)


@each
def test_too_few_rows_or_an_impossible_size(strategy):
    with pytest.raises(BagTooSmallError, match="4 rows cannot fill one bag of 5"):
        assign(strategy, n=4)
    for bag_size, message in (
        (0, "at least 1"),
        (-3, "at least 1"),
        (2.5, "whole number"),
        (True, "whole"),
    ):
        with pytest.raises(BagTooSmallError, match=message):
            assign(strategy, bag_size=bag_size)


@each
def test_scores_are_checked_where_they_are_used(strategy):
    if not strategy.uses_scores:
        return
    with pytest.raises(StrategyError, match="needs scores"):
        assign_bags(strategy, np.ones((9, 1)), None, bag_size=2, rng=np.random.default_rng(0))
    with pytest.raises(StrategyError, match="one per row"):
        assign(strategy, scores=np.ones(4))
    with pytest.raises(StrategyError, match="NaN"):
        assign(strategy, scores=np.full(53, np.nan))


def test_a_strategy_that_breaks_its_word_is_caught():
    class Greedy(BaggingStrategy):
        name = "greedy"

        def assign(self, X, scores, *, bag_size, rng):
            return Bags(np.arange(X.shape[0]))

    with pytest.raises(StrategyError, match="broke its contract"):
        assign(Greedy())
