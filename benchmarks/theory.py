"""What the exact error of a large table costs, in units of one Gram matrix.

1,000,000 x 32, random bags of 10. Every formula needs ``X'X`` or something of its size, so that one
such product is the yardstick: same run, same number of threads, each the best of seven, in
turns. The threads are one, and then as many as BLAS takes by itself.

python -m benchmarks.theory [--rows N]
"""

import argparse

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from bagwise.bagging.bags import Bags
from bagwise.theory.exact import ESTIMATORS, exact_risk
from benchmarks._results import keep, timed
from reproduction.bounds import bag_bound, instance_bound

D, SIZE, TIMES = 32, 10, 7


def side_by_side(action, yardstick):
    """Take turns, so that whatever else runs on the machine slows both."""
    pairs = [(timed(action)[0], timed(yardstick)[0]) for _ in range(TIMES)]
    return (min(times) for times in zip(*pairs, strict=True))


def calls(X, bags, theta):
    """Return what is measured, by name."""
    given = {"theta": theta, "label_noise_sd": 0.5}
    found = {
        f"exact_risk, {loss} loss, {kind}": (
            lambda loss=loss, kind=kind: exact_risk(X, bags, label_kind=kind, loss=loss, **given)
        )
        for loss in ESTIMATORS
        for kind in ("mean", "pick")
    }
    found["exact_risk, poisson, bag loss, mean"] = lambda: exact_risk(
        X, bags, theta=0.1 * theta, family="poisson", label_kind="mean", loss="bag"
    )
    found["instance_bound, pick"] = lambda: instance_bound(X, bags, label_kind="pick", **given)
    found["bag_bound"] = lambda: bag_bound(X, bags, label_noise_sd=0.5)
    return found


def blas_threads():
    return max((pool["num_threads"] for pool in threadpool_info()), default=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    n = parser.parse_args().rows
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((n, D)), rng.standard_normal(D)
    bags = Bags(rng.permutation(n) // SIZE)
    rows = []
    for limit in (1, None):
        with threadpool_limits(limits=limit):
            for name, action in calls(X, bags, theta).items():
                ours, gram = side_by_side(action, lambda: X.T @ X)
                rows.append(
                    {
                        "rows": n,
                        "threads": blas_threads(),
                        "ours": name,
                        "seconds": ours,
                        "gram seconds": gram,
                        "ratio": ours / gram,
                    }
                )
    keep("theory", rows, ["scipy", "threadpoolctl"])


if __name__ == "__main__":
    main()
