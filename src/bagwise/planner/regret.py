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

Few bags are regretted for one thing more, which is in no scenario (`Prior.few_bags`).
"""

from collections.abc import Sequence

import numpy as np

from bagwise._types import FloatArray
from bagwise.planner.candidates import Candidate
from bagwise.planner.prior import Prior


def regrets(candidates: Sequence[Candidate], prior: Prior, *, classes: int = 1) -> FloatArray:
    """Return the mean regret of each candidate, a share of the signal's variance."""
    scenarios = prior.scenarios()
    few = np.array([prior.few_bags * one.coefficients / one.n_bags for one in candidates])
    total = np.zeros(len(candidates))
    for name, believed in scenarios.items():
        # Without any signal the noise of labels is what an error can be compared with.
        scale = classes * (believed.signal_sd or believed.label_noise_sd) ** 2
        errors = np.array([candidate.scenarios[name] for candidate in candidates])
        total += (errors - errors.min()) / scale
    return np.asarray(total / len(scenarios) + few)


HOPELESS = 0.5
"""Error of a choice, as a share of the signal's variance, from which on its intervals are no reason
to prefer it: they would be about a model that says next to nothing."""


def is_hopeless(candidates: Sequence[Candidate], prior: Prior, *, classes: int = 1) -> bool:
    """Tell whether whatever has intervals would lose most of a signal as it is believed to be."""
    limit = HOPELESS * classes * prior.signal_sd**2
    return all(
        candidate.predictions.total > limit for candidate in candidates if candidate.intervals
    )


def ranked(
    candidates: Sequence[Candidate], prior: Prior, *, intervals_first: bool, classes: int = 1
) -> tuple[Candidate, ...]:
    """Return the candidates by their regret, those with intervals before all others if asked for.

    Bags that nobody asked for by name must serve whoever fits a model to them, and intervals belong
    to that. Few bags leave nothing to tell errors by, and instance loss has a bias that is in no
    interval. Where intervals leave no model to speak of, larger bags of the same kinds come with
    them: at a small epsilon the noise of many bags hides even the mean of the labels.
    """
    regret = regrets(candidates, prior, classes=classes)
    hopeless = is_hopeless(candidates, prior, classes=classes)
    last = np.array(
        [
            intervals_first and not (one.could_have_intervals if hopeless else one.intervals)
            for one in candidates
        ]
    )
    return tuple(candidates[i] for i in np.lexsort((regret, last)))
