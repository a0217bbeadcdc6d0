"""Bags that follow public columns: those columns as numbers, and whether the bags keep to them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bagwise._types import IntArray
from bagwise.bagging import Given
from bagwise.bagging._strata import rows_by_number
from bagwise.errors import ReleaseError
from bagwise.rows.exposure import exposure_vector
from bagwise.rows.groups import number_groups

_STRATA = 64  # that the look of bags is judged by

if TYPE_CHECKING:
    from bagwise.release.release import Release


def read_given(table: Any, *, by: Sequence[str], within: Sequence[str]) -> Given:
    """Return the groups and strata that columns name; they are public, as features are."""
    return Given(
        number_groups(table, by, role="by") if by else None,
        number_groups(table, within, role="within") if within else None,
    )


class NamesColumns(Protocol):
    """What names public columns that need not be features."""

    @property
    def by(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def within(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def exposure(self) -> str | None: ...  # noqa: D102


def carried_columns(named: NamesColumns, features: Sequence[str]) -> list[str]:
    """Return the columns that bags follow, and the exposure, that are no features.

    They leave all the same: bags are held against them, and a learner needs the exposure.
    """
    exposure = () if named.exposure is None else (named.exposure,)
    followed = dict.fromkeys((*named.by, *named.within, *exposure))
    return [name for name in followed if name not in features]


def check_given(release: "Release") -> list[str]:
    """Refuse bags that do not follow the columns that the manifest names; return what was seen."""
    made = release.provenance
    given = read_given(release.instances, by=made.by, within=made.within)
    seen, index = [], release.bags.index
    if given.strata is not None:
        if _meets_several(index, given.strata):
            raise ReleaseError(f"a bag crosses a stratum of {_listed(made.within)}.")
        seen.append(f"no bag crosses a stratum of {_listed(made.within)}")
    if given.groups is not None:
        groups = given.groups
        if given.strata is not None:
            pairs = groups * (given.strata.max() + 1) + given.strata
            groups = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
        _check_groups(index, groups, made.bag_size, by=_listed(made.by))
        seen.append(f"every group of {_listed(made.by)} is in one bag, merged only if it is small")
    if made.exposure is not None:
        exposure_vector(release.instances, made.exposure)
        seen.append(f"every row has a positive exposure {made.exposure!r}")
    return seen


def strata_of(release: "Release", rows: IntArray) -> list[IntArray]:
    """Return places among these rows by stratum, the largest strata first; all without strata.

    What a strategy makes, it makes in each stratum. Some are enough to tell by, and a chance of a
    false alarm in each adds up over them.
    """
    within = release.provenance.within
    if not within:
        return [np.arange(rows.size)]
    strata = number_groups(release.instances, within, role="within")[rows]
    return sorted(rows_by_number(strata), key=len, reverse=True)[:_STRATA]


def _check_groups(index: IntArray, groups: IntArray, bag_size: int, *, by: str) -> None:
    if _meets_several(groups, index):
        raise ReleaseError(f"a group of {by} is in several bags.")
    _, first, sizes = np.unique(groups, return_index=True, return_counts=True)
    large = index[first[sizes >= bag_size]]
    if np.unique(large).size != large.size:
        raise ReleaseError(f"a bag holds two groups of {by} that are large enough by themselves.")


def _meets_several(these: IntArray, others: IntArray) -> bool:
    """Tell whether one of these, rows left out aside, has rows of several of the others."""
    kept = these >= 0
    met = np.unique(np.column_stack([these[kept], others[kept]]), axis=0)
    return bool(np.unique(met[:, 0]).size < len(met))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
