import xml.etree.ElementTree as ET

import pytest

from reproduction.cells import Cell, printed_values
from reproduction.document import Figure, Grid, Paragraph, to_markdown
from reproduction.measured import Measured
from reproduction.report import summary, write_report
from reproduction.reproduce import QUICK, Scale
from reproduction.tables import describe_cell, make_cell_table, make_table
from tests.reproduction.fabricated import SCALE, as_printed, fabricate


@pytest.fixture(scope="module")
def results():
    return fabricate(as_printed())


def test_a_report_has_every_table_and_figure(results, tmp_path):
    write_report(results, tmp_path, scale=SCALE, command="bagwise reproduce --table all")
    text = (tmp_path / "report.md").read_text()
    assert all(f"### Table {table}:" in text for table in (1, 2, 3, 4, 5))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert sum(" ± " in row for row in rows) == len(printed_values())
    assert "bagwise reproduce --table all" in text
    assert "do not compare" not in text
    figures = sorted((tmp_path / "figures").iterdir())
    assert len(figures) == 5
    for figure in figures:
        assert f"(figures/{figure.name})" in text
        assert ET.parse(figure).getroot().tag.endswith("svg")  # noqa: S314 (our own file)


def test_a_report_of_one_table_has_no_more(results, tmp_path):
    private = [result for result in results if result.job.cell.epsilon in (0.5, 1.0, 2.0)]
    write_report(private, tmp_path, scale=SCALE, command="bagwise reproduce --table 2")
    text = (tmp_path / "report.md").read_text()
    assert "### Table 2:" in text
    assert "### Table 1:" not in text
    assert "Over the" not in text  # the appendix was not run
    assert "In table 2 the protocol has" in text


def test_a_small_run_says_so(tmp_path):
    write_report(fabricate(as_printed(), scale=QUICK), tmp_path, scale=QUICK, command="x")
    text = (tmp_path / "report.md").read_text()
    assert "This has 20,000 rows, and the paper 50,000: do not compare" in text
    assert "There are 3 runs of each cell" in text
    assert "Over the 156 cells" not in text  # they are not the paper's
    assert summary(fabricate(as_printed(), scale=QUICK), QUICK)["protocol"] is None


def test_a_new_report_leaves_no_figure_of_an_old_one(results, tmp_path):
    write_report(results, tmp_path, scale=SCALE, command="x")
    (tmp_path / "figures" / "mine.svg").write_text("<svg/>")
    private = [result for result in results if result.job.cell.epsilon is not None]
    write_report(private, tmp_path, scale=SCALE, command="x")
    left = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert len(left) == 2
    assert left[0].startswith("error-against-epsilon")
    assert left[1] == "mine.svg"  # what somebody else put there


def test_one_run_is_reported_without_numbers_that_are_none(tmp_path):
    alone = Scale(runs=1)
    results = fabricate(as_printed(), scale=alone)
    write_report(results, tmp_path, scale=alone, command="x")
    assert "nan" not in (tmp_path / "report.md").read_text()
    assert summary(results, alone)["protocol"] is None


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
    described = describe_cell(alone)
    assert described["printed"] == [{"table": 4, "mean": 0.032367, "sd": 0.00835}]
    assert [run["values"]["exact"] for run in described["runs"]] == [1.0, 2.0, 6.0]


def test_one_run_has_no_spread():
    results = fabricate(as_printed(), scale=Scale(runs=1))
    assert all(len(row) == 9 for row in make_table(1, Measured(results, rows=50_000)))
    one = [result for result in results if result.job.cell.epsilon == 1.0][:1]
    spreads = {row[0]: row[2] for row in make_cell_table(one)}
    assert spreads["exact minimiser, printed noise"] == ""
    assert spreads["what theory expects of it"] != ""  # which needs no runs


def test_a_summary_is_plain_values(results):
    import json

    found = json.loads(json.dumps(summary(results, SCALE), allow_nan=False))
    assert found["protocol"]["cells"] == 156
    assert {claim["verdict"] for claim in found["claims"]} <= {
        "holds", "fails", "undecided", "holds only under the protocol",
    }  # fmt: skip
    assert found["claims"][0]["settings"]["printed"] == {
        "in_favour": 4, "undecided": 0, "against": 0,
    }  # fmt: skip


def test_documents_are_markdown():
    blocks = [Paragraph("a < b"), Grid([["x"], ["1"]]), Figure("t", "t.svg", "<svg/>")]
    assert to_markdown(blocks) == "a < b\n\n| x |\n|---|\n| 1 |\n\n**t**\n\n![t](t.svg)\n"
