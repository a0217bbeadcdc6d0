"""Which choice to regret least, whatever turns out to be true of the labels.

No scenario of the prior is the truth. A choice that is best in one may be bad in the next: few
large bags are best where a linear model is right, and lead astray where it is not. So each choice
is judged by its regret in every scenario, the logarithm of its error over that of the best choice
there, and the mean of these over the scenarios ranks it. A mean, and not the largest: the latter
depends on which other choices happen to be listed, so that one more candidate that nobody wants
could swap the first two. To a mean each scenario's best adds the same for all.

One hundredth of the signal's variance is added to each error before. It is one point of what a
model can keep, the unit in which releases are compared: to be off by a tenth of it or by a
twentieth is both as good as not at all, and must not outweigh a choice between half and all of the
signal in another scenario.
"""

from collections.abc import Sequence

import numpy as np

from bagwise._types import FloatArray
from bagwise.planner.candidates import Candidate
from bagwise.planner.prior import Prior

ONE_POINT = 0.01  # of the signal's variance


def regrets(candidates: Sequence[Candidate], prior: Prior, *, classes: int = 1) -> FloatArray:
    """Return the mean regret of each candidate, a logarithm of a ratio of errors."""
    scenarios = prior.scenarios()
    total = np.zeros(len(candidates))
    for name, believed in scenarios.items():
        point = ONE_POINT * classes * believed.signal_sd**2
        errors = np.array([candidate.scenarios[name] for candidate in candidates]) + point
        errors = np.maximum(errors, np.finfo(float).tiny)  # nothing to learn, and nothing learnt
        total += np.log(errors) - np.log(errors.min())
    return total / len(scenarios)


def ranked(
    candidates: Sequence[Candidate], prior: Prior, *, few_bags_last: bool, classes: int = 1
) -> tuple[Candidate, ...]:
    """Return the candidates by their regret; those with few bags after all others if asked for."""
    regret = regrets(candidates, prior, classes=classes)
    last = np.array([few_bags_last and candidate.few_bags for candidate in candidates])
    return tuple(candidates[i] for i in np.lexsort((regret, last)))
