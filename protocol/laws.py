"""All noise laws, by name."""

from protocol.laws_counts import Poisson, Polya
from protocol.laws_difference import NegativeBinomialDifference
from protocol.laws_gaussian import DiscreteGaussian, Skellam
from protocol.laws_laplace import DiscreteLaplace
from protocol.laws_sums import SumOfDiscreteGaussians

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "NegativeBinomialDifference",
    "Poisson",
    "Polya",
    "Skellam",
    "SumOfDiscreteGaussians",
]
