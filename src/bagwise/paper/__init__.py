"""What the paper prints and proves, what holds instead, and its tables remade.

`bounds` has its statements in a form that holds, `selection` what happens to bags that know the
labels, `printed` the formulas as they are printed, `synthetic` its problems with known answers,
and `reproduction` its tables. Nothing that makes a release may import any of it.
"""

from bagwise.paper.bounds import Bound

__all__ = ["Bound"]
