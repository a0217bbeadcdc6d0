"""The theorems and lemmas of the paper, corrected, as functions that return numbers.

A bound is looser than the exact error of `bagwise.theory.exact`. It is there for what it shows: on
which few quantities an error depends, and so what bags should be like. Where the paper states an
identity the function returns a plain number, and otherwise a `Bound`, with its condition in words.

=======================================  ===========================================================
the paper                                here
=======================================  ===========================================================
Thms 1 and 4, Prop 10                    `instance_bound`, `sorted_instance_bound`, `picking_norm`
Thms 2 and 5                             `bag_bound`
Thm 3                                    `aggregate_bound`, `sorted_aggregate_bound`
Prop 7, Lemmas 8, 9, 13, 14, 17-19       `spread`, `pick_distance`, `pick_variance`, `noisy_spread`,
                                         `sorted_spread_bound`, `centroid_scatter`
Lemmas 11 and 12, the random bags        `largest_eigenvalue_bound`, `bag_norm_bound`,
                                         `super_bag_eigenvalue_bound`, `super_bag_failure`,
                                         `super_bag_error_bound`
Thm 20                                   `super_bag_spread_bound`
Lemma 21, Thms 22 and 23                 `distance_from_gradient`, `expected_squared_gradient`,
                                         `gradient_bound`, `range_objective`, `range_bound`
a lower bound, which the paper leaves    `error_floor`
=======================================  ===========================================================

Notation and proofs are on the theory page, section "Every statement of the paper". Rows that are in
no bag do not count.
"""

from reproduction.bounds.bound import AGNOSTIC, ANY_BAGS, Bound
from reproduction.bounds.by_labels import (
    sorted_aggregate_bound,
    sorted_instance_bound,
    sorted_spread_bound,
)
from reproduction.bounds.floor import error_floor
from reproduction.bounds.gradients import (
    distance_from_gradient,
    expected_squared_gradient,
    gradient_bound,
    range_bound,
    range_objective,
)
from reproduction.bounds.losses import (
    aggregate_bound,
    bag_bound,
    distance_bound,
    instance_bound,
    picking_norm,
)
from reproduction.bounds.objective import (
    centroid_scatter,
    noisy_spread,
    pick_distance,
    pick_variance,
    spread,
)
from reproduction.bounds.random_halves import (
    bag_norm_bound,
    largest_eigenvalue_bound,
    super_bag_eigenvalue_bound,
    super_bag_error_bound,
    super_bag_failure,
    super_bag_spread_bound,
)

__all__ = [
    "AGNOSTIC", "ANY_BAGS", "Bound", "aggregate_bound", "bag_bound", "bag_norm_bound",
    "centroid_scatter", "distance_bound", "distance_from_gradient", "error_floor",
    "expected_squared_gradient", "gradient_bound", "instance_bound", "largest_eigenvalue_bound",
    "noisy_spread", "pick_distance", "pick_variance", "picking_norm", "range_bound",
    "range_objective", "sorted_aggregate_bound", "sorted_instance_bound", "sorted_spread_bound",
    "spread", "super_bag_eigenvalue_bound", "super_bag_error_bound", "super_bag_failure",
    "super_bag_spread_bound",
]  # fmt: skip
