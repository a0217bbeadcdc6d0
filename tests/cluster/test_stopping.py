import os
import signal
import threading
import warnings

import numpy as np
import pytest

import bagwise as bw
from bagwise.cluster.search import time_limit
from bagwise.errors import StoppedEarlyWarning
from bagwise.show.stages import progress_to

X = np.random.default_rng(0).normal(size=(800, 3))
WAYS = [
    pytest.param(lambda: bw.make_bags(X, bag_size=7, strategy="kmeans", seed=0).sizes, id="kmeans"),
    pytest.param(
        lambda: bw.make_bags(X, bag_size=7, strategy="optimal", seed=0).sizes, id="optimal"
    ),
    pytest.param(
        lambda: bw.SizeConstrainedKMeans(7, 20, n_clusters=60).fit(X).cluster_sizes_, id="clusterer"
    ),
]


@pytest.fixture(autouse=True)
def ordinary_interrupts():
    """Ctrl-C as in a shell; test runners may have other ideas."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pressing(times, moment):
    """Press Ctrl-C at a report of progress."""
    reports = []

    def listen(what, share):
        reports.append(what)
        if len(reports) == moment:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)

    return listen


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("moment", [1, 4, 23])
def test_one_interrupt_gives_valid_sizes_and_a_warning(way, moment):
    with progress_to(pressing(1, moment)), pytest.warns(StoppedEarlyWarning) as caught:
        sizes = way()
    assert sizes.min() >= 7
    assert sizes.sum() == 800
    assert len(caught) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("way", WAYS)
def test_two_interrupts_are_one_of_the_ordinary_kind(way):
    with progress_to(pressing(2, 3)), pytest.raises(KeyboardInterrupt):
        way()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("way", WAYS)
def test_it_works_outside_the_main_thread(way):
    sizes = []
    thread = threading.Thread(target=lambda: sizes.append(way()))
    thread.start()
    thread.join()
    assert sizes[0].min() >= 7
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_time_that_runs_out_is_no_reason_to_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with time_limit(1e-9) as waiting:
            assert waiting.is_over


@pytest.mark.parametrize("strategy", [bw.KMeansBags, bw.OptimalBags])
def test_little_time_is_enough_for_valid_bags_and_much_time_changes_nothing(strategy):
    for n, bag_size in ((800, 7), (803, 10)):
        rows = np.random.default_rng(0).normal(size=(n, 3))
        little, much, unlimited = (
            bw.make_bags(rows, bag_size=bag_size, strategy=strategy(time_budget=budget), seed=0)
            for budget in (1e-9, 1000.0, None)
        )
        assert little.sizes.min() >= bag_size
        assert np.array_equal(much.index, unlimited.index)
        assert not np.array_equal(little.index, unlimited.index)
