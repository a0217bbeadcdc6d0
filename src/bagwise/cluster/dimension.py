"""In how many directions rows differ from those beside them."""

import numpy as np

from bagwise._types import AnyArray

SAMPLED_WINDOWS = 1000
SMALLEST_WINDOW, LARGEST_WINDOW = 10, 64


def effective_dimension(Z: AnyArray, clusters: int) -> float:
    """Estimate in how many directions neighbouring rows differ, as if all counted the same.

    For w rows with d such directions the participation ratio ``tr(G)^2 / |G|^2`` of their Gram
    matrix is about ``1 / (1/d + 1/(w-1))``. After bisection, neighbours stand side by side.
    """
    n, features = Z.shape
    window = min(n, int(np.clip(n // clusters, SMALLEST_WINDOW, LARGEST_WINDOW)))
    firsts = np.linspace(0, n - window, num=min(SAMPLED_WINDOWS, n // window), dtype=np.int64)
    local = Z[firsts[:, None] + np.arange(window)].astype(np.float64)
    local -= local.mean(axis=1, keepdims=True)
    gram = local @ local.transpose(0, 2, 1)
    squares, traces = np.einsum("bij,bij->b", gram, gram), np.einsum("bii->b", gram)
    differ = squares > 0
    if not differ.any():
        return float(features)
    ratio = float(np.mean(traces[differ] ** 2 / squares[differ]))
    rest = window - 1 - ratio
    dimension = ratio * (window - 1) / rest if rest > 0 else features
    return float(np.clip(dimension, min(2, features), features))
