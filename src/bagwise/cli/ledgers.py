"""The ledger commands: init, show, check and key."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bagwise.cli.console import (
    LESS_PRIVATE_THAN_ASKED,
    answer,
    fail,
    for_people,
    print_grid,
    print_pairs,
    say,
)
from bagwise.cli.options import add_verbs, verb

LedgerPath = Annotated[Path, typer.Argument(help="The ledger's file.", envvar="BAGWISE_LEDGER")]


@verb()
def init(
    file: LedgerPath,
    epsilon_total: Annotated[float, "Total epsilon of all requests."],
    delta_total: Annotated[
        float, "Total delta of all requests; 0 allows only requests without a delta."
    ] = 0.0,
    unit: Annotated[
        str | None, "Column that identifies people; every request must protect it.", "COLUMN"
    ] = None,
    row_id: Annotated[str | None, "Without --unit: column that identifies rows.", "COLUMN"] = None,
) -> None:
    """Create a ledger for a data set, with its key in the same directory.

    Example: [bold]bagwise ledger init rents.ledger --epsilon-total 4 --delta-total 1e-6
    --unit person[/]
    """
    from bagwise.ledger import Ledger
    from bagwise.ledger.store import key_path

    reused = key_path(file).exists()
    made = Ledger.create(
        file,
        epsilon_total=epsilon_total,
        delta_total=delta_total,
        unit=unit,
        row_id=row_id,
    )
    terms = made.to_json()["terms"]
    if answer({"path": str(file), "key": str(key_path(file)), "key_reused": reused, **terms}):
        say(
            f"Ledger of {made.terms.dataset!r} in {file}, its key in {key_path(file)}. Keep copies "
            "of both where only you can read them, and never give the key to anyone."
            + (" The key was there already and is reused." if reused else "")
        )


@verb()
def show(file: LedgerPath) -> None:
    """Show the charges of a ledger, their total, and the remaining budget.

    Example: [bold]bagwise ledger show rents.ledger[/]
    """
    show_ledger(file)


def show_ledger(file: Path) -> None:
    """Print a ledger."""
    from bagwise.ledger import Ledger
    from bagwise.ledger.ledger import course_cells

    ledger = Ledger.open(file)
    terms, course = ledger.terms, ledger.course()
    content, totals = ledger.to_json(), ledger.totals()
    alone = [{"id": one.charge.id, "epsilon": one.alone} for one in course]
    if not answer({**content, "totals": asdict(totals), "epsilon_by_charge": alone}):
        return
    if course:
        cells = course_cells(course, totals)
        noise = cells[0].index("noise")  # too long for a terminal; the page has it
        print_grid(f"Charges to {file}", [row[:noise] + row[noise + 1 :] for row in cells])
    gaussian = f"; {totals.fits_gaussian:g} at delta {terms.delta:g} with Gaussian noise"
    print_pairs(
        f"Ledger of {terms.dataset}",
        {
            "budget": f"epsilon {terms.epsilon:g}, delta {terms.delta:g}",
            "protects": "each row" if terms.unit is None else f"unit {terms.unit}",
            "spent": f"epsilon {totals.filtered:.4g}, no matter how requests were chosen",
            "if fixed in advance": f"epsilon {totals.fixed:.4g}",
            "still fits": f"epsilon {totals.fits_pure:g} without a delta"
            + (gaussian if terms.delta else ""),
        },
    )
    say(f"digest {content['digest']}")


@verb()
def check(
    places: Annotated[
        list[Path],
        typer.Argument(help="Releases, models and evaluations, or directories that contain them."),
    ],
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="BAGWISE_LEDGER",
            help="Ledger to which each must have been charged.",
        ),
    ] = None,
    max_epsilon: Annotated[float | None, "Exit with 3 if they spend more in total."] = None,
) -> None:
    """Verify everything in some directories, and add up the epsilon spent.

    Example: [bold]bagwise ledger check releases models --ledger rents.ledger[/]
    """
    from bagwise.ledger import Ledger
    from bagwise.privacy.promise import check_limits
    from bagwise.verifier import add_up, find_certified, spent_at_worst, uncharged

    check_limits(max_epsilon=max_epsilon)
    book = None if ledger is None else Ledger.open(ledger)
    files = find_certified(places)
    totals = add_up(files, delta=None if book is None else book.terms.delta, ledger=book)
    strangers = [] if book is None else uncharged(files, book)
    worst = 0.0 if book is None else spent_at_worst(strangers, book)
    if answer(
        {
            "totals": [total.to_json() for total in totals],
            "not_charged": [str(file.path) for file in strangers],
            "spent_with_not_charged": worst if math.isfinite(worst) else None,
        }
    ):
        for total in totals:
            print_pairs(total.dataset or "no data set named", total.summary())
        if not totals:
            say("Nothing with a certificate was found.")
    if strangers:
        listed = ", ".join(str(file.path) for file in strangers)
        spent = "without limit" if math.isinf(worst) else f"epsilon {worst:.4g}"
        fail(
            f"not charged to {ledger}, or for less than was spent: {listed}. The files do not "
            f"show whether they are about the same labels; if so, {spent} is spent in total.",
            0,
        )
        raise typer.Exit(LESS_PRIVATE_THAN_ASKED)
    largest = max((total.filtered for total in totals), default=0.0)
    if max_epsilon is not None and largest > max_epsilon:
        spent = "without limit" if math.isinf(largest) else f"epsilon {largest:.4g}"
        fail(f"the total spent is {spent}, more than {max_epsilon:g}.", 0)
        raise typer.Exit(LESS_PRIVATE_THAN_ASKED)


@verb()
def key(
    output: Annotated[
        Path, typer.Argument(help="Private key to write; the public key is written to FILE.pub.")
    ],
) -> None:
    """Make a key pair (Ed25519) for signing releases; only its owner can read the private key.

    Example: [bold]bagwise ledger key custodian.pem[/]
    """
    from bagwise.files.signatures import create_keys

    public = create_keys(output)
    if for_people():
        say(
            f"Private key in {output}: sign with bagwise release --sign {output}, and keep it to "
            f"yourself. Public key in {public}, for readers: bagwise verify DIR --key {public}"
        )


app = typer.Typer(
    help="Keep one privacy budget for all releases of a data set.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
add_verbs(app, init, show, check, key)
