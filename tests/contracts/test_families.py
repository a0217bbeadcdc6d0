"""What every family promises, run over the registry."""

import numpy as np
import pytest

from bagwise import BaggedGLM, bag_deviance
from bagwise.bagging.bags import Bags
from bagwise.errors import LabelError, StrategyError
from bagwise.families import FAMILIES, find_family
from bagwise.learn.fitting import LOSSES
from tests import stats

EVERY = list(FAMILIES.values())
SCALAR = [family for family in EVERY if not family.has_classes]
each = pytest.mark.parametrize("family", EVERY, ids=str)
each_scalar = pytest.mark.parametrize("family", SCALAR, ids=str)
STEP = 1e-20


ETA = np.linspace(-3, 3, 13)


def derivative(function, eta):
    """By complex step: exact to rounding, since nothing is subtracted."""
    return function(eta + STEP * 1j).imag / STEP


@each_scalar
def test_the_parts_of_a_family_are_derivatives_of_each_other(family):
    eta = ETA
    natural_slope = family.natural_slope(eta)
    np.testing.assert_allclose(derivative(family.natural, eta), natural_slope, rtol=1e-12)
    np.testing.assert_allclose(
        derivative(family.cumulant, eta), family.mean(eta) * natural_slope, rtol=1e-12
    )
    np.testing.assert_allclose(derivative(family.mean, eta), family.slope(eta), rtol=1e-12)
    np.testing.assert_allclose(family.slope(eta), family.variance(eta) * natural_slope, rtol=1e-12)


@each_scalar
def test_the_gradient_of_the_loss_is_the_residual(family):
    eta = ETA
    for y in (-2.0, 0.3, 5.0):  # noise carries labels out of every range
        found = derivative(lambda at, y=y: family.loss(np.array(y), at), eta)
        expected = (family.mean(eta) - y) * family.natural_slope(eta)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_gradient_of_the_loss_is_the_residual_for_classes():
    family = find_family("multinomial")
    eta = np.random.default_rng(0).normal(size=(20, 3))
    shares = np.array([0.1, -0.3, 0.9, 0.3])
    for c in range(3):
        forward, back = (eta + h * np.eye(3)[c] for h in (1e-6, -1e-6))
        found = (family.loss(shares, forward) - family.loss(shares, back)) / 2e-6
        np.testing.assert_allclose(found, (family.mean(eta) - shares)[:, c + 1], atol=1e-8)
        slope = (family.mean(forward) - family.mean(back))[:, 1:] / 2e-6
        np.testing.assert_allclose(slope, family.slope(eta)[:, :, c], atol=1e-8)


@each_scalar
def test_the_link_undoes_the_mean(family):
    eta = ETA
    np.testing.assert_allclose(family.predictor(family.mean(eta)), eta, rtol=1e-8, atol=1e-10)
    inside = family.interior(-1.0), family.interior(0.0), family.interior(0.7)
    assert np.isfinite(family.predictor(np.array(inside))).all()


@each_scalar
def test_the_mean_is_monotone_and_stays_finite(family):
    eta = ETA
    signs = np.sign(np.diff(family.mean(eta)))
    assert abs(signs.sum()) == signs.size
    assert np.isfinite(family.mean(np.array([-700.0, 700.0]))).all()


@each_scalar
def test_samples_have_the_mean_and_variance_they_should(family):
    rng = np.random.default_rng(0)
    phi = 1.0 if family.knows_dispersion else 0.3
    for eta in (0.4, 0.8):
        drawn = family.sample(np.full(50_000, eta), phi=phi, rng=rng)
        mean, variance = family.mean(np.array(eta)), phi * family.variance(np.array(eta))
        assert stats.mean_is(drawn, float(mean))
        squares = (drawn - mean) ** 2
        assert stats.mean_is(squares, float(variance))
        assert not stats.mean_is(squares, float(variance) * 1.3)


def test_classes_are_drawn_by_their_chances():
    family, rng = find_family("multinomial"), np.random.default_rng(0)
    eta = np.tile([0.5, -1.0], (50_000, 1))
    drawn = family.sample(eta, phi=1.0, rng=rng)
    assert np.array_equal(drawn.sum(axis=1), np.ones(50_000))
    for c, chance in enumerate(family.mean(eta)[0]):
        assert stats.mean_is(drawn[:, c], chance)
        assert not stats.mean_is(drawn[:, c], chance + 0.02)


@each
def test_it_is_found_by_its_name(family):
    assert find_family(family.name, family.link) == family
    assert find_family(family) is family


@each
def test_impossible_labels_are_refused_without_quoting_them(family):
    if np.isinf(family.label_range).all():
        family.check_labels(np.array([-1e9, 1e9]))
        return
    bad = np.array([0.2, -918273.0, 0.3])
    labels = np.column_stack([bad, 1 - bad]) if family.has_classes else bad
    with pytest.raises(LabelError, match="not possible in the family") as caught:
        family.check_labels(labels)
    assert "918273" not in str(caught.value)
    if family.has_classes:
        with pytest.raises(LabelError, match="do not add up"):
            family.check_labels(np.array([[0.2, 0.2]]))


def test_unknown_names_and_links_are_refused():
    with pytest.raises(StrategyError, match="unknown family 'cauchy'; known are gaussian"):
        find_family("cauchy")
    with pytest.raises(StrategyError, match="Did you mean 'poisson'"):
        find_family("poison")
    with pytest.raises(StrategyError, match="unknown link of the family poisson 'log-log'"):
        find_family("poisson", "log-log")


@each
def test_it_says_what_it_is(family):
    assert family.summary
    assert family.link_words
    assert set(family.losses) <= set(LOSSES)
    assert family.range_text


@each_scalar
def test_the_loss_by_the_mean_is_the_loss(family):
    eta = ETA
    mean = family.mean(eta)
    assert family.can_expect(mean).all()
    np.testing.assert_allclose(
        family.loss_by_mean(np.array(0.3), mean), family.loss(np.array(0.3), eta), rtol=1e-8
    )


@each
def test_every_loss_that_it_claims_can_be_fitted_and_no_other(family):
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-1, 1, size=(400, 1)), axis=0)
    eta = 1.0 + 0.5 * X[:, 0]
    eta = np.column_stack([eta, -eta]) if family.has_classes else eta
    y = family.sample(eta, phi=1.0 if family.knows_dispersion else 0.3, rng=rng)
    bags = Bags(np.arange(400) // 2)
    labels = {"mean": bags.repeat(bags.mean(y)), "pick": np.repeat(y[::2], 2, axis=0)}
    for loss in LOSSES:
        kind = "pick" if loss == "mixture" else "mean"
        model = BaggedGLM(family, loss=loss, label_kind=kind, ridge=0.01)
        if loss in family.losses:
            assert np.isfinite(model.fit(X, labels[kind], bags=bags).coef_).all()
        else:
            with pytest.raises(StrategyError, match=f"loss='{loss}'"):
                model.fit(X, labels[kind], bags=bags)


@each
def test_models_are_scored_by_its_deviance(family):
    rng = np.random.default_rng(0)
    eta = np.full((50, 2) if family.has_classes else 50, 0.4)
    mean, y = family.mean(eta), family.sample(eta, phi=1.0, rng=rng)
    bags = np.arange(50) // 5
    labels = Bags(bags).repeat(Bags(bags).mean(y))
    assert np.isfinite(bag_deviance(labels, mean, family=family, bags=bags))
