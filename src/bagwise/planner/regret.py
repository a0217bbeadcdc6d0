"""Which choice to regret least, whatever turns out to be true of the labels.

No scenario of the prior is the truth. A choice that is best in one may be bad in the next: few
large bags are best where a linear model is right, and lead astray where it is not. So each choice
is judged by its regret in every scenario: which share of the signal's variance its error is, less
that of the best choice there. The mean of these over the scenarios ranks it.

A share of the signal, since that is what a release is judged by: how much of what the labels say a
model keeps. Ratios of errors would let a choice between a thousandth and two thousandths of the
signal, which nobody notices, outweigh one between a tenth and two tenths.

A mean, and not the largest regret: the latter depends on which other choices happen to be listed,
so that one more that nobody wants could swap the first two. To a mean the best of each scenario
adds the same for all.
"""

from collections.abc import Sequence

import numpy as np

from bagwise._types import FloatArray
from bagwise.planner.candidates import Candidate
from bagwise.planner.prior import Prior


def regrets(candidates: Sequence[Candidate], prior: Prior, *, classes: int = 1) -> FloatArray:
    """Return the mean regret of each candidate, a share of the signal's variance."""
    scenarios = prior.scenarios()
    total = np.zeros(len(candidates))
    for name, believed in scenarios.items():
        # Without any signal the noise of labels is what an error can be compared with.
        scale = classes * (believed.signal_sd or believed.label_noise_sd) ** 2
        errors = np.array([candidate.scenarios[name] for candidate in candidates])
        total += (errors - errors.min()) / scale
    return total / len(scenarios)


def ranked(
    candidates: Sequence[Candidate], prior: Prior, *, intervals_first: bool, classes: int = 1
) -> tuple[Candidate, ...]:
    """Return the candidates by their regret, those with intervals before all others if asked for.

    Bags that nobody asked for by name must serve whoever fits a model to them, and intervals belong
    to that. Few bags leave nothing to tell errors by, and instance loss has a bias that is in no
    interval.
    """
    regret = regrets(candidates, prior, classes=classes)
    last = np.array([intervals_first and not candidate.intervals for candidate in candidates])
    return tuple(candidates[i] for i in np.lexsort((regret, last)))
