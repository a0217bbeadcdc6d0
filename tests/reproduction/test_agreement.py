import math

import numpy as np
import pytest
from scipy import stats

from reproduction.agreement import compare_with_theory, explain_printed
from reproduction.cells import APPENDIX, table_cells
from reproduction.measured import Measured, printed_means
from reproduction.reproduce import Scale
from tests.reproduction.fabricated import SCALE, as_printed, fabricate

MANY = Scale(runs=15)
CELLS = [cell for table in APPENDIX for cell in table_cells(table)]


def test_a_column_that_is_twice_the_printed_one():
    printed = printed_means(APPENDIX)
    results = fabricate(lambda cell, name, run: 2 * printed.get(cell, (0.01, 0))[0])
    found = explain_printed(Measured(results, rows=SCALE.rows), "protocol")
    assert found.cells == 156
    assert found.rms_log_ratio == pytest.approx(math.log(2))
    assert found.rms_interval == pytest.approx((math.log(2), math.log(2)))
    assert found.correlation == pytest.approx(1)


def test_the_correlation_is_pearsons():
    printed, rng = printed_means(APPENDIX), np.random.default_rng(5)
    ours = {cell: rng.random() for cell in printed}
    results = fabricate(lambda cell, name, run: ours.get(cell, 1.0))
    found = explain_printed(Measured(results, rows=SCALE.rows), "protocol")
    theirs = [mean for mean, _ in printed.values()]
    assert found.correlation == pytest.approx(np.corrcoef(list(ours.values()), theirs)[0, 1])
    # Fisher's approximation: nearly independent columns of 156.
    low, high = found.correlation_interval
    assert (high - low) / 2 == pytest.approx(stats.norm.isf(0.025) / math.sqrt(153), rel=0.2)


def test_chance_alone_gives_what_is_said_of_it():
    """Runs around a truth around which the printed values vary too: rms z is 1."""
    printed, rng = printed_means(APPENDIX), np.random.default_rng(3)
    truth = {cell: mean * np.exp(error / mean * rng.standard_normal())
             for cell, (mean, error) in printed.items()}  # fmt: skip

    def error(cell, name, run):
        return truth.get(cell, 0.01) * (1 + 0.2 * rng.standard_normal())

    results = fabricate(error, scale=MANY)
    found = explain_printed(Measured(results, rows=MANY.rows), "protocol")
    # 156 squares with mean 1; a t of 14 degrees in part of each, so allow for its heavier tail.
    tolerance = stats.norm.isf(5e-7) * math.sqrt(3 / 156) / 2
    assert found.rms_z == pytest.approx(1, abs=tolerance)
    assert found.rms_log_ratio == pytest.approx(found.by_chance, rel=tolerance)
    off = fabricate(lambda *given: 1.25 * error(*given), scale=MANY)
    twin = explain_printed(Measured(off, rows=MANY.rows), "protocol")
    assert twin.rms_z > 1 + tolerance


def test_nothing_is_said_while_cells_are_missing():
    some = fabricate(as_printed())[100:]
    assert explain_printed(Measured(some, rows=SCALE.rows), "protocol") is None


def agreement(shift):
    rng = np.random.default_rng(4)

    def error(cell, name, run):
        expected = 10.0 ** (run % 3)  # runs may differ by much: each counts in its own units
        values = {"expected": expected, "expected_sd": 0.3 * expected}
        return values.get(name, expected * (1 + shift + 0.3 * rng.standard_normal()))

    measured = Measured(fabricate(error, scale=MANY), rows=MANY.rows)
    return compare_with_theory(measured, "all", CELLS, "exact", "expected")


def test_errors_as_theory_expects_them():
    low, high = np.sqrt(stats.chi2.ppf([5e-7, 1 - 5e-7], len(CELLS)) / len(CELLS))
    found = agreement(0.0)
    assert low < found.rms_z < high
    assert found.beyond_three <= stats.binom.isf(5e-7, len(CELLS), 2 * stats.norm.sf(3))
    assert found.ratio == pytest.approx(1, abs=0.03)
    assert (found.cells, found.runs) == (156, 15)
    assert agreement(0.1).rms_z > high
