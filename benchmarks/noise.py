"""Draws per second of the discrete samplers against OpenDP: same machine, same run, one thread.

Ours draw from the operating system (`SecureNoise`), as a release does. OpenDP adds discrete
Gaussian noise to a vector of zeros, as one call. Import and the making of the mechanism are outside
the clock. Each is the best of three; ours and theirs take turns.
"""

import numpy as np
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

from bagwise.privacy.samplers import discrete_gaussian, discrete_laplace
from bagwise.rng import SecureNoise
from benchmarks._results import keep, timed

REPEATS = 3
SCALES = (100, 10_000, 1_000_000, 2**31)
COUNT, PEER_COUNT = 2_000_000, 100_000


def ours(scale):
    return discrete_gaussian(COUNT, scale=scale, source=SecureNoise())


def laplace(scale):
    return discrete_laplace(COUNT, scale=scale, source=SecureNoise())


def peer(scale):
    space = vector_domain(atom_domain(T="i64")), l2_distance(T="f64")
    mechanism = make_gaussian(*space, scale=float(scale))
    zeros = np.zeros(PEER_COUNT, dtype=np.int64)
    return lambda: np.asarray(mechanism(zeros))


def main():
    enable_features("contrib")
    rows = []
    for scale in SCALES:
        mechanism = peer(scale)
        turns = [
            (timed(ours, scale), timed(laplace, scale), timed(mechanism)) for _ in range(REPEATS)
        ]
        best = [min(took for took, _ in column) for column in zip(*turns, strict=True)]
        our_rate, laplace_rate, peer_rate = COUNT / best[0], COUNT / best[1], PEER_COUNT / best[2]
        rows.append(
            {
                "scale": scale,
                "gaussian_per_second": round(our_rate),
                "opendp_gaussian_per_second": round(peer_rate),
                "times_as_fast": round(our_rate / peer_rate, 1),
                "laplace_per_second": round(laplace_rate),
                "sd_over_scale": round(float(turns[0][0][1].std()) / scale, 4),
                "opendp_sd_over_scale": round(float(turns[0][2][1].std()) / scale, 4),
            }
        )
    keep("noise", rows, packages=("opendp",))


if __name__ == "__main__":
    main()
