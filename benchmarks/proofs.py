"""Checking proofs of range in one process and in several: ``make bench-proofs``.

What decides where the server checks them: its time per proof beside a node's time to
make one, and what further processes save once they have been started. Times are wall
seconds of an otherwise quiet machine; a process starts empty ("spawn"), as one with
gRPC's threads in it must not be forked.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from wallflower.protocol.secure_sum.sealed.cipher import Ciphertext, encrypt
from wallflower.protocol.secure_sum.sealed.group import KeyPair, Point
from wallflower.protocol.secure_sum.sealed.ranges import (
    Claim,
    Range,
    prove,
    wrong_claims,
)
from wallflower.strategy.secure_sum.sealed import PROVED_AT_ONCE

_ALLOWED = Range(-210, 220)  # one user at ε = 1: B is about 21 g, g = 10
_MADE = 256  # proofs; checked over and over, which is as much work as others
ShufflerUpload = tuple[bytes, bytes, bytes, bytes]  # C₁, C₂, context, proof


def made(public: Point, count: int) -> list[ShufflerUpload]:
    """Seal and prove, as nodes do."""
    uploads = []
    for number in range(count):
        context = number.to_bytes(32, "big")
        sealed, opening = encrypt(public, number % 10)
        proof = prove(public, sealed, opening, _ALLOWED, context)
        uploads.append((bytes(sealed.one), bytes(sealed.two), context, proof))
    return uploads


def wrong(key: bytes, uploads: Sequence[ShufflerUpload], together: int) -> int:
    """Check uploads, so many together; give how many are wrong."""
    public, found = Point.parse(key), 0
    for start in range(0, len(uploads), together):
        claims = [
            Claim(Ciphertext(Point.parse(one), Point.parse(two)), _ALLOWED, said, proof)
            for one, two, said, proof in uploads[start : start + together]
        ]
        found += len(wrong_claims(public, claims))
    return found


def main() -> int:
    """Print what a proof costs, and what processes save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proofs", type=int, default=8192)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    pair = KeyPair.generate()
    key = bytes(pair.point)
    began = time.perf_counter()
    few = made(pair.point, _MADE)
    print(f"made: {1e6 * (time.perf_counter() - began) / _MADE:.0f} µs a proof")
    uploads = (few * (options.proofs // _MADE + 1))[: options.proofs]
    for together in (1, 16, PROVED_AT_ONCE, 1024, len(uploads)):
        part = uploads if together >= PROVED_AT_ONCE else uploads[:_MADE]
        began = time.perf_counter()
        assert wrong(key, part, together) == 0
        each = 1e6 * (time.perf_counter() - began) / len(part)
        print(f"checked, {together:,} together: {each:.0f} µs a proof", flush=True)
    began = time.perf_counter()
    assert wrong(key, uploads, PROVED_AT_ONCE) == 0
    alone_s = time.perf_counter() - began
    context = multiprocessing.get_context("spawn")
    began = time.perf_counter()
    with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        for future in [
            pool.submit(wrong, key, few[:1], 1) for _ in range(options.processes)
        ]:
            future.result()
        started_s = time.perf_counter() - began
        began = time.perf_counter()
        jobs = [
            pool.submit(wrong, key, uploads[start :: options.processes], PROVED_AT_ONCE)
            for start in range(options.processes)
        ]
        assert sum(job.result() for job in jobs) == 0
        beside_s = time.perf_counter() - began
    print(
        f"{options.proofs:,} proofs: {alone_s:.2f} s in this process; {beside_s:.2f} s "
        f"in {options.processes} others, after {started_s:.2f} s to start them"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
