"""Guess single labels from bags of 50: without noise, with the paper's noise for picks, with ours.

A rare label: 2 % of the rows have it. The attacker knows all other labels of a bag. Under epsilon 1
the advantage is at most tanh(1/2) = 0.462, also for those guesses that the attacker is sure of.
"""

import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa

import bagwise as bw
from bagwise.auditor import infer_labels
from bagwise.auditor.matching import labels_of_rows
from bagwise.errors import BagwiseWarning
from bagwise.privacy.noise import noisy_bag_labels
from bagwise.privacy.queries import BagPicks
from bagwise.rng import SecureNoise
from benchmarks._results import keep
from reproduction.printed_noise import PrintedCalibration

ROWS, SIZE, TRIALS = 20_000, 50, 1_000_000
EPSILON, DELTA, BOUNDS = 1.0, 1e-5, (0.0, 1.0)


def make_table(rows=ROWS):
    rng = np.random.default_rng(0)
    return pa.table({"x": rng.normal(size=rows), "y": (rng.random(rows) < 0.02).astype(float)})


def make_releases(table):
    shape = {"label": "y", "bag_size": SIZE, "strategy": "random", "bounds": BOUNDS}
    picks = bw.make_release(table, **shape, bagging=bw.Bagging(label_kind="pick"), not_private=True)
    return {
        "means without noise": bw.make_release(table, **shape, not_private=True),
        "picks, printed noise": with_printed_noise(picks, table),
        "means, ours": bw.make_release(table, **shape, epsilon=EPSILON),
        "means, ours, laplace": bw.make_release(
            table, **shape, epsilon=EPSILON, privacy=bw.Privacy(noise="laplace")
        ),
        "means, ours, gaussian": bw.make_release(
            table, **shape, epsilon=EPSILON, delta=DELTA, privacy=bw.Privacy(noise="gaussian")
        ),
        "picks, ours": bw.make_release(
            table, **shape, bagging=bw.Bagging(label_kind="pick"), epsilon=EPSILON, delta=DELTA
        ),
    }


def with_printed_noise(picks, table):
    """Return a release of exact picks with the noise of the paper on them."""
    printed = PrintedCalibration(EPSILON, DELTA, BOUNDS)
    event = printed.least(BagPicks.of(BOUNDS, picks.bags.sizes.tolist(), 1))
    values, _ = labels_of_rows(picks, table)
    labels = noisy_bag_labels(values, picks.bags, event=event, source=SecureNoise(), bounds=BOUNDS)
    certificate = replace(
        picks.certificate, bounds=BOUNDS, events=(event,), noise_source=SecureNoise.name
    )
    return replace(picks, labels=labels, certificate=certificate)


def main():
    table, rows = make_table(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BagwiseWarning)
        releases = make_releases(table)
    for name, release in releases.items():
        found = infer_labels(release, table, trials=TRIALS, seed=0)
        attack = found.attacks[0]
        rows.append(
            {
                "release": name,
                "colour": found.colour,
                "advantage": interval(attack.advantage),
                "when_sure": interval(attack.when_sure),
                "sure_guesses": attack.when_sure.guesses,
            }
        )
    keep("inference", rows)


def interval(found):
    return [round(value, 3) for value in (found.estimate, found.low, found.high)]


if __name__ == "__main__":
    main()
