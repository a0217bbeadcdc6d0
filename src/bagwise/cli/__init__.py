"""The command line: parse, call one public function, print. No arithmetic here.

Heavy modules are imported inside the verbs, so that help does not wait for them.

Exit codes: 0 done; 1 something unforeseen; 2 bad input or a release that does not verify;
3 a valid release that is less private than asked; 4 an audit that shows labels or refutes a claim;
129, 130 and 143 ended by SIGHUP, SIGINT or SIGTERM; 141 nobody read the output.
"""

import sys
from typing import Annotated

import typer

from bagwise._version import __version__
from bagwise.cli import (
    annotating,
    audits,
    demo,
    ledgers,
    models,
    planning,
    releases,
    reports,
)
from bagwise.cli.console import guarded, leave_quietly
from bagwise.cli.options import Command

VERBS = (
    planning.plan,
    releases.release,
    releases.verify,
    audits.audit,
    reports.report,
    models.fit,
    models.release_model,
    models.predict,
    models.evaluate,
    demo.demo,
)
"""In the order of the help."""

app = typer.Typer(
    name="bagwise",
    help="Share training data without sharing its labels; fit row-level models to it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they print local variables, and those hold labels
    rich_markup_mode="rich",
)
for verb in VERBS:
    app.command(name=verb.__name__.replace("_", "-"), cls=Command)(guarded(verb))
app.add_typer(ledgers.app, name="ledger")
app.add_typer(annotating.app, name="annotate")


def main() -> None:
    """Run the command line."""
    leave_quietly(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"bagwise {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    del version
