"""The exact expected error of every estimator, computed from features and bags."""

from bagwise.theory.exact import Risk, exact_risk

__all__ = ["Risk", "exact_risk"]
