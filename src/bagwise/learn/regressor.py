"""What every estimator that learns from bags has in common: bags as metadata, and a score."""

from typing import Any, ClassVar

from sklearn.base import RegressorMixin

from bagwise._types import AnyArray
from bagwise.families import find_family
from bagwise.learn.model_selection import bag_r2_score


class TakesBags:
    """Have pipelines and searches hand on what belongs to bags without being asked to."""

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"bags": True, "noise_sd": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"bags": True, "noise_sd": True}


class BagRegressorMixin(TakesBags, RegressorMixin):  # type: ignore[misc]
    """Take bags, and score on bag labels."""

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
        return self._score_predicted(self.predict(X), y, bags, noise_sd, sample_weight)

    def _score_predicted(
        self, predicted: AnyArray, y: Any, bags: Any, noise_sd: Any, sample_weight: Any
    ) -> float:
        return float(
            bag_r2_score(
                self._as_predicted(y),
                predicted,
                bags=bags,
                noise_sd=noise_sd,
                sample_weight=sample_weight,
            )
        )

    def __sklearn_tags__(self) -> Any:
        """Say that labels are never negative, where the family says so: other checks would fail."""
        tags = super().__sklearn_tags__()
        family = getattr(self, "family", "gaussian")
        tags.target_tags.positive_only = find_family(family).label_range[0] >= 0
        return tags

    def _as_predicted(self, y: AnyArray) -> AnyArray:
        """Return labels in the form of predictions; they are, unless they are names of classes."""
        return y
