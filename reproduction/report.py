"""Everything that was found, as Markdown."""

import json
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bagwise._version import __version__
from bagwise.files.atomic import new_file
from reproduction.agreement import (
    Predicted,
    compare_with_theory,
    explain_printed,
)
from reproduction.cells import APPENDIX, PRINTED_RUNS, Cell, printed_values
from reproduction.claims import SIMILAR, Verdict, judge_claims
from reproduction.measured import Measured, Result
from reproduction.private_cells import DELTA
from reproduction.protocol import BATCH_BAGS
from reproduction.reproduce import PAPER_ROWS, Scale
from reproduction.tables import TITLES, make_table, number

TITLE = "The paper's tables, made again"

_COLUMNS = (
    "Per cell: the value that is printed, with the standard deviation over runs; the squared "
    "error of the exact minimiser of the stated loss on the stated data; what theory expects of "
    "it, given the features, the coefficients and the bags of each run; and the error by the "
    "protocol, an early-stopped fit that comes near to the printed values. Means over runs, and "
    "medians for the minimiser and theory where features are dep: there one draw of M near a "
    "singular matrix would be the mean. k is the bag size, σ the standard deviation of the label "
    "noise."
)
_DATA = (
    "Features: iso, standard Gaussian; ind, independent with variances uniform in 0.1 to 10; dep, "
    "covariance M'M with standard Gaussian M. 32 of them, and coefficients are standard Gaussian. "
    "Scaled instance k-means whitens by the true covariance, as in the paper; the package's own "
    "k-means strategy by the sample's."
)
_PROTOCOL = (
    "The protocol was inferred from the printed values and nothing else: rows scaled to length 1, "
    "true coefficients of length 0.3, a linear layer that starts Glorot-uniform, Adam with a step "
    "of 0.001 in batches of 512 bags, 30 times through the data, and the error averaged over "
    "coefficients. Other choices would fit nearly as well, so it is one explanation and not a "
    "record of what was done."
)
_PRIVATE = (
    f"Epsilon is as stated and delta is {DELTA:g}; bounds on labels are four standard deviations "
    "of a label, known from the set-up. The printed noise keeps the epsilon beside it. "
    "Enough noise is what the accountant asks for at the stated epsilon. The last column spends "
    "the same epsilon on a private linear model that sorts the rows, and on the picks. In "
    "parentheses what theory expects (F1, given the bags)."
)
_VERDICTS = (
    "A setting (features, bag size, label noise) speaks for a claim, or against it, where a 95 % "
    "interval of the mean log ratio over runs says so. Given are the settings for : undecided : "
    "against. A claim holds if more than half of the settings speak for it (more than a quarter "
    "for “in many cases”) and at most a quarter against it; it fails if more are against it. "
    f"Similar means within a factor of {SIMILAR:g}, the largest error over the smallest. A drop is "
    "the ratio of the errors at epsilon 0.5 and 2; by differences some would go the other way. "
    "Private claims are judged with the printed noise."
)


def write_report(results: Sequence[Result], directory: Path, *, scale: Scale, command: str) -> None:
    """Write report.md and results.json into a directory."""
    contents = {
        "report.md": "\n\n".join(_blocks(results, scale, command)) + "\n",
        "results.json": json.dumps([result.to_dict() for result in results]) + "\n",
    }
    for name, content in contents.items():
        with new_file(directory / name, force=True) as draft:
            draft.write_text(content, encoding="utf-8")


def theory_agreement(measured: Measured) -> list[Predicted]:
    """Compare the minimisers with theory, apart for bags that depend on the labels or do not."""
    printed = dict.fromkeys(printed.cell for printed in printed_values())
    run = [cell for cell in printed if cell in measured]
    cells = [cell for cell in run if cell.epsilon is None]
    private = [cell for cell in run if cell.epsilon is not None]
    agnostic = [cell for cell in cells if not cell.by_labels]
    groups: list[tuple[str, list[Cell], str, str]] = [
        ("bags without labels, F1 and F2", agnostic, "exact", "expected")
    ]
    groups += [
        (
            f"bags sorted by the labels, {loss} loss, {formula}",
            [cell for cell in cells if cell.by_labels and cell.loss == loss],
            "exact",
            "expected",
        )
        for loss, formula in (
            ("bag", "E8"),
            ("aggregate", "E8 and the choice of a label"),
            ("instance", "least squares and F5"),
        )
    ]
    groups += [
        (f"private, {what}, F1", private, name, f"{name}_expected")
        for what, name in (
            ("printed noise", "printed_noise"),
            ("enough noise", "correct_noise"),
            ("bags by a private model", "model"),
        )
    ]
    return [compare_with_theory(measured, *group) for group in groups if group[1]]


def verdict_rows(verdicts: Sequence[Verdict]) -> list[list[str]]:
    """Return the verdicts as rows of a table."""
    rows = [["claim", "verdict", "printed", "minimiser", "enough noise", "protocol", "runs"]]
    for verdict in verdicts:
        tallies = [
            str(verdict.tallies.get(way, "")) for way in ("printed", "exact", "enough noise")
        ]
        claim = f"{verdict.claim.text} ({verdict.claim.place})"
        protocol = str(verdict.tallies["protocol"])
        rows.append([claim, verdict.word, *tallies, protocol, str(verdict.runs)])
    return rows


def _blocks(results: Sequence[Result], scale: Scale, command: str) -> Iterator[str]:
    """Yield headings, paragraphs and tables."""
    measured = Measured(results, rows=scale.rows)
    yield f"# {TITLE}"
    yield (
        "“Aggregating Data for Optimal and Private Learning” prints five tables of errors of "
        "linear models learned from bags. Here they are beside what the same experiments give."
    )
    yield _made_with(results)
    yield f"```sh\n{command}\n```"
    if other := _other_setting(scale):
        yield other
    yield "## What was found"
    if scale.is_papers:
        yield from filter(None, (explained_text(measured), _private_text(measured)))
    if predicted := theory_agreement(measured):
        yield (
            "Errors of the exact minimisers against what theory expects of them. The ratio is the "
            "median over cells of the mean over runs. z is a cell's distance from what is expected "
            "in standard deviations that theory gives too: its root mean square is about 1 if "
            "theory holds, and hardly a cell is beyond 3."
        )
        yield in_markdown(_theory_rows(predicted))
    if verdicts := judge_claims(measured):
        yield "## What the paper says of its tables"
        yield _VERDICTS
        yield in_markdown(verdict_rows(verdicts))
    yield from ("## Tables", _DATA, _COLUMNS)
    for table, title in TITLES.items():
        grid = make_table(table, measured)
        if len(grid) > 1:
            yield f"### {title}"
            if table == 2:
                yield _PRIVATE
            yield in_markdown(grid)
    yield from ("## The protocol", _PROTOCOL)


def in_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a table, whose first row is the heading.

    Examples
    --------
    >>> print(in_markdown([["k", "error"], ["10", "0.5"]]))
    | k | error |
    |---|---|
    | 10 | 0.5 |
    """
    heading, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join((heading, "|" + "---|" * len(rows[0]), *body))


def explained_text(measured: Measured) -> str:
    """Say how near the exact minimisers and the protocol come to what is printed."""
    minimiser, protocol = (explain_printed(measured, name) for name in ("exact", "protocol"))
    held_out = explain_printed(measured, "protocol", kinds=("ind", "dep"))
    if minimiser is None or protocol is None or held_out is None:
        return ""
    low, high = protocol.rms_interval
    least, most = protocol.correlation_interval
    return (
        f"Over the {protocol.cells} cells of tables {APPENDIX[0]} to {APPENDIX[-1]}, the exact "
        "minimisers do not have the printed errors: the root mean square log ratio is "
        f"{minimiser.rms_log_ratio:.2f}. The early-stopped protocol has "
        f"{protocol.rms_log_ratio:.3f} (95 % interval {low:.3f} to {high:.3f}) and a correlation "
        f"of {protocol.correlation:.3f} ({least:.3f} to {most:.3f}); chance alone, if the protocol "
        f"were what was done, would give {protocol.by_chance:.3f}. On the {held_out.cells} cells "
        f"that it was not chosen on, it has {held_out.rms_log_ratio:.3f} and "
        f"{held_out.correlation:.3f}. Differences are {protocol.rms_z:.2f} of their standard "
        "errors, root mean square: near, and not quite it. Intervals are by bootstrap over cells."
    )


def _private_text(measured: Measured) -> str:
    """Say which noise comes near to the private table."""
    as_described, plain = (
        explain_printed(measured, name, tables=[2]) for name in ("protocol", "protocol_plain")
    )
    if as_described is None or plain is None:
        return ""
    return (
        f"In table 2 the protocol has a root mean square log ratio of "
        f"{as_described.rms_log_ratio:.2f} with the noise that the paper describes, and of "
        f"{plain.rms_log_ratio:.2f} with noise that is not divided by the bag size, one of eight "
        f"settings tried on these 12 cells; chance alone would give {plain.by_chance:.2f}."
    )


def _theory_rows(predicted: Sequence[Predicted]) -> list[list[str]]:
    rows = [["what", "cells", "runs", "error / expected", "rms z", "cells beyond 3"]]
    rows += [
        [
            *(p.what, str(p.cells), str(p.runs), f"{p.ratio:.3f}"),
            *(f"{p.rms_z:.2f}", str(p.beyond_three)),
        ]
        for p in predicted
    ]
    return rows


def _made_with(results: Sequence[Result]) -> str:
    seeds = sorted({result.job.seed for result in results})
    hours = sum(result.seconds for result in results) / 3600
    made = f"bagwise {__version__}, numpy {np.__version__}, python {platform.python_version()}"
    return (
        f"{len(results)} results with {made}. Seed {', '.join(map(str, seeds))}, "
        f"{number(hours)} hours of work, all processes together. The command that made them:"
    )


def _other_setting(scale: Scale) -> str:
    """Say what differs from the paper's experiments, if anything does."""
    said = []
    if scale.rows != PAPER_ROWS:
        said.append(
            f"This has {scale.rows:,} rows, and the paper {PAPER_ROWS:,}: do not compare its "
            "numbers with the printed ones. Errors that come from noise are "
            f"{number(PAPER_ROWS / scale.rows)} times as large. The protocol has batches of "
            f"{scale.batch} bags instead of {BATCH_BAGS}, and so as many steps, but noisier ones."
        )
    if scale.runs != PRINTED_RUNS:
        said.append(
            f"There are {scale.runs} runs of each cell, and {PRINTED_RUNS} in the paper"
            + (": much stays undecided." if scale.runs < PRINTED_RUNS else ".")
        )
    return " ".join(said)
