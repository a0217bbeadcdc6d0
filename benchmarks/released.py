"""What models that are released directly keep on held-out rows of real tables, family by family.

Kept is the share of the explained loss: 1 for a model of the true labels, 0 for their mean. Each
draw has real secure noise; with a delta the noise is whichever leaves the smaller error.
"""

import argparse
import warnings

import numpy as np

import bagwise as bw
from benchmarks._real_scores import kept, mean_and_error, score
from benchmarks._real_tables import RealTable, load
from benchmarks._real_ways import MEAN, TRUE, reference_ways
from benchmarks._results import keep

TABLES = ("visits", "children", "diamonds")
EPSILONS = (0.1, 0.5, 1.0)
DELTAS = (1e-6, 0.0)


def main() -> None:
    """Release, predict, compare."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--draws", type=int, default=20)
    options.add_argument("--tables", nargs="*", default=TABLES)
    chosen = options.parse_args()
    warnings.simplefilter("ignore", bw.BagwiseWarning)
    rows = []
    for name in chosen.tables:
        data = load(name)
        ends = _ends(data)
        rows.extend(
            _measured(data, epsilon, delta, chosen.draws, ends)
            for epsilon in EPSILONS
            for delta in DELTAS
        )
    keep("released", rows)


def _ends(data: RealTable) -> dict[str, float]:
    ways = {way.name: way for way in reference_ways(data)}
    return {
        end: score(data.family, data.held_out, ways[name].learn(0).predicted)["loss"]
        for end, name in (("floor", TRUE), ("ceiling", MEAN))
    }


def _measured(
    data: RealTable, epsilon: float, delta: float, draws: int, ends: dict[str, float]
) -> dict[str, object]:
    shares, headlines = [], set()
    for _ in range(draws):
        model = bw.release_model(
            data.train,
            label=data.label,
            bounds=data.bounds,
            epsilon=epsilon,
            delta=delta,
            family=data.family,
        )
        loss = score(data.family, data.held_out, model.predict(data.test))["loss"]
        shares.append(kept(loss, **ends))
        headlines.add(model.certificate.headline if model.certificate else "")
    mean, error = mean_and_error(shares)
    return {
        "table": data.name,
        "family": data.family,
        "epsilon": epsilon,
        "delta": delta,
        "delivered": ", ".join(sorted(headlines)),
        "draws": draws,
        "kept": mean,
        "standard_error": error,
        "median": float(np.median(shares)),
        "worst": min(shares),
    }


if __name__ == "__main__":
    main()
