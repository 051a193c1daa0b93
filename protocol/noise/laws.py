"""All noise laws, by name."""

from wallflower.protocol.noise.counts import Poisson, Polya
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.gaussian import DiscreteGaussian, Skellam
from wallflower.protocol.noise.gaussian_sums import SumOfDiscreteGaussians
from wallflower.protocol.noise.laplace import DiscreteLaplace

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "NegativeBinomialDifference",
    "Poisson",
    "Polya",
    "Skellam",
    "SumOfDiscreteGaussians",
]
