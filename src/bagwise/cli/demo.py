"""The command demo: the whole workflow on a simulated table of rents."""

import csv
import shlex
from contextvars import copy_context
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from bagwise.cli.console import answer, for_people, say
from bagwise.cli.options import shared, verb
from bagwise.errors import OutputExistsError

_HEADING = ("flat", "area", "rooms", "district", "furnished", "rent")
_DISTRICTS = {"north": 0, "south": -150, "harbour": 250, "old town": 400}
_FILES = ("rents.csv", "new.csv", "release", "model.json", "predictions.csv", "release.html")


@verb("force")
def demo(
    output: Annotated[Path, "Directory for all tables and results.", "DIR"] = Path("bagwise-demo"),
    rows: Annotated[
        int, typer.Option(min=1000, metavar="NUMBER", help="Flats in the table.")
    ] = 20_000,
) -> None:
    """Run the whole workflow on a table of rents, one command after the other.

    Example: [bold]bagwise demo -o bagwise-demo[/]
    """
    taken = [output / name for name in _FILES if (output / name).exists()]
    if taken and not shared().force:
        raise OutputExistsError(f"{taken[0]} already exists. Choose another name, or use --force.")
    output.mkdir(parents=True, exist_ok=True)
    table, new, release, model, predictions, page = (str(output / name) for name in _FILES)
    # 1. Make a realistic table: an id, numbers, text, and missing values. Hold out some flats.
    write_rents(Path(table), Path(new), rows)
    # 2. Run the commands of a custodian, and then of a learner, exactly as they are shown.
    private = "--label rent --id flat --bounds 0 5000 --epsilon 1"
    pages = [f"bagwise report {{release}} -o {shlex.quote(page)}"] if find_spec("altair") else []
    for line in (
        f"bagwise release {shlex.quote(table)} {private} -o {{release}}",
        "bagwise verify {release} --max-epsilon 1",
        "bagwise fit {release} -o {model}",
        f"bagwise predict {{model}} {shlex.quote(new)} --id flat -o {shlex.quote(predictions)}",
        f"bagwise evaluate {{model}} {shlex.quote(new)}",
        *pages,
    ):
        typed = line.format(release=shlex.quote(release), model=shlex.quote(model))
        copy_context().run(_run, shlex.split(typed), shown=for_people(), force=shared().force)
    # 3. Fit the same model to the true labels, which only the custodian could do.
    errors = _errors(Path(model), Path(table), Path(new))
    explained = {name: errors["mean"] ** 2 - errors[name] ** 2 for name in ("bags", "true labels")}
    kept = explained["bags"] / explained["true labels"]
    if answer({"path": str(output), "typical_error": errors, "kept": kept}):
        say(
            f"\nTypical error of one prediction, on {rows // 10:,} new flats: "
            f"{errors['bags']:.4g} from the release, {errors['true labels']:.4g} from the true "
            f"rents, {errors['mean']:.4g} by predicting the mean. The release keeps "
            f"{kept:.0%} of what true labels give.\nEverything is in {output}."
            + ("" if pages else " To write pages as well: pip install 'bagwise[plot]'")
        )


def write_rents(table: Path, new: Path, rows: int) -> None:
    """Write flats to rent, and a tenth as many others, as CSV files."""
    import numpy as np

    rng, n = np.random.default_rng(2024), rows + rows // 10
    area = rng.uniform(20, 140, n).round(1)
    rooms = np.clip(np.rint(area / 28 + rng.normal(0, 0.7, n)), 1, 6).astype(int)
    loft = rng.random(n) < 0.1  # a loft has no rooms to count
    district = rng.choice(list(_DISTRICTS), n, p=[0.4, 0.3, 0.2, 0.1])
    furnished = rng.random(n) < 0.3
    rent = 150 + 11 * area + np.where(loft, 500, 60 * rooms) + 180 * furnished
    rent = (rent + [_DISTRICTS[name] for name in district] + rng.normal(0, 120, n)).round(2)
    for path, some in ((table, range(rows)), (new, range(rows, n))):
        with path.open("w", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle)
            writer.writerow(_HEADING)
            for i in some:
                count = "" if loft[i] else rooms[i]
                flag = "yes" if furnished[i] else "no"
                writer.writerow([f"F{i:05d}", area[i], count, district[i], flag, rent[i]])


def _run(words: list[str], *, shown: bool, force: bool) -> None:
    """Run a command as if it had been typed, and stop where it fails."""
    from bagwise.cli import app

    if shown:
        say(f"\n$ {shlex.join(words)}", style="bold")
    more = ["--force"] if force and words[1] not in ("verify", "evaluate") else []
    code = app([*words[1:], *more, *([] if shown else ["--quiet"])], standalone_mode=False)
    if code:
        raise typer.Exit(code)


def _errors(model: Path, table: Path, new: Path) -> dict[str, float]:
    """Return errors on new rows: of the model, of one of the true labels, and of their mean."""
    import numpy as np

    from bagwise import BaggedGLM, load_model
    from bagwise.rows.labels import label_vector
    from bagwise.rows.table import read_table
    from bagwise.scoring.openly import evaluate_rows

    fitted = load_model(model)
    known, others = read_table(table), read_table(new)
    labels = label_vector(known, fitted.label)
    direct = BaggedGLM(loss="instance").fit(fitted.encoder.transform(known), labels)
    predicted = {
        "true labels": direct.predict(fitted.encoder.transform(others)),
        "mean": labels.mean(),
    }
    true = label_vector(others, fitted.label)
    return {
        "bags": evaluate_rows(fitted, others).rmse,
        **{name: float(np.sqrt(np.mean((true - one) ** 2))) for name, one in predicted.items()},
    }
