"""The exact expected error of every estimator, from features and bags alone."""

from bagwise.theory.exact import Risk, exact_risk

__all__ = ["Risk", "exact_risk"]
