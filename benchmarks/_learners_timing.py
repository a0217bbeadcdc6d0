"""What a bag loss costs beside an ordinary fit, and which curvature makes it fall fastest."""

import time
from typing import Any

import lightgbm
import numpy as np

import bagwise as bw
from bagwise._types import FloatArray

ROUNDS, REPEATS, BAG = 150, 3, 50
SHAPE = {"num_leaves": 8, "learning_rate": 0.1, "num_threads": 1, "verbose": -1}


class Diagonal(bw.BagObjective):
    """The diagonal of the Gauss-Newton matrix for a curvature: that of each row by itself."""

    def __call__(self, scores: FloatArray, data: Any = None) -> tuple[FloatArray, FloatArray]:
        """Return gradient and hessian."""
        gradient, hessian = super().__call__(scores, data)
        return gradient, hessian / self.bags.sizes[self.bags.index]


def time_a_fit(X: FloatArray, labels: FloatArray) -> list[dict[str, Any]]:
    """Return the processor seconds of the same trees on row labels and on bag labels."""
    bags = bw.make_bags(X, bag_size=BAG, strategy="random", seed=0)
    objective = bw.BagObjective(bags, bags.mean(labels))
    ways = {"row labels": "regression", "bag labels": objective}
    seconds = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, way in ways.items():
            start = time.process_time()
            lightgbm.train({**SHAPE, "objective": way}, lightgbm.Dataset(X, labels), ROUNDS)
            seconds[name].append(time.process_time() - start)
    return [{"fit": name, "seconds": min(found)} for name, found in seconds.items()]


def compare_hessians(
    encoded: tuple[FloatArray, FloatArray], labels: FloatArray, held_out: FloatArray
) -> list[dict[str, Any]]:
    """Return the loss on bags and the error on held-out rows after so many rounds."""
    X, test = encoded
    bags = bw.make_bags(X, bag_size=BAG, strategy="kmeans", seed=0)
    start = np.full(len(X), labels.mean())
    found = []
    for name, kind in (("bound", bw.BagObjective), ("diagonal", Diagonal)):
        objective = kind(bags, bags.mean(labels), start=start)
        first = objective.loss(np.zeros(len(X)))
        booster = lightgbm.train(
            {**SHAPE, "objective": objective, "min_sum_hessian_in_leaf": 1e-3, "lambda_l2": 0.0},
            lightgbm.Dataset(X, labels),
            ROUNDS,
        )
        for rounds in (10, 30, 100):
            off = labels.mean() + booster.predict(test, num_iteration=rounds) - held_out
            left = objective.loss(booster.predict(X, num_iteration=rounds)) / first
            found.append({"hessian": name, "rounds": rounds, "bag_loss_left": left,
                          "held_out_rmse": float(np.sqrt(np.mean(off**2)))})  # fmt: skip
    return found
