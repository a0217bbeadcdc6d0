from functools import partial

import numpy as np
import pytest

from reproduction.cells import Cell, printed_values
from reproduction.claims import CLAIMS, Tally, judge_claims
from reproduction.measured import Estimate, Measured
from tests.reproduction.fabricated import SCALE, as_printed, fabricate

ROWS = SCALE.rows


def verdicts(error):
    return {v.claim.text: v for v in judge_claims(Measured(fabricate(error), rows=ROWS))}


def test_every_claim_is_about_printed_cells():
    printed = {value.cell for value in printed_values()}
    assert all(set(claim.cells()) <= printed for claim in CLAIMS)


def test_what_is_printed_is_read_off_the_tables():
    """By hand, table 4: 0.0076 < 0.0097, 0.0147 < 0.0264, 0.0374 < 0.0463, 0.0407 < 0.0490."""
    found = verdicts(as_printed())
    better = found["bag loss: instance k-means is better than random bags"]
    assert better.tallies["printed"] == Tally(4, 0, 0)
    # Table 2, ratios of epsilon 0.5 to 2: label 2.67 and 1.30, instance 1.59 and 1.26.
    sharper = found["private labels: the drop is sharper for label k-means"]
    assert sharper.tallies["printed"] == Tally(1, 1, 0)


def test_runs_that_repeat_what_is_printed_agree_with_it_where_it_is_clear():
    for verdict in verdicts(as_printed()).values():
        printed, exact = verdict.tallies["printed"], verdict.tallies["exact"]
        assert exact.in_favour >= printed.in_favour
        assert exact.against >= printed.against
        assert verdict.runs == SCALE.runs


@pytest.mark.parametrize(
    ("exact", "protocol", "word"),
    [
        (-1, -1, "holds"),
        (-1, 1, "holds"),
        (1, -1, "holds only under the protocol"),
        (1, 1, "fails"),
        (0, 1, "undecided"),
        (0, -1, "holds only under the protocol"),
    ],
)
def test_verdicts(exact, protocol, word):
    """k-means below random by a tenth, above it, or alike, under either way."""
    rng = np.random.default_rng(1)

    def error(cell, name, run):
        sign = {"exact": exact, "protocol": protocol}.get(name, 0)
        shift = 0.1 * sign * (cell.strategy == "kmeans")
        return np.exp(shift + 0.01 * rng.standard_normal())

    claim = "bag loss: instance k-means is better than random bags"
    assert verdicts(error)[claim].word == word


def test_cells_of_one_run_are_compared_with_each_other():
    """What runs share must not hide what differs: each run ten times the one before."""
    rng = np.random.default_rng(2)

    def error(cell, name, run):
        better = 0.9 if cell.strategy == "kmeans" else 1.0
        return better * 10.0**run * np.exp(0.01 * rng.standard_normal())

    claim = "bag loss: instance k-means is better than random bags"
    assert verdicts(error)[claim].tallies["exact"] == Tally(4, 0, 0)


def test_similar_is_a_factor_of_two():
    def error(cell, name, run, factor, spread):
        off = np.exp(spread * (-1) ** run)
        return factor * off if cell.strategy == "sorted" else 1.0

    claim = "instance loss: all mechanisms show similar performance"
    assert verdicts(partial(error, factor=1.9, spread=0.01))[claim].word == "holds"
    assert verdicts(partial(error, factor=2.1, spread=0.01))[claim].word == "fails"
    assert verdicts(partial(error, factor=1.9, spread=0.5))[claim].word == "undecided"


def test_many_cases_are_more_than_a_quarter():
    """Label bags are best by a tenth in four of twelve settings, or in two."""
    rng = np.random.default_rng(6)

    def error(cell, name, run, wanted):
        better = cell.strategy == "sorted" and wanted(cell)
        return (0.9 if better else 1.0) * np.exp(0.001 * rng.standard_normal())

    claim = "instance loss: label k-means shows better performance in many cases"
    four = verdicts(partial(error, wanted=lambda cell: cell.data == "ind"))[claim]
    assert four.tallies["exact"].in_favour == 4
    assert four.word == "holds"
    few = partial(error, wanted=lambda cell: cell.data == "ind" and cell.bag_size == 10)
    two = verdicts(few)
    assert two[claim].word == "undecided"


def test_private_claims_are_about_ratios():
    """The drop from epsilon 2 to 0.5 is by 4 for sorted bags of 10, and by 2 for all others."""

    def error(cell, name, run):
        if cell.epsilon is None:
            return 1.0
        steep = cell.strategy == "sorted" and cell.bag_size == 10
        return (2.0 / cell.epsilon) ** (1.0 if steep else 0.5) * (1 + 0.001 * run)

    found = verdicts(error)
    assert found["private labels: the drop is sharper for label k-means"].tallies["exact"] == Tally(
        1, 1, 0
    )
    epsilon = "private labels: for each mechanism, accuracy drops with a decrease in epsilon"
    assert found[epsilon].word == "holds"


def test_claims_wait_for_all_of_their_cells():
    some = [r for r in fabricate(as_printed()) if r.job.cell != Cell.parse("bag,iso,50,2,random")]
    found = [verdict.claim.text for verdict in judge_claims(Measured(some, rows=ROWS))]
    assert len(found) == len(CLAIMS) - 2
    assert "bag loss: instance k-means is better than random bags" not in found


def test_one_run_decides_nothing():
    assert Estimate.of(np.array([5.0])).sign == 0
