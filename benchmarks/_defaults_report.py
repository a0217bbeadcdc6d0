"""The part of the page about defaults: the shortest command, and how often intervals hold."""

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks._real_words import NOTHING, markdown, percent

Row = dict[str, Any]

NEAR = 0.015  # of the share kept
USUAL, STRONG = (0.5, 1.0, 4.0), (0.05, 0.1)
WORST = -0.02
DIAMONDS = {0.05: 0.93, 0.1: 0.975}
SLOPES = {"shortest": 0.03, "aligned": 0.013}


def sections(
    defaults: list[Row], coverage: list[Row], wide_bounds: Sequence[Row] = ()
) -> list[str]:
    """Return the sections of what was measured, in their order."""
    tables = [row for row in defaults if row["part"] == "table"]
    paper = [row for row in defaults if row["part"] == "paper"]
    found = [_shortest(tables)] if tables else []
    found += [_paper(paper)] if paper else []
    found += [_wide_bounds(wide_bounds)] if wide_bounds else []
    return found + ([_coverage(coverage)] if coverage else [])


def _shortest(rows: list[Row]) -> str:
    epsilons = sorted({row["epsilon"] for row in rows})
    draws = sorted({row["draws"] for row in rows})
    return "\n".join(
        [
            "## The shortest command",
            "",
            "What a user gets who says only label, bounds and epsilon "
            "(`make_release(table, label=, bounds=, epsilon=)`, `fit_release(release, family=)`), "
            "against the best in hindsight of a grid of bag releases under the same promise: "
            "kmeans, optimal, random, aligned, and sorted by a private model, with bags of "
            f"{_sizes(rows)} rows. {_many(draws)} draws each, on fresh bags and with fresh noise "
            "after a first pass chose the best of the grid. Draws take turns with four partitions, "
            "so intervals are those of the noise more than of the bags. Share kept in percent: the "
            "shortest command / the best, and the mean of the paired differences in "
            "points, with its 95 % interval. "
            "`python -m benchmarks.defaults`; every draw, and the grid of each table, is in "
            "`benchmarks/results/defaults.json`. Of tables with more than 60,000 rows that many "
            "were taken, and optimal bags were tried up to 50,000 rows.",
            "",
            markdown(
                ["table", *[f"epsilon {epsilon:g}" for epsilon in epsilons]],
                [
                    [name, *[_cell(rows, name, epsilon) for epsilon in epsilons]]
                    for name in dict.fromkeys(row["table"] for row in rows)
                ],
            ),
            "",
            *_verdicts(rows),
            *_strong_promises([row for row in rows if row["epsilon"] in STRONG]),
            "",
            "What the shortest command chose, with the best in hindsight in brackets:",
            "",
            markdown(
                ["table", *[f"epsilon {epsilon:g}" for epsilon in epsilons]],
                [
                    [name, *[_choice(rows, name, epsilon) for epsilon in epsilons]]
                    for name in dict.fromkeys(row["table"] for row in rows)
                ],
            ),
        ]
    )


def _sizes(rows: list[Row]) -> str:
    found = sorted({entry["bag_size"] for row in rows for entry in row["grid"]})
    return f"{found[0]} to {found[-1]}" if len(found) > 1 else str(found[0])


def _many(draws: list[int]) -> str:
    return str(draws[0]) if len(draws) == 1 else f"{draws[0]} to {draws[-1]}"


def _find(rows: list[Row], name: str, epsilon: float) -> Row | None:
    return next((row for row in rows if (row["table"], row["epsilon"]) == (name, epsilon)), None)


def _cell(rows: list[Row], name: str, epsilon: float) -> str:
    row = _find(rows, name, epsilon)
    if row is None:
        return NOTHING
    both = f"{percent(row['shortest']['mean'])} / {percent(row['best']['mean'])}"
    if row["interval"] is None:
        return both
    low, high = (100 * end for end in row["interval"])
    return f"{both} ({100 * row['difference']:+.1f}; {low:+.1f} to {high:+.1f})"


def _choice(rows: list[Row], name: str, epsilon: float) -> str:
    row = _find(rows, name, epsilon)
    if row is None:
        return NOTHING
    said = [f"{row[way]['strategy']} {row[way]['bag_size']}" for way in ("shortest", "best")]
    return f"{said[0]}, {row['shortest']['noise']} ({said[1]})"


def _verdicts(rows: list[Row]) -> Iterable[str]:
    """Say which of what is promised of the shortest command holds."""
    usual = [row for row in rows if row["epsilon"] in USUAL]
    if usual:
        far = [row for row in usual if row["difference"] is None or row["difference"] < -NEAR]
        yield (
            f"- At epsilon {_list(USUAL)} it is within {100 * NEAR:g} points of the best in "
            f"{len(usual) - len(far)} of {len(usual)} cases{_where(far)}."
        )
    strong = [row for row in rows if row["epsilon"] in STRONG]
    if strong:
        below = [row for row in strong if _below(row["shortest"]["median"], 0.0)]
        lost = [row for row in strong if _below(row["shortest"]["worst"], WORST)]
        yield (
            f"- At epsilon {_list(STRONG)} its median draw is at least as good as the mean of the "
            f"labels in {len(strong) - len(below)} of {len(strong)} cases{_where(below)}, and its "
            f"worst draw keeps at least {100 * WORST:g} % in {len(strong) - len(lost)}"
            f"{_where(lost)}."
        )
    for epsilon, least in DIAMONDS.items():
        row = _find(rows, "diamonds", epsilon)
        if row is not None:
            yield (
                f"- Diamonds at epsilon {epsilon:g}: {percent(row['shortest']['mean'])} % "
                f"(at least {100 * least:g} % are asked for)."
            )


def _strong_promises(rows: list[Row]) -> Iterable[str]:
    """Say how bad single draws are where noise is heaviest."""
    if not rows:
        return
    yield from ("", "The shortest command where the promise is strongest, share kept in percent:")
    yield ""
    yield markdown(
        ["table", "epsilon", "median draw", "worst draw", "worst draw of the best"],
        [
            [
                row["table"],
                f"{row['epsilon']:g}",
                percent(row["shortest"]["median"]),
                percent(row["shortest"]["worst"]),
                percent(row["best"]["worst"]),
            ]
            for row in rows
        ],
    )


def _below(value: float | None, least: float) -> bool:
    return value is None or value < least


def _where(rows: list[Row]) -> str:
    told = [f"{row['table']} at {row['epsilon']:g}" for row in rows]
    return f" (not in {', '.join(told)})" if told else ""


def _list(values: Iterable[float]) -> str:
    *first, last = (f"{value:g}" for value in values)
    return f"{', '.join(first)} and {last}"


def _paper(rows: list[Row]) -> str:
    body = [
        [
            "shortest command" if row["way"] == "shortest" else row["way"],
            f"{row['mean_error']:.4f} ± {row['standard_error']:.4f}",
            f"{SLOPES[row['way']]:g}",
            f"{row['strategy']} {row['bag_size']}, {row['noise']}, {row['bags']} bags",
            "yes" if row["gives_intervals"] else "no",
        ]
        for row in rows
    ]
    return "\n".join(
        [
            "### The paper's setting",
            "",
            "50,000 rows of 32 standard normal columns, coefficients standard normal, label noise "
            "0.5, bounds ±4 √33, epsilon 1, delta 1e-5. Squared error of the slopes, over "
            f"{_many(sorted({row['draws'] for row in rows}))} draws of data, bags and noise.",
            "",
            markdown(["way", "error", "at most", "bags", "intervals"], body),
        ]
    )


def _wide_bounds(rows: Sequence[Row]) -> str:
    tables = [row for row in rows if row["part"] == "table"]
    paper = [row for row in rows if row["part"] != "table"]
    body = [
        [
            f"{row['times_too_wide']} times",
            f"{row['epsilon']:g}",
            *[percent(row[way]["mean"]) for way in ("looks", "none")],
            percent(row["looks"]["worst"]),
            f"{100 * row['difference']:+.1f} ({_between(row['interval'])})",
        ]
        for row in tables
    ]
    errors = " and ".join(
        f"{row['mean_error']:.4f} ± {row['standard_error']:.4f} at epsilon {row['epsilon']:g}"
        for row in paper
    )
    said = [f"At the paper's setting, where all bounds are too wide: {errors}.", ""]
    return "\n".join(
        [
            "### Bounds that are too wide",
            "",
            "Diamonds by the shortest command, with bounds once, five and fifty times as wide as "
            "labels need, beside the same release without private looks at the labels "
            f"(`tighten` and `centre` none). Share kept in percent, {tables[0]['draws']} draws. "
            "`python -m benchmarks.wide_bounds`.",
            "",
            markdown(
                ["bounds", "epsilon", "with looks", "without", "worst with looks", "difference"],
                body,
            ),
            "",
            *(said if paper else []),
        ]
    ).rstrip()


def _between(interval: Sequence[float]) -> str:
    return " to ".join(f"{100 * end:+.1f}" for end in interval)


def _coverage(rows: list[Row]) -> str:
    body = [
        [
            row["setting"],
            row["theta"],
            row["intervals"],
            str(row["releases"]),
            *[NOTHING if row[key] is None else f"{row[key]:.3f}" for key in ("mean", "lowest")],
        ]
        for row in rows
    ]
    return "\n".join(
        [
            "## Do intervals hold the truth?",
            "",
            "How often 95 % intervals of the slopes hold the true ones, over releases with fresh "
            "labels and fresh noise; bags are made once. The mean over slopes, and the slope that "
            "is held least often. `python -m benchmarks.coverage`.",
            "",
            markdown(["setting", "true slopes", "intervals", "releases", "mean", "lowest"], body),
        ]
    )
