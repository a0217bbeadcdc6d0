"""Results that were never run, to judge the judges by."""

import numpy as np

from reproduction.cells import printed_values
from reproduction.measured import Result
from reproduction.reproduce import Scale, table_jobs

SCALE = Scale(runs=6)
OPEN = ("exact", "expected", "expected_sd", "protocol", "along_start")
PRIVATE = (
    *("printed_noise", "correct_noise", "model", "protocol", "protocol_plain", "true_epsilon"),
    *("printed_noise_expected", "correct_noise_expected", "model_expected"),
    *("printed_noise_expected_sd", "correct_noise_expected_sd", "model_expected_sd"),
)


def all_jobs(scale=SCALE):
    return list(dict.fromkeys(table_jobs((1, 2, 3, 4, 5), scale, seed=0)))


def fabricate(error, *, scale=SCALE):
    """Return a result for every job: `error(cell, name, run)` for each of its values."""
    results = []
    for job in all_jobs(scale):
        names = OPEN if job.cell.epsilon is None else PRIVATE
        values = {name: float(error(job.cell, name, job.run)) for name in names}
        results.append(Result(job, values, 0.5))
    return results


def as_printed(spread=0.02):
    """Return errors near what is printed, each run a little off; others are small and alike."""
    means = {printed.cell: printed.mean for printed in printed_values()}
    rng = np.random.default_rng(0)

    def error(cell, name, run):
        if name == "along_start":
            return 0.5
        return means.get(cell, 0.01) * np.exp(spread * rng.standard_normal())

    return error
