"""Each fault once, and that the harness would notice if something went wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bagwise.errors import BagwiseError
from benchmarks import faults

ROOT = Path(__file__).parents[2]


def test_each_fault_leaves_the_old_output_or_a_new_one():
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.faults", "--keep-nothing"]
    limits = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    found = subprocess.run(
        [*command, "--trials", "9", "--seed", "1"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **limits, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )
    assert found.returncode == 0, found.stdout + found.stderr
    rows = {row["fault"]: row for row in json.loads(found.stdout.splitlines()[-1])}
    assert rows["all"] == {"fault": "all", "trials": 9, "clean": 9, "exit_codes": {}}
    assert all(rows[fault]["trials"] for fault in faults.FAULTS)


@pytest.fixture
def place(tmp_path):
    rng = np.random.default_rng(0)
    found = faults.prepare(tmp_path, faults.VERBS["release"], old=False, rng=rng)
    found.log.write_text("")
    return found


def at_once(place, codes=(1,), fault="kill"):
    return faults.problems_at_once(place, list(codes), fault)


def test_nothing_is_found_where_nothing_is_wrong(place):
    assert at_once(place) == []


def write_table(place):
    pq.write_table(pa.table({"x": place.labels[5:6]}), place.out / "x.parquet", compression="zstd")


HARM = {
    "a label as bytes": lambda place: (place.out / ".x").write_bytes(place.labels[7].tobytes()),
    "a label as text": lambda place: place.log.write_text(f"got {place.labels[3]!r}"),
    "a rounded label": lambda place: place.log.write_text(f"[{place.labels[3]:.8g}, 0.5]"),
    "a label in a table": write_table,
    "a temporary file": lambda place: (place.root / "tmp" / "x").write_text(""),
    "a traceback": lambda place: place.log.write_text("Traceback"),
    "an open draft": lambda place: (place.out / ".release.0.new").mkdir(mode=0o755),
}


@pytest.mark.parametrize("harm", HARM)
def test_the_harness_finds(place, harm):
    HARM[harm](place)
    assert at_once(place)


def test_a_number_that_begins_as_a_label_does_is_none(place):
    label, near = float(place.labels[3]), float(place.labels[3]) + 3e-9
    assert str(near)[:9] == str(label)[:9]
    place.log.write_text(f"got {near!r}")
    assert at_once(place) == []


def test_the_harness_finds_what_a_survivor_left_and_noise_that_repeats(place):
    (place.out / ".release.0.new").mkdir(mode=0o700)
    assert at_once(place) == []
    assert at_once(place, [0], "clock jumps")
    assert at_once(place, [0, faults.BROKEN], "forked workers")


def test_the_harness_finds_a_half_release(place):
    place.target.mkdir()
    with pytest.raises(BagwiseError):
        place.digest()
