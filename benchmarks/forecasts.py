"""Does "keeps about 98 %" come true? Forecasts of releases against models fitted to them.

The tables of `benchmarks.defaults` whose labels are numbers, epsilon 0.5, 1 and 4, the shortest
command. The forecast is that of the page (`bagwise report`): what the bags tell, or the plan's
where they do not determine all coefficients. The outcome is the share kept on rows that were not
released.

    python -m benchmarks.forecasts
"""

import warnings

import numpy as np

from bagwise.errors import BagsError
from bagwise.learn.from_release import explain_by_fit
from bagwise.requests.provenance import LeastRegret
from benchmarks._real_tables import SOURCES, load
from benchmarks.defaults import Design, Scale

EPSILONS = (0.5, 1.0, 4.0)
MOST_ROWS, REPEATS = 20_000, 3  # of bags and noise, whose means are compared: one draw is luck
NEAR = 0.05


def forecast(release):
    """Return the share that the page of a release says is kept; NaN, which is off, if none."""
    try:
        return explain_by_fit(release).accuracy.kept
    except BagsError:
        planned = release.provenance.chosen_because
        if not isinstance(planned, LeastRegret):
            return np.nan
        coefficients = len(release.encoder.feature_names) + 1
        return planned.accuracy(rows_each=release.n_rows / coefficients).kept


def main():
    """Print one line for each table and epsilon, and how many are near."""
    warnings.simplefilter("ignore")
    near = []
    print(f"{'table':14} {'epsilon':>7} {'said':>6} {'kept':>6}")
    for name in (name for name, source in SOURCES.items() if source.family == "gaussian"):
        scale = Scale.of(load(name, most_rows=MOST_ROWS))
        for epsilon in EPSILONS:
            releases = [Design().release(scale.data, epsilon, partition=i) for i in range(REPEATS)]
            said = np.mean([forecast(release) for release in releases])
            was = np.mean(np.clip([scale.kept_by(release) for release in releases], 0, 1))
            near.append(abs(said - was) <= NEAR)
            off = "" if near[-1] else "  off"
            print(f"{name:14} {epsilon:7g} {said:6.1%} {was:6.1%}{off}", flush=True)
    print(f"within {100 * NEAR:g} points: {sum(near)} of {len(near)} ({np.mean(near):.0%})")


if __name__ == "__main__":
    main()
