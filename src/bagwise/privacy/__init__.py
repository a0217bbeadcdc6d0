"""Label differential privacy: what happened, what it costs, how much noise that takes.

Neighbouring tables differ in one row's label, replaced by any other value within the public
bounds. Features are public and are not protected.

`events` records what was released, `accounting` turns events into (epsilon, delta), `calibrate`
goes the other way, `noise` draws, and `certificate` writes it down.
"""

from bagwise.privacy.accounting import gaussian_delta, gaussian_epsilon, gaussian_mu
from bagwise.privacy.certificate import Certificate

__all__ = ["Certificate", "gaussian_delta", "gaussian_epsilon", "gaussian_mu"]
