"""What a fit has to say for itself beyond its numbers, as warnings that name the remedy."""

import warnings

import numpy as np

from bagwise._types import FloatArray
from bagwise.errors import BiasWarning, NotConvergedWarning, RankWarning
from bagwise.learn.bag_data import BagData
from bagwise.learn.fitting import Fitted

_SHRINKS = 0.6  # below this share of kept spread, instance loss is worth a warning
_CALLER = 4  # warnings point at the line that called fit


def warn_of_convergence(fitted: Fitted) -> None:
    """Warn if the equations were not solved."""
    if not fitted.converged and fitted.remedy:
        warnings.warn(fitted.remedy, NotConvergedWarning, stacklevel=_CALLER)
    elif not fitted.converged:
        warnings.warn(
            "the fit did not converge: the gradient of the mean loss has length "
            f"{fitted.gradient:.2g}. Set ridge > 0, or scale down columns with extreme values.",
            NotConvergedWarning,
            stacklevel=_CALLER,
        )


def warn_of_rank(rank: int, n_features: int, n_bags: int) -> None:
    """Warn if the bags leave some coefficients open."""
    if rank < n_features:
        warnings.warn(
            f"{n_bags} bags determine {rank} of {n_features} coefficients (constant or duplicate "
            "columns, or too few bags); the rest follow by least norm. Predictions are unaffected "
            "on data like this; drop columns or set ridge > 0.",
            RankWarning,
            stacklevel=_CALLER,
        )


def warn_of_shrinkage(data: BagData, coef: FloatArray) -> None:
    """Warn if bags mix rows whose predictions differ: instance loss then shrinks slopes (E9)."""
    eta = data.X @ np.atleast_2d(coef).T
    eta -= eta.mean(axis=0)
    spread = float(np.sum(eta**2))
    if spread == 0.0:
        return
    kept = float(data.bags.sizes @ np.sum(data.bags.mean(eta) ** 2, axis=1)) / spread
    if kept < _SHRINKS:
        warnings.warn(
            "instance loss shrinks the slopes towards zero, unless rows were put together by their "
            f"labels: the bags keep {kept:.0%} of the spread of predictions (about 1/bag_size for "
            "random bags). Use loss='bag' (--loss bag), or debias=True (--debias).",
            BiasWarning,
            stacklevel=_CALLER,
        )
