"""The command line: parse, call one public function, print. No arithmetic here.

Heavy modules are imported inside the commands, so that help does not wait for them.

Exit codes: 0 success; 1 an unexpected error; 2 bad input or a release that fails verification;
3 a valid release that is less private than required; 4 an audit that recovers labels or refutes a
claim; 129, 130 and 143 ended by SIGHUP, SIGINT or SIGTERM; 141 the reader closed the output.
"""

import sys
from typing import Annotated

import typer

from bagwise._version import __version__
from bagwise.cli import annotating, demo, ledgers, models, releases, reports
from bagwise.cli.console import leave_quietly
from bagwise.cli.options import Program, Shared, add_verbs, expanded, share
from bagwise.requests.records import Engine

app = typer.Typer(
    name="bagwise",
    help="Share training data without sharing its labels; fit row-level models to it.",
    cls=Program,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they print local variables, and those hold labels
    rich_markup_mode="rich",
)
add_verbs(
    app,
    demo.demo,
    releases.plan,
    releases.release,
    releases.release_model,
    releases.verify,
    models.fit,
    models.predict,
    models.evaluate,
    reports.report,
    reports.audit,
)
app.add_typer(ledgers.app, name="ledger")
app.add_typer(annotating.app, name="annotate")


def main() -> None:
    """Run the command line."""
    leave_quietly(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"bagwise {__version__}\n")
        raise typer.Exit


def _root(
    given: Shared,
    engine: Engine,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    del version
    share(given, engine)


app.callback()(expanded(_root))
