import multiprocessing
import tracemalloc
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial
from math import floor

import numpy as np
import pytest
from joblib import Parallel, delayed
from scipy import stats as distributions

from bagwise.errors import BudgetError
from bagwise.privacy import samplers
from bagwise.privacy.samplers import LARGEST_SCALE, discrete_gaussian, discrete_laplace
from bagwise.rng import NoiseSource, SecureNoise, SimulatedNoise
from tests import stats

SAMPLERS = {"laplace": discrete_laplace, "gaussian": discrete_gaussian}
SOURCES = {"simulated": lambda: SimulatedNoise(2024), "secure": SecureNoise}
EXACT = Context(prec=120)


class Scripted(NoiseSource):
    """Words that a test has chosen, in order."""

    name = "scripted"
    is_secret = False

    def __init__(self, *words):
        self.left = list(words)

    def words(self, count):
        drawn, self.left = self.left[:count], self.left[count:]
        assert len(drawn) == count, "more words were drawn than the test foresaw"
        return np.array(drawn, dtype=np.uint64)


def weights_of(kind, support, scale, shift=1, inner=1):
    """How likely the noise is at whole numbers, but for a factor."""
    if kind == "staircase":
        periods, rest = np.divmod(np.abs(support), shift)
        return np.exp(-shift / scale) ** np.where(rest < inner, periods, periods + 1).astype(float)
    support = np.asarray(support, dtype=float)
    return np.exp(-np.abs(support) / scale if kind == "laplace" else -((support / scale) ** 2) / 2)


def fits(draws, kind, scale, **steps):
    """Chi-square test of the draws against the exact probabilities, tails pooled."""
    reach = int(np.abs(draws).max()) + int(60 * scale) + steps.get("shift", 0)
    weights = weights_of(kind, np.arange(-reach, reach + 1), scale, **steps)
    expected = draws.size * weights / weights.sum()
    observed = np.bincount(draws + reach, minlength=2 * reach + 1)
    # Every cell expects at least 20: what lies beyond is pooled, with a neighbour if it must.
    first, last = np.flatnonzero(expected >= 20)[[0, -1]]
    shift = int(expected[:first].sum() < 20)
    edges = [0, *range(first + shift, last + 2 - shift)]
    seen, stated = (np.add.reduceat(cells, edges) for cells in (observed, expected))
    return bool(distributions.chisquare(seen, stated).pvalue > stats.ALPHA)


def bits_of_exp(gamma, bits):
    """Return the first bits of exp(-gamma), as an integer."""
    # Not with operators: they would round to the 28 digits of the default context.
    exponent = EXACT.divide(Decimal(-gamma.numerator), Decimal(gamma.denominator))
    return floor(Fraction(EXACT.exp(exponent)) * 2**bits)


def floor_of(word, scale):
    """Return floor(scale * E) for both ends of what a word allows, in high precision."""
    ends = []
    for end in (word >> 1, (word >> 1) + 1):
        exponential = EXACT.subtract(EXACT.ln(Decimal(2**63)), EXACT.ln(Decimal(end)))
        ends.append(floor(scale * Fraction(exponential)))
    return ends


# Distribution


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("scale", [1, 2, 5, 50])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_probabilities_are_exact_and_not_five_percent_off(kind, scale, source):
    draws = SAMPLERS[kind](600_000, scale=scale, source=SOURCES[source]())
    assert draws.dtype == np.int64
    assert fits(draws, kind, scale)
    assert not fits(draws, kind, 1.05 * scale)
    assert not fits(draws, kind, 0.95 * scale)


@pytest.mark.parametrize("scale", [10**4, 10**6, 2**31])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_large_draws_have_their_spread_tails_and_sign(kind, scale):
    draws = SAMPLERS[kind](1_000_000, scale=scale, source=SecureNoise())
    assert stats.is_uniform([np.sum(draws < 0), np.sum(draws > 0)])
    if kind == "gaussian":
        assert stats.sd_is(draws, scale)
        assert not stats.sd_is(draws, 1.05 * scale)
        assert not stats.sd_is(draws, 0.95 * scale)
        assert stats.mean_is(draws, 0.0)
    for k in (1, 2, 3, 4):
        beyond = int(np.sum(np.abs(draws) > k * scale))
        assert tail_is(kind, beyond, draws.size, k * scale, scale)
        if k < 4 or kind == "laplace":  # 63 draws beyond 4 would not tell 5 % for sure
            assert not tail_is(kind, beyond, draws.size, k * scale, 1.05 * scale)


def tail_is(kind, beyond, count, limit, scale):
    """Use the geometric sum: P(|y| > limit) = 2 exp(-(limit + 1)/scale) / (1 + exp(-1/scale)).

    A sum of Gaussian weights over integers is the integral from half a step before, up to
    scale**-2: nothing at these scales.
    """
    chance = 2 * distributions.norm.sf((limit + 0.5) / scale)
    if kind == "laplace":
        chance = 2 * np.exp(-(limit + 1) / scale) / (1 + np.exp(-1 / scale))
    return distributions.binomtest(beyond, count, chance).pvalue > stats.ALPHA


def test_low_bits_of_large_draws_are_uniform():
    """A floating-point sampler leaves gaps here: its draws are multiples of something."""
    draws = discrete_gaussian(500_000, scale=2**31, source=SimulatedNoise(5))
    assert stats.is_uniform(np.bincount(draws & 255, minlength=256))
    assert not stats.is_uniform(np.bincount((draws | 1) & 255, minlength=256))


def test_opendp_draws_the_same_distribution():
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    space = vector_domain(atom_domain(T="i64")), l2_distance(T="f64")
    theirs = np.asarray(make_gaussian(*space, scale=50.0)(np.zeros(100_000, dtype=np.int64)))

    def agrees(ours):
        edges = np.concatenate([[-np.inf], np.arange(-150, 151, 10) - 0.5, [np.inf]])
        table = [np.histogram(sample, edges)[0] for sample in (ours, theirs)]
        return distributions.chi2_contingency(table).pvalue > stats.ALPHA

    assert agrees(discrete_gaussian(400_000, scale=50, source=SecureNoise()))
    assert not agrees(discrete_gaussian(400_000, scale=53, source=SecureNoise()))


# The exact path


@pytest.mark.parametrize("kind", SAMPLERS)
def test_the_exact_path_alone_gives_the_same_distribution(kind, monkeypatch):
    monkeypatch.setattr(samplers, "MARGIN", float("inf"))
    draws = SAMPLERS[kind](6000, scale=5, source=SimulatedNoise(11))
    assert fits(draws, kind, 5)
    assert not fits(draws, kind, 6.5)
    assert not fits(draws, kind, 3.5)


@pytest.mark.parametrize("scale", [1, 7, 10**6, 2**31, LARGEST_SCALE])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_the_filter_changes_no_draw(kind, scale, monkeypatch):
    """Draws are a function of the words: the fast path is an opinion that is never wrong."""
    fast = SAMPLERS[kind](2000, scale=scale, source=SimulatedNoise(3))
    monkeypatch.setattr(samplers, "MARGIN", float("inf"))
    np.testing.assert_array_equal(fast, SAMPLERS[kind](2000, scale=scale, source=SimulatedNoise(3)))


@pytest.mark.parametrize(
    "gamma", [Fraction(1, 3), Fraction(1), Fraction(81, 8), Fraction(1, 2**90)]
)
@pytest.mark.parametrize("extra", [0, 1, 2])
def test_a_word_on_the_boundary_is_decided_by_the_bits_that_follow(gamma, extra):
    """U agrees with exp(-gamma) on 63 + 64 * extra bits, and is off by two units in the next 64."""
    bits = 63 + 64 * (extra + 1)
    boundary = bits_of_exp(gamma, bits)
    for step, exceeds in ((-2, True), (2, False)):
        chosen = boundary + step
        if chosen >> 64 != boundary >> 64:
            continue  # the step was carried into an earlier word
        lead = chosen >> (bits - 63)
        rest = [(chosen >> (64 * place)) % 2**64 for place in reversed(range(extra + 1))]
        for sign in (0, 1):
            source = Scripted(*rest)
            assert samplers.exact_exceeds(2 * lead + sign, gamma, source) is exceeds
            assert source.left == []  # fewer bits cannot decide, more are not needed


@pytest.mark.parametrize(
    ("size", "scale"), [(1, 1), (7, 3), (10**9, 2**31), (2**43, LARGEST_SCALE)]
)
def test_a_size_on_the_boundary_is_decided_by_the_bits_that_follow(size, scale):
    boundary = bits_of_exp(Fraction(size, scale), 127)
    lead, next_word = divmod(boundary, 2**64)
    assert samplers.exact_floor(2 * lead, scale, Scripted(next_word - 1)) == size
    assert samplers.exact_floor(2 * lead, scale, Scripted(next_word + 1)) == size - 1


def test_no_word_is_drawn_when_the_first_one_decides():
    assert samplers.exact_floor(2**63, 1, Scripted()) == 0  # U in [0.5, 0.5 + 2**-63): E = 0.69
    assert samplers.exact_floor(2**63, 10, Scripted()) == 6
    assert samplers.exact_exceeds(2**63, Fraction(69, 100), Scripted())
    assert not samplers.exact_exceeds(2**63, Fraction(70, 100), Scripted())


def test_a_word_of_zeros_waits_for_a_one():
    """63 + 64 + 63 zeros and a one: E = 190 ln 2 to 191 ln 2, 131.7 to 132.4, here the former."""
    assert samplers.exact_floor(0, 1, Scripted(0, 1, 2**63)) == 131
    assert samplers.exact_floor(1, 10, Scripted(0, 2**64 - 1)) == 880  # 127 ln 2 = 88.03


def test_a_word_of_ones_has_an_exponential_of_almost_nothing():
    top = 2**64 - 1
    sizes = samplers._floors(np.array([top, top - 1], dtype=np.uint64), Scripted(), scale=2**31)
    assert sizes.tolist() == [0, 0]
    assert samplers.exact_exceeds(top, Fraction(0), Scripted(2**63))


def words_near_boundaries(scale, rng):
    """Words at and next to U = exp(-y/scale), within what double precision cannot tell apart."""
    sizes = [int(y) for y in rng.integers(1, 10 * scale, size=300)]
    return [
        2 * (bits_of_exp(Fraction(size, scale), 63) + int(offset))
        for size, offset in zip(sizes, rng.integers(-40, 41, size=300) * 2**4, strict=True)
    ]


@pytest.mark.parametrize("scale", [3, 1000, 2**31])
def test_sizes_next_to_a_boundary_are_right(scale):
    words = words_near_boundaries(scale, np.random.default_rng(scale))
    truth = [floor_of(word, scale) for word in words]
    clear = [high == low for high, low in truth]
    assert sum(clear) > 250
    words = np.array(words, dtype=np.uint64)[clear]
    sizes = samplers._floors(words, Scripted(), scale=scale)
    assert sizes.tolist() == [high for (high, _), sure in zip(truth, clear, strict=True) if sure]


def test_without_a_margin_double_precision_gets_some_wrong(monkeypatch):
    """The twin of the test above: it is the margin that makes it pass."""
    monkeypatch.setattr(samplers, "MARGIN", -1.0)
    words = words_near_boundaries(2**31, np.random.default_rng(2**31))
    truth = np.array([floor_of(word, 2**31) for word in words])
    clear = truth[:, 0] == truth[:, 1]
    words = np.array(words, dtype=np.uint64)
    assert np.any(samplers._floors(words, Scripted(), scale=2**31)[clear] != truth[clear, 0])


def test_the_logarithm_is_within_the_bound_that_the_margin_assumes():
    rng = np.random.default_rng(4)
    words = np.concatenate(
        [
            rng.integers(2**48, 2**64, size=1500, dtype=np.uint64),
            np.uint64(2**64 - 1) - rng.integers(0, 2**60, size=500, dtype=np.uint64),
            np.exp2(rng.uniform(48, 64, size=1000)).astype(np.uint64),
        ]
    )
    worst = 0
    for word, got in zip(words.tolist(), samplers._log(words).tolist(), strict=True):
        for end in (word >> 1, (word >> 1) + 1):
            exact = EXACT.subtract(EXACT.ln(Decimal(end)), EXACT.ln(Decimal(2**63)))
            worst = max(worst, abs(Fraction(got) - Fraction(exact)))
    assert worst < 0.4 * 2.0**-45  # what remains of the margin is for t * E or gamma
    assert samplers.MARGIN == 2.0**-45


# Staircases


STAIRCASES = [(5, 4, 2), (5, 4, 5), (1, 1, 1), (12, 3, 2), (12, 1, 1), (3, 40, 1), (7, 2, 4)]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("shift", "scale", "inner"), STAIRCASES)
def test_staircases_have_their_probabilities(shift, scale, inner, source):
    draws = samplers.discrete_staircase(
        400_000, shift=shift, scale=scale, inner=inner, source=SOURCES[source]()
    )
    assert draws.dtype == np.int64
    steps = {"shift": shift, "inner": inner}
    assert fits(draws, "staircase", scale, **steps)
    # At 12 of epsilon hardly anything leaves the highest step, whatever the scale.
    assert shift == 12 * scale or not fits(draws, "staircase", 1.05 * scale, **steps)
    wider = inner - 1 if inner == shift else inner + 1
    assert wider == 0 or not fits(draws, "staircase", scale, shift=shift, inner=wider)


@pytest.mark.parametrize("shift", [3, 2**18, 2**40])
@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(8), Fraction(30)])
def test_the_filter_changes_no_draw_of_a_staircase(shift, epsilon, monkeypatch):
    scale = min(LARGEST_SCALE, -(-shift * epsilon.denominator // epsilon.numerator))
    draw = partial(
        samplers.discrete_staircase, 1000, shift=shift, scale=scale, inner=1 + shift // 5
    )
    fast = draw(source=SimulatedNoise(3))
    monkeypatch.setattr(samplers, "MARGIN", float("inf"))
    np.testing.assert_array_equal(fast, draw(source=SimulatedNoise(3)))


@pytest.mark.parametrize("zeros", [0, 3, samplers.MOST_ZEROS])
def test_a_level_on_the_boundary_is_decided_by_the_bits_that_follow(zeros):
    """U with so many zeros in front agrees with exp(-21) on 63 more bits, and then differs."""
    shift, scale = 21, 1
    boundary = bits_of_exp(Fraction(shift, scale), zeros + 127)
    lead, next_word = divmod(boundary, 2**64)
    rate = Fraction(scale, shift)
    assert samplers.exact_floor(2 * lead, rate, Scripted(next_word - 1), zeros) == 1
    assert samplers.exact_floor(2 * lead, rate, Scripted(next_word + 1), zeros) == 0


def test_levels_next_to_a_boundary_are_right():
    """Words within what double precision cannot tell apart, with as many zeros as there may be."""
    shift, scale, zeros = 2**18, 13_107, samplers.MOST_ZEROS  # 20.0 of epsilon
    boundary = bits_of_exp(Fraction(shift, scale), 63 + zeros)
    words = [2 * (boundary + int(offset)) for offset in range(-2000, 2001, 7) if offset]
    truth = [samplers.exact_floor(w, Fraction(scale, shift), Scripted(), zeros) for w in words]
    assert set(truth) == {0, 1}
    found = samplers._floors(
        np.array(words, dtype=np.uint64),
        Scripted(),
        scale=scale,
        shift=shift,
        zeros=np.full(len(words), zeros),
    )
    assert found.tolist() == truth


@pytest.mark.parametrize("wrong", [{"inner": 0}, {"inner": 6}, {"shift": 0}, {"scale": 1.5}])
def test_staircases_that_do_not_exist_are_refused(wrong):
    with pytest.raises(BudgetError):
        samplers.discrete_staircase(
            1, **{"shift": 5, "scale": 4, "inner": 2, **wrong}, source=SecureNoise()
        )


# Sources, processes, arguments


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_seed_repeats_and_another_does_not(kind):
    def draw(seed):
        return SAMPLERS[kind](50_000, scale=2**31, source=SimulatedNoise(seed))

    np.testing.assert_array_equal(draw(1), draw(1))
    assert np.intersect1d(draw(1), draw(2)).size < 100  # by chance about one


def test_the_global_generator_is_not_touched():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
    discrete_gaussian(1000, scale=5, source=SecureNoise())
    after = np.random.get_state(legacy=False)["state"]["key"]  # noqa: NPY002
    np.testing.assert_array_equal(before, after)


def in_processes(method, draw, workers=3):
    if method == "joblib":
        return Parallel(n_jobs=2)(delayed(draw)(count) for count in [8] * workers)
    # One task for each worker, so that every answer comes from a process of its own.
    with multiprocessing.get_context(method).Pool(2, maxtasksperchild=1) as pool:
        return pool.map(draw, [8] * workers, chunksize=1)


@pytest.mark.parametrize("method", [*multiprocessing.get_all_start_methods(), "joblib"])
def test_processes_never_share_noise(method):
    source = SecureNoise()
    own = discrete_gaussian(8, scale=2**31, source=source)
    draw = partial(discrete_gaussian, scale=2**31, source=source)
    drawn = np.concatenate([own, *in_processes(method, draw)])
    # 32 draws at this scale coincide anywhere with probability below 1e-7.
    assert np.unique(drawn).size == drawn.size


def test_a_seeded_source_would_have_been_noticed_to_repeat():
    """The twin of the test above."""
    draw = partial(discrete_gaussian, scale=2**31, source=SimulatedNoise(0))
    first, *others = in_processes("joblib", draw)
    assert all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize(
    "scale", [0, -1, 1.0, 2.5, np.float64(3), float("nan"), True, "3", None, LARGEST_SCALE + 1]
)
def test_scales_that_cannot_be_drawn_exactly_are_refused(kind, scale):
    with pytest.raises(BudgetError, match="cannot be drawn exactly"):
        SAMPLERS[kind](1, scale=scale, source=SecureNoise())


@pytest.mark.parametrize("kind", SAMPLERS)
def test_no_draws_are_an_empty_array_and_numpy_integers_are_scales(kind):
    empty = SAMPLERS[kind](0, scale=3, source=Scripted())
    assert empty.shape == (0,)
    assert empty.dtype == np.int64
    small = np.int8(100)  # its square would overflow
    np.testing.assert_array_equal(
        SAMPLERS[kind](500, scale=small, source=SimulatedNoise(1)),
        SAMPLERS[kind](500, scale=100, source=SimulatedNoise(1)),
    )


def test_memory_is_the_result_and_a_few_blocks():
    tracemalloc.start()
    discrete_gaussian(1_000_000, scale=1000, source=SecureNoise())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 1_000_000 + 16 * 8 * samplers.BLOCK
