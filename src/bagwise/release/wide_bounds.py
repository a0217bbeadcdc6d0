"""Bounds far wider than a label can be: noise grows with them, and nothing else tells.

What the type of a column says, everybody may know. What the labels themselves say goes to the
operator alone: a warning that depends on them would tell about them.
"""

import warnings

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray
from bagwise.errors import DominatedWarning
from bagwise.rows.labels import Bounds
from bagwise.show.operator_notes import tell_operator

_LEAST_USED = 0.01  # of the width of the bounds


def remark_on_wide_bounds(kind: pa.DataType, labels: FloatArray, *, bounds: Bounds) -> None:
    """Warn of a true-or-false label with wide bounds; tell the operator of others.

    Parameters
    ----------
    kind : pyarrow type
        Of the label column.
    labels : (n,) floats
        Secret.
    """
    low, high = bounds
    if pa.types.is_boolean(kind):
        if high - low > 1:
            warnings.warn(
                f"the label is true or false, that is 1 or 0, and bounds from {low:g} to {high:g} "
                f"ask for {high - low:g} times the noise that it needs. Give bounds=(0, 1) "
                "(--bounds 0 1).",
                DominatedWarning,
                stacklevel=2,
            )
    elif np.ptp(np.clip(labels, low, high)) < _LEAST_USED * (high - low):
        tell_operator(
            "all labels lie in less than a hundredth of the width of their bounds, so that there "
            "is a hundred times the noise that tight bounds would need. Which bounds are right "
            "should be known without this table (0 and 1 for yes and no), or be found privately: "
            "`bagwise bounds`. This note tells about the labels: it is shown here, and kept "
            "nowhere."
        )
