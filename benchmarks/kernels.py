"""Compact bags against k-means-constrained, faiss and MDAV: same rows, same machine, same run.

``python -m benchmarks.kernels [PART ...]`` runs the named parts, or all:

small      n = 10,000 and 5,000 against k-means-constrained with one start
medium     n = 50,000 against 20 rounds of unconstrained faiss k-means, and MDAV
large      n = 1,000,000 against one exact faiss assignment pass; memory
start      compiling, and starting with compiled kernels

Spread is the sum of squares within bags over the total. Kernels are compiled before any clock runs.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading

import numpy as np
import psutil

from bagwise import Bags, KMeansBags, OptimalBags, make_bags
from benchmarks._results import keep, timed


def rows_of(kind, n, d=32):
    rng = np.random.default_rng(0)
    if kind == "isotropic":
        return rng.normal(size=(n, d))
    if kind == "clustered":  # 200 unequal clusters, each with a covariance of rank 6 and noise
        cluster = rng.choice(200, size=n, p=rng.dirichlet(np.ones(200)))
        centres, shapes = 2 * rng.normal(size=(200, d)), 0.5 * rng.normal(size=(200, 6, d))
        inside = np.einsum("nf,nfd->nd", rng.normal(size=(n, 6)), shapes[cluster])
        return centres[cluster] + inside + 0.1 * rng.normal(size=(n, d))
    from plotnine.data import diamonds

    X = diamonds.select_dtypes("number").to_numpy(dtype=float)
    return rng.permutation((X - X.mean(axis=0)) / X.std(axis=0))[:n]


def spread(X, index):
    X = X - X.mean(axis=0)
    bags = Bags.from_labels(index)
    return float(1 - np.sum(bags.sizes[:, None] * bags.mean(X) ** 2) / np.sum(X**2))


def ours(X, k, **parameters):
    strategy = KMeansBags(**{"scale": "none", **parameters})
    return make_bags(X, bag_size=k, strategy=strategy, seed=0)


def warm_up():
    for n in (2_000, 40_000):  # one thread, several; exact neighbours, searched ones
        ours(rows_of("isotropic", n), 2)
    OptimalBags().assign(rows_of("isotropic", 500), None, bag_size=5, rng=np.random.default_rng(0))


def mdav(X, size):
    """MDAV (Domingo-Ferrer and Mateo-Sanz 2002), the usual heuristic of microaggregation.

    Return the group of each row, every group with `size` rows, the last with up to 2*size-1.
    """
    X = np.ascontiguousarray(X, dtype=np.float32)
    left = np.arange(X.shape[0])
    groups = np.empty(X.shape[0], dtype=np.int64)
    rows, total, group = X, X.sum(axis=0, dtype=np.float64), 0
    while left.size >= 3 * size:
        far = _distances(rows, (total / left.size).astype(np.float32)).argmax()
        opposite = _distances(rows, rows[far]).argmax()
        for seed in (rows[far].copy(), rows[opposite].copy()):
            near = np.argpartition(_distances(rows, seed), size - 1)[:size]
            groups[left[near]] = group
            total -= rows[near].sum(axis=0, dtype=np.float64)
            kept = np.ones(left.size, dtype=bool)
            kept[near] = False
            rows, left, group = rows[kept], left[kept], group + 1
    if left.size >= 2 * size:
        far = _distances(rows, (total / left.size).astype(np.float32)).argmax()
        near = np.argpartition(_distances(rows, rows[far]), size - 1)[:size]
        groups[left[near]] = group
        left, group = np.delete(left, near), group + 1
    groups[left] = group
    return groups


def _distances(rows, point):
    return np.einsum("ij,ij->i", rows - point, rows - point)


def small():
    from k_means_constrained import KMeansConstrained

    rows = []
    cases = [("isotropic", 10_000, 32, 10)]
    cases += [("isotropic", 5_000, d, 10) for d in (2, 8, 32)] + [("isotropic", 5_000, 32, 50)]
    cases += [("clustered", 5_000, 32, 10), ("diamonds", 5_000, None, 10)]
    for kind, n, d, k in cases:
        X = rows_of(kind, n, d)
        seconds, bags = timed(ours, X, k, repeats=3)
        best_seconds, best = timed(ours, X, k, effort="best")
        peer = KMeansConstrained(n // k, size_min=k, n_init=1, random_state=0)
        peer_seconds, fitted = timed(peer.fit, X)
        peer_spread = spread(X, fitted.labels_)
        rows.append(
            {
                "part": "small",
                "data": kind,
                "n": n,
                "d": X.shape[1],
                "bag_size": k,
                "seconds": round(seconds, 3),
                "peer_seconds": round(peer_seconds, 1),
                "times_faster": round(peer_seconds / seconds, 1),
                "spread": round(spread(X, bags.index), 5),
                "spread_to_peer": round(spread(X, bags.index) / peer_spread, 4),
                "best_seconds": round(best_seconds, 2),
                "best_spread_to_peer": round(spread(X, best.index) / peer_spread, 4),
            }
        )
        print(rows[-1], flush=True)
    return rows


def medium():
    import faiss

    rows = []
    cases = [("isotropic", 10), ("isotropic", 50), ("clustered", 10), ("diamonds", 10)]
    for kind, k in cases:
        X = rows_of(kind, 50_000 if kind != "diamonds" else 53_940)
        seconds, bags = timed(ours, X, k, repeats=3)
        fast_seconds, fast = timed(ours, X, k, effort="fast", repeats=3)
        best_seconds, best = timed(ours, X, k, effort="best")
        kmeans = faiss.Kmeans(
            X.shape[1], X.shape[0] // k, niter=20, seed=1, max_points_per_centroid=10**9
        )
        X32 = np.ascontiguousarray(X, dtype=np.float32)
        faiss_seconds, _ = timed(kmeans.train, X32)
        faiss_spread = spread(X, kmeans.index.search(X32, 1)[1][:, 0])
        mdav_seconds, groups = timed(mdav, X, k)
        rows.append(
            {
                "part": "medium",
                "data": kind,
                "n": X.shape[0],
                "d": X.shape[1],
                "bag_size": k,
                "seconds": round(seconds, 2),
                "spread": round(spread(X, bags.index), 5),
                "fast": [round(fast_seconds, 2), round(spread(X, fast.index), 5)],
                "best": [round(best_seconds, 2), round(spread(X, best.index), 5)],
                "faiss": [round(faiss_seconds, 2), round(faiss_spread, 5)],
                "time_to_faiss": round(seconds / faiss_seconds, 3),
                "mdav": [round(mdav_seconds, 1), round(spread(X, groups), 5)],
                "spread_to_mdav": round(spread(X, bags.index) / spread(X, groups), 4),
            }
        )
        print(rows[-1], flush=True)
    return rows


def peak_memory(function, *arguments):
    """Bytes that a call needed beyond what was there, sampled every 5 ms."""
    process, peak, done = psutil.Process(), [0], threading.Event()
    before = process.memory_info().rss

    def watch():
        while not done.wait(0.005):
            peak[0] = max(peak[0], process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = function(*arguments)
    finally:
        done.set()
        watcher.join()
    return peak[0] - before, result


def large():
    import faiss

    n, k = 1_000_000, 10
    X = rows_of("isotropic", n)
    seconds, (extra, bags) = timed(peak_memory, ours, X, k)
    X32 = X.astype(np.float32)
    index = faiss.IndexFlatL2(X.shape[1])
    index.add(X32[np.random.default_rng(1).choice(n, n // k, replace=False)])
    faiss_seconds, found = timed(index.search, X32, 1)
    return [
        {
            "part": "large",
            "data": "isotropic",
            "n": n,
            "d": X.shape[1],
            "bag_size": k,
            "seconds": round(seconds, 1),
            "spread": round(spread(X, bags.index), 5),
            "sizes": [int(bags.sizes.min()), int(bags.sizes.max())],
            "faiss_pass_seconds": round(faiss_seconds, 1),
            "faiss_pass_spread": round(spread(X, found[1][:, 0]), 5),
            "time_to_faiss_pass": round(seconds / faiss_seconds, 3),
            "extra_memory_to_float32_input": round(extra / X32.nbytes, 2),
        }
    ]


def start():
    """Seconds of a first fit of 2,000 rows in a new process, without and with compiled kernels."""
    code = (
        "import time; t = time.perf_counter(); import numpy as np; from bagwise import make_bags\n"
        "X = np.random.default_rng(0).normal(size=(2000, 32))\n"
        "make_bags(X, bag_size=10, strategy='kmeans', seed=0); print(time.perf_counter() - t)"
    )
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "NUMBA_CACHE_DIR": directory}
        command = [sys.executable, "-c", code]
        seconds = [
            float(subprocess.check_output(command, env=environment, text=True)) for _ in range(4)
        ]
    return [
        {
            "part": "start",
            "cold_seconds": round(seconds[0], 1),
            "warm_seconds": round(min(seconds[1:]), 2),
        }
    ]


PARTS = {part.__name__: part for part in (small, medium, large, start)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    wanted = parser.parse_args().parts or list(PARTS)
    if wanted != ["start"]:
        warm_up()
    rows = []
    for name in wanted:
        rows += PARTS[name]()
    keep("kernels", rows, packages=("numba", "faiss-cpu", "k-means-constrained", "scikit-learn"))


if __name__ == "__main__":
    main()
