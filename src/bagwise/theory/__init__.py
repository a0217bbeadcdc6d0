"""Theory beside the product: exact errors, bounds that hold, and what the paper prints.

`exact` has the expected error of every estimator, `bounds` the paper's statements in a form that
holds, `selection` what happens to bags that know the labels. `printed` has the formulas as the
paper prints them; import it by name, since nothing private may rest on it.
"""

from bagwise.theory.bounds import Bound
from bagwise.theory.exact import (
    Risk,
    distance_to_least_squares,
    exact_risk,
    first_order_risk,
)

__all__ = ["Bound", "Risk", "distance_to_least_squares", "exact_risk", "first_order_risk"]
