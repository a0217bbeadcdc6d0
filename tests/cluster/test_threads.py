import os
import signal
import threading
import time

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from bagwise.cluster.state import ROWS_WORTH_A_THREAD, Threads


@given(st.integers(0, 5000), st.integers(1, 6), st.integers(1, 100))
def test_ranges_cover_everything_once(count, threads, at_least):
    ranges = Threads(threads, n_rows=10**6).ranges(count, at_least=at_least)
    covered = [i for low, high in ranges for i in range(low, high)]
    assert covered == list(range(count))
    assert len(ranges) <= (4 * threads if threads > 1 else 1)
    assert len(ranges) == 1 or min(high - low for low, high in ranges) >= at_least


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_the_order_of_the_pieces(threads):
    with Threads(threads, n_rows=10**6) as workers:
        assert workers.run(lambda a, b: a - b, [(i, 1) for i in range(50)]) == list(range(-1, 49))
        assert workers.run(lambda a: a, []) == []
        assert workers.run(threading.current_thread, [()]) == [threading.main_thread()]


def test_pieces_run_side_by_side():
    barrier = threading.Barrier(3)
    with Threads(3, n_rows=10**6) as workers:
        places = workers.run(lambda _: barrier.wait(timeout=20), [(i,) for i in range(3)])
    assert sorted(places) == [0, 1, 2]


def test_an_error_in_a_thread_reaches_the_caller():
    with Threads(2, n_rows=10**6) as workers, pytest.raises(ZeroDivisionError):
        workers.run(lambda a: 1 // a, [(1,), (0,)])


def test_few_rows_are_not_worth_threads():
    assert Threads(8, n_rows=ROWS_WORTH_A_THREAD - 1).threads == 1
    assert Threads(8, n_rows=ROWS_WORTH_A_THREAD).threads == 8
    assert Threads(None, n_rows=ROWS_WORTH_A_THREAD).threads == joblib.cpu_count()
    assert Threads(0, n_rows=ROWS_WORTH_A_THREAD).threads == 1


def test_libraries_below_use_one_thread_while_the_workers_are_open():
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2):
        before = [pool["num_threads"] for pool in threadpool_info()]
        with Threads(2, n_rows=10**6):
            assert {pool["num_threads"] for pool in threadpool_info()} <= {1}
        assert [pool["num_threads"] for pool in threadpool_info()] == before


@pytest.mark.parametrize("threads", [1, 3])
def test_an_interrupt_ends_the_work(threads):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a shell
    done = []

    def work(piece):
        done.append(piece)
        if piece == 1:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)

    try:
        with pytest.raises(KeyboardInterrupt), Threads(threads, n_rows=10**6) as workers:
            workers.run(work, [(piece,) for piece in range(1000)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(done) < 1000
