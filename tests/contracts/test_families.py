"""What every family promises, run over the registry."""

import numpy as np
import pytest

from bagwise.families import FAMILIES, find_family
from tests import stats

each = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
ETA = np.linspace(-3, 3, 13)


@each
def test_mean_and_variance_are_derivatives_of_the_cumulant(family):
    step = 1e-20j
    np.testing.assert_allclose(family.mean(ETA), family.cumulant(ETA + step).imag / 1e-20)
    np.testing.assert_allclose(family.variance(ETA), family.mean(ETA + step).imag / 1e-20)


@each
def test_the_mean_increases_and_stays_finite(family):
    assert np.all(np.diff(family.mean(ETA)) > 0)
    assert np.isfinite(family.mean(np.array([-700.0, 700.0]))).all()


@each
def test_samples_have_the_mean_and_variance_they_should(family):
    rng = np.random.default_rng(0)
    phi = 0.7
    for eta in (-0.5, 0.8):
        drawn = family.sample(np.full(50_000, eta), phi=phi, rng=rng)
        mean, variance = family.mean(np.array(eta)), phi * family.variance(np.array(eta))
        assert stats.mean_is(drawn, float(mean))
        assert stats.mean_is((drawn - mean) ** 2, float(variance))
        assert not stats.mean_is((drawn - mean) ** 2, float(variance) * 1.1)


@each
def test_it_is_found_by_its_name(family):
    assert find_family(family.name) is family
    assert find_family(family) is family
