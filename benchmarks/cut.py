"""The optimal one-dimensional cut against microagg1d: same labels, same machine, same run.

Both get unsorted labels and return a group for each. Import and compilation of both are outside
the clock. The peer's default method is not exact at every size, `wilber` is: both are listed. Costs
are added up in long double.
"""

import numpy as np
from microagg1d import univariate_microaggregation

from bagwise.bagging.sorted_bags import SortedBags
from benchmarks._results import keep, timed

REPEATS = 3


def labels_of(kind, n):
    rng = np.random.default_rng(1)
    return {
        "normal": lambda: rng.normal(size=n),
        "cents": lambda: np.round(rng.lognormal(3, 1, size=n), 2),
        "grid": lambda: rng.permutation(n).astype(float),
    }[kind]()


def ours(labels, size):
    X = np.empty((labels.size, 0))
    return SortedBags().assign(X, labels, bag_size=size, rng=np.random.default_rng(0)).index


def peer(labels, size):
    return univariate_microaggregation(labels, k=size)


def wilber(labels, size):
    return univariate_microaggregation(labels, k=size, method="wilber")


def cost(labels, groups):
    labels = labels.astype(np.longdouble)
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    means = np.add.reduceat(labels[order], starts) / sizes
    return float(np.sum((labels[order] - np.repeat(means, sizes)) ** 2)), int(sizes.min())


def main():
    for warm in (ours, peer, wilber):
        warm(labels_of("normal", 1000), 2), warm(labels_of("normal", 1000), 50)
    rows = []
    for n, size in ((1_000_000, 5), (1_000_000, 10), (1_000_000, 50), (1_000_000, 200)):
        for kind in ("normal", "cents", "grid"):
            labels = labels_of(kind, n)
            seconds, groups = timed(ours, labels, size, repeats=REPEATS)
            auto_seconds, auto_groups = timed(peer, labels, size, repeats=REPEATS)
            wilber_seconds, wilber_groups = timed(wilber, labels, size, repeats=REPEATS)
            our_cost, smallest = cost(labels, groups)
            rows.append(
                {
                    "n": n,
                    "bag_size": size,
                    "labels": kind,
                    "seconds": round(seconds, 4),
                    "peer_auto_seconds": round(auto_seconds, 4),
                    "peer_wilber_seconds": round(wilber_seconds, 4),
                    "time_ratio_to_faster_peer": round(
                        seconds / min(auto_seconds, wilber_seconds), 3
                    ),
                    "cost_ratio_minus_1_peer_auto": our_cost / cost(labels, auto_groups)[0] - 1,
                    "cost_ratio_minus_1_peer_wilber": our_cost / cost(labels, wilber_groups)[0] - 1,
                    "smallest_bag": smallest,
                }
            )
    keep("cut", rows, packages=("numba", "microagg1d"))


if __name__ == "__main__":
    main()
