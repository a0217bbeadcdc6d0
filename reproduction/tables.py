"""Results as tables: what is printed, and what the same cells give when they are run."""

from collections.abc import Sequence

import numpy as np

from reproduction.cells import Printed, printed_values
from reproduction.measured import Measured, Result

Rows = list[list[str]]
"""Of a table, the first being its heading."""

NAMES = {
    "kmeans": "instance k-means",
    "whitened": "scaled instance k-means",
    "sorted": "label k-means",
    "super": "label k-means super-bags",
    "random": "random",
}
"""What the paper calls the strategies."""

TITLES = {
    1: "Table 1: not private, isotropic features",
    2: "Table 2: private, instance loss on picks",
    3: "Table 3: aggregate loss on picks",
    4: "Table 4: bag loss on means",
    5: "Table 5: instance loss on picks",
}


def make_table(table: int, measured: Measured) -> Rows:
    """Return the cells of a table that were run, in the paper's order."""
    lines = [
        printed
        for printed in printed_values()
        if printed.table == table and printed.cell in measured
    ]
    return _private_table(lines, measured) if table == 2 else _open_table(lines, measured)


def _open_table(lines: Sequence[Printed], measured: Measured) -> Rows:
    heading = ["loss", "data", "k", "σ", "bags", "printed", "minimiser", "theory", "protocol"]
    rows = [
        [
            *(line.cell.loss, line.cell.data, str(line.cell.bag_size)),
            *(f"{line.cell.label_noise_sd:g}", NAMES[line.cell.strategy], _as_printed(line)),
            *(_centre(measured, line, name) for name in ("exact", "expected")),
            _mean_and_sd(measured, line, "protocol"),
        ]
        for line in lines
    ]
    return [heading, *rows]


def _private_table(lines: Sequence[Printed], measured: Measured) -> Rows:
    heading = [
        *("bags", "k", "ε", "printed", "protocol", "protocol, noise not divided by k"),
        *("true ε of the printed noise", "minimiser, printed noise", "minimiser, enough noise"),
        "minimiser, bags by a private model",
    ]
    rows = [heading]
    for line in lines:
        cell = line.cell
        rows.append(
            [
                NAMES[cell.strategy],
                str(cell.bag_size),
                f"{cell.epsilon:g}",
                _as_printed(line),
                _mean_and_sd(measured, line, "protocol"),
                _mean_and_sd(measured, line, "protocol_plain"),
                f"{measured.mean(cell, 'true_epsilon'):.3g}",
                *(
                    _with_theory(measured, line, name)
                    for name in ("printed_noise", "correct_noise", "model")
                ),
            ]
        )
    return rows


COLUMNS = {
    "exact": "exact minimiser",
    "expected": "what theory expects of it",
    "protocol": "early-stopped protocol, mean over coefficients",
    "protocol_plain": "the same, noise not divided by the bag size",
    "true_epsilon": "true epsilon of the printed noise",
    "printed_noise": "exact minimiser, printed noise",
    "printed_noise_expected": "what theory expects of it",
    "correct_noise": "exact minimiser, enough noise",
    "correct_noise_expected": "what theory expects of it",
    "model": "exact minimiser, enough noise, bags by a private model",
    "model_expected": "what theory expects of it",
}
"""What the values of a run are, in the order of reading."""


def make_cell_table(results: Sequence[Result]) -> Rows:
    """Return everything about one cell, with the standard deviation of a run.

    Beside what theory expects stands the one that theory gives, from the noise alone.
    """
    cell, measured = results[0].job.cell, Measured(results, rows=results[0].job.rows)
    rows = [["", "mean", "sd of a run", "runs"]]
    rows += [
        [f"printed in table {printed.table}", f"{printed.mean:g}", f"{printed.sd:g}", "15"]
        for printed in printed_values()
        if printed.cell == cell
    ]
    for name, meaning in COLUMNS.items():
        if name in results[0].values:
            runs = measured.runs(cell, name)
            rows.append([meaning, number(float(runs.mean())), _sd(results, name), str(runs.size)])
    return rows


def _sd(results: Sequence[Result], name: str) -> str:
    if f"{name}_sd" in results[0].values:
        theirs = np.array([result.values[f"{name}_sd"] for result in results])
        return number(float(np.sqrt(np.mean(theirs**2))))
    runs = np.array([result.values[name] for result in results])
    return number(float(runs.std(ddof=1))) if runs.size > 1 else ""


def number(value: float) -> str:
    """Return three digits.

    Examples
    --------
    >>> number(0.00765), number(24.13), number(8432.0)
    ('0.00765', '24.1', '8.43e+03')
    """
    return f"{value:.3g}"


def _as_printed(line: Printed) -> str:
    return f"{line.mean:g} ± {line.sd:g}"


def _mean_and_sd(measured: Measured, line: Printed, name: str) -> str:
    runs = measured.runs(line.cell, name)
    mean = number(float(runs.mean()))
    return f"{mean} ± {runs.std(ddof=1):.2g}" if runs.size > 1 else mean


def _centre(measured: Measured, line: Printed, name: str) -> str:
    """Return the mean; for M'M features the median, as one draw near a singular M is the mean."""
    runs = measured.runs(line.cell, name)
    return number(float(np.median(runs) if line.cell.data == "dep" else runs.mean()))


def _with_theory(measured: Measured, line: Printed, name: str) -> str:
    cell = line.cell
    found, expected = measured.mean(cell, name), measured.mean(cell, f"{name}_expected")
    return f"{number(found)} (theory {number(expected)})"
