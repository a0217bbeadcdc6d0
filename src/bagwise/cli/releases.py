"""The verbs that make and check what leaves: release and verify."""

import functools
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from bagwise.cli.console import (
    LESS_PRIVATE_THAN_ASKED,
    emit,
    err,
    fail,
    out,
    print_pairs,
    safe,
    say,
    say_next,
    say_where_notes_are,
    show_progress,
    start_notes,
)
from bagwise.cli.options import (
    SMALL_FILE,
    Anew,
    AsJson,
    By,
    ChosenBy,
    DryRun,
    Engine,
    Exclude,
    Exposure,
    Features,
    Force,
    Label,
    Learner,
    LedgerFile,
    MaxLevels,
    MemoryLimit,
    Notes,
    Nulls,
    Purpose,
    Quiet,
    Read,
    Recipient,
    SignWith,
    SparkSettings,
    SqlQuery,
    Tables,
    Tighten,
    Unit,
    Within,
    Yes,
    check_signing_key,
    confirmation,
    is_spark,
    keep_in,
    open_ledger,
    parse_settings,
    read_bounds,
    source_of,
    split_names,
)
from bagwise.errors import CertificateError, OutputError, StrategyError
from bagwise.requests.records import Bagging, Privacy, Reading
from bagwise.requests.records import Engine as EngineSettings

if TYPE_CHECKING:
    from bagwise.bagging.quality import BagQuality
    from bagwise.release.release import Release


_HOPELESS = (
    "no bags are expected to predict much better than the mean label. Take more rows, tighter "
    "bounds or a larger epsilon."
)


def release(
    table: Tables,
    label: Label,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory to write.")
    ] = None,
    bag_size: Annotated[
        str | None,
        typer.Option(
            help="Smallest number of rows in a bag; auto, the default under an epsilon: as the "
            "planner says."
        ),
    ] = None,
    min_bag_size: Annotated[
        int | None, typer.Option(help="Smallest bag that the planner may choose. Default: 10.")
    ] = None,
    bounds: Annotated[
        tuple[str, str] | None,
        typer.Option(
            help="Public range LO HI of a label; labels outside are clipped. auto: found privately."
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="How private: smaller is more private, about 1 is usual (label-DP epsilon)."
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="Chance that more is revealed, far below 1/rows (label-DP delta). Default: none."
        ),
    ] = None,
    noise: Annotated[
        str,
        typer.Option(
            help="auto: the least that keeps the promise; laplace, staircase, gaussian; unbiased: "
            "every label by itself."
        ),
    ] = "auto",
    tighten: Tighten = "auto",
    centre: Annotated[
        str, typer.Option(help="First centre labels on a private model: auto, model, none.")
    ] = "auto",
    not_private: Annotated[
        bool, typer.Option("--not-private", help="Release exact aggregates, without noise.")
    ] = False,
    classes: Annotated[
        str | None,
        typer.Option(help="Public classes of a label that is not a number, separated by commas."),
    ] = None,
    label_kind: Annotated[
        str, typer.Option(help="mean: average of a bag's labels; pick: the label of one row.")
    ] = "mean",
    strategy: Annotated[
        str,
        typer.Option(help="How rows are put together. auto: as the planner says; {strategies}."),
    ] = "auto",
    strategies: Annotated[
        str | None,
        typer.Option(help="Strategies that the planner may choose from, separated by commas."),
    ] = None,
    learner: Learner = "linear",
    family: Annotated[
        str, typer.Option(help="Distribution of a label, for the planner. {families}.")
    ] = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Strategy parameter NAME=VALUE; repeatable.")
    ] = None,
    scores: Annotated[
        str, typer.Option(help="What bags are sorted by: auto, none, labels, noisy-labels, model.")
    ] = "auto",
    score_share: Annotated[
        float | None, typer.Option(help="Share of the budget for scores. Default: the best.")
    ] = None,
    unit: Unit = None,
    features: Features = None,
    exclude: Exclude = None,
    id_: Annotated[
        str | None, typer.Option("--id", help="Public key column, published with the rows.")
    ] = None,
    by: By = None,
    within: Within = None,
    exposure: Exposure = None,
    keep_order: Annotated[
        bool,
        typer.Option(
            "--keep-order", help="Publish rows in the order of the table; recorded in the release."
        ),
    ] = False,
    drop_missing_labels: Annotated[
        bool,
        typer.Option(
            "--drop-missing-labels",
            help="Leave out rows whose label is missing; how many is published.",
        ),
    ] = False,
    nulls: Nulls = "indicator",
    max_levels: MaxLevels = 32,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the partition only; recorded in the release.")
    ] = None,
    rows_per_file: Annotated[
        int | None, typer.Option(min=1, help="Rows per file. Default: one file.")
    ] = None,
    memory_limit: MemoryLimit = None,
    engine: Engine = "local",
    spark: SparkSettings = None,
    query: SqlQuery = None,
    read: Read = None,
    ledger: LedgerFile = None,
    chosen_by: ChosenBy = "all",
    anew: Anew = False,
    purpose: Purpose = None,
    recipient: Recipient = None,
    sign: SignWith = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    notes: Notes = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Turn a labelled table into a release directory.

    Example: [bold]bagwise release rents.csv --label rent --bounds 0 5000 --epsilon 1 -o out[/]

    For boosted trees: [bold]bagwise release rents.csv --label rent --bounds 0 5000 --epsilon 1
    --learner flexible -o out[/]

    A query: [bold]bagwise release flats.db --query 'SELECT area, rent FROM flats' --label rent
    --bounds 0 5000 --epsilon 1 -o out[/]

    A pipe: [bold]zcat rents.csv.gz | bagwise release - --read 'delimiter=;' --label rent
    --bounds 0 5000 --epsilon 1 -o out[/]

    Charged and signed: add [bold]--ledger rents.ledger --sign custodian.pem[/]

    On Spark: [bold]bagwise release rents/ --engine spark --spark spark.master=local[4] --strategy
    random --bag-size 50 --label rent --bounds 0 5000 --epsilon 1 -o out[/]
    """
    from bagwise.api import make_release

    output = _output_of(output, force=force, dry_run=dry_run)
    start_notes(notes, output)
    check_signing_key(sign)
    reserve = functools.partial(_reserve, output, force, rows_per_file)
    noted = {"purpose": purpose, "recipient": recipient}
    charged = None if dry_run else open_ledger(ledger, chosen_by, anew, reserve, **noted)
    replaces = force and output.exists()
    source, spill = source_of(table, query, read), output.absolute().parent
    on_spark = is_spark(engine, spark)
    limit = None if on_spark else _foresee(source, memory_limit, spill, label=label, quiet=quiet)
    with show_progress(quiet or as_json, steps=10) as on_stage:
        made = make_release(
            source,
            label=label,
            bounds=read_bounds(bounds),
            classes=split_names(classes),
            epsilon=epsilon,
            delta=delta,
            not_private=not_private,
            unit=unit,
            id=id_,
            features=split_names(features),
            exclude=split_names(exclude) or (),
            bag_size=_size(bag_size),
            strategy=_strategy(strategy, set_ or []),
            learner=cast(Any, learner),  # checked with the request
            bagging=Bagging(
                min_bag_size=min_bag_size,
                by=split_names(by) or (),
                within=split_names(within) or (),
                label_kind=label_kind,
                strategies=split_names(strategies),
                family=family,
                scores=scores,
                score_share="auto" if score_share is None else score_share,
                seed=seed,
            ),
            privacy=Privacy(
                noise=cast(Any, noise), tighten=cast(Any, tighten), centre=cast(Any, centre)
            ),
            reading=Reading(
                exposure=exposure,
                nulls=nulls,
                max_levels=max_levels,
                drop_missing_labels=drop_missing_labels,
                keep_order=keep_order,
            ),
            engine=EngineSettings(
                name=cast(Any, engine),
                spark=parse_settings(spark or [], option="--spark"),
                memory_limit=limit,
                spill=spill,
                on_stage=on_stage,
            ),
            ledger=charged,
            confirmed=confirmation(
                yes=yes, dry_run=dry_run, quiet=quiet, as_json=as_json, piped="-" in table
            ),
        )
        on_stage("writing the release")
        made.save(output, force=force, rows_per_file=rows_per_file, sign=sign)
        receipt = keep_in(charged, output, made)
        on_stage("measuring the bags")
        # Bag by bag, rows that are on disk would be read in no order.
        measured = not on_spark and made.stored is None and (as_json or not quiet)
        quality = _measure(made) if measured else None
    if as_json:
        reason = made.provenance.chosen_because
        emit(
            {
                "path": str(output),
                **made.summary(),
                "chosen_because": None if reason is None else reason.text(),
                "quality": quality and quality.to_dict(),
            }
        )
    elif not quiet:
        _show_release(made, quality, output)
        if receipt:
            say(receipt)
        if made.certificate.is_private and replaces:
            out.print("Each private release spends epsilon anew: whoever saw the old one has both.")
        say_where_notes_are(notes)
        say_next(["bagwise", "verify", output], ["bagwise", "fit", output])


def _show_release(made: "Release", quality: "BagQuality | None", output: Path) -> None:
    """Print what was made, why, and what to expect of it."""
    label_free = made.provenance.scores == "none"
    figures = quality.headlines(label_free=label_free) if quality else {}
    print_pairs(f"Release in {output}", made.summary() | figures)
    if (reason := made.provenance.chosen_because) is not None:
        n_classes = len(made.provenance.classes or ()) or 1
        bags = f"{made.provenance.strategy}, bags of {made.provenance.bag_size}"
        say(f"Chosen: {bags}: {reason.text(n_classes)}")
        if reason.is_hopeless(n_classes=n_classes):
            say(f"Note: {_HOPELESS}")
    if made.certificate.spends_less:
        say(made.certificate.spends_less)
    for look in made.certificate.looks:
        say(look)
    for remark in (*made.certificate.remarks, *made.provenance.remarks):
        say(f"Note: {remark}")


def verify(
    path: Annotated[
        Path, typer.Argument(help="A release directory, or a model or evaluation file.")
    ],
    max_epsilon: Annotated[
        float | None,
        typer.Option(help="Exit with 3 if more was spent, or if delta is above 1/n."),
    ] = None,
    max_delta: Annotated[float | None, typer.Option(help="Exit with 3 if more was spent.")] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse bags of a strategy that is not part of bagwise."),
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option(help="Public key (Ed25519, PEM) of whoever must have signed the release."),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Check a release, model or evaluation: hashes, contents and guarantee.

    Example: [bold]bagwise verify out --max-epsilon 1 --max-delta 1e-6[/]
    """
    from bagwise.privacy.promise import check_limits
    from bagwise.verifier import verify as check

    check_limits(max_epsilon=max_epsilon, max_delta=max_delta)
    found, certificate = check(path, strict=strict, key=key)
    if certificate is None and (max_epsilon is not None or max_delta is not None):
        raise CertificateError(
            f"{path} was fitted to a release and has no certificate of its own, so that no limit "
            "can be checked. Verify the release."
        )
    fits = certificate is None or certificate.within(
        max_epsilon=max_epsilon, max_delta=max_delta, n_rows=found.n_rows
    )
    if as_json:
        emit({**found.to_json(), "within_limits": fits})
    elif not quiet:
        for line in found.checks:
            out.print(f"[green]ok[/] {safe(line)}")
        say(found.headline if certificate is None else certificate.text(), style="bold")
        say(f"digest {found.digest}\n{found.note}")
    if not fits:
        fail(f"{path} is valid, but {found.headline} is less private than asked for.", 0)
        raise typer.Exit(LESS_PRIVATE_THAN_ASKED)


def _output_of(output: Path | None, *, force: bool, dry_run: bool) -> Path:
    """Return where to write, which must be free; nobody has to say where nothing is written."""
    from bagwise.release.release import check_output

    if output is None and not dry_run:
        raise OutputError("say where to write the release: -o DIRECTORY.")
    if not dry_run and output is not None:
        check_output(output, force=force)
    return output or Path("release")


def _reserve(
    output: Path, force: bool, rows_per_file: int | None, n_rows: int, n_bytes: int
) -> AbstractContextManager[None]:
    """Keep the output for a release of so many rows."""
    from bagwise.files.atomic import reserved
    from bagwise.release.files import check_rows_per_file
    from bagwise.release.release import check_output

    check_rows_per_file(rows_per_file, n_rows)
    check = functools.partial(check_output, output, force=force)
    return reserved(output, check=check, size=n_bytes + SMALL_FILE)


def _foresee(source: Any, memory_limit: str | None, spill: Path, *, label: str, quiet: bool) -> int:
    """Return the limit of memory in bytes; say before work starts what a large table will take."""
    from bagwise.rows.opening import estimate_size
    from bagwise.rows.sources import open_source
    from bagwise.rows.spilled import Memory

    memory = Memory.of(memory_limit, spill)
    estimate = estimate_size(open_source(source), label=label)
    if estimate is not None and estimate.is_large(memory) and not quiet:
        err.print(estimate.sentence(memory), highlight=False, soft_wrap=True)
    return memory.limit


def _measure(made: "Release") -> "BagQuality | None":
    found = made.quality()
    return found if found.directions else None  # rows that do not differ have nothing to lose


def _size(text: str | None) -> Any:
    """Return a bag size as a number, or "auto"."""
    if text is None:
        return None
    return int(text) if text.removeprefix("-").isdecimal() else text


def _strategy(name: str, settings: list[str]) -> Any:
    """Return a strategy with its parameters, or its name where it has none."""
    if not settings:
        return name
    from bagwise.bagging import find_strategy

    if name == "auto":
        raise StrategyError("parameters belong to a strategy; name one instead of 'auto'.")
    return find_strategy(name, parse_settings(settings))
