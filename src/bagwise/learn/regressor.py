"""What every estimator that learns from bags has in common: bags as metadata, and a score."""

from typing import Any, ClassVar

from sklearn.base import RegressorMixin

from bagwise._types import AnyArray
from bagwise.learn.model_selection import bag_r2_score


class BagRegressorMixin(RegressorMixin):  # type: ignore[misc]
    """Route bags and their noise without being asked to, and score on bag labels."""

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"bags": True, "noise_sd": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"bags": True, "noise_sd": True}

    def score(
        self,
        X: Any,
        y: Any,
        *,
        bags: Any = None,
        noise_sd: Any = None,
        sample_weight: Any = None,
    ) -> float:
        """Return the share of the bag labels' variance that mean predictions explain.

        Without `bags` that is the usual R^2 of rows. Known privacy noise is taken out.
        """
        predicted = self.predict(X)
        return float(
            bag_r2_score(
                self._as_predicted(y),
                predicted,
                bags=bags,
                noise_sd=noise_sd,
                sample_weight=sample_weight,
            )
        )

    def _as_predicted(self, y: AnyArray) -> AnyArray:
        """Return labels in the form of predictions; they are, unless they are names of classes."""
        return y
