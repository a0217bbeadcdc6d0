"""Several processes on one ledger: never above the budget, and every charge has its release."""

import subprocess
import sys

import pytest

import bagwise as bw

WRITER = """
import sys
import warnings
import numpy as np
import pyarrow as pa
import bagwise as bw
from tools.settings import filed

warnings.simplefilter("ignore")
path, out, first, last = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
rng = np.random.default_rng(0)
table = pa.table({"x": rng.normal(size=400), "y": rng.uniform(0, 10, size=400)})
kinds = [
    {"epsilon": 0.3},
    {"epsilon": 0.3, "delta": 1e-6, "noise": "gaussian"},
    {"epsilon": 0.2, "delta": 1e-6, "noise": "gaussian", "label_kind": "pick"},
    {"epsilon": 0.2, "label_kind": "pick"},
]
refused = 0
for number in range(first, last):
    try:
        made = bw.make_release(
            table, label="y", bounds=(0, 10), bag_size=20, strategy="random", ledger=path,
            **filed(seed=number, **kinds[number % len(kinds)]),
        )
    except bw.BagwiseError as error:
        assert "Nothing was drawn" in str(error), error
        refused += 1
    else:
        made.save(f"{out}/{number}")
print(refused)
"""


def run_writers(ledger, folder, *, processes, releases):
    """Let processes release at the same time; return how many requests were refused."""
    folder.mkdir()
    writers = [
        subprocess.Popen(
            [
                sys.executable, "-c", WRITER, str(ledger.path), str(folder),
                str(writer * releases), str((writer + 1) * releases),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for writer in range(processes)
    ]  # fmt: skip
    refused = 0
    for writer in writers:
        printed, errors = writer.communicate()
        assert writer.returncode == 0, errors
        refused += int(printed)
    return refused


def check_books(ledger, folder, *, asked, refused):
    """Check that every release verifies and was charged, and that all fits the budget."""
    charged = {charge.id: charge for charge in ledger.charges()}
    releases = sorted(folder.iterdir())
    assert len(charged) == len(releases) == asked - refused
    for path in releases:
        _, certificate = bw.verify(path)
        assert charged.pop(certificate.mark.id).mechanisms == certificate.events
    assert not charged
    totals = ledger.totals()
    assert totals.fixed <= totals.filtered <= totals.epsilon * (1 + 1e-9)
    return totals


def test_two_processes_never_get_above_the_budget(tmp_path):
    ledger = bw.Ledger.create(tmp_path / "l", epsilon_total=1.5, delta_total=1e-5)
    refused = run_writers(ledger, tmp_path / "out", processes=2, releases=8)
    assert 0 < refused < 16
    totals = check_books(ledger, tmp_path / "out", asked=16, refused=refused)
    assert totals.filtered > 1.2  # the budget was used
    other = bw.Ledger.create(tmp_path / "other", epsilon_total=1.5, delta_total=1e-5)
    with pytest.raises(AssertionError):  # books that lack the charges are noticed
        check_books(other, tmp_path / "out", asked=16, refused=refused)
