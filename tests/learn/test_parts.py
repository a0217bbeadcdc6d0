"""Bags in chunks: the fit of bags in memory, from sums over chunks."""

import functools
import pickle
import warnings
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from joblib import wrap_non_picklable_objects

from bagwise.bagging.bags import Bags
from bagwise.errors import BagwiseWarning, SeparationWarning
from bagwise.families import find_family
from bagwise.glm.data import BagData
from bagwise.glm.shrinkage import SlopePrior
from bagwise.glm.solver import Penalty, solve
from bagwise.learn.bag_data import read_bags
from bagwise.learn.fitting import Setting, fit_equations, problem_of
from bagwise.privacy.noise_laws import LAWS
from bagwise.rows.whitening import Moments

LABELS = {
    "gaussian": lambda eta, rng: eta + rng.normal(size=eta.size),
    "poisson": lambda eta, rng: rng.poisson(np.exp(0.5 * eta)),
    "bernoulli": lambda eta, rng: rng.random(eta.size) < 1 / (1 + np.exp(-eta)),
    "gamma": lambda eta, rng: rng.gamma(2.0, 0.5 * np.exp(0.5 * eta)),
    "inverse_gaussian": lambda eta, rng: rng.wald(np.exp(0.3 * eta), 3.0),
}


def pickled(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301 (our own)


@dataclass
class Here:
    """Chunks in memory; work and results go through pickle, as they do on the way to a machine."""

    chunks: list
    passes: int = 0

    def over(self, work, merge):
        self.passes += 1
        sent = pickled(wrap_non_picklable_objects(work))  # as Spark does it
        return functools.reduce(merge, [pickled(sent(chunk)) for chunk in self.chunks])


def moments_of(here):
    """Return those of the rows in chunks."""
    return here.over(lambda part: Moments.of(part.X), lambda one, other: one + other)


def example(family, noise=0.02, n=1500, seed=0):
    """Rows in bags of 5 to 9, and their labels with noise."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n), rng.uniform(size=n), rng.integers(0, 2, size=n)])
    bags = Bags.from_labels(np.sort(rng.integers(0, n // 7, size=n)))
    rows = 0.1 * X[:, 0] + 0.9 * bags.repeat(bags.mean(X[:, 0]))  # bags that differ
    X[:, 0] = 3 * rows
    y = LABELS[family](X @ [0.4, 0.3, 0.2] + 0.2, rng).astype(float)
    sd = noise * 7 / bags.sizes
    return X, bags, bags.mean(y) + sd * rng.normal(size=bags.n_bags), sd


def settings(
    family,
    *,
    noise=0.02,
    ridge="auto",
    fit_intercept=True,
    law="gaussian",
    centroids=True,
):
    """The same data at hand, and in chunks."""
    X, bags, labels, sd = example(family, noise)
    kind = find_family(family)
    options = (kind, "mean", "known-noise", fit_intercept, ridge, ("a", "b", "c"), LAWS[law])
    data = read_bags(X, labels[bags.index], bags=bags, noise_sd=sd[bags.index])
    chunks = []
    for part in np.array_split(np.arange(bags.n_bags), 4):
        rows = np.isin(bags.index, part)
        inside, index, counts = X[rows], bags.index[rows] - part[0], None
        if family == "gaussian" and centroids:
            inside, index, counts = bags.mean(X)[part], np.arange(part.size), bags.sizes[part]
        chunks.append(
            BagData(
                inside, Bags(index), labels[part], sd[part], np.ones(part.size),
                counts=counts, first=int(part[0]),
            )
        )  # fmt: skip
    here = Here(chunks[::-1])  # they come back in any order
    axes = Moments.of(X).axes
    sizes = SimpleNamespace(sizes=bags.sizes, n_bags=bags.n_bags, n_rows=bags.n_rows)
    in_parts = BagData(
        np.zeros((0, 3)), sizes, labels, sd, np.ones(bags.n_bags), axes=axes,
        parts=here.over, moments=moments_of(here),
    )  # fmt: skip
    return Setting(data, *options), Setting(in_parts, *options), here


def assert_same_fit(at_hand, in_parts, loss="bag", rtol=1e-6):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BagwiseWarning)
        theirs = fit_equations(at_hand, loss)
        ours = fit_equations(in_parts, loss)
    assert (ours.note, ours.converged, ours.rank) == (theirs.note, theirs.converged, theirs.rank)
    assert ours.freedom == theirs.freedom
    np.testing.assert_allclose(ours.table, theirs.table, rtol=rtol, atol=1e-9)
    assert (ours.dispersion is None) == (theirs.dispersion is None)
    if theirs.dispersion is not None:
        np.testing.assert_allclose(ours.dispersion, theirs.dispersion, rtol=rtol)
    assert (ours.covariance is None) == (theirs.covariance is None)
    if ours.covariance is not None:
        variances, expected = (np.diag(found.covariance) for found in (ours, theirs))
        np.testing.assert_allclose(variances, expected, rtol=2 * rtol)
    if theirs.unshrunk is not None:
        np.testing.assert_allclose(ours.unshrunk, theirs.unshrunk, rtol=rtol, atol=1e-9)
        np.testing.assert_allclose(ours.posterior, theirs.posterior, rtol=10 * rtol)
    return ours


@pytest.mark.parametrize("family", LABELS)
@pytest.mark.parametrize("noise", [0.02, 0.5])
def test_slopes_are_shrunk_as_in_memory(family, noise):
    assert_same_fit(*settings(family, noise=noise)[:2])


@pytest.mark.parametrize("family", LABELS)
@pytest.mark.parametrize(("noise", "ridge"), [(0.0, "auto"), (0.0, 0.1), (0.1, 0.1), (0.1, 0.0)])
def test_other_penalties_are_those_in_memory(family, noise, ridge):
    assert_same_fit(*settings(family, noise=noise, ridge=ridge)[:2])


@pytest.mark.parametrize("family", ["gaussian", "poisson", "gamma"])
def test_the_law_of_the_noise_is_followed(family):
    at_hand, in_parts, _ = settings(family, law="laplace")
    assert_same_fit(at_hand, in_parts)


@pytest.mark.parametrize("family", LABELS)
def test_without_an_intercept(family):
    assert_same_fit(*settings(family, fit_intercept=False)[:2])


def test_a_step_is_a_pass():
    _, in_parts, here = settings("poisson")
    problem = problem_of(in_parts, "bag")
    start = problem.constant_start()
    before = here.passes
    solution = solve(problem, start, penalty=Penalty.ridge(problem, 0.0))
    assert solution.converged
    # One for each beta that is looked at: the start, and the end of each step but the last.
    assert here.passes - before <= 8


def test_labels_that_are_told_apart_are_told_from_chunks():
    _, in_parts, here = settings("bernoulli", noise=0.0)
    told = np.arange(in_parts.data.labels.size) % 2.0
    for place, chunk in enumerate(here.chunks):
        labels, rows = told[chunk.first :][: chunk.bags.n_bags], chunk.X.copy()
        rows[:, 1] = labels[chunk.bags.index]
        here.chunks[place] = replace(chunk, labels=labels, X=rows)
    data = replace(in_parts.data, labels=told, moments=moments_of(here), axes=moments_of(here).axes)
    with pytest.warns(SeparationWarning):
        fitted = fit_equations(replace(in_parts, data=data), "bag", covariance="cautious")
    assert fitted.covariance is None


@pytest.mark.parametrize("family", LABELS)
@pytest.mark.parametrize("ridge", ["auto", 0.1])
def test_instance_loss_is_that_in_memory(family, ridge):
    at_hand, in_parts, _ = settings(family, ridge=ridge, centroids=False)
    at_hand, in_parts = (replace(setting, rule="equal") for setting in (at_hand, in_parts))
    assert_same_fit(at_hand, in_parts, "instance")


@pytest.mark.parametrize("loss", ["bag", "instance"])
@pytest.mark.parametrize(("family", "noise"), [("poisson", 0.1), ("gamma", 0.0)])
def test_exposure_is_that_in_memory(family, noise, loss):
    at_hand, in_parts, here = settings(family, noise=noise)
    offset = np.random.default_rng(1).normal(size=at_hand.data.bags.n_rows)
    rule = "equal" if loss == "instance" else "known-noise"
    at_hand = replace(at_hand, data=replace(at_hand.data, offset=offset), rule=rule)
    index = at_hand.data.bags.index
    for place, chunk in enumerate(here.chunks):
        mine = (index >= chunk.first) & (index < chunk.first + chunk.bags.n_bags)
        here.chunks[place] = replace(chunk, offset=offset[mine])
    data = replace(in_parts.data, moments=moments_of(here), axes=moments_of(here).axes)
    assert_same_fit(at_hand, replace(in_parts, data=data, rule=rule), loss)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(("noise", "ridge"), [(0.05, "auto"), (0.05, 0.1), (0.0, "auto")])
def test_classes_are_those_in_memory(noise, ridge, single):
    at_hand, in_parts, here = settings("bernoulli", noise=noise, ridge=ridge)
    if single:
        at_hand, in_parts, here = in_bags_of_one(at_hand, in_parts, here)
    bags = at_hand.data.bags
    rng = np.random.default_rng(5)
    drawn = np.eye(3)[rng.integers(0, 3, size=bags.n_rows)]
    drawn[at_hand.data.X[:, 0] > 1] = [0, 0, 1]
    shares = bags.mean(drawn) + noise * rng.normal(size=(bags.n_bags, 3))
    for place, chunk in enumerate(here.chunks):
        labels = shares[chunk.first :][: chunk.bags.n_bags]
        here.chunks[place] = replace(chunk, labels=labels)
    kind = find_family("multinomial")
    at_hand, in_parts = (
        replace(setting, family=kind, data=replace(setting.data, labels=shares))
        for setting in (at_hand, in_parts)
    )
    assert_same_fit(at_hand, in_parts, rtol=1e-8)


def in_bags_of_one(at_hand, in_parts, here):
    """The first rows of all chunks, each a bag."""
    first, sd = 0, np.full(200, at_hand.data.noise_sd.max())
    for place, chunk in enumerate(here.chunks):
        here.chunks[place] = BagData(
            chunk.X[:50], Bags.singletons(50), np.zeros(50), sd[:50], np.ones(50), first=first
        )
        first += 50
    X, bags = np.concatenate([chunk.X for chunk in here.chunks]), Bags.singletons(200)
    data = BagData(X, bags, np.zeros(200), sd, np.ones(200))
    found = moments_of(here)
    elsewhere = replace(data, X=X[:0], axes=found.axes, parts=here.over, moments=found)
    return replace(at_hand, data=data), replace(in_parts, data=elsewhere), here


def test_sums_serve_for_every_dispersion():
    at_hand, in_parts, _ = settings("poisson")
    ours, theirs = problem_of(in_parts, "bag"), problem_of(at_hand, "bag")
    start = theirs.constant_start() + np.array([0.3, -0.2, 0.1, 0.0])
    prior = SlopePrior.of(theirs, at_hand.data.X, start)
    models = [problem.reweighted(start).working(start) for problem in (ours, theirs)]
    for excess in (0.0, 1e-4, 0.01, 1.0, 30.0, 1e5):  # counts have a dispersion of 1 or more
        here, there = (model.spectrum(prior.basis, prior.free, 1 + excess) for model in models)
        np.testing.assert_allclose(here.values, there.values, rtol=1e-9)
        np.testing.assert_allclose(here.squares, there.squares, rtol=1e-8)
        np.testing.assert_allclose(here.rest, there.rest, rtol=1e-11)
    most, expected = (model.most_dispersion() for model in models)
    np.testing.assert_allclose(most, expected, rtol=1e-10)


def test_blocks_of_many_bags_are_one_linear_model():
    """More bags than are looked at together, before any has a weight."""
    rng = np.random.default_rng(2)
    X, bags = rng.normal(size=(20_000, 2)), Bags(np.arange(20_000) // 2)
    labels = bags.mean(rng.poisson(np.exp(X @ [0.3, -0.2])).astype(float))
    data = read_bags(X, labels[bags.index], bags=bags, noise_sd=0.1)
    setting = Setting(data, find_family("poisson"), "mean", "known-noise", True, "auto")
    problem = problem_of(setting, "bag")
    beta = problem.constant_start() + np.array([0.2, -0.1, 0.0])
    jacobian, residuals, _ = problem.near(beta)
    mean = np.exp(problem.design.standardise(X) @ beta)
    np.testing.assert_allclose(residuals, labels - bags.mean(mean), atol=1e-12)
    expected = bags.mean(problem.design.standardise(X) * mean[:, None])
    np.testing.assert_allclose(jacobian, expected, atol=1e-12)
