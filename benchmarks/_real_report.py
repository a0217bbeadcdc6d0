"""The page and the plots of what was measured on real tables."""

import json
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from bagwise.files.atomic import new_file
from benchmarks import _defaults_report as defaults_report
from benchmarks import _picture as picture
from benchmarks import _real_ways as ways
from benchmarks._real_words import NOTHING, markdown, percent
from benchmarks._results import read_rows

Row = dict[str, Any]
Table = dict[str, Any]

PUBLISHED = Path("docs/results/real-data")

KINDS = (
    ways.RANDOM,
    ways.KMEANS,
    ways.ALIGNED,
    ways.SORTED,
    ways.PLANNER,
    ways.MODEL,
    ways.LABELS,
    ways.BINS,
    ways.UNDONE,
)
COLOURS = ("#999999", "#1b7fbd", "#0b3d66", "#56b4e9", "#000000", "#117733", "#cc79a7", "#e69f00",
           "#d55e00", "#aa4499")  # fmt: skip
SHAPES = ("circle", "square", "triangle-up", "cross", "diamond", "triangle-right",
          "triangle-down", "triangle-left", "circle", "square")  # fmt: skip
_RAN_AWAY = "ran away"
_SPELT = {"gaussian": "RMSE", "poisson": "mean Poisson deviance", "bernoulli": "log loss"}


def write(folder: Path, content: dict[str, Any]) -> None:
    """Write README.md and, for every table, its plots as SVG and PNG."""
    for name, table in content["tables"].items():
        _save(_epsilon_chart(name, table), folder, f"{name}-epsilon")
        _save(_size_chart(name, table), folder, f"{name}-bag-size")
    write_page(folder, content)


def write_page(folder: Path = PUBLISHED, content: dict[str, Any] | None = None) -> None:
    """Write README.md alone, from what is kept: results.json beside it, defaults and coverage."""
    if content is None:
        content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    defaults = read_rows("defaults")
    text = page(
        content,
        defaults=defaults,
        coverage=read_rows("coverage"),
        wide_bounds=read_rows("wide_bounds"),
    )
    picture.draw(content["tables"], defaults, folder / "kept.svg")
    with new_file(folder / "README.md", force=True) as draft:
        draft.write_text(text, encoding="utf-8")
    print(f"wrote {folder / 'README.md'}")


def page(
    content: dict[str, Any],
    *,
    defaults: Iterable[Row] = (),
    coverage: Iterable[Row] = (),
    wide_bounds: Iterable[Row] = (),
) -> str:
    """Return the page as Markdown."""
    tables = content["tables"]
    parts = [_opening(content), _findings(tables)]
    parts += defaults_report.sections(list(defaults), list(coverage), list(wide_bounds))
    parts += [_limits(tables), *[_section(name, table) for name, table in tables.items()]]
    return _wrapped("\n\n".join(parts)) + "\n"


def _wrapped(text: str) -> str:
    """Return text with long lines of prose broken; tables and commands stay as they are."""
    return "\n".join(
        line
        if line.startswith(("|", "#", "!", "<", "pip", "OMP"))
        else textwrap.fill(
            line,
            100,
            initial_indent="",
            subsequent_indent="  " if line.startswith(("- ", "  ")) else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )


# Choosing rows


def at(rows: Iterable[Row], epsilon: float | None) -> list[Row]:
    """Return the rows measured at an epsilon; None is not private."""
    return [row for row in rows if row["epsilon"] == epsilon]


def best(rows: Iterable[Row]) -> Row | None:
    """Return the row that keeps most, or None where none has a figure."""
    measured = [row for row in rows if row["kept"] is not None]
    return max(measured, key=lambda row: row["kept"], default=None)


def of(rows: Iterable[Row], way: str, **wanted: Any) -> list[Row]:
    """Return the rows of a way that have the wanted entries."""
    return [
        row
        for row in rows
        if row["way"] == way and all(row[key] == value for key, value in wanted.items())
    ]


def epsilons_of(rows: Iterable[Row]) -> list[float]:
    """Return the epsilons that occur, rising."""
    return sorted({row["epsilon"] for row in rows} - {None})


def most(rows: Iterable[Row], way: str) -> int:
    """Return how often a way was repeated under privacy."""
    return max((row["repeats"] for row in of(rows, way) if row["epsilon"] is not None), default=0)


# Words


def figure(row: Row | None) -> str:
    """Return mean and standard error with digits that mean something."""
    if row is None or row["mean"] is None:
        return NOTHING
    return _digits(row["mean"]) + ("" if row["se"] is None else f" ± {_rough(row['se'])}")


def _rough(error: float) -> str:
    return f"{error:,.0f}" if 1e2 <= error < 1e7 else f"{error:.2g}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if 1e3 <= value < 1e7 else f"{value:.4g}"


def _how(row: Row) -> str:
    """Return the choices behind a row in a few words."""
    if row["way"] in (ways.PLANNER, ways.BINS, ways.UNDONE):
        return ""
    size = "" if row["bag_size"] in (None, 1) else str(row["bag_size"])
    noise = "" if row["noise"] == ways.NONE or row["way"] == ways.MODEL else row["noise"]
    return ", ".join(part for part in (size, noise) if part)


def _opening(content: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in content["packages"].items())
    seconds = sum(table["processor_seconds"] for table in content["tables"].values())
    return f"""# Real tables: how much of a model survives bags and privacy

How good is a row-level model that was learnt from bags of a real table, by strategy, bag size and
epsilon, and what else could one do with the same labels? All errors are those on single held-out
rows with their true labels.

```sh
pip install --group bench
pip install --no-deps --target DIR llp-learn    # see the limits; leave it out to skip it
OMP_NUM_THREADS=1 PYTHONPATH=DIR {content["command"]}
```

It takes {seconds / 60:.0f} minutes of one core, with Python {content["python"]}, {versions}.
[results.json](results.json) has every figure.

**The figure to compare is the share kept.** 100 % is the error of the same model fitted to the true
labels, 0 % that of predicting the training mean for every row. It is counted in squared error for
linear, in deviance for Poisson, and in log loss for logistic models. Below zero a model is worse
than no model. A little above 100 % is chance: the best fit to the rows at hand is not the best on
others. ± is one standard error over repeated releases."""


def _section(name: str, table: Table) -> str:
    low, high = table["bounds"]
    rows = table["rows"]
    lines = [
        f"## {name}",
        "",
        f"{table['about']} From {table['source']}: {table['rows_to_learn_from']:,} rows to learn "
        f"from, {table['rows_held_out']:,} held out, {table['columns_of_X']} columns after "
        f"encoding. Label `{table['label']}`, {table['family']} family, public bounds {low:g} to "
        f"{high:g}, which clip {table['clipped']:,} of the labels to learn from. "
        f"Error: {_SPELT[table['family']]}.",
        "",
        _references(table),
        "",
        f"![share kept by epsilon]({name}-epsilon.svg)",
        "",
        "The best of each kind, as share kept in percent, with the bag size and the noise that it "
        "was reached with:",
        "",
        _best_table(rows),
        "",
        _choices(rows),
        "",
        f"![share kept by bag size, not private]({name}-bag-size.svg)",
        "",
        "<details><summary>All figures: error, and share kept in percent</summary>",
        "",
        _complete_table(rows),
        "",
        "</details>",
    ]
    peers = _peer_table(rows)
    return "\n".join([*lines, *(["", peers] if peers else [])])


def _references(table: Table) -> str:
    second = {"gaussian": None, "poisson": "rmse", "bernoulli": "auc"}[table["family"]]
    header = ["reference", _SPELT[table["family"]], *([second.upper()] if second else [])]
    body = [
        [row["way"], figure(row), *([_digits(row[second])] if second else []), percent(row["kept"])]
        for name in (ways.TRUE, ways.CLIPPED, ways.MEAN)
        for row in of(table["rows"], name)
    ]
    return markdown([*header, "kept, %"], body)


def _best_table(rows: list[Row]) -> str:
    columns = [None, *epsilons_of(rows)]
    header = ["way", "not private", *[f"epsilon {epsilon:g}" for epsilon in columns[1:]]]
    body = []
    for kind in (*KINDS, ways.PICKS):
        cells = [_best_cell(of(at(rows, epsilon), kind)) for epsilon in columns]
        if any(cell != NOTHING for cell in cells):
            body.append([kind, *cells])
    return markdown(header, body)


def _best_cell(rows: list[Row]) -> str:
    row = best(rows)
    if row is None:
        return _RAN_AWAY if rows else NOTHING
    how = _how(row)
    return percent(row["kept"], row["kept_se"]) + (f" ({how})" if how else "")


def _choices(rows: list[Row]) -> str:
    """Say what the planner chose, and into how many bins responses were put."""
    lines = []
    for way, said in ((ways.PLANNER, "The planner chose"), (ways.BINS, "Bins of responses")):
        told = []
        for row in of(rows, way):
            place = "not private" if row["epsilon"] is None else f"epsilon {row['epsilon']:g}"
            told.append(f"{place}: {row['choice']}")
        lines.append(f"- {said}: {'. '.join(told)}.")
    return "\n".join(lines)


def _complete_table(rows: list[Row]) -> str:
    columns = [None, *epsilons_of(rows)]
    header = ["way", "bag size", "noise", "not private"]
    header += [f"epsilon {epsilon:g}" for epsilon in columns[1:]]
    body = []
    for kind in (*KINDS, ways.PICKS):
        settings = dict.fromkeys((row["bag_size"], row["noise"]) for row in of(rows, kind))
        for size, noise in sorted(settings, key=lambda pair: (pair[0] or 0, pair[1])):
            found = of(rows, kind, bag_size=size, noise=noise)
            cells = [_full_cell(at(found, epsilon)) for epsilon in columns]
            body.append([kind, str(size or NOTHING), noise, *cells])
    return markdown(header, body)


def _full_cell(rows: list[Row]) -> str:
    row = best(rows)
    if row is None:
        return _RAN_AWAY if rows else NOTHING
    return f"{figure(row)} ({percent(row['kept'])})"


def _peer_table(rows: list[Row]) -> str:
    peers = [row for row in rows if "rows_used" in row]
    if not peers:
        return ""
    body = [
        [
            row["way"],
            f"{row['rows_used']:,}",
            f"{row['seconds']:.1f}",
            figure(row),
            NOTHING if row["auc"] is None else f"{row['auc']:.4f}",
            percent(row["kept"]),
            row["choice"] or "",
        ]
        for row in peers
    ]
    header = ["peer", "rows", "seconds", "log loss", "AUC", "kept, %", "remark"]
    return (
        f"Peers that learn classes from shares, not private, on the same kmeans bags of "
        f"{peers[0]['bag_size']}, features standardised. Those of llp-learn have a minute each, in "
        "a process of their own, whose start counts; more rows are left out where fewer, at their "
        "pace, foretell more than a minute, or failed. Networks have one hidden layer of 100 and "
        "learn for 20 epochs, so they may keep more than all of what the linear model explains. A "
        "classifier without chances has no log loss.\n\n" + markdown(header, body)
    )


# Findings


def _findings(tables: dict[str, Table]) -> str:
    said = [_exact_finding(tables), _linear_finding(tables), _few_bags_finding(tables)]
    said += [*_private_findings(tables), _planner_finding(tables)]
    said += [_bounds_finding(tables), _noise_finding(tables), _response_finding(tables)]
    said += [_model_finding(tables), _peer_finding(tables)]
    return "\n".join(["## Findings", "", *[f"- {sentence}" for sentence in said if sentence]])


def _exact_finding(tables: dict[str, Table]) -> str:
    told = []
    for name, table in tables.items():
        rows = at(table["rows"], None)
        sizes = sorted({row["bag_size"] for row in of(rows, ways.KMEANS)})
        shares = [
            f"{_plain(of(rows, ways.KMEANS, bag_size=size))} against "
            f"{_plain(of(rows, ways.RANDOM, bag_size=size))} % at {size}"
            for size in sizes
        ]
        told.append(f"{name} {', '.join(shares)}")
    return (
        "**Bags alone, without privacy.** Share kept by kmeans against random bags: "
        f"{'; '.join(told)}."
    )


def _linear_finding(tables: dict[str, Table]) -> str:
    """Say what of the loss is there because labels do not follow the model."""
    told = []
    for name, table in tables.items():
        made = table.get("rows_on_linear_labels") or []
        found = best(of(made, ways.ALIGNED))
        if found is not None:
            real = of(at(table["rows"], None), ways.ALIGNED, bag_size=found["bag_size"])
            told.append(f"{name} {_plain(real)} % and {percent(found['kept'])} %")
    if not told:
        return ""
    return (
        "**Few large bags lean on the model.** Aligned bags make about one bag for each "
        "coefficient. Without any noise they keep, on the real labels and on labels drawn from "
        f"the fitted model itself: {'; '.join(told)}. So what they lose on real labels they lose "
        "because those do not quite follow such a model, and no epsilon brings it back. The "
        "planner, which sees features alone, cannot know that."
    )


def _few_bags_finding(tables: dict[str, Table]) -> str:
    """Say what compact bags lose where they are too few for the coefficients."""
    told = []
    for name, table in tables.items():
        rows = at(table["rows"], max(epsilons_of(table["rows"]), default=None))
        size = max((row["bag_size"] for row in of(rows, ways.KMEANS)), default=1)
        bags, coefficients = table["rows_to_learn_from"] // size, table["columns_of_X"] + 1
        if bags < 3 * coefficients:
            told.append(
                f"{name} has {bags} bags of {size} for {coefficients} coefficients, and kmeans "
                f"keeps {_plain(of(rows, ways.KMEANS, bag_size=size))} % at the largest epsilon, "
                f"against {_plain(of(rows, ways.KMEANS))} % with its best size"
            )
    return f"**Too few bags.** {'; '.join(told)}." if told else ""


def _plain(rows: list[Row]) -> str:
    row = best(rows)
    return NOTHING if row is None else percent(row["kept"])


def _private_findings(tables: dict[str, Table]) -> Iterable[str]:
    for epsilon in _common_epsilons(tables):
        told = []
        for name, table in tables.items():
            rows = at(table["rows"], epsilon)
            first = best(row for row in rows if row["way"] in KINDS)
            bags = best(row for row in rows if row["way"] in KINDS[:5])
            if first is None or bags is None:
                continue
            text = f"{name} {_named(first)}"
            told.append(text if first is bags else f"{text}, best bags {_named(bags)}")
        yield f"**Best at epsilon {epsilon:g}.** {'; '.join(told)}."


def _named(row: Row) -> str:
    how = _how(row)
    return f"{row['way']}{f' ({how})' if how else ''} {percent(row['kept'])} %"


def _common_epsilons(tables: dict[str, Table]) -> list[float]:
    return epsilons_of(row for table in tables.values() for row in table["rows"])


def _planner_finding(tables: dict[str, Table]) -> str:
    gaps = []
    for name, table in tables.items():
        for epsilon in epsilons_of(table["rows"]):
            rows = at(table["rows"], epsilon)
            planned, bags = (
                best(of(rows, ways.PLANNER)),
                best(row for row in rows if row["way"] in KINDS[:5]),
            )
            if planned and bags:
                gaps.append((bags["kept"] - planned["kept"], name, epsilon))
    if not gaps:
        return ""
    worst = max(gaps)
    near = sum(gap <= 0.02 for gap, _, _ in gaps)
    return (
        f"**Leaving it to the planner** costs at most 2 points against the best bags, chosen in "
        f"hindsight, in {near} of {len(gaps)} private cases; the worst is {worst[1]} at epsilon "
        f"{worst[2]:g}, {100 * worst[0]:.1f} points."
    )


def _bounds_finding(tables: dict[str, Table]) -> str:
    told = [
        f"{name} {percent(row['kept'])} %"
        for name, table in tables.items()
        for row in of(table["rows"], ways.CLIPPED)
    ]
    if not told:
        return ""
    return (
        f"**Bounds have a price of their own.** True labels, clipped, keep: {', '.join(told)}. "
        "Where that is far from 100 %, private ways level off near it, whatever epsilon is. The "
        "released model can do better than this reference: it gives rows far out less weight, and "
        "those are the ones whose labels are clipped."
    )


def _peer_finding(tables: dict[str, Table]) -> str:
    """Compare llp-learn with models of bagwise on the rows that most of them can take."""
    peers = [row for table in tables.values() for row in table["rows"] if "rows_used" in row]
    if not peers:
        return ""
    count = min(row["rows_used"] for row in peers)
    told = [
        f"{row['way']} {percent(row['kept'])} % in {row['seconds']:.1f} s"
        for row in peers
        if row["rows_used"] == count and row["kept"] is not None
    ]
    return f"**Peers for classes**, without privacy, on {count:,} rows: {'; '.join(told)}."


def _noise_finding(tables: dict[str, Table]) -> str:
    pairs = [
        (laplace, gaussian[0])
        for table in tables.values()
        for laplace in table["rows"]
        if laplace["noise"] == ways.LAPLACE and laplace["kept"] is not None
        for gaussian in [_twin(table["rows"], laplace)]
        if gaussian and gaussian[0]["kept"] is not None
    ]
    better = sum(laplace["kept"] > gaussian["kept"] for laplace, gaussian in pairs)
    return (
        f"**Laplace noise with delta = 0** has less error than Gaussian noise with delta = 1e-6 in "
        f"{better} of {len(pairs)} settings with the same bags."
    )


def _twin(rows: list[Row], row: Row) -> list[Row]:
    return of(
        rows,
        row["way"],
        noise=ways.GAUSSIAN,
        bag_size=row["bag_size"],
        epsilon=row["epsilon"],
    )


def _response_finding(tables: dict[str, Table]) -> str:
    return _compared(
        tables,
        lambda rows: best(
            row for row in rows if row["way"] in (ways.LABELS, ways.BINS, ways.UNDONE)
        ),
        "**Single labels with noise or randomised response**",
    )


def _model_finding(tables: dict[str, Table]) -> str:
    return _compared(
        tables, lambda rows: best(of(rows, ways.MODEL)), "**The model released directly** (linear)"
    )


def _compared(
    tables: dict[str, Table], choose: Callable[[list[Row]], Row | None], subject: str
) -> str:
    """Count how often a kind of way keeps more than the best bags."""
    won, cases = [], 0
    for name, table in tables.items():
        for epsilon in epsilons_of(table["rows"]):
            rows = at(table["rows"], epsilon)
            other, bags = choose(rows), best(row for row in rows if row["way"] in KINDS[:5])
            if other and bags:
                cases += 1
                if other["kept"] > bags["kept"]:
                    won.append(f"{name} at {epsilon:g}")
    where = f" ({', '.join(won)})" if won else ""
    return f"{subject}: keeps more than the best bags in {len(won)} of {cases} cases{where}."


def _limits(tables: dict[str, Table]) -> str:
    many = ", ".join(
        f"{most(table['rows'], ways.KMEANS)} times for {name} "
        f"({most(table['rows'], ways.PLANNER)} for the slow ways)"
        for name, table in tables.items()
    )
    return f"""## How it was done, and limits

- A fifth of the rows is held out, in runs of 200, the same for every way. Held-out labels are never
  clipped. Private ways clip the labels they learn from; "true labels, clipped" shows what that
  alone costs.
- Private ways, and what is random without privacy, are repeated with fresh noise: {many}.
  Slow are the planner's choice, sorted bags and the released model. The large tables have fewer
  repeats and fewer bag sizes, so that all of it takes no longer; a standard error over two repeats
  is a rough one. Standard errors say nothing of other tables or other held-out rows.
- Bags differ by seed as well as by noise. Repeats use other random bags and other aligned bags, and
  take turns with three partitions by kmeans; on the two larger tables there is one for each size.
  Bags that depend on features only are made once for all epsilons. The seconds in results.json
  count making them.
- delta is 1e-6 with Gaussian noise, and 0 with Laplace noise and randomised response. Noise is the
  secure one of a real release.
- Sorted bags are sorted by a private model, which spends part of epsilon, and are fitted with
  instance loss. Sorting by the labels themselves is left out: it shows them.
- The best of several sizes is chosen by looking at held-out rows, which nobody can do in earnest.
  The planner's choice is made without: it looks at features alone.
- Noise on every label: each row is a bag of its own, and the fit knows the noise.
- RR on bins is randomised response on intervals of labels, chosen for the least squared error under
  a histogram that costs a tenth of epsilon (Ghazi, Kamath, Kumar, Manurangsi, Sekhari and Zhang,
  "Regression with Label Differential Privacy", ICLR 2023). The model is fitted to what is reported,
  as published. "Bias undone" turns reports into unbiased ones first, which costs no epsilon; it is
  not in that paper.
- "Ran away" means that a repeat has no finite error. Labels so noisy that they hide the signal can
  send the coefficients of a Poisson model to infinity, and its predictions with them; the fit warns
  (`NotConvergedWarning`). A penalty, larger bags or other bags help.
- The model released directly is offered for linear models only.
- All models are linear in the encoded columns, without a penalty. Better models of these tables
  exist; the question here is what is left of the same one.
- llp-learn 1.6 asks for numpy 1.24, scikit-learn 1.2 and torch 2.0, and pip replaces newer ones
  without asking. Install it apart and without what it asks for, as above. Its networks import
  torchvision, which it does not list. A stand-in was used, since tables do not need it."""


# Plots

_LEAST_LOST = 0.001
_LOST_MARKS = [1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, _LEAST_LOST]


def _epsilon_chart(name: str, table: Table) -> alt.LayerChart:
    rows = table["rows"]
    marks = epsilons_of(rows)
    chosen = [best(of(at(rows, epsilon), kind)) for kind in KINDS for epsilon in marks]
    title = f"{name}: share kept by epsilon, each way with its best bag size and noise"
    return _chart([row for row in chosen if row], x="epsilon", marks=marks, title=title)


def _size_chart(name: str, table: Table) -> alt.LayerChart:
    shown = (ways.RANDOM, ways.KMEANS, ways.ALIGNED, ways.PICKS)
    rows = [
        row for row in at(table["rows"], None) if row["way"] in shown and row["kept"] is not None
    ]
    marks = sorted({row["bag_size"] for row in rows})
    title = f"{name}: share kept by bag size, not private"
    return _chart(rows, x="bag_size", marks=marks, title=title)


def _chart(rows: list[Row], *, x: str, marks: list[float], title: str) -> alt.LayerChart:
    names = [*KINDS, ways.PICKS]
    present = [name for name in names if any(row["way"] == name for row in rows)]
    colours = [COLOURS[names.index(name)] for name in present]
    legend = alt.Legend(title=None, labelLimit=260, symbolSize=90, labelFontSize=12)
    base = alt.Chart(_drawn(rows, x, present)).encode(
        x=alt.X(
            "place:Q",
            title=x.replace("_", " "),
            axis=alt.Axis(values=marks, format="~g", grid=False),
            scale=alt.Scale(type="log", domain=[marks[0] / 1.2, marks[-1] * 1.2], nice=False),
        ),
        color=alt.Color("way:N", scale=alt.Scale(domain=present, range=colours), legend=legend),
    )
    # Most of what matters lies between 90 and 100 %: the axis is that of the share lost, as a
    # logarithm, and its labels are the share kept.
    y = alt.Y(
        "lost:Q",
        title="share of the explained part kept",
        axis=alt.Axis(values=_LOST_MARKS, labelExpr="format(1 - datum.value, '.1%')"),
        scale=alt.Scale(type="log", domain=[1, _LEAST_LOST], reverse=False),
    )
    shapes = [SHAPES[names.index(name)] for name in present]
    shape = alt.Shape("way:N", scale=alt.Scale(domain=present, range=shapes), legend=legend)
    layers = (
        base.mark_line(strokeWidth=1.6, opacity=0.8).encode(y=y)
        + base.mark_rule(strokeWidth=1.4).encode(y=alt.Y("low:Q"), y2="high:Q")
        + base.mark_point(filled=True, size=75, opacity=1).encode(y=y, shape=shape)
    )
    subtitle = [
        "100 %: as good as fitted to the true labels. 0 %: no better than the mean, or worse.",
        "The axis stretches what is near 100 %; more than 99.9 % is drawn at the top. "
        "Bars: one standard error.",
    ]
    return (
        layers.properties(
            width=540, height=380, title=alt.Title(title, subtitle=subtitle, subtitleFontSize=11)
        )
        .configure_axis(labelFontSize=12, titleFontSize=13)
        .configure_title(fontSize=14, anchor="start", offset=12)
        .configure_view(stroke=None)
    )


def _drawn(rows: list[Row], x: str, present: list[str]) -> pd.DataFrame:
    """Return where each row is drawn: ways side by side, and nothing outside of the plot."""
    return pd.DataFrame(
        [
            {
                "way": row["way"],
                "place": row[x] * 1.018 ** (present.index(row["way"]) - len(present) // 2),
                "lost": _inside(1 - row["kept"]),
                "low": _inside(1 - row["kept"] - (row["kept_se"] or 0)),
                "high": _inside(1 - row["kept"] + (row["kept_se"] or 0)),
            }
            for row in rows
        ]
    )


def _inside(lost: float) -> float:
    return min(max(lost, _LEAST_LOST), 1.0)


def _save(chart: alt.LayerChart, folder: Path, name: str) -> None:
    for ending, options in (("svg", {}), ("png", {"ppi": 120})):
        with new_file(folder / f"{name}.{ending}", force=True) as draft:
            chart.save(str(draft), format=ending, **options)
