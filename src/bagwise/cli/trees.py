"""What `bagwise fit --model boosted` does."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bagwise.cli.console import emit, print_grid, say_next, show_progress
from bagwise.errors import StrategyError
from bagwise.files.records import to_plain


def refuse_for_trees(options: Iterable[str]) -> None:
    """Refuse options that belong to linear models, by name."""
    if given := list(options):
        raise StrategyError(
            f"{', '.join(given)}: only for --model glm. Trees have no coefficients, and always "
            "compare bag labels with mean predictions. Leave this out."
        )


def fit_trees(
    directory: Path,
    output: Path,
    *,
    family: str,
    target: str | None,
    rows: Path | None,
    rows_noise_sd: float,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Boost trees on a release, write them, and say what was tried."""
    from bagwise.learner import fit_trees as boost
    from bagwise.learner import load_release

    with show_progress(quiet or as_json, steps=3) as on_stage:
        on_stage("reading the release")
        loaded = load_release(directory)
        on_stage("boosting trees")
        fitted = boost(loaded, family=family, target=target, rows=rows, rows_noise_sd=rows_noise_sd)
        model, ways = fitted.to_trees(), fitted.estimator.ways_
        on_stage("writing the model")
        model.save(output, force=force)
    if as_json:
        emit({"path": str(output), "trees": model.n_trees, "ways": ways,
              **to_plain(model.trained_on)})  # fmt: skip
    elif not quiet:
        print_grid(f"Boosted trees in {output}: {model.n_trees} trees", _cells(ways))
        say_next(["bagwise", "predict", output, "TABLE", "-o", "predictions.parquet"])


def _cells(ways: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    heading = ("start", "leaves", "cuts", "rounds", "error on held-out bags", "weight")
    rows = [
        (
            way["start"],
            str(way["leaves"]),
            "drawn" if way["random_cuts"] else "best",
            str(way["rounds"]),
            f"{way['error']:.5g}",
            f"{way['weight']:.2f}",
        )
        for way in ways
    ]
    return [heading, *rows]
