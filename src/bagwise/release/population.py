"""A table of which a plan sees a sample: what it has to know of all rows."""

from collections.abc import Callable
from dataclasses import dataclass

from bagwise.release.looks import Outlook
from bagwise.release.request import Choice, ReleaseRequest
from bagwise.rows import Rows
from bagwise.rows.encode import Encoder

MOST_ROWS = 15_000
"""Rows that bags are tried on: a release should not wait for its plan."""


@dataclass(frozen=True)
class Population:
    """What is known of all rows of a table.

    Attributes
    ----------
    names : tuple of str
        Of the features.
    encoder : Encoder
        From them to X.
    n_rows, largest_unit : int
        Of the table.
    smallest_stratum : int or None
        Rows of the smallest stratum that bags must not cross.
    """

    names: tuple[str, ...]
    encoder: Encoder
    n_rows: int
    largest_unit: int = 1
    smallest_stratum: int | None = None


DecideOnSample = Callable[[Rows, ReleaseRequest, Outlook | None, Population], Choice]
"""The planner, for a sample of a table."""
