"""Problems with the paper's sizes: Gaussian features, and labels that are linear in them."""

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray
from bagwise.rng import Seed, make_generator
from bagwise.rows.labels import Bounds


@dataclass(frozen=True)
class LinearProblem:
    """Rows X, true coefficients theta, and labels ``X theta`` plus Gaussian noise."""

    X: FloatArray
    theta: FloatArray
    labels: FloatArray

    def to_table(self, label: str = "y") -> pa.Table:
        """Return features x0, x1, … and the label as a table."""
        columns = {f"x{j}": self.X[:, j] for j in range(self.X.shape[1])}
        return pa.table({**columns, label: self.labels})

    def error(self, coef: FloatArray) -> float:
        """Return the squared distance to the true coefficients."""
        return float(np.sum((coef - self.theta) ** 2))


def isotropic_problem(
    n: int = 50_000, d: int = 32, label_noise_sd: float = 0.5, seed: Seed = 0
) -> LinearProblem:
    """Draw standard Gaussian features and coefficients, with the paper's sizes as defaults."""
    rng = make_generator(seed)
    X = rng.standard_normal((n, d))
    theta = rng.standard_normal(d)
    return LinearProblem(X, theta, X @ theta + label_noise_sd * rng.standard_normal(n))


def public_bounds(d: int, *, label_noise_sd: float = 1.0) -> Bounds:
    """Four standard deviations of such a label, known from the set-up and not from the labels."""
    radius = 4 * math.sqrt(d + label_noise_sd**2)
    return -radius, radius
