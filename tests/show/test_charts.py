"""Charts hold the numbers that they are given, whatever those are."""

import re

import numpy as np
import pytest

from bagwise.show import charts
from bagwise.show.drawing import COLOURS, NARROW, WIDE, colour, to_svg


def data_of(chart):
    return [row for rows in chart.to_dict()["datasets"].values() for row in rows]


def test_a_privacy_curve_marks_what_is_promised():
    points = [(0.5, 0.1), (1.0, 1e-4), (2.0, 1e-9), (9.0, 0.0)]
    chart = charts.privacy_curve(points, promised=(1.0, 1e-4))
    assert {"epsilon": 1.0, "text": "promised: 1"} in data_of(chart)
    assert {"epsilon": 2.0, "delta": 1e-9} in data_of(chart)
    assert not [row for row in data_of(chart) if row["epsilon"] == 9]  # far beyond
    assert chart.to_dict()["layer"][0]["encoding"]["y"]["scale"] == {"type": "log"}


def test_a_curve_that_ends_at_zero_is_drawn_by_lengths():
    chart = charts.privacy_curve([(0.5, 0.3), (1.0, 0.1), (2.0, 0.0)], promised=(2.0, 0.0))
    assert chart.to_dict()["layer"][0]["encoding"]["y"]["scale"] == {}
    assert {"epsilon": 2.0, "delta": 0.0} in data_of(chart)


def test_bag_sizes_are_all_counted():
    rng = np.random.default_rng(0)
    for sizes in (np.full(7, 30), rng.integers(10, 15, 99), rng.integers(10, 9999, 2500)):
        assert sum(row["bags"] for row in data_of(charts.bag_sizes(sizes))) == sizes.size


def test_many_directions_are_a_line():
    assert charts.kept_shares(np.full(8, 0.5)).to_dict()["mark"]["type"] == "bar"
    assert charts.kept_shares(np.full(80, 0.5)).to_dict()["mark"]["type"] == "line"


@pytest.mark.parametrize(
    ("values", "bins"), [([0.0, 1.0], 10), ([-3e7, 2e9], 24), ([5.0, 5.0], 24), ([1e-9, 3e-9], 7)]
)
def test_edges_cover_and_have_equal_widths(values, bins):
    edges = charts.nice_edges(np.array(values), bins=bins)
    assert edges[0] <= min(values)
    assert edges[-1] >= max(values)
    assert np.allclose(np.diff(edges), edges[1] - edges[0])
    assert 2 <= edges.size <= 2 * bins + 3


def test_charges_lie_at_their_times_only_where_days_differ():
    same = charts.spending([("2026-01-02T01:00:00Z", 1.0)], budget=2.0, begun="2026-01-01")
    assert [row["when"] for row in data_of(same) if "when" in row] == [0, 1, 1.5]
    apart = charts.spending(
        [("2026-01-02T01:00:00Z", 1.0), ("2026-02-02T01:00:00Z", 1.5)],
        budget=2.0,
        begun="2026-01-01",
    )
    assert data_of(apart)[0]["when"] == "2026-01-01"


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_drawing_has_only_colours_that_a_dark_page_can_turn(width):
    rows = [{"choice": name, "epsilon": e, "off by": 1 / e} for name in "abcdef" for e in (1, 2, 4)]
    svg = to_svg(charts.lines(rows, x="epsilon", y="off by", series="choice"), width=width)
    used = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]+)"', svg))
    assert used <= {light for light, _ in COLOURS.values()}
    assert {colour(f"series-{i}") for i in range(1, 7)} <= used
    assert "white" not in svg
    assert svg.startswith('<svg aria-hidden="true"')
