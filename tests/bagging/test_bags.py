import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError


@st.composite
def bags_and_values(draw):
    ids = draw(st.lists(st.integers(-1, 4), min_size=1, max_size=40).filter(lambda v: max(v) >= 0))
    used = sorted({i for i in ids if i >= 0})
    index = np.array([used.index(i) if i >= 0 else -1 for i in ids])
    width = draw(st.integers(1, 3))
    values = draw(
        st.lists(
            st.lists(st.floats(-1e6, 1e6), min_size=width, max_size=width),
            min_size=len(ids),
            max_size=len(ids),
        )
    )
    return Bags(index), np.array(values)


@given(bags_and_values())
def test_everything_agrees_with_a_loop_over_bags(case):
    bags, values = case
    groups = [values[bags.index == b] for b in range(bags.n_bags)]
    assert bags.sizes.tolist() == [len(group) for group in groups]
    np.testing.assert_allclose(bags.sum(values), [g.sum(axis=0) for g in groups], atol=1e-6)
    np.testing.assert_allclose(bags.mean(values), [g.mean(axis=0) for g in groups], atol=1e-6)
    np.testing.assert_allclose(
        bags.variance(values), [g.var(axis=0) for g in groups], rtol=1e-9, atol=1e-6
    )
    np.testing.assert_allclose(bags.mean(values[:, 0]), bags.mean(values)[:, 0])
    repeated = bags.repeat(bags.sizes)
    assert np.array_equal(repeated[bags.in_bag], bags.sizes[bags.index[bags.in_bag]])
    assert np.isnan(repeated[~bags.in_bag]).all()


@given(bags_and_values(), st.randoms())
def test_take_keeps_who_is_with_whom_and_numbers_by_first_appearance(case, random):
    bags, _ = case
    rows = list(range(bags.n_rows))
    random.shuffle(rows)
    taken = bags.take(np.array(rows))
    before, after = bags.index[rows], taken.index
    assert np.array_equal(before[:, None] == before, after[:, None] == after)
    assert np.array_equal(before == -1, after == -1)
    firsts = [int(np.argmax(after == b)) for b in range(taken.n_bags)]
    assert firsts == sorted(firsts)


def test_integer_sums_are_exact():
    huge = np.array([2**60, 1, 2**60, 2])
    assert Bags(np.array([0, 0, 1, 1])).sum(huge).tolist() == [2**60 + 1, 2**60 + 2]


def test_variance_keeps_its_digits_far_from_zero():
    values = 1e9 + np.array([0.0, 1e-3])
    assert Bags(np.array([0, 0])).variance(values)[0] == pytest.approx(2.5e-7, rel=1e-3)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([0, 2], "bag 1 is empty"),
        ([-2, 0], "start at 0"),
        ([-1, -1], "no row"),
        ([], "no row|one-dimensional"),
        ([0.5, 1.0], "integers"),
        ([[0, 1]], "one-dimensional"),
    ],
)
def test_bad_indices(index, message):
    with pytest.raises(BagsError, match=message):
        Bags(np.array(index))


def test_misaligned_values():
    bags = Bags(np.array([0, 1]))
    with pytest.raises(BagsError, match="one value per row"):
        bags.sum(np.ones(3))
    with pytest.raises(BagsError, match="one value per bag"):
        bags.repeat(np.ones(3))
    with pytest.raises(BagsError, match="one per row"):
        Bags.from_labels(np.ones((2, 2)))


def test_bags_cannot_be_changed():
    given_index = np.array([0, 1])
    bags = Bags(given_index)
    with pytest.raises(ValueError, match="read-only"):
        bags.index[0] = 1
    given_index[0] = 1
    assert bags.index[0] == 0
    assert "2 rows in 2 bags" in repr(bags)
    assert "<table>" in bags._repr_html_()


def test_ids_of_any_kind_give_the_same_bags():
    ids = np.array([7, 3, 7, 9, 3, 7])
    expected = [0, 1, 0, 2, 1, 0]
    kinds = (ids, ids - 100, ids.astype(np.uint8), ids * 10**12, ids / 2, ids.astype(str))
    for kind in (*kinds, [f"bag {i}" for i in ids], ids.astype(object)):
        assert Bags.from_labels(kind).index.tolist() == expected


def test_ids_that_cannot_be_compared_are_refused():
    with pytest.raises(BagsError, match="mixed types"):
        Bags.from_labels(np.array([1, "a", None], dtype=object))


def test_scikit_learn_can_cut_bags_with_the_rows():
    from sklearn.utils import _safe_indexing, indexable

    bags = Bags(np.array([0, 0, 1, 1, 2, 2]))
    rows = np.array([4, 5, 0])
    assert bags.shape == (6,)
    assert _safe_indexing(bags, rows).index.tolist() == [0, 0, 1]
    assert bags[2:].index.tolist() == [0, 0, 1, 1]
    assert np.asarray(bags).tolist() == bags.index.tolist()
    assert indexable(np.zeros((6, 1)), bags)[1] is bags
    with pytest.raises(BagsError, match="single row"):
        bags[3]


def test_an_array_that_nobody_else_has_is_checked_and_not_copied():
    index = np.array([0, 1, 0])
    assert Bags.owning(index).index is index
    with pytest.raises(ValueError, match="read-only"):
        index[0] = 1
    with pytest.raises(BagsError, match="empty"):
        Bags.owning(np.array([0, 2]))


def test_taking_rows_leaves_the_bags_that_they_were_taken_of():
    bags = Bags(np.array([0, 1, 0, 1]))
    assert bags.take(np.array([3, 2, 1, 0])).index.tolist() == [0, 1, 0, 1]
    assert bags.index.tolist() == [0, 1, 0, 1]
    assert bags.take(np.array([1, 0, 2, 3])).index.tolist() == [0, 1, 1, 0]
    assert bags.index.tolist() == [0, 1, 0, 1]
