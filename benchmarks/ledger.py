"""Ledgers: what the filter says beside the accountant and dp-accounting, and what a charge costs.

    python -m benchmarks.ledger [totals] [charges]

``totals``: the epsilon of many releases by Google's library, by our accountant, and by the filter.
``charges``: seconds of a charge to a ledger with many entries. Many writers and processes that are
killed are in tests/ledger.
"""

import argparse
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks._results import keep, read_rows

PARTS = ("totals", "charges")
DELTA = 1e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}; all by default")
    chosen = parser.parse_args().parts or PARTS
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(unknown)}")
    rows = [row for row in read_rows("ledger") if row["part"] not in chosen]
    for part in chosen:
        with tempfile.TemporaryDirectory() as folder:
            rows += globals()[part](Path(folder))
        keep("ledger", rows, ["dp-accounting"], show=False)
    for row in rows:
        print(row)


def totals(_folder):
    from bagwise.ledger.filters import Cost, PrivacyFilter
    from bagwise.privacy.accounting import epsilon_of_releases

    rows = []
    for name, releases in histories().items():
        google_epsilon = peer_epsilon(releases, DELTA)
        fixed = epsilon_of_releases(releases, DELTA)
        # A budget that these releases would just use up.
        low, high = fixed * 0.5, fixed * 4
        for _ in range(40):
            middle = (low + high) / 2
            budget = PrivacyFilter(middle, DELTA)
            costs = [Cost.of(events, order=budget.order) for events in releases]
            low, high = (low, middle) if budget.admits(costs) else (middle, high)
        rows.append(
            {
                "part": "totals",
                "releases": name,
                "dp_accounting": round(google_epsilon, 5),
                "fixed_in_advance": round(fixed, 5),
                "fixed_to_peer": round(fixed / google_epsilon, 5),
                "filter": round(high, 5),
                "filter_to_fixed": round(high / fixed, 4),
            }
        )
    return rows


def peer_epsilon(releases, delta):
    """Return the epsilon by Google's library, from what its own distributions say.

    Its accountants take one relation for all events, and none fits both: a coin is halved where a
    label is replaced by nothing, and Gaussian noise is not known where one is replaced by another.
    """
    from dp_accounting import dp_event as google
    from dp_accounting.pld import privacy_loss_distribution as pld

    makers = {
        google.GaussianDpEvent: lambda e: pld.from_gaussian_mechanism(e.noise_multiplier),
        google.LaplaceDpEvent: lambda e: pld.from_laplace_mechanism(e.noise_multiplier),
        google.RandomizedResponseDpEvent: lambda e: pld.from_randomized_response(
            e.noise_parameter, e.num_buckets
        ),
    }
    events = [one for events in releases for event in events for one in event.exported(google)]
    whole = pld.identity()
    for event, count in Counter(events).items():
        whole = whole.compose(makers[type(event)](event).self_compose(count))
    return whole.get_epsilon_for_delta(delta)


def histories():
    """Return lists of releases, each with the events that its certificate has."""
    from bagwise.privacy.calibrate import ExactCalibration
    from bagwise.privacy.mechanisms import noisy_choice
    from bagwise.privacy.queries import BagMeans, MeanLoss

    def means(epsilon, delta, noise):
        rule = ExactCalibration(epsilon, delta, (0.0, 10.0), (), noise)
        return (rule.least(BagMeans.of(rule.bounds)),)

    def loss(epsilon):
        rule = ExactCalibration(epsilon, 0.0, (0.0, 10.0), (), "auto")
        event = rule.least(MeanLoss(1e-4, 2**20))
        assert event.kind == "laplace-mean-loss"
        return (event,)

    gaussian, laplace = means(0.3, DELTA, "gaussian"), means(0.2, 0.0, "laplace")
    return {
        "one Gaussian of epsilon 1": [means(1.0, DELTA, "gaussian")],
        "4 Laplace of 0.2": [laplace] * 4,
        "50 Laplace of 0.2": [laplace] * 50,
        "400 Laplace of 0.02": [means(0.02, 0.0, "laplace")] * 400,
        "10 Gaussian of 0.3": [gaussian] * 10,
        "50 Gaussian of 0.3": [gaussian] * 50,
        "bounds, 10 Gaussian, 2 evaluations": [
            (noisy_choice("bounds", 0.1),), *[gaussian] * 10, loss(0.1), loss(0.1)
        ],
        "20 Gaussian of 0.3, 20 Laplace of 0.2": [*[gaussian] * 20, *[laplace] * 20],
    }  # fmt: skip


def charges(folder):
    import bagwise as bw
    from bagwise.ledger.entries import Charge
    from bagwise.privacy.circumstances import Mark
    from bagwise.privacy.mechanisms import mechanism_to_json, noisy_choice

    ledger = bw.Ledger.create(folder / "l", epsilon_total=400.0, delta_total=DELTA)
    seconds = []
    for number in range(1000):
        entry = Charge(
            id=Mark.new().id, time="", software="", verb="release", label="y",
            events=(mechanism_to_json(noisy_choice("bounds", 0.1 + number / 1e6)),),
            chosen_by="all", subset=None, request="0" * 64, table="0" * 64,
        )  # fmt: skip
        start = time.perf_counter()
        ledger.charge(entry, None, delta=0.0)
        seconds.append(time.perf_counter() - start)
    return [
        {
            "part": "charges",
            "entries": first,
            "milliseconds": round(1e3 * statistics.median(some), 2),
        }
        for first, some in ((0, seconds[:50]), (950, seconds[950:]))
    ]


if __name__ == "__main__":
    main()
