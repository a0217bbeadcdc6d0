"""Attack every mechanism with a million draws; the paper's noise for picks beside it.

The bound on epsilon holds with confidence 1 - 1e-3. Claimed is epsilon 1, and 0.5 for the printed
picks.
"""

from bagwise.privacy.audit import audit
from benchmarks._results import keep
from tests.privacy import test_audit as cases


def main():
    rows = []
    for name, (kind, event, _) in cases.MECHANISMS.items():
        draws = 40_000 if "model" in name else 1_000_000
        rows.append(attack(name, kind, event, draws, claimed=cases.EPSILON))
    printed = cases.PrintedCalibration(cases.EPSILON, cases.DELTA, cases.BOUNDS)
    event = printed.picks(sizes=[cases.SIZE])
    rows.append(attack("picks as printed", cases.picks, event, 1_000_000, claimed=0.5))
    keep("audit", rows)


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
    main()
