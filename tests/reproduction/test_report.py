from reproduction.cells import Cell
from reproduction.measured import Measured
from reproduction.reproduce import Scale
from reproduction.tables import make_cell_table, make_table
from tests.reproduction.fabricated import as_printed, fabricate


def test_tables_hold_what_was_measured():
    cell = Cell.parse("bag,dep,10,0.5,kmeans")
    results = fabricate(lambda _cell, _name, run: [1.0, 2.0, 6.0][run], scale=Scale(runs=3))
    grid = make_table(4, Measured(results, rows=50_000))
    [row] = [row for row in grid if row[1:5] == ["dep", "10", "0.5", "instance k-means"]]
    assert row[5] == "0.032367 ± 0.00835"  # printed
    assert row[6:8] == ["2", "2"]  # medians where a mean may be one draw
    assert row[8] == "3 ± 2.6"
    [iso] = [row for row in grid if row[1:5] == ["iso", "10", "0.5", "instance k-means"]]
    assert iso[6] == "3"
    alone = [result for result in results if result.job.cell == cell]
    shown = make_cell_table(alone)
    assert ["exact minimiser", "3", "2.65", "3"] in shown
    assert ["what theory expects of it", "3", "3.7", "3"] in shown  # root mean square of its own sd


def test_one_run_has_no_spread():
    results = fabricate(as_printed(), scale=Scale(runs=1))
    assert all(len(row) == 9 for row in make_table(1, Measured(results, rows=50_000)))
    one = [result for result in results if result.job.cell.epsilon == 1.0][:1]
    spreads = {row[0]: row[2] for row in make_cell_table(one)}
    assert spreads["exact minimiser, printed noise"] == ""
    assert spreads["what theory expects of it"] != ""  # which needs no runs
