"""Every decision about a release, resolved."""

from dataclasses import dataclass
from typing import Literal

from bagwise.bagging import BaggingStrategy
from bagwise.data.labels import Bounds
from bagwise.privacy.aggregate import LabelKind
from bagwise.privacy.calibrate import Calibration
from bagwise.release.provenance import Reason
from bagwise.release.scores import ScoresKind
from bagwise.rng import NoiseSource


@dataclass(frozen=True)
class Columns:
    """Which columns play which part, and how features become X."""

    label: str
    classes: tuple[str, ...] | None
    features: tuple[str, ...] | None
    exclude: tuple[str, ...]
    id: str | None
    unit: str | None
    nulls: str
    max_levels: int

    @property
    def named(self) -> list[str]:
        """Columns that the caller asked for by name."""
        roles = [self.label, self.id, self.unit]
        return [*(name for name in roles if name is not None), *(self.features or ())]


@dataclass(frozen=True)
class Choice:
    """Every decision about a release, resolved: nothing here is "auto" but the share of scores."""

    columns: Columns
    bag_size: int
    strategy: BaggingStrategy
    scores: ScoresKind
    score_share: float | Literal["auto"]
    label_kind: LabelKind
    calibration: Calibration | None
    bounds: Bounds | None
    keep_order: bool
    seed: int | None
    noise: NoiseSource
    why: Reason | None = None
