"""Label differential privacy: mechanisms, their cost, and the noise that they need.

Neighbouring tables differ in one row's label (or in the labels of one person's rows), replaced by
any other value within the public bounds. Features are public and are not protected.

A mechanism is one of the `queries` with one of the `laws`. `curves` holds the mathematics,
`loss_distributions` composes what has no closed form, `accounting` turns mechanisms into (epsilon,
delta), `calibrate` goes the other way, `samplers` and `noise` draw, `private_model` releases a
linear model, `units` knows who has several rows, and `certificate` writes it down.
"""

from bagwise.privacy.accounting import group_epsilon, total_delta, total_epsilon
from bagwise.privacy.certificate import Certificate
from bagwise.privacy.curves import (
    composed_delta,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    pick_delta,
)

__all__ = [
    "Certificate",
    "composed_delta",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "group_epsilon",
    "pick_delta",
    "total_delta",
    "total_epsilon",
]
