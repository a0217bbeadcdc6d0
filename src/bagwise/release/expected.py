"""What a released model expects of rows: labels are centred on it, and verified against it."""

from typing import Any

import numpy as np

from bagwise._types import FloatArray
from bagwise.families import find_family
from bagwise.privacy.private_model import LinearScores
from bagwise.rows.labels import Bounds


def expected_labels(model: LinearScores, X: Any, bounds: Bounds) -> FloatArray:
    """Return what a released model expects of each row, within the bounds."""
    mean = find_family(model.family, model.link).mean(model.predict(X))
    return np.asarray(np.clip(mean, *bounds))
