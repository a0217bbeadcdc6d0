"""Laws: every kind of noise or chance, one file each, and one line in `LAWS`.

Those that need no delta come first, and of them the plainer ones: a law that comes later must save
some variance to be preferred (`calibrate.WORTHWHILE`).
"""

from bagwise.privacy.laws.exponential import Exponential
from bagwise.privacy.laws.gaussian import Gaussian
from bagwise.privacy.laws.laplace import Laplace
from bagwise.privacy.laws.law import Law, Move, Noise, Norm
from bagwise.privacy.laws.randomised_response import RandomisedResponse
from bagwise.privacy.laws.staircase import Staircase
from bagwise.privacy.laws.unbiased import Unbiased

LAWS: dict[str, type[Law]] = {
    law.called(): law
    for law in (
        Laplace,
        Staircase,
        Gaussian,
        Unbiased,
        RandomisedResponse,
        Exponential,
    )
}

NOISES: dict[str, type[Noise]] = {name: law for name, law in LAWS.items() if issubclass(law, Noise)}
"""Laws of noise that is added to numbers, by name."""

__all__ = [
    "LAWS",
    "NOISES",
    "Exponential",
    "Gaussian",
    "Laplace",
    "Law",
    "Move",
    "Noise",
    "Norm",
    "RandomisedResponse",
    "Staircase",
    "Unbiased",
]
