"""The picture of the README: what a model keeps under a promise, by bagwise and by published ways.

``python -m benchmarks._picture [build/real-data/results.json]`` draws it from what is kept of
`real_data`, or was measured anew, and of `defaults`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from bagwise.files.atomic import new_file
from benchmarks import _real_ways as ways
from benchmarks._results import RESULTS, read_rows

Row = dict[str, Any]

OURS = "bagwise, shortest command"
PUBLISHED = {ways.BINS: "randomised response on bins", ways.LABELS: "noise on every label"}
COLOURS = {OURS: "#1b7fbd", **dict(zip(PUBLISHED.values(), ("#e69f00", "#cc79a7"), strict=True))}
LOWEST = -20.0  # per cent: lines that fall further leave the picture
EPSILONS = (0.5, 1.0, 4.0)
# Readers have other fonts, and wider ones, than the machine that draws this.
LEGEND = {"columnPadding": 45, "labelFontSize": 12, "symbolSize": 90}


def points(tables: dict[str, Any], defaults: list[Row]) -> pd.DataFrame:
    """Return the share kept, in per cent, of each way on every table that both have measured."""
    ours = [
        (row["table"], OURS, row["epsilon"], row["shortest"]["mean"])
        for row in defaults
        if row["part"] == "table" and row["table"] in tables and row["epsilon"] in EPSILONS
    ]
    theirs = [
        (name, PUBLISHED[row["way"]], row["epsilon"], row["kept"])
        for name in dict.fromkeys(table for table, *_ in ours)
        for row in tables[name]["rows"]
        if row["way"] in PUBLISHED and row["epsilon"] in EPSILONS
    ]
    found = [*ours, *theirs]
    frame = pd.DataFrame(found, columns=["table", "way", "epsilon", "kept"]).dropna()
    best = frame.groupby(["table", "way", "epsilon"], as_index=False).max()  # kinds of noise
    return best.assign(kept=(100 * best.kept).clip(lower=LOWEST))


def draw(tables: dict[str, Any], defaults: list[Row], file: Path) -> None:
    """Write the picture as SVG."""
    frame = points(tables, defaults)
    base = alt.Chart(frame).encode(
        x=alt.X("epsilon:Q", title="epsilon", scale=alt.Scale(type="log", domain=[0.4, 5.0]),
                axis=alt.Axis(values=list(EPSILONS), grid=False, format="~g")),
        y=alt.Y("kept:Q", title="share of the model kept, %",
                scale=alt.Scale(domain=[LOWEST, 105]), axis=alt.Axis(values=[0, 25, 50, 75, 100])),
        color=alt.Color("way:N", title=None, sort=list(COLOURS),
                        scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
                        legend=alt.Legend(orient="bottom", labelLimit=300, **LEGEND)),
    )  # fmt: skip
    lines = base.mark_line(strokeWidth=2.5, clip=True) + base.mark_point(filled=True, size=60)
    chart = lines.properties(width=190, height=170).facet(
        column=alt.Column("table:N", title=None, header=alt.Header(labelFontSize=13))
    )
    with new_file(file, force=True) as draft:
        chart.configure(background="white").save(str(draft), format="svg")


if __name__ == "__main__":
    measured = Path(sys.argv[1]) if sys.argv[1:] else RESULTS / "real_data.json"
    kept = json.loads(measured.read_text())["tables"]
    draw(kept, read_rows("defaults"), Path("docs/results/real-data/kept.svg"))
