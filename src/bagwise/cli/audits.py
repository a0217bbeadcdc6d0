"""The verb that attacks what was published."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bagwise.cli.console import LABELS_SHOW, emit, fail, out, safe
from bagwise.cli.options import AsJson, Quiet
from bagwise.errors import BudgetError

if TYPE_CHECKING:
    from bagwise.audit import AuditReport

_COLOURS = {"green": "green", "amber": "yellow", "red": "bold red"}


def audit(
    path: Annotated[
        Path | None,
        typer.Argument(help="A release directory, or a model, bounds or evaluation file."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="The original table: also guess its labels from the release."),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(help="Audit a mechanism on its own, such as laplace-bag-means."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="With --mechanism: what its noise is set for.")
    ] = None,
    delta: Annotated[float, typer.Option(help="With --mechanism: delta, where it needs one.")] = 0,
    bag_size: Annotated[int, typer.Option(help="With --mechanism: rows in a bag, for picks.")] = 50,
    draws: Annotated[int, typer.Option(help="How often the noise of a mechanism is drawn.")] = (
        200_000
    ),
    trials: Annotated[
        int, typer.Option(help="With --labels: how often the noise of a bag is redrawn.")
    ] = 100_000,
    confidence: Annotated[
        float,
        typer.Option(help="With --labels: joint confidence level of all intervals."),
    ] = 0.95,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Attack a release or a mechanism: recompute it, redraw its noise, and guess labels.

    Exit code 4: a claim was refuted, or labels can be read. With --labels the figures depend on the
    labels; they are for whoever may see those.

    Example: [bold]bagwise audit out --labels rents.csv[/]

    A mechanism: [bold]bagwise audit --mechanism laplace-bag-means --epsilon 1[/]
    """
    if (path is None) == (mechanism is None):
        raise BudgetError("give a release or file to audit, or --mechanism with --epsilon.")
    if mechanism is not None:
        found = _audit_mechanism(mechanism, epsilon, delta, bag_size, draws)
    else:
        from bagwise.audit import audit_file

        found = audit_file(
            Path(str(path)), labels=labels, draws=draws, trials=trials, confidence=confidence
        )
    if as_json:
        emit(found.to_json())
    elif not quiet:
        for line in found.lines():
            out.print(safe(line), soft_wrap=True, highlight=False)
        shown = f"[{_COLOURS[found.colour]}]{found.colour}[/]: {safe(found.verdict)}"
        out.print(shown, soft_wrap=True, highlight=False)
    if found.colour == "red":
        fail(f"{path or mechanism}: {found.verdict}", 0)
        raise typer.Exit(LABELS_SHOW)


def _audit_mechanism(
    kind: str, epsilon: float | None, delta: float, bag_size: int, draws: int
) -> "AuditReport":
    from bagwise.audit import AuditReport, audit_events, mechanism_for

    if epsilon is None:
        raise BudgetError("--mechanism needs --epsilon: what its noise is set for.")
    event = mechanism_for(kind, epsilon=epsilon, delta=delta, bag_size=bag_size)
    alpha = 1e-3
    audits = audit_events([event], delta=delta, draws=draws, alpha=alpha)
    return AuditReport.of(audits, alpha=alpha)
