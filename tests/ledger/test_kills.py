"""A process that is killed, at any point, leaves a charge without a release at worst."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import bagwise as bw
from bagwise.errors import BagwiseError
from bagwise.ledger.entries import Charge
from bagwise.privacy.circumstances import Mark
from bagwise.privacy.mechanisms import mechanism_to_json, noisy_choice

SCRIPT = """
import os, signal, sys
import numpy as np
import pyarrow as pa
import bagwise as bw
from bagwise.ledger import ledger as ledgers
from bagwise.ledger import store
from bagwise.release import files, tables

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

def after(function):
    def wrapped(*args, **kwargs):
        function(*args, **kwargs)
        die()
    return wrapped

path, out, point = sys.argv[1:]
match point:
    case "while charging":
        store.next_digest = die
    case "when charged":
        ledgers.Ledger.charge = after(ledgers.Ledger.charge)
    case "when drawing":
        tables.Release = die  # bags are labelled, and nothing is made of them yet
    case "while writing":
        files.write_json = die
    case "when published":
        files.write_release = after(files.write_release)
table = pa.table({"x": np.arange(60.0), "y": np.arange(60.0) % 7})
made = bw.make_release(table, label="y", bounds=(0, 7), bag_size=6, strategy="random", epsilon=0.5,
                       ledger=path)
made.save(out)
"""

POINTS = {
    "while charging": (0, False),
    "when charged": (1, False),
    "when drawing": (1, False),
    "while writing": (1, False),
    "when published": (1, True),
}


SLOW = ("while charging", "when drawing")


@pytest.mark.parametrize(
    "point",
    [pytest.param(point, marks=[pytest.mark.slow] * (point in SLOW)) for point in POINTS],
)
def test_a_release_that_is_killed_is_charged_before_it_is_published(tmp_path, point):
    ledger = bw.Ledger.create(tmp_path / "l", epsilon_total=1.0)
    command = [sys.executable, "-c", SCRIPT, str(ledger.path), str(tmp_path / "out"), point]
    killed = subprocess.run(command, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    charged, published = POINTS[point]
    assert len(ledger.charges()) == charged
    assert (tmp_path / "out").exists() is published
    if published:
        _, certificate = bw.verify(tmp_path / "out")
        assert ledger.act(certificate.mark.id, certificate.events)
    assert ledger.totals().filtered == pytest.approx(0.5 * charged, rel=1e-3)


def charge_for_ever(ledger, told):
    """Charge one request after the other, and tell of each when it is charged."""
    while True:
        mark = Mark.new()
        entry = Charge(
            id=mark.id, time="", software="", verb="release", label="y", chosen_by="all",
            events=(mechanism_to_json(noisy_choice("bounds", 1e-3)),), subset=None,
            request="0" * 64, table="0" * 64,
        )  # fmt: skip
        ledger.charge(entry, None, delta=0.0)
        os.write(told, mark.id.encode() + b"\n")


def kill_somewhere(ledger, seconds, *, after_one=False):
    """Fork a process that charges, kill it after a while, and return what it told of.

    The while begins with the process, or with the first charge it tells of, however slow it is.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            charge_for_ever(ledger, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        first = told.readline() if after_one else b""
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return (first + told.read()).decode().split()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_whatever_was_told_of_is_in_the_ledger_wherever_the_kill_fell(tmp_path):
    ledger = bw.Ledger.create(tmp_path / "l", epsilon_total=50.0)
    told, draws = [], np.random.default_rng(1)
    for trial in range(12):
        told += kill_somewhere(ledger, draws.uniform(0.01, 0.15), after_one=trial == 0)
        kept = [charge.id for charge in bw.Ledger.open(ledger.path).charges()]
        assert set(told) <= set(kept)
    assert told
    assert len(kept) <= len(told) + 12  # one charge at a time that nobody was told of


def test_the_check_notices_a_charge_that_is_lost(tmp_path):
    """The twin: a ledger that was put back to an older copy does not have what was told of."""
    ledger = bw.Ledger.create(tmp_path / "l", epsilon_total=50.0)
    older = ledger.path.read_bytes()
    told = kill_somewhere(ledger, 0.0, after_one=True)
    assert ledger.charges()  # whatever the kill left half done is undone
    ledger.path.write_bytes(older)
    assert not set(told) <= {charge.id for charge in ledger.charges()}
    with pytest.raises(BagwiseError):
        ledger.remember(tmp_path / "out", id=told[0], digest="")
