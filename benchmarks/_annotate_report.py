"""The page and the plots of what labels within a budget are worth."""

import json
import textwrap
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import altair as alt
import pandas as pd

from bagwise.files.atomic import new_file

Row = dict[str, Any]

PUBLISHED = Path("docs/results/annotate")
CHOSEN = "cross-validation"
ORDER = ("paper", "diamonds", "visits", "children", "flights")
BAGS = "bags-kmeans"
_COLOURS = ("#999999", "#e69f00", "#56b4e9", "#0b3d66", "#cc79a7", "#117733", "#1b7fbd", "#d55e00",
            "#000000")  # fmt: skip
_SHAPES = ("circle", "square", "triangle-up", "triangle-down", "cross", "diamond",
           "triangle-right", "triangle-left", "circle")  # fmt: skip
_FLOOR = 1e-4  # of what all labels gain: nobody sees less


def write(folder: Path) -> None:
    """Write README.md and, for every table, its two plots as SVG."""
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    tables = {name: content[name] for name in ORDER if name in content}
    for name, table in tables.items():
        rows = table["measured"]
        by_design = _medians(row for row in rows if row["use"] == CHOSEN)
        _save(_chart(name, by_design, "design", "which rows are labelled"), folder, f"{name}-rows")
        by_use = _medians(row for row in rows if row["design"] == BAGS)
        _save(_chart(name, by_use, "use", f"what a label is used for ({BAGS})"), folder,
              f"{name}-uses")  # fmt: skip
    with new_file(folder / "README.md", force=True) as draft:
        draft.write_text(_page(tables), encoding="utf-8")
    print(f"wrote {folder / 'README.md'}")


def _medians(rows: Iterable[Row]) -> list[Row]:
    groups: dict[tuple[str, str, int], list[float | None]] = {}
    for row in rows:
        groups.setdefault((row["design"], row["use"], row["budget"]), []).append(row["lost"])
    return [
        {"design": design, "use": use, "budget": budget, "lost": _middle(values)}
        for (design, use, budget), values in groups.items()
    ]


def _middle(values: Iterable[float | None]) -> float | None:
    """Return the median; None where at least half of the fits ran away."""
    found = median(float("inf") if value is None else value for value in values)
    return None if found == float("inf") else found


def _chart(name: str, rows: list[Row], by: str, title: str) -> alt.Chart:
    shown = [
        {**row, "lost": min(max(row["lost"], _FLOOR), 10.0)}
        for row in rows
        if row["lost"] is not None
    ]
    kinds, log = sorted({row[by] for row in shown}), alt.Scale(type="log")
    scale = alt.Scale(domain=kinds, range=list(_COLOURS[: len(kinds)]))
    wide = alt.Legend(labelLimit=400)
    shapes = alt.Scale(domain=kinds, range=list(_SHAPES[: len(kinds)]))
    return (
        alt.Chart(pd.DataFrame(shown), title=f"{name}: {title}", width=520, height=320)
        .mark_line(point={"size": 60})
        .encode(
            x=alt.X("budget:Q", title="labels bought", scale=log),
            y=alt.Y("lost:Q", title="share lost of what all labels gain", scale=log),
            color=alt.Color(f"{by}:N", title=None, scale=scale, legend=wide),
            shape=alt.Shape(f"{by}:N", title=None, scale=shapes, legend=wide),
        )
    )


def _save(chart: alt.Chart, folder: Path, name: str) -> None:
    with new_file(folder / f"{name}.svg", force=True) as draft:
        chart.save(str(draft), format="svg")


def _page(tables: dict[str, Any]) -> str:
    parts = [_opening(), textwrap.fill(_findings(tables), 100), _expectations(tables)]
    parts += [_section(name, table) for name, table in tables.items()]
    return "\n\n".join(parts) + "\n"


def _opening() -> str:
    text = (
        "Rows are taken to be without labels, some are chosen, their labels are looked up, and a "
        "model predicts held-out rows. Figures are the share that the model loses of what a model "
        "of all labels gains over the mean, in deviance: 0 is as good as all labels, 1 is no "
        "better than the mean, above 1 is worse. They are medians of a few draws (one for optimal "
        "rows, aligned bags and mixtures, which are tried for bags of at most 20 rows). Written by "
        "`python -m benchmarks.annotate`; `results.json` has every draw. Two rules were settled "
        "after a first look at these figures for diamonds and children, so that for them "
        "cross-validation is not a blind test: `shrunk` stays unless another use is clearly "
        "better, and `auto` never takes optimal rows."
    )
    return "# What a labelling budget buys\n\n" + textwrap.fill(text, 100)


def _findings(tables: dict[str, Any]) -> str:
    """Say in three sentences which wins when; what is counted are tables by budgets."""
    cells = sum(len({row["budget"] for row in table["measured"]}) for table in tables.values())
    by_design = [_medians(r for r in t["measured"] if r["use"] == CHOSEN) for t in tables.values()]
    by_use = [_medians(r for r in t["measured"] if r["design"] == BAGS) for t in tables.values()]
    bags = _wins(by_design, "design", BAGS, "rows-random")
    medoids = _wins(by_design, "design", f"{BAGS}, medoid", BAGS)
    boosted = _wins(by_design, "design", f"{BAGS}, then bags-boosted", BAGS)
    shared = [_wins(by_use, "use", "shrunk", use) for use in ("aggregate", "instance")]
    return (
        "A label is worth most for its own row: shrunk slopes of the labelled rows beat labels for "
        f"centroids in {shared[0]} and labels for every row of a bag in {shared[1]} of {cells} "
        "cells, and up to a few hundred labels it is the shrinkage, in units of the covariance of "
        "all rows, that keeps models of counts and chances from running away. Bags help a little "
        f"to choose rows: one drawn from each k-means bag beats random rows in {bags} of {cells} "
        f"cells, the medoid beats a drawn row in {medoids}, and a second round by predictions "
        f"beats one round in {boosted}. Where the truth is linear (the paper's data), A- and "
        "V-optimal rows lose half to two thirds of what random rows lose up to 1,500 labels; on "
        "diamonds, some of whose measures are 0 or ten times too large by mistake, they lose more "
        "than any other design."
    )


def _wins(tables: list[list[Row]], by: str, one: str, other: str) -> int:
    """Return in how many cells one way loses less than another."""
    wins = 0
    for rows in tables:
        lost = {(row[by], row["budget"]): row["lost"] for row in rows}
        wins += sum(
            _of(lost, one, budget) < _of(lost, other, budget) for budget in {b for _, b in lost}
        )
    return wins


def _of(lost: dict[tuple[str, int], float | None], way: str, budget: int) -> float:
    found = lost.get((way, budget))
    return float("inf") if found is None else found


def _section(name: str, table: Any) -> str:
    rows = table["measured"]
    about = textwrap.fill(
        f"{table['about']} {table['rows']:,} rows to choose from, {table['columns']} columns, "
        f"{table['family']} family, {len({row['seed'] for row in rows})} draws.",
        100,
    )
    designs = _grid(_medians(row for row in rows if row["use"] == CHOSEN), "design")
    uses = _grid(_medians(row for row in rows if row["design"] == BAGS), "use")
    return (
        f"## {name}\n\n{about}\n\nWhich rows, the use being chosen by cross-validation:\n\n"
        f"{designs}\n\n![{name}: which rows]({name}-rows.svg)\n\n"
        f"What a label is used for, rows being picked from k-means bags:\n\n{uses}\n\n"
        f"![{name}: what a label is used for]({name}-uses.svg)"
    )


def _grid(rows: list[Row], by: str) -> str:
    budgets = sorted({row["budget"] for row in rows})
    kinds = sorted({row[by] for row in rows})
    found = {(row[by], row["budget"]): row["lost"] for row in rows}
    best = {
        budget: min(
            (found[kind, budget] for kind in kinds if found.get((kind, budget)) is not None),
            default=None,
        )
        for budget in budgets
    }
    lines = [f"| {by} | " + " | ".join(f"{budget:,}" for budget in budgets) + " |"]
    lines.append("|---|" + "---:|" * len(budgets))
    for kind in kinds:
        cells = [
            _cell(found[kind, budget], best[budget]) if (kind, budget) in found else "–"
            for budget in budgets
        ]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: float | None, best: float | None) -> str:
    if value is None:
        return "ran away"
    text = f"{value:.2g}" if abs(value) < 1 else f"{value:.1f}"
    return f"**{text}**" if value == best else text


def _expectations(tables: dict[str, Any]) -> str:
    """Say how well designs were ranked before any label was bought."""
    counts = {name: _ranked_right(table["measured"]) for name, table in tables.items()}
    found = "; ".join(f"{right} of {total} for {name}" for name, (right, total) in counts.items())
    return textwrap.fill(
        "How often the error expected before any label was bought told which of two designs is "
        f"better, among pairs whose expected squared errors differ by a tenth or more: {found}.",
        100,
    )


def _ranked_right(rows: Iterable[Row]) -> tuple[int, int]:
    """Return how many pairs of designs were ranked as they came out, and how many there are."""
    known = [r for r in rows if r["use"] == CHOSEN and "expected" in r and r["lost"] is not None]
    right = total = 0
    for budget in {row["budget"] for row in known}:
        here = [row for row in known if row["budget"] == budget]
        expected, lost = (
            {d: median(r[what] for r in here if r["design"] == d) for d in _designs(here)}
            for what in ("expected", "lost")
        )
        for one, other in combinations(expected, 2):
            if abs(expected[one] - expected[other]) > 0.1 * max(expected[one], expected[other]):
                total += 1
                right += (expected[one] < expected[other]) == (lost[one] < lost[other])
    return right, total


def _designs(rows: Iterable[Row]) -> list[str]:
    return sorted({row["design"] for row in rows})
