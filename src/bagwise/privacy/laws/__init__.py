"""Laws: the noise distributions, one file each and one line here.

The line is an import: `LAWS`, calibration, certificates, `verify`, the command line and the
contract tests follow from it. Laws that need no delta come first, and then the order of the lines:
a later one must save some variance to be preferred (`calibrate.WORTHWHILE`).
"""

from bagwise.privacy.laws.law import Law, Move, Noise, Norm, Randomiser

# isort: off
from bagwise.privacy.laws.laplace import Laplace as Laplace
from bagwise.privacy.laws.staircase import Staircase as Staircase
from bagwise.privacy.laws.gaussian import Gaussian as Gaussian
from bagwise.privacy.laws.unbiased import Unbiased as Unbiased
from bagwise.privacy.laws.randomised_response import RandomisedResponse as RandomisedResponse
from bagwise.privacy.laws.exponential import Exponential as Exponential
# isort: on

LAWS: dict[str, type[Law]] = {
    law.called(): law
    for law in list(globals().values())
    if isinstance(law, type) and issubclass(law, Law) and law not in (Law, Noise, Randomiser)
}

NOISES: dict[str, type[Noise]] = {name: law for name, law in LAWS.items() if issubclass(law, Noise)}
"""Laws of noise that is added to numbers, by name."""

__all__ = ["LAWS", "NOISES", "Law", "Move", "Noise", "Norm", "Randomiser"]
