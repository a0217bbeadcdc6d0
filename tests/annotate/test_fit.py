"""The fit of labelled rows against its own formulas, the textbook, and scikit-learn."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import statsmodels.api as sm
from sklearn.linear_model import LogisticRegression

from bagwise import BaggedGLM, Encoder
from bagwise.annotate.fit import LabelledRows, bounds_of, fit_rows, predict_linearly
from bagwise.errors import ProjectError
from bagwise.families import find_family
from tests import stats

FAMILIES = ("gaussian", "poisson", "bernoulli")


def encoder_of(X, text=None):
    table = {f"x{j}": column for j, column in enumerate(X.T)}
    if text is not None:
        table["text"] = text
    table = pa.table(table)
    encoder = Encoder.for_table(table, table.column_names, named=table.column_names)
    return encoder, encoder.transform(table)


def fit(X, y, family="gaussian", encoder=None, all_rows=None):
    encoder = encoder or encoder_of(X)[0]
    deviations = (X if all_rows is None else all_rows).std(axis=0)
    kind = find_family(family)
    made = fit_rows(LabelledRows(X, y, kind, encoder, deviations))
    coef, intercept = made.split(classes=kind.has_classes)
    return SimpleNamespace(coef=coef, intercept=intercept, **vars(made))


def drawn(family, *, m, coef, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, len(coef))) * scale
    y = find_family(family).sample(X @ np.array(coef) / scale, phi=1.0, rng=rng)
    return X, y


@pytest.mark.parametrize("family", FAMILIES)
def test_many_labels_make_it_the_ordinary_fit(family):
    X, y = drawn(family, m=20_000, coef=[0.5, -0.4, 0.3])
    peer = {"gaussian": sm.families.Gaussian(), "poisson": sm.families.Poisson(),
            "bernoulli": sm.families.Binomial()}[family]  # fmt: skip
    expected = sm.GLM(y, sm.add_constant(X), family=peer).fit(tol=1e-12)
    found = fit(X, y, family)
    assert found.converged
    assert np.append(found.intercept, found.coef) == pytest.approx(expected.params, abs=2e-3)
    assert np.append(found.coef, found.intercept) != pytest.approx(found.unshrunk, abs=1e-6)
    assert found.unshrunk == pytest.approx(np.roll(expected.params, -1), rel=1e-5)


def log_evidence(sizes, X, y, phi):
    """Return the logarithm of how likely labels are, slopes and intercept integrated out."""
    m = len(y)
    V = phi * np.eye(m) + (X * sizes) @ X.T + 1e8 * np.ones((m, m))
    sign, logdet = np.linalg.slogdet(V)
    assert sign > 0
    return -0.5 * (logdet + y @ np.linalg.solve(V, y))


def test_slopes_are_ridge_estimates_for_sizes_that_no_step_makes_more_likely():
    X, y = drawn("gaussian", m=120, coef=[2.0, 0.3, 0.0, -0.2])
    found = fit(X, y)
    units, centred = 2 * X.std(axis=0), X - X.mean(axis=0)
    # 1. Sizes, from the slopes: each solves its own equation of the ridge estimate.
    gap = centred.T @ (y - y.mean() - centred @ found.coef)
    precision = gap / (found.dispersion * found.coef)
    sizes = 1 / precision  # variances of slopes
    assert (sizes > 0).all()

    # 2. tau^2 is what makes the prior of the ratios and the evidence largest, as are the ratios.
    def objective(log_tau, log_ratio):
        ratio = np.exp(log_ratio)
        belief = -0.5 * np.sum(1 / ratio - 1 + log_ratio)
        sized = np.exp(log_tau) * ratio / units**2
        return log_evidence(sized, X, y, found.dispersion) + belief

    of_units = sizes * units**2
    taus = np.linspace(np.log(of_units.min()) - 2, np.log(of_units.max()) + 2, 400)
    values = [objective(tau, np.log(of_units) - tau) for tau in taus]
    tau = taus[int(np.argmax(values))]
    best = objective(tau, np.log(of_units) - tau)
    for j in range(4):
        for step in (-0.5, 0.5):
            moved = np.log(of_units) - tau
            moved[j] += step
            assert objective(tau, moved) < best + 0.01


def test_numbers_that_matter_are_kept_and_the_others_held_back():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 30))
    y = 5 * X[:, 0] + rng.normal(size=100)
    found = fit(X, y)
    plain = np.linalg.lstsq(np.column_stack([X, np.ones(100)]), y)[0][:-1]
    assert found.coef[0] == pytest.approx(5, abs=0.4)
    assert np.sum(found.coef[1:] ** 2) < 0.2 * np.sum(plain[1:] ** 2)


def test_units_of_columns_do_not_matter():
    X, y = drawn("bernoulli", m=200, coef=[1.0, 0.2, 0.0])
    scale = np.array([1e-3, 1.0, 1e4])
    found, scaled = fit(X, y, "bernoulli"), fit(X * scale, y, "bernoulli")
    assert scaled.coef * scale == pytest.approx(found.coef, rel=1e-3, abs=1e-5)


def test_levels_of_a_column_share_a_size():
    # Of 25 levels none matters; of 25 others all do. The former are held back, and only they.
    rng = np.random.default_rng(3)
    names = np.array([f"level {i:02}" for i in range(25)])
    one, other = rng.integers(25, size=(2, 500))
    effect = 2 * rng.normal(size=25)
    table = pa.table({"idle": names[one], "busy": names[other]})
    encoder = Encoder.for_table(table, ["idle", "busy"])
    X = encoder.transform(table)
    y = effect[other] + rng.normal(size=500)
    found = fit(X, y, encoder=encoder)
    plain = np.linalg.lstsq(np.column_stack([X, np.ones(500)]), y)[0][:-1]
    idle = np.array([name.startswith("idle") for name in encoder.feature_names])
    assert np.linalg.norm(found.coef[idle]) < 0.5 * np.linalg.norm(plain[idle])
    assert np.linalg.norm(found.coef[~idle]) > 0.9 * np.linalg.norm(plain[~idle])


def test_no_class_is_special():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 3))
    scores = X @ rng.normal(size=(3, 4)) + rng.gumbel(size=(150, 4))
    marks = np.eye(4)[scores.argmax(axis=1)]
    family = find_family("multinomial")
    found, turned = fit(X, marks, "multinomial"), fit(X, marks[:, ::-1], "multinomial")
    one = family.mean(X @ found.coef.T + found.intercept)
    other = family.mean(X @ turned.coef.T + turned.intercept)
    assert one == pytest.approx(other[:, ::-1], abs=2e-3)
    assert found.coef.shape == (3, 3)


def test_two_classes_are_what_zero_and_one_are():
    X, y = drawn("bernoulli", m=200, coef=[1.0, 0.2, 0.0])
    found = fit(X, y, "bernoulli")
    classes = fit(X, np.column_stack([1 - y, y]), "multinomial")
    assert classes.coef[0] == pytest.approx(found.coef, abs=1e-3)
    assert classes.intercept[0] == pytest.approx(found.intercept, abs=1e-3)


def test_intervals_are_those_without_shrinkage_and_note_it():
    X, y = drawn("gaussian", m=60, coef=[1.0, 0.0])
    found = fit(X, y)
    peer = BaggedGLM(ridge=0.0).fit(X, y)
    assert found.standard_errors == pytest.approx(np.sqrt(np.diag(peer.covariance_)))
    assert found.freedom == 57
    assert "without shrinkage, from 60 labels" in found.note


def test_a_level_without_a_label_takes_no_interval_from_the_other_columns():
    X, y = drawn("gaussian", m=60, coef=[1.0, 0.5])
    rare = np.zeros(61)
    rare[60] = 1
    rows = np.column_stack([np.vstack([X, X[:1]]), rare])
    found = fit(rows[:60], y, all_rows=rows)
    assert np.isfinite(found.standard_errors).tolist() == [True, True, False, True]
    assert found.coef[2] == pytest.approx(0)


def test_labels_that_are_told_apart_get_a_model_and_no_intervals():
    X = np.linspace(-1, 1, 40)[:, None]
    found = fit(X, (X[:, 0] > 0) * 1.0, "bernoulli")
    assert found.converged
    assert 0 < found.coef[0] < 100
    assert found.standard_errors is None
    assert found.note.startswith("No intervals")


def test_fewer_labels_than_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 40))
    y = 2 + 3 * X[:, 0] + 0.1 * rng.normal(size=600)
    found = fit(X[:30], y[:30], all_rows=X)
    error = np.mean((X @ found.coef + found.intercept - y) ** 2)
    assert error < 0.5  # the mean label has 9


def test_labels_without_noise_and_labels_that_are_all_the_same():
    X, _ = drawn("gaussian", m=50, coef=[1.0, 1.0])
    exact = fit(X, 3 + X @ [2.0, -1.0])
    assert exact.coef == pytest.approx([2.0, -1.0])
    for family, label in (("gaussian", 7.0), ("poisson", 0.0), ("bernoulli", 1.0)):
        same = fit(X, np.full(50, label), family)
        means = find_family(family).mean(X @ same.coef + same.intercept)
        assert means == pytest.approx(np.full(50, label), abs=0.05)


def test_too_few_labels_are_refused():
    X, y = drawn("gaussian", m=9, coef=[1.0])
    with pytest.raises(ProjectError, match="9 labels are too few"):
        fit(X, y)


def test_chances_are_no_worse_than_those_of_scikit_learn():
    # Log loss over many rows, for tables of a strong number, weak ones, and levels of text.
    ours, theirs = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        names = np.array([f"level {i:02}" for i in range(20)])
        level = rng.integers(20, size=5000)
        numbers = rng.normal(size=(5000, 5)) * [30.0, 1, 1, 1, 1]
        eta = numbers @ [0.08, 0.2, 0, 0, 0] + 0.5 * rng.normal(size=20)[level]
        y = (rng.random(5000) < 1 / (1 + np.exp(-eta))) * 1.0
        encoder, X = encoder_of(numbers, names[level])
        found = fit(X[:200], y[:200], "bernoulli", encoder, all_rows=X)
        peer = LogisticRegression(max_iter=2000).fit(X[:200], y[:200])
        for kept, at in (
            (ours, X @ found.coef + found.intercept),
            (theirs, peer.decision_function(X)),
        ):
            kept.append(np.mean((np.logaddexp(0, at) - y * at)[200:]))
    found, best = np.array(ours), np.array(theirs)

    def worse(losses):  # by more than chance
        return losses.mean() > best.mean() and not stats.mean_is(losses - best, 0.0)

    assert not worse(found)
    assert worse(found + 0.05)


def test_a_far_row_is_predicted_no_more_than_labelled_rows_and_no_label_is_kept():
    rng = np.random.default_rng(7)
    X, far = rng.normal(size=(100, 2)), np.array([[30.0, 0.0], [0.0, 0.0]])
    y = rng.poisson(np.exp(0.5 + X @ [0.8, 0.0])).astype(float)
    rows = LabelledRows(X, y, find_family("poisson"), encoder_of(X)[0], X.std(axis=0))
    fitted = fit_rows(rows)
    coef, intercept = fitted.split(classes=False)
    low, high = bounds_of(rows, fitted, (0.0, 1e9))
    means = np.exp(X @ coef + intercept)
    assert low == 0
    assert high == pytest.approx(means.max())
    assert high not in y
    assert high != np.ceil(high)
    assert predict_linearly(rows)(far) == pytest.approx([high, np.exp(intercept)])
    # Without that limit the far row is predicted absurdly, and bounds that are narrower stay.
    assert np.exp(far @ coef + intercept)[0] > 1e6 > 1e4 * high
    assert bounds_of(rows, fitted, (0.0, high / 2)) == (0.0, high / 2)
    # Other links do not run away: what was stated stays, if anything was.
    numbers = LabelledRows(X, y, find_family("gaussian"), rows.encoder, rows.deviations)
    assert bounds_of(numbers, fit_rows(numbers), None) is None
