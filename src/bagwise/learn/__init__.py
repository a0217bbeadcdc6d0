"""Learning a row-level model from bag labels."""

from bagwise.learn.estimator import BaggedGLM
from bagwise.learn.fitting import LOSSES
from bagwise.learn.from_release import fit_release
from bagwise.models.row_model import RowModel

__all__ = ["LOSSES", "BaggedGLM", "RowModel", "fit_release"]
