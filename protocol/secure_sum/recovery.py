"""From Shamir shares back to the secret, with wrong shares found.

r shares of a polynomial of degree below t are a Reed-Solomon codeword: r > t detect
every wrong share, and up to ⌊(r − t)/2⌋ wrong ones are located (Gao's decoder), so the
secret is still right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from flint import fmpz_mod_ctx, fmpz_mod_poly_ctx

from wallflower.protocol.errors import InputError, ProtocolError


class InconsistentSharesError(ProtocolError):
    """More shares are wrong than can be located; nothing is recovered."""

    code = "inconsistent-shares"


@dataclass(frozen=True, slots=True)
class Recovered:
    """The secret, and the holders whose shares were wrong."""

    secret: int
    wrong: tuple[int, ...]

    def __repr__(self) -> str:
        return f"Recovered(wrong={self.wrong})"


def recover_integer(
    shares: Mapping[int, int], threshold: int, modulus: int
) -> Recovered:
    """Recover f(0) from at least `threshold` shares {x: f(x)}."""
    if len(shares) < threshold:
        raise InputError("shares", len(shares), f"at least the threshold {threshold}")
    xs = tuple(shares)
    ys = [shares[x] % modulus for x in xs]
    weights = barycentric(xs, modulus)
    if not consistent(xs, ys, weights, threshold, modulus):
        return _decode(xs, ys, threshold, modulus)
    if len(xs) == threshold:
        return Recovered(_at_zero(xs, ys, weights, modulus), ())
    few = xs[:threshold]
    value = _at_zero(few, ys[:threshold], barycentric(few, modulus), modulus)
    return Recovered(value, ())


def barycentric(xs: tuple[int, ...], modulus: int) -> list[int]:
    """1 / Π_{j≠i} (x_i − x_j) for every i, by one inversion."""
    products = []
    for x in xs:
        product = 1
        for other in xs:
            if other != x:
                product = product * (x - other) % modulus
        products.append(product)
    return _invert_all(products, modulus)


def zero_coefficients(xs: tuple[int, ...], modulus: int) -> list[int]:
    """λ_i with f(0) = Σ λ_i f(x_i) for every f of degree below len(xs)."""
    weights = barycentric(xs, modulus)
    inverses = _invert_all([-x % modulus for x in xs], modulus)
    whole = 1
    for x in xs:
        whole = whole * -x % modulus
    return [
        whole * weight * inverse % modulus
        for weight, inverse in zip(weights, inverses, strict=True)
    ]


def consistent(
    xs: tuple[int, ...],
    ys: list[int],
    weights: list[int],
    threshold: int,
    modulus: int,
) -> bool:
    """Return whether all shares lie on one polynomial of degree below `threshold`.

    Σ w_i y_i x_i^j must vanish for j < r − t: the dual code of Reed-Solomon.
    """
    terms = [w * y % modulus for w, y in zip(weights, ys, strict=True)]
    for _ in range(len(xs) - threshold):
        if sum(terms) % modulus:
            return False
        terms = [term * x % modulus for term, x in zip(terms, xs, strict=True)]
    return True


def _at_zero(
    xs: tuple[int, ...], ys: list[int], weights: list[int], modulus: int
) -> int:
    inverses = _invert_all([-x % modulus for x in xs], modulus)
    whole = 1
    for x in xs:
        whole = whole * -x % modulus
    total = sum(
        w * i % modulus * y for w, i, y in zip(weights, inverses, ys, strict=True)
    )
    return whole * total % modulus


def _invert_all(values: list[int], modulus: int) -> list[int]:
    """Invert every value with one modular inversion (Montgomery's trick)."""
    running = [1]
    for value in values:
        running.append(running[-1] * value % modulus)
    inverse = pow(running[-1], -1, modulus)
    result = [0] * len(values)
    for index in range(len(values) - 1, -1, -1):
        result[index] = inverse * running[index] % modulus
        inverse = inverse * values[index] % modulus
    return result


def _decode(
    xs: tuple[int, ...], ys: list[int], threshold: int, modulus: int
) -> Recovered:
    """Gao 2003: stop Euclid on (Π(x−x_i), interpolant) at degree (r + t)/2."""
    ring = fmpz_mod_poly_ctx(fmpz_mod_ctx(modulus))
    roots = [ring([-x, 1]) for x in xs]
    before, now = math.prod(roots, start=ring([1])), ring([0])
    for root, y, weight in zip(roots, ys, barycentric(xs, modulus), strict=True):
        now += before // root * (y * weight)
    factor_before, factor = ring([0]), ring([1])
    while 2 * now.degree() >= len(xs) + threshold:
        quotient, rest = divmod(before, now)
        before, now = now, rest
        factor_before, factor = factor, factor_before - quotient * factor
    message, rest = divmod(now, factor)
    wrong = tuple(x for x, y in zip(xs, ys, strict=True) if int(message(x)) != y)
    if rest or message.degree() >= threshold or 2 * len(wrong) > len(xs) - threshold:
        raise InconsistentSharesError("too many shares are wrong to tell which")
    return Recovered(int(message(0)), wrong)
