import os
import subprocess
import sys

import pytest

FIT = """
import numpy as np
from bagwise import SizeConstrainedKMeans
X = np.random.default_rng(0).normal(size=(40, 2))
print(SizeConstrainedKMeans(5, effort="fast").fit(X).cluster_sizes_.sum())
"""

COUNT = """
import numpy as np
from scipy import sparse
import bagwise as bw
from bagwise.cluster import centre_graph
rng = np.random.default_rng(0)
for n, d, k in ((60, 2, 5), (503, 8, 7), (900, 20, 10), (64, 3, 32)):
    for effort in ("fast", "default"):
        strategy = bw.KMeansBags(effort=effort)
        bw.make_bags(rng.normal(size=(n, d)), bag_size=k, strategy=strategy, seed=1)
X = rng.normal(size=(1500, 4))
bw.make_bags(sparse.csr_array(X), bag_size=5, strategy="kmeans", seed=0)
bw.make_bags(np.asfortranarray(X), bag_size=5, strategy="kmeans", seed=0)
bw.make_bags(X[::2], bag_size=5, strategy=bw.KMeansBags(scale="none"), seed=0)
bw.make_bags(rng.normal(size=(30_000, 2)), bag_size=10, strategy=bw.KMeansBags(effort="fast"))
bw.make_bags(X, bag_size=5, strategy="optimal", seed=0)
bw.SizeConstrainedKMeans(5, n_clusters=9).fit(X.astype(np.float32))
bw.SizeConstrainedKMeans(5, 9).fit(X)
centre_graph.EXACT_CENTRES = centre_graph.EXACT_ROWS = 0
bw.make_bags(X, bag_size=5, strategy="kmeans", seed=0)
from bagwise.cluster import bisection, exchanging, moving, repair, swapping
repair.HANDINGS_ON = 0
bw.make_bags(X, bag_size=5, strategy="kmeans", seed=0)
used = 0
for loop in (
    bisection.split, bisection.split_all, exchanging.settle_all, exchanging.visit_pairs,
    exchanging.farthest_rows, moving.choose_moves, moving.carry_out,
    centre_graph.select_nearest, centre_graph.link_leaves,
    centre_graph.refresh_graph, centre_graph.search_lists,
    repair.hand_on, repair.hand_over, swapping.swap_between,
):
    used += len(loop.signatures) > 0
    if len(loop.signatures) > 1:
        print(loop.__name__, *loop.signatures, sep="\\n  ")
print("used", used)
"""


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return done.stdout, done.stderr


def test_nothing_that_needs_numba_is_imported_before_it_is_needed():
    out, _ = run(
        "import sys, bagwise, bagwise.cluster.estimator\n"
        "import bagwise.bagging.optimal_bags\n"
        "print('numba' in sys.modules)"
    )
    assert out.split() == ["False"]


@pytest.mark.slow
def test_compiling_is_announced_once(tmp_path):
    for expected in (True, False):
        out, log = run(FIT, NUMBA_CACHE_DIR=str(tmp_path))
        assert out.split() == ["40"]
        assert ("compiling kernels, once" in log) == expected


def test_every_loop_is_compiled_for_one_kind_of_input_only():
    # Each further kind would cost every user seconds.
    out, _ = run(COUNT)
    assert out == "used 14\n"
