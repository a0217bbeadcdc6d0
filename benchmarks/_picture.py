"""The picture of the README: what a model keeps by epsilon, from what `twenty_tables` measured.

``python -m benchmarks._picture`` draws it.
"""

from pathlib import Path

import altair as alt
import pandas as pd

from bagwise.files.atomic import new_file
from benchmarks._results import read_rows

FILE = Path("docs/results/twenty-tables/kept.svg")
COLOURS = {
    "bagwise, shortest command": "#1b7fbd",
    "randomised response on bins": "#e69f00",
    "noise on every label": "#cc79a7",
    "private gradient descent, delta 1e-6": "#009e73",
}
WAYS = dict(zip(("bags", "bins", "single labels", "Cond-DP"), COLOURS, strict=True))
LOWEST = -20.0  # per cent: lines that fall further leave the picture
# Readers have other fonts, and wider ones, than the machine that draws this.
LEGEND = {"columnPadding": 30, "labelFontSize": 12, "symbolSize": 90}


def points() -> pd.DataFrame:
    """Return the mean share kept, in per cent, by each way on each kind of label."""
    rows = pd.DataFrame(read_rows("twenty_tables"))
    rows = rows[rows.way.isin(WAYS)].assign(way=lambda frame: frame.way.map(WAYS))
    means = rows.groupby(["kind", "way", "epsilon"], as_index=False)["kept"].mean().dropna()
    return means.assign(kept=means.kept.clip(lower=LOWEST))


def main() -> None:
    """Write the picture as SVG."""
    epsilons = sorted(points().epsilon.unique())
    base = alt.Chart(points()).encode(
        x=alt.X("epsilon:Q", title="epsilon", scale=alt.Scale(type="log", domain=[0.08, 5.0]),
                axis=alt.Axis(values=epsilons, grid=False, format="~g")),
        y=alt.Y("kept:Q", title="share of the model kept, %",
                scale=alt.Scale(domain=[LOWEST, 115]), axis=alt.Axis(values=[0, 25, 50, 75, 100])),
        color=alt.Color("way:N", title=None, sort=list(COLOURS),
                        scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
                        legend=alt.Legend(orient="bottom", labelLimit=300, **LEGEND)),
    )  # fmt: skip
    lines = base.mark_line(strokeWidth=2.5, clip=True) + base.mark_point(filled=True, size=60)
    chart = lines.properties(width=190, height=170).facet(
        column=alt.Column("kind:N", title=None, header=alt.Header(labelFontSize=13))
    )
    with new_file(FILE, force=True) as draft:
        chart.configure(background="white").save(str(draft), format="svg")


if __name__ == "__main__":
    main()
