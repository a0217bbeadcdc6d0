"""The expected error is what labels drawn from the belief would leave."""

import dataclasses

import numpy as np
import pytest

from bagwise.annotate.designs import Selection, find_design
from bagwise.annotate.expected import (
    CENTROID,
    EVERY_ROW,
    OWN_ROW,
    Outlook,
    expected_of,
    look_ahead,
)
from bagwise.annotate.pool import Pool
from bagwise.planner.prior import Prior
from tests import stats


def make_pool(misfit=0.0, n=200, d=3):
    X = np.random.default_rng(8).normal(size=(n, d)) @ np.diag([1.0, 5.0, 0.2])
    return Pool(X, Prior(2.0, 1.0, misfit=misfit))


def selection_of(pool, name, budget=20):
    return find_design(name).draw(pool, budget=budget, pick="random", rng=np.random.default_rng(1))[
        0
    ]


def posterior_mean(Z, y, noise, signal):
    """Return coefficients of white columns and an intercept, by the textbook."""
    p = Z.shape[1] - 1
    precision = np.diag([p / signal**2] * p + [0.0])
    return np.linalg.solve(Z.T @ (Z / noise[:, None]) + precision, Z.T @ (y / noise))


def simulate(pool, selection, use, rng):
    """Return the squared error of predictions in one draw of slopes, misfit, picks and noise."""
    prior, white = pool.prior, pool.white.rows
    Z = np.column_stack([white, np.ones(len(white))])
    beta = np.append(prior.signal_sd * pool.root @ rng.normal(size=white.shape[1]), 0.7)
    truth = Z @ beta
    left = np.zeros(len(Z))
    if prior.misfit:
        sd = prior.signal_sd * np.sqrt(prior.misfit)
        left = sd * pool.functions[:, rng.integers(pool.functions.shape[1])]
    labels = truth + left + prior.label_noise_sd * rng.normal(size=len(Z))
    signal, rows = prior.signal_sd, selection.rows
    if use == OWN_ROW:
        noise = np.full(rows.size, prior.label_noise_sd**2)
        found = posterior_mean(Z[rows], labels[rows], noise, signal)
        return float(np.mean((Z @ (found - beta)) ** 2))
    # Which row of a bag it is, is drawn again: the expected error of a bag's label counts that.
    bags = selection.bags
    picked = [rng.choice(np.flatnonzero(bags.index == bag)) for bag in range(bags.n_bags)]
    y = labels[picked]
    if use == CENTROID:
        inside = bags.variance(white @ pool.root).sum(axis=1) * signal**2
        if prior.misfit:
            inside += bags.variance(pool.functions).mean(axis=1) * prior.misfit * signal**2
        found = posterior_mean(bags.mean(Z), y, inside + prior.label_noise_sd**2, signal)
    else:
        found = np.linalg.lstsq(Z, y[bags.index])[0]
    return float(np.mean((Z @ (found - beta)) ** 2))


@pytest.mark.parametrize("misfit", [0.0, 0.3])
@pytest.mark.parametrize(
    ("design", "use"),
    [
        ("rows-v-optimal", OWN_ROW),
        ("bags-kmeans", OWN_ROW),
        ("bags-kmeans", CENTROID),
        ("bags-kmeans", EVERY_ROW),
    ],
)
def test_labels_drawn_from_the_belief_leave_the_expected_error(design, use, misfit):
    pool = make_pool(misfit)
    selection = selection_of(pool, design)
    expected = next(e for e in expected_of(pool, selection, design=design) if e.use == use)
    rng = np.random.default_rng(2)
    drawn = np.array([simulate(pool, selection, use, rng) for _ in range(1500)])
    assert stats.mean_is(drawn, expected.risk.total)
    assert not stats.mean_is(drawn, 1.4 * expected.risk.total)
    assert not stats.mean_is(drawn, 0.7 * expected.risk.total)


def test_labels_bought_before_count():
    pool = make_pool()
    selection = selection_of(pool, "rows-random")
    alone = expected_of(pool, selection, design="x")[0].risk.total
    rest = np.setdiff1d(np.arange(200), selection.rows)[:30]
    more = dataclasses.replace(pool, labelled=rest)
    both = expected_of(more, selection, design="x")[0].risk.total
    together = Selection(np.concatenate([rest, selection.rows]), np.ones(50))
    assert both < alone
    assert both == pytest.approx(expected_of(pool, together, design="x")[0].risk.total)


def look(pool, *names, budget=20):
    designs = [find_design(name) for name in names]
    return look_ahead(pool, designs, budget=budget, pick="random", rng=np.random.default_rng(0))


def test_it_says_so_when_bags_do_not_help():
    found = look(make_pool(), "bags-random", "rows-random")
    assert "Bags do not help to choose rows here" in found.verdict()
    assert "A label says most about its own row" in found.verdict()


def test_it_says_so_when_they_do():
    # Few labels, and columns of levels: random rows often miss what bags never do.
    rng = np.random.default_rng(0)
    levels = np.eye(5)[rng.integers(5, size=600)][:, 1:]
    pool = Pool(np.column_stack([rng.uniform(size=600), levels]), Prior(2.0, 1.0))
    found = look(pool, "bags-kmeans", "rows-random", budget=25)
    assert "Bags help to choose rows here: bags-kmeans is expected to leave 0." in found.verdict()


def test_designs_are_ranked_by_regret_and_misfit_turns_the_ranking():
    names = ("rows-v-optimal", "rows-random", "rows-spread")
    assert look(make_pool(0.0), *names).entries[0].design == "rows-v-optimal"
    assert look(make_pool(2.0), *names).entries[0].design != "rows-v-optimal"
    entries = look(make_pool(0.1), *names).entries
    assert [e.regret for e in entries] == sorted(e.regret for e in entries)


def test_a_table_for_people_compares_with_random_rows():
    found = look(make_pool(), "bags-kmeans", "rows-random")
    assert isinstance(found, Outlook)
    cells = {(design, use): ratio for design, use, _, ratio in found.cells()[1:]}
    assert cells["rows-random", OWN_ROW] == "1.00"
    assert len(cells) == 4
