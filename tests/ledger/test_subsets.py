"""Who has paid for what, against looking at one unit after the other."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bagwise.ledger.entries import Subset, histories

PARTS = st.lists(st.frozensets(st.integers(0, 6), min_size=1), min_size=1, max_size=5)


def subset(members):
    return Subset("integer", np.array(sorted(members), dtype=np.uint64))


@given(
    parts=PARTS, everybody=st.lists(st.booleans(), min_size=6, max_size=6), asked=st.integers(-1, 4)
)
def test_every_unit_pays_for_what_it_is_in(parts, everybody, asked):
    named = {subset(part).digest: part for part in parts}
    names = list(named)
    asked = None if asked < 0 else names[asked % len(names)]
    # Some of the charges are for everybody.
    charged = [None if whole else names[i % len(names)] for i, whole in enumerate(everybody)]
    subsets = {name: subset(part) for name, part in named.items()}
    found = {frozenset(one) for one in histories(charged, subsets, asked)}
    units = range(8) if asked is None else named[asked]  # 7 is in no part
    expected = {
        frozenset(i for i, part in enumerate(charged) if part is None or unit in named[part])
        for unit in units
    }
    assert found == {one for one in expected if not any(one < other for other in expected)}


def test_members_are_kept_as_they_are():
    part = subset({1, 2**63, 2**64 - 1})
    again = Subset.from_bytes(part.kind, part.to_bytes())
    assert again.digest == part.digest
    assert again.members.tolist() == part.members.tolist()
