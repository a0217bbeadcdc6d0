"""What others have printed about the same tables, each with its epsilon and where it was read."""

from typing import NamedTuple

_NOTEBOOKS = (
    "github.com/liuhaixias1/Response_privacy, commit bd54f2e, the output kept in the notebook"
)
_PAPER = "Liu and Huang (2026), RPWithPrior, TMLR, arXiv 2601.22625, as quoted by wizwand.com"
NOT_PRIVATE = (
    "**not private, whatever its epsilon**: the code appends the raw targets to the noisy ones "
    "that the prior is made of (`target_sets = torch.cat((y_sets, target), 0)` in every notebook)"
)


class Published(NamedTuple):
    """One printed figure."""

    table: str
    method: str
    figure: str
    epsilon: str
    source: str
    remark: str = ""


PUBLISHED = (
    Published("housing", "RPWithPrior, network", "1.58", "0.05", _NOTEBOOKS, NOT_PRIVATE),
    Published("housing", "RPWithPrior, network, its best", "0.585", "not in what we could read",
              _PAPER, NOT_PRIVATE),
    Published("crime", "RPWithPrior, network", "0.0351", "2", _NOTEBOOKS, NOT_PRIVATE),
    Published("crime", "RPWithPrior, network, its best", "0.0177", "not in what we could read",
              _PAPER, NOT_PRIVATE),
)  # fmt: skip
