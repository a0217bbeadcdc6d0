"""The commands of a custodian: plan, release, release-model and verify."""

import functools
import shlex
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bagwise.cli.console import (
    LESS_PRIVATE_THAN_ASKED,
    answer,
    err,
    fail,
    is_quiet,
    out,
    print_coefficients,
    print_grid,
    print_pairs,
    safe,
    say,
    say_next,
    say_where_notes_are,
    show_progress,
    start_notes,
)
from bagwise.cli.options import (
    Asked,
    Charging,
    Promise,
    Publishing,
    Tables,
    engine,
    parse_settings,
    shared,
    typed_again,
    values_of,
    verb,
)
from bagwise.cli.tables import (
    SMALL_FILE,
    confirmation,
    file_reserve,
    keep_in,
    open_ledger,
    source_of,
)
from bagwise.errors import CertificateError, OutputError, StrategyError
from bagwise.requests.records import Bagging, Privacy, Reading

if TYPE_CHECKING:
    from bagwise.bagging.quality import BagQuality
    from bagwise.release.release import Release


@verb("force query read", error="Privacy", single_labels="Bags")
def plan(
    table: Tables,
    asked: Asked,
    bagging: Annotated[Bagging, "min_bag_size family"],
    reading: Annotated[Reading, "nulls max_levels"],
    error: Annotated[
        float | None,
        "Instead of --epsilon: find the smallest epsilon whose best choice has at most this "
        "typical error of one prediction.",
    ] = None,
    single_labels: Annotated[bool, "Also rank noisy labels of single rows."] = False,
    output: Annotated[Path | None, "Write the plan: .html or .json."] = None,
) -> None:
    """Rank possible releases of a table by the expected error of a model, without using any label.

    Example: [bold]bagwise plan rents.parquet --label rent --bounds 0 5000 --epsilon 1
    --delta 1e-6 -o plan.html[/]

    For boosted trees: add [bold]--learner flexible[/]. For the smallest sufficient epsilon:
    [bold]--error 300[/] instead of --epsilon.
    """
    from bagwise.planner import features_of
    from bagwise.planner import plan as make_plan
    from bagwise.requests.columns import Columns

    file_reserve(output)
    # 1. Options that a release must repeat, or it would read or publish something else.
    repeated = [
        *typed_again(shared(), "read query"),
        *typed_again(asked, "classes id unit features exclude"),
        *typed_again(reading, "nulls max_levels"),
    ]
    # 2. Read the features, and rank what could be released.
    named = values_of(asked)
    columns = {name: named.pop(name) for name in ("features", "exclude", "id")}
    with show_progress(steps=3) as on_stage:
        on_stage("reading the features")
        rows = features_of(source_of(table), Columns.of(asked.label, unit=asked.unit, **columns))
        on_stage("planning")
        ranked = make_plan(
            rows,
            **named,
            error=error,
            single_labels=single_labels,
            bagging=bagging,
            reading=reading,
            options=shlex.join(repeated),
        )
        ranked = replace(ranked, table=shlex.join(table), output="release")
        if output is not None:
            on_stage("writing the plan")
            ranked.save(output, force=shared().force)
    # 3. Show the ranking.
    if answer(ranked.to_json()):
        if error is not None:
            say(f"The smallest epsilon with an error of at most {error:g}: {ranked.epsilon:g}")
        print_grid("What to release, the safest choice first", ranked.cells())
        for remark in ranked.remarks():
            say(f"· {remark}")
        say(ranked.explain())
        if output is not None:
            say(f"The plan is in {output}.")


@verb(
    "force query read memory_limit engine spark",
    bag_size="Bags", strategy="Bags", set="Bags", dry_run="Columns",
    purpose="Privacy", recipient="Privacy", sign="Privacy",
)  # fmt: skip
def release(
    table: Tables,
    asked: Asked,
    bagging: Bagging,
    privacy: Privacy,
    reading: Reading,
    charging: Charging,
    publishing: Publishing,
    output: Annotated[Path | None, "Directory to write.", "DIR"] = None,
    bag_size: Annotated[
        str | None,
        "Minimum number of rows in a bag. auto (the default with --epsilon): the planner's choice.",
    ] = None,
    strategy: Annotated[
        str, "How rows are grouped. auto: the planner's choice; {strategies}."
    ] = "auto",
    set: Annotated[list[str] | None, "Parameter of the strategy; repeatable.", "NAME=VALUE"] = None,
    rows_per_file: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Rows per file. Default: one file.")
    ] = None,
    purpose: Annotated[str | None, "With --ledger: purpose, stored with the charge."] = None,
    recipient: Annotated[str | None, "With --ledger: recipient, stored with the charge."] = None,
    sign: Annotated[Path | None, "Private key (Ed25519, PEM) for signing the manifest."] = None,
    dry_run: Annotated[bool, "List the columns that would be published, and stop."] = False,
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
    from bagwise.bagging import find_strategy
    from bagwise.release.release import check_output
    from bagwise.requests.verbs import may_search

    # 1. Refuse before anything is read what would fail at the end.
    parameters = parse_settings(set or [])
    if parameters and strategy == "auto":
        raise StrategyError("--set needs a strategy; name one instead of 'auto'.")
    is_number = bag_size is not None and bag_size.removeprefix("-").isdecimal()
    size: Any = int(bag_size) if bag_size and is_number else bag_size
    force = shared().force
    if output is None and not dry_run:
        raise OutputError("name a directory for the release: -o DIRECTORY.")
    if output is not None and not dry_run:
        check_output(output, force=force)
    target = output or Path("release")
    start_notes(publishing.notes, target)
    if sign is not None:
        from bagwise.files.signatures import read_signing_key

        read_signing_key(sign)
    reserve = functools.partial(_reserve, target, rows_per_file)
    noted = {"purpose": purpose, "recipient": recipient}
    ledger = None if dry_run else open_ledger(charging, reserve, **noted)
    replaces = force and target.exists()

    # 2. Make the release, and write it.
    source, work = source_of(table), replace(engine(), spill=target.absolute().parent)
    if work.name != "spark":
        searched = may_search(strategy, bagging)
        work = replace(work, memory_limit=_foresee(source, work, asked.label, searched=searched))
    with show_progress(steps=10) as on_stage:
        made = make_release(
            source,
            **values_of(asked),
            bag_size=size,
            strategy=find_strategy(strategy, parameters) if parameters else strategy,
            bagging=bagging,
            privacy=privacy,
            reading=reading,
            engine=replace(work, on_stage=on_stage),
            ledger=ledger,
            confirmed=confirmation(yes=publishing.yes, piped="-" in table, dry_run=dry_run),
        )
        on_stage("writing the release")
        made.save(target, force=force, rows_per_file=rows_per_file, sign=sign)
        receipt = keep_in(ledger, target, made)
        on_stage("measuring the bags")
        # Bag by bag, rows that are on disk would be read in no order.
        measured = work.name != "spark" and made.stored is None and not is_quiet()
        quality = made.quality() if measured else None
        if quality is not None and not quality.directions:
            quality = None  # rows that do not differ have nothing to lose

    # 3. Say what was made.
    if answer(
        {
            "path": str(target),
            **made.summary(),
            "chosen_because": made.why_chosen,
            "quality": quality and quality.to_dict(),
        }
    ):
        _show_release(made, quality, target)
        if receipt:
            say(receipt)
        if made.certificate.is_private and replaces:
            out.print(
                "Each private release spends epsilon again: readers of the old one have both."
            )
        say_where_notes_are(publishing.notes)
        say_next(["bagwise", "verify", target], ["bagwise", "fit", target])


def _show_release(made: "Release", quality: "BagQuality | None", output: Path) -> None:
    """Print the release, the reasons for its settings, and the error to expect."""
    label_free = made.provenance.scores == "none"
    facts = made.summary()
    if not facts["left_out"]:  # rows in no bag; those without a label have a note of their own
        del facts["left_out"]
    if unit := made.certificate.unit:
        facts["privacy"] += f", for all labels of one {unit}"
    if quality and made.provenance.chosen_because is None:  # the planner says more
        facts |= quality.headlines(label_free=label_free)
    print_pairs(f"Release in {output}", facts)
    if (reason := made.provenance.chosen_because) is not None:
        bags = f"{made.provenance.strategy}, bags of {made.provenance.bag_size}"
        say(f"Chosen: {bags}: {made.why_chosen}")
        if reason.is_hopeless(n_classes=len(made.provenance.classes or ()) or 1):
            say(
                "Note: no bags are expected to predict much better than the mean label. Take more "
                "rows, tighter bounds or a larger epsilon."
            )
    if made.certificate.spends_less:
        say(made.certificate.spends_less)
    for query in made.certificate.looks:
        say(query)
    for remark in made.certificate.remarks:
        say(f"Note: {remark}")


def _reserve(
    output: Path, rows_per_file: int | None, n_rows: int, n_bytes: int
) -> AbstractContextManager[None]:
    """Reserve the output path for a release of this many rows."""
    from bagwise.files.atomic import reserved
    from bagwise.release.files import check_rows_per_file
    from bagwise.release.release import check_output

    check_rows_per_file(rows_per_file, n_rows)
    check = functools.partial(check_output, output, force=shared().force)
    return reserved(output, check=check, size=n_bytes + SMALL_FILE)


def _foresee(source: Any, work: Any, label: str, *, searched: bool) -> int:
    """Return the memory limit in bytes; say before work starts what a large table will take."""
    from bagwise.rows.opening import Memory, estimate_size
    from bagwise.rows.sources import open_source

    memory = Memory.of(work.memory_limit, work.spill, searched=searched)
    estimate = estimate_size(open_source(source), memory, label=label)
    if estimate is not None and estimate.is_large(memory) and not is_quiet():
        err.print(estimate.sentence(memory), highlight=False, soft_wrap=True)
    return memory.limit


@verb("force query read memory_limit")
def release_model(
    table: Tables,
    promise: Promise,
    privacy: Annotated[Privacy, "tighten"],
    reading: Annotated[Reading, "nulls max_levels"],
    charging: Charging,
    publishing: Publishing,
    output: Annotated[Path, "Model file to write."],
    family: Annotated[str, "Kind of label: {families}. Not multinomial."] = "gaussian",
) -> None:
    """Release a private model with error bars instead of bags, if you only need a model.

    Example: [bold]bagwise release-model visits.csv --label visits --family poisson --bounds 0 40
    --epsilon 1 --delta 1e-6 -o model.json[/]
    """
    from bagwise.api import release_model as make

    reserve = file_reserve(output)
    start_notes(publishing.notes, output)
    ledger = open_ledger(charging, reserve)
    work = replace(engine(), spill=output.absolute().parent)
    with show_progress(steps=6) as on_stage:
        model = make(
            source_of(table),
            **values_of(promise),
            family=family,
            privacy=privacy,
            reading=reading,
            engine=replace(work, on_stage=on_stage),
            ledger=ledger,
            confirmed=confirmation(yes=publishing.yes, piped="-" in table),
        )
        model.save(output, force=shared().force)
        receipt = keep_in(ledger, output, model)
    summary = model.summary()
    headline = None if model.certificate is None else model.certificate.headline
    if answer({"path": str(output), "privacy": headline, **summary.to_json()}):
        print_coefficients(f"Model in {output}: {headline}", summary)
        say(summary.note)
        if receipt:
            say(receipt)
        say_where_notes_are(publishing.notes)
        say_next(["bagwise", "predict", output, "TABLE", "-o", "predictions.parquet"])


@verb()
def verify(
    path: Annotated[
        Path, typer.Argument(help="A release directory, or a model or evaluation file.")
    ],
    max_epsilon: Annotated[
        float | None, "Exit with 3 if epsilon is larger, or if delta is above 1/n."
    ] = None,
    max_delta: Annotated[float | None, "Exit with 3 if delta is larger."] = None,
    strict: Annotated[bool, "Reject bags of a strategy that is not part of bagwise."] = False,
    key: Annotated[
        Path | None, "Public key (Ed25519, PEM) that must have signed the release."
    ] = None,
) -> None:
    """Check a release, model or evaluation: hashes, contents and guarantee.

    Example: [bold]bagwise verify out --max-epsilon 1 --max-delta 1e-6[/]
    """
    from bagwise.privacy.promise import check_limits
    from bagwise.verifier import verify as check

    check_limits(max_epsilon=max_epsilon, max_delta=max_delta)
    verified, certificate = check(path, strict=strict, key=key)
    if certificate is None and (max_epsilon is not None or max_delta is not None):
        raise CertificateError(
            f"{path} was fitted to a release and has no certificate of its own, so limits cannot "
            "be checked. Verify the release instead."
        )
    fits = certificate is None or certificate.within(
        max_epsilon=max_epsilon, max_delta=max_delta, n_rows=verified.n_rows
    )
    if answer({**verified.to_json(), "within_limits": fits}):
        for line in verified.checks:
            out.print(f"[green]ok[/] {safe(line)}")
        say(verified.headline if certificate is None else certificate.text(), style="bold")
        say(f"digest {verified.digest}\n{verified.note}")
    if not fits:
        fail(f"{path} is valid, but {verified.headline} is less private than required.", 0)
        raise typer.Exit(LESS_PRIVATE_THAN_ASKED)
