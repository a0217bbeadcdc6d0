"""An import of labels and the labelling page are killed; what was confirmed is there, and whole."""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import bagwise
from bagwise import AnnotationProject

ROWS, LABELS = 3000, 1500
# Everything is imported, and the project open, before the clock starts.
IMPORT = """
import sys
from bagwise import AnnotationProject
project = AnnotationProject(sys.argv[1])
project.rows
print("ready", flush=True)
sys.stdin.readline()
project.import_labels(sys.argv[2])
"""
SOURCES = [str(Path(bagwise.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]


@pytest.fixture
def project(tmp_path):
    x = np.random.default_rng(0).normal(size=ROWS)
    return AnnotationProject.start(
        pa.table({"x": x}), tmp_path / "project", label="y", budget=LABELS, design="random",
        seed=0,
    )  # fmt: skip


@contextmanager
def started(*command):
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    "seconds", [0.0, 0.05, pytest.param(0.1, marks=pytest.mark.slow), 0.3], ids=str
)
def test_a_killed_import_leaves_all_labels_or_none(project, tmp_path, seconds):
    asked, path = project.to_label(), tmp_path / "labels.csv"
    values = pa.array(np.arange(LABELS) + 0.5)
    pyarrow.csv.write_csv(asked.set_column(2, "y", values), path)
    with started("-c", IMPORT, project.directory, path) as process:
        process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        time.sleep(seconds)
    left = AnnotationProject(project.directory)
    assert left.status().labelled in (0, LABELS)
    left.import_labels(path)
    kept = dict(zip(*left.labels().to_pydict().values(), strict=True))
    assert [kept[key] for key in asked["row_id"].to_pylist()] == values.to_pylist()


def answer_all(link, project, confirmed):
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


def test_a_killed_page_has_kept_what_it_confirmed(project):
    confirmed = []
    with started("-m", "bagwise", "annotate", "serve", project.directory) as process:
        link = urlsplit(process.stdout.readline().strip())
        answering = threading.Thread(target=answer_all, args=(link, project, confirmed))
        answering.start()
        while not confirmed and answering.is_alive():
            time.sleep(0.002)
        time.sleep(0.2)
    answering.join()
    kept = set(AnnotationProject(project.directory).labels()["row_id"].to_pylist())
    assert confirmed
    assert set(confirmed) <= kept
    assert len(kept) <= len(confirmed) + 1  # and the one under way
