"""The density of label noise plus privacy noise: against quadrature, draws and the mechanisms."""

import itertools

import numpy as np
import pytest
from scipy import integrate
from scipy import stats as distributions

from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.laws import Gaussian, Laplace, Staircase
from bagwise.privacy.noise_laws import find_law, information, log_density
from bagwise.rng import SimulatedNoise
from tests import stats
from tests.privacy.events import bag_means

LAWS = [
    Gaussian(1000), Laplace(1000), Staircase(4000, 1000, 800), Staircase(1000, 1000, 417),
    Staircase(16_000, 1000, 80),  # of which hardly any noise is beyond the first step
]  # fmt: skip
SPREADS = [0.25, 0.7, 2.5]


def noise_density(law, z):
    """Noise of variance 1 without the normal, written down again."""
    if law.kind == "gaussian":
        return distributions.norm.pdf(z)
    if law.kind == "laplace":
        return distributions.laplace.pdf(z, scale=np.sqrt(0.5))
    fall, levels, inner = np.exp(-law.shift / law.scale), np.arange(400), law.inner / law.shift
    upper = levels + np.array([[inner], [1.0]])
    lower = levels + np.array([[0.0], [inner]])
    height = fall ** (levels + np.array([[0.0], [1.0]]))
    mass = 2 * np.sum(height * (upper - lower))
    width = 1 / np.sqrt(2 * np.sum(height * (upper**3 - lower**3)) / 3 / mass)
    level = np.floor(np.abs(z) / width + 1 - inner)
    return fall**level / mass / width


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.kind}")
@pytest.mark.parametrize("spread", SPREADS)
def test_density_is_the_convolution_of_noise_and_normal(law, spread):
    differs = []
    for r in (-3.0, -1.6, -0.4, 0.0, 0.1, 2.2, 6.0):
        grid = np.linspace(r - 9 * spread, r + 9 * spread, 400_001)
        expected = integrate.trapezoid(
            noise_density(law, grid) * distributions.norm.pdf(r - grid, scale=spread), grid
        )
        value, _ = log_density(law, np.array([r]), np.array([spread]), np.ones(1))
        assert np.exp(value[0]) == pytest.approx(expected, rel=2e-4)
        off, _ = log_density(law, np.array([r]), np.array([1.1 * spread]), np.ones(1))
        differs.append(abs(np.exp(off[0]) / expected - 1) > 2e-3)
    assert sum(differs) >= 2  # the twin: another spread is another density, but on a flat step


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.kind}")
@pytest.mark.parametrize("spread", SPREADS)
def test_score_is_the_slope_of_the_density(law, spread):
    r = np.linspace(-40, 40, 1601)
    s, one, h = np.full(r.size, spread), np.ones(r.size), 1e-5
    above, below = (log_density(law, r + step, s, one)[0] for step in (h, -h))
    _, score = log_density(law, r, s, one)
    np.testing.assert_allclose(score, -(above - below) / (2 * h), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.kind}")
def test_information_is_the_variance_of_the_score(law):
    rng, n = np.random.default_rng(0), 400_000
    for spread in SPREADS:
        grid = np.linspace(-60, 60, 2_000_001)
        chances = np.cumsum(noise_density(law, grid))
        noise = np.interp(rng.random(n), chances / chances[-1], grid)
        r = 3.0 * (noise + spread * rng.standard_normal(n))
        sd, t = np.full(n, 3.0 * spread), np.full(n, 3.0)
        _, score = log_density(law, r, sd, t)
        told = information(law, sd[:1], t[:1])[0]
        assert stats.mean_is(score**2, told)
        assert not stats.mean_is(score**2, 1.1 * told)
        assert told >= (1 - 1e-3) / (9 * (1 + spread**2))  # no less than least squares have


def test_staircase_law_is_that_of_its_mechanism():
    event = bag_means(ExactCalibration(3.0, 0.0, (0.0, 1.0), noise="staircase"))
    drawn = event.noise.draw(200_000, SimulatedNoise(0)) / event.law.sd
    cells = np.linspace(-3, 3, 25)
    grid = np.linspace(-3, 3, 600_001)
    heights = noise_density(event.law, grid)
    mass = np.array(
        [
            integrate.trapezoid(heights[(grid >= a) & (grid <= b)], dx=grid[1] - grid[0])
            for a, b in itertools.pairwise(cells)
        ]
    )
    counts, _ = np.histogram(drawn, cells)
    beyond = drawn.size - counts.sum()
    observed = np.append(counts, beyond)
    expected = np.append(mass, 1 - mass.sum()) * drawn.size
    assert distributions.chisquare(observed, expected * drawn.size / expected.sum()).pvalue > 1e-6
    laplace = np.diff(distributions.laplace.cdf(cells, scale=np.sqrt(0.5)))
    wrong = np.append(laplace, 1 - laplace.sum()) * drawn.size
    assert distributions.chisquare(observed, wrong).pvalue < 1e-9


def test_labels_without_noise_are_normal():
    r, s = np.array([0.3, -2.0]), np.array([1.0, 2.0])
    value, score = log_density(Laplace(1), r, s, np.zeros(2))
    np.testing.assert_allclose(value, distributions.norm.logpdf(r, scale=s))
    np.testing.assert_allclose(score, r / s**2)
    np.testing.assert_allclose(information(Laplace(1), s, np.zeros(2)), 1 / s**2)


def test_laws_have_names():
    assert find_law("laplace") == Laplace(1)
    law = Staircase(2000, 1000, 800)
    assert find_law(law) is law
    with pytest.raises(Exception, match="unknown noise 'lapace'"):
        find_law("lapace")
