"""Kill an import of labels, and the page for labelling, at random moments; see what is left.

    python -m benchmarks.annotate_faults [--trials 50] [--seed 0]

Each trial starts a process of its own and ends it with SIGKILL. Then:

- after an import, all labels of the file are there or none, and the import succeeds afterwards;
- after serving, every label that the page was told of is there, and at most the one under way
  besides;
- the project opens, and SQLite finds its file whole.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.csv

import bagwise
from bagwise import AnnotationProject
from benchmarks._results import keep

ROWS, LABELS = 3000, 1500
# Everything is imported, and the project open, before the clock starts.
_IMPORT = """
import sys
from bagwise import AnnotationProject
project = AnnotationProject(sys.argv[1])
project.rows
print("ready", flush=True)
sys.stdin.readline()
project.import_labels(sys.argv[2])
print("done", flush=True)
sys.stdin.readline()
"""
_ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(
        [str(Path(bagwise.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    ),
}


def make_project(place: Path) -> tuple[AnnotationProject, Path]:
    """Return a project without labels, and a file with all of them."""
    x = np.random.default_rng(0).normal(size=ROWS)
    project = AnnotationProject.start(
        pa.table({"x": x}), place / "project", label="y", budget=LABELS, design="random",
        seed=0,
    )  # fmt: skip
    asked = project.to_label()
    filled = asked.set_column(2, "y", pa.array(np.arange(LABELS) + 0.5))
    path = place / "labels.csv"
    pyarrow.csv.write_csv(filled, path)
    return project, path


@contextmanager
def _started(*command: str) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(
        [sys.executable, *command],
        env=_ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            pipe.close()


def import_seconds(place: Path) -> float:
    """Return how long an import takes that nobody disturbs."""
    project, path = make_project(place)
    with _started("-c", _IMPORT, str(project.directory), str(path)) as process:
        process.stdout.readline()
        start = time.perf_counter()
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        return time.perf_counter() - start


def import_trial(place: Path, rng: np.random.Generator, seconds: float) -> str:
    """Kill an import within its `seconds`; return what is wrong, or how it ended."""
    project, path = make_project(place)
    with _started("-c", _IMPORT, str(project.directory), str(path)) as process:
        process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        time.sleep(rng.uniform(0, 1.1 * seconds))
        process.kill()
    return after_import(project.directory, path)


def after_import(directory: Path, path: Path) -> str:
    """Say how an import ended that was killed: with none of its labels, with all, or wrong."""
    left = AnnotationProject(directory)
    found = left.status().labelled
    if found not in (0, LABELS):
        return f"WRONG: {found} of {LABELS} labels"
    left.import_labels(path)
    if left.status().labelled != LABELS or not _all_right(left):
        return "WRONG: the import afterwards"
    return "none" if found == 0 else "all"


def _all_right(project: AnnotationProject) -> bool:
    kept = dict(zip(*project.labels().to_pydict().values(), strict=True))
    order = [task.id for task in project.store.tasks()]
    return [kept[key] for key in order] == [place + 0.5 for place in range(LABELS)]


def serve_trial(place: Path, rng: np.random.Generator, seconds: float = 1.0) -> str:
    """Kill a server while labels come in; return what is wrong, or how it ended."""
    project, _ = make_project(place)
    confirmed: list[str] = []
    with _started("-m", "bagwise", "annotate", "serve", str(project.directory)) as process:
        link = urlsplit(process.stdout.readline().strip())
        answering = threading.Thread(target=_answer_all, args=(link, project, confirmed))
        answering.start()
        while not confirmed and answering.is_alive():
            time.sleep(0.002)
        time.sleep(rng.uniform(0, seconds))
        process.kill()
        answering.join()
    return after_serving(project.directory, confirmed)


def after_serving(directory: Path, confirmed: list[str]) -> str:
    """Say how a server ended that was killed after it had confirmed some labels."""
    left = AnnotationProject(directory)
    kept = set(left.labels()[left.id_name].to_pylist())
    if not confirmed:
        return "WRONG: the server never answered"
    if not set(confirmed) <= kept or len(kept) > len(confirmed) + 1:
        return f"WRONG: {len(confirmed)} labels were confirmed, {len(kept)} are there"
    return "one more than confirmed" if len(kept) > len(confirmed) else "as confirmed"


def _answer_all(link, project: AnnotationProject, confirmed: list[str]) -> None:
    """Answer for one row after the other, until nobody is there."""
    try:
        there = http.client.HTTPConnection(link.netloc, timeout=20)
        there.request("GET", f"/?{link.query}")
        welcome = there.getresponse()
        welcome.read()
        headers = {
            "Cookie": welcome.headers["Set-Cookie"].partition(";")[0],
            "Origin": f"http://{link.netloc}",
            "Content-Type": "application/json",
        }
        for task in project.store.tasks():
            there.request("POST", "/api/answer", json.dumps({"id": task.id, "value": "1"}), headers)
            answer = there.getresponse()
            answer.read()
            if answer.status == 200:
                confirmed.append(task.id)
    except (OSError, http.client.HTTPException):
        return


def main() -> None:
    """Run all trials and keep what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as place:
        seconds = import_seconds(Path(place))
    rows = []
    for what, trial, lasts in (("import", import_trial, seconds), ("serve", serve_trial, 1.0)):
        ended: Counter[str] = Counter()
        for _ in range(options.trials):
            with tempfile.TemporaryDirectory() as place:
                ended[trial(Path(place), rng, lasts)] += 1
        wrong = sum(count for name, count in ended.items() if name.startswith("WRONG"))
        rows.append({"killed": what, "trials": options.trials, "wrong": wrong, **ended})
    keep("annotate_faults", rows)
    if any(row["wrong"] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
