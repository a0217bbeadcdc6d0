"""The first search on a machine: it does not wait for its kernels, and tells so."""

import os
import subprocess
import sys

import numpy as np
import pytest

from bagwise.cluster import compile as kernels
from bagwise.cluster import search
from bagwise.cluster.state import SizeRange


@pytest.fixture
def new_machine(tmp_path, monkeypatch):
    """A place for compiled code in which there is none, and a list of processes begun."""
    monkeypatch.delenv(kernels.WAIT)
    monkeypatch.setattr(kernels, "_mark", lambda: tmp_path / "ready")
    begun = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: begun.append(command))
    forget()
    yield begun
    forget()


def forget():
    for remembered in (kernels.are_compiled, kernels.compile_in_background, kernels._announce):
        remembered.cache_clear()


def find(n=500, sizes=None):
    points = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    sizes = SizeRange.near_equal(n, 10) if sizes is None else sizes
    return search.find_clusters(points, sizes, effort="fast", seed=0)


def test_few_rows_do_without_while_kernels_are_compiled_once(new_machine, caplog):
    first = find()
    assert np.bincount(first).min() >= 10
    assert [command[1:] for command in new_machine] == [["-m", "bagwise.cluster.compile"]]
    assert "compiling kernels in the background" in caplog.text
    kernels.mark_compiled()  # in the meantime: this process goes on as it began
    assert np.array_equal(find(), first)
    assert len(new_machine) == 1
    forget()
    assert not np.array_equal(find(), first)  # the next one has its kernels


def test_many_rows_and_sizes_that_vary_wait(new_machine, caplog, monkeypatch):
    compiled = []
    monkeypatch.setattr(search, "compile_kernels", lambda: compiled.append(kernels.mark_compiled()))
    find(sizes=SizeRange(45, 10, 19))
    assert not new_machine
    assert len(compiled) == 1
    assert "compiling kernels, once" in caplog.text
    find(n=10_001)
    assert len(compiled) == 1


def test_whoever_asks_for_it_waits(new_machine, monkeypatch):
    monkeypatch.setenv(kernels.WAIT, "wait")
    find()
    assert not new_machine
    assert not kernels.are_to_be_kept()  # since it noted that they are there


def test_nothing_is_begun_where_nothing_can_be_kept(new_machine, caplog, monkeypatch):
    monkeypatch.setattr(kernels, "_mark", lambda: None)
    assert np.bincount(find()).min() >= 10
    assert not new_machine
    assert "cannot be kept" in caplog.text


UNWRITABLE = """
import os, sys
from numba.core import caching
for locator in caching.CacheImpl._locator_classes:  # as if no directory could be written to
    locator.ensure_cache_path = lambda self: (_ for _ in ()).throw(OSError("read-only"))
import numpy as np
import bagwise as bw
X = np.random.default_rng(0).normal(size=(200, 2))
print(bw.make_bags(X, bag_size=10, strategy="kmeans", seed=0).n_bags)
from bagwise.bagging._cut import optimal_sizes
print(optimal_sizes(np.zeros(6), 2).sum())
"""


def test_a_machine_that_cannot_be_written_to(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != kernels.WAIT}
    done = subprocess.run(
        [sys.executable, "-c", UNWRITABLE], env=environment, capture_output=True, text=True,
        check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.split() == ["20", "6"], done.stderr
    assert "cannot be kept" in done.stderr
