"""Attack every mechanism with a million draws; the paper's noise for picks beside it.

The bound on epsilon holds with confidence 1 - 1e-3. Claimed is epsilon 1, and 0.5 for the printed
picks. Names of mechanisms, as arguments, attack those alone, and keep what is known of the others.
"""

import sys

from bagwise.auditor.mechanism import audit
from bagwise.privacy.queries import BagPicks
from benchmarks._results import keep, read_rows
from tests.privacy import test_audit as cases

PRINTED = "picks as printed"


def main(names):
    known = {row["mechanism"]: row for row in read_rows("audit")} if names else {}
    every = [*cases.MECHANISMS, PRINTED]
    for name in names or every:
        known[name] = attack_one(name)
        keep("audit", [known[one] for one in every if one in known], show=False)
        print(known[name], flush=True)


def attack_one(name):
    if name == PRINTED:
        rule = cases.PrintedCalibration(cases.EPSILON, cases.DELTA, cases.BOUNDS)
        event = rule.least(BagPicks.of(cases.BOUNDS, [cases.SIZE], 1))
        return attack(name, cases.picks, event, 1_000_000, claimed=0.5)
    kind, event, _ = cases.MECHANISMS[name]
    draws = 40_000 if "model" in name else 1_000_000  # of which each takes long
    return attack(name, kind, event, draws, claimed=cases.EPSILON)


def attack(name, kind, event, draws, claimed):
    draw = kind(event)
    found = audit(blocks(draw(1.0)), blocks(draw(0.0)), delta=cases.DELTA, draws=draws)
    return {
        "mechanism": name,
        "draws": draws,
        "claimed_epsilon": claimed,
        "epsilon_at_least": round(found.epsilon, 4),
        "hits": found.hits,
        "false_alarms": found.false_alarms,
    }


def blocks(draw):
    """Draw in pieces: a bag of 50 rows for each of 10^6 draws would not fit."""
    import numpy as np

    return lambda count: np.concatenate(
        [draw(min(50_000, count - i)) for i in range(0, count, 50_000)]
    )


if __name__ == "__main__":
    main(sys.argv[1:])
