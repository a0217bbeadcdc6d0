"""What learning from bags costs, in time and memory.

1,000,000 x 32, random bags of 10: Gaussian bag loss against scikit-learn's least squares on the
rows, Poisson bag loss against glum on the row labels; each the best of three, in one run. Memory:
peak of a process of its own above what it held before the fit.

python -m benchmarks.learn
"""

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import bagwise as bw
from bagwise.bagging.bags import Bags
from bagwise.families import find_family
from benchmarks._results import keep, memory, timed

N, D, SIZE = 1_000_000, 32, 10
MEGABYTE = 2**20


def best_of(action):
    return timed(action, repeats=3)[0]


def rows_in_bags():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    theta = 0.1 * rng.standard_normal(D)
    bags = Bags(rng.permutation(N) // SIZE)
    return rng, X, theta, bags


def measure_speed():
    from glum import GeneralizedLinearRegressor
    from sklearn.linear_model import LinearRegression

    rng, X, theta, bags = rows_in_bags()
    index = bags.index
    y = X @ theta + 0.5 * rng.standard_normal(N)
    by_bag = bags.mean(y)[index]
    ours = best_of(lambda: bw.BaggedGLM().fit(X, by_bag, bags=index))
    theirs = best_of(lambda: LinearRegression().fit(X, y))
    counts = rng.poisson(np.exp(X @ theta - 0.5)).astype(float)
    bag_counts = bags.mean(counts)[index]
    poisson = best_of(lambda: bw.BaggedGLM("poisson").fit(X, bag_counts, bags=index))
    glum = GeneralizedLinearRegressor(family="poisson", alpha=0, fit_intercept=True)
    on_rows = best_of(lambda: glum.fit(X, counts))
    timings = [
        ("gaussian bag loss", ours, "LinearRegression on rows", theirs),
        ("poisson bag loss", poisson, "glum on row labels", on_rows),
    ]
    return [
        {
            "part": "speed",
            "ours": name,
            "seconds": a,
            "peer": peer,
            "peer seconds": b,
            "ratio": a / b,
        }
        for name, a, peer, b in timings
    ] + [memory_of(name) for name in ("gaussian", "poisson")]


def memory_of(family):
    """Fit in a process of its own that reads its data from files, and tell its peak."""
    rng, X, theta, bags = rows_in_bags()
    y = find_family(family).sample(X @ theta - 0.5, phi=0.25, rng=rng)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", X)
        np.save(Path(folder) / "y.npy", bags.mean(y)[bags.index])
        np.save(Path(folder) / "bags.npy", bags.index)
        command = [sys.executable, "-m", "benchmarks.learn", "--fit", family, "--folder", folder]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    extra = json.loads(told)["extra"]
    return {
        "part": "memory",
        "ours": f"{family} bag loss",
        "extra MB": extra,
        "extra / X": extra * MEGABYTE / X.nbytes,
    }


def fit_and_tell(family, folder):
    X, y, bags = (np.load(Path(folder) / f"{name}.npy") for name in ("X", "y", "bags"))
    bw.BaggedGLM(family).fit(X[:1000], y[:1000])  # imports are not what is measured
    held = memory("VmRSS")
    bw.BaggedGLM(family).fit(X, y, bags=bags)
    # The kernel's own mark: getrusage would still count the process that started this one.
    peak = memory("VmHWM")
    print(json.dumps({"extra": (peak - held) / MEGABYTE}))


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("parts", nargs="*", choices=["speed", []], default=[])
    arguments.add_argument("--fit", help="for a process of its own")
    arguments.add_argument("--folder")
    asked = arguments.parse_args()
    if asked.fit:
        fit_and_tell(asked.fit, asked.folder)
        return
    warnings.simplefilter("ignore", bw.BagwiseWarning)
    keep("learn", measure_speed(), packages=("scikit-learn", "glum"))


if __name__ == "__main__":
    main()
