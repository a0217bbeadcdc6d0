"""The verb that attacks what was published."""

from pathlib import Path
from typing import Annotated

import typer

from bagwise.cli.console import LABELS_SHOW, emit, fail, out, safe
from bagwise.cli.options import AsJson, Quiet

_COLOURS = {"green": "green", "amber": "yellow", "red": "bold red"}


def audit(
    path: Annotated[
        Path, typer.Argument(help="A release directory, or a model or evaluation file.")
    ],
    labels: Annotated[
        Path | None,
        typer.Option(help="The original table: also guess its labels from the release."),
    ] = None,
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
    """Attack what was published: recompute it, redraw its noise, and guess labels.

    Exit code 4: a claim was refuted, or labels can be read. With --labels the figures depend on the
    labels; they are for whoever may see those.

    Example: [bold]bagwise audit out --labels rents.csv[/]
    """
    from bagwise.audit import audit_file

    found = audit_file(path, labels=labels, draws=draws, trials=trials, confidence=confidence)
    if as_json:
        emit(found.to_json())
    elif not quiet:
        for line in found.lines():
            out.print(safe(line), soft_wrap=True, highlight=False)
        shown = f"[{_COLOURS[found.colour]}]{found.colour}[/]: {safe(found.verdict)}"
        out.print(shown, soft_wrap=True, highlight=False)
    if found.colour == "red":
        fail(f"{path}: {found.verdict}", 0)
        raise typer.Exit(LABELS_SHOW)
