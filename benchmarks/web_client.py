"""What a contribution costs in Chromium: `make bench-web`.

One visitor's work in a page, by part: checking the terms (with the tail of the total
noise), the table of the noise, a draw, encryption and proofs. Milliseconds.
"""

from __future__ import annotations

import gzip
import random
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.support.seated_sums import ARMS, RUN, SeatedRun
from tests.support.secure_sums import NOW, TENTH
from wallflower.protocol.cohort import to_rational
from wallflower.protocol.privacy.honest_floor import cohort_floor
from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.protocol.visitors import INVITED, Invitation
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.secure_sum.contributions import SeatTerms, seat_terms

DIST = Path(__file__).parents[1] / "clients" / "web" / "dist"
COUNT = 200
WRAP = Fraction(1, 10**6)


def seat(name: str, size: int, *, lying: bool, proved: bool) -> dict[str, Any]:
    """Return a seat of one cohort, and all that its visitor knows."""
    run = SeatedRun(INVITED, lying=lying)
    floor = cohort_floor([1] * size, TENTH, TENTH)
    mechanism = mechanism_named(name, Fraction(1)).for_cohort(
        floor.cohort_size, floor.honest_floor, WRAP
    )
    spec = CohortSpec(
        run_id=RUN,
        batch=1,
        arm_name=ARMS[0],
        cohort_id="cohort-1",
        mechanism=name,
        epsilon=to_rational(Fraction(1)),
        scale=to_rational(Fraction(10)),
        wrap_probability=to_rational(WRAP),
        cohort_size=size,
        honest_floor=floor.honest_floor,
        quorum=floor.quorum,
        backend="sealed",
        modulus=mechanism.modulus,
        threat=run.threat.to_wire(),
        admission=INVITED,
        proved_inputs=proved,
    )
    assert run.ring.dealt is not None
    issued = Invitation.issue(run.inviter, not_after=NOW + 10**6)
    terms = SeatTerms(seat_terms(spec, run.ring.dealt.note), run.trust)
    return {
        "request": terms.request_for(issued.identity.node_id).hex(),
        "run": RUN,
        "visitor": issued.identity.node_id,
        "admission": INVITED,
        "invitation": issued.text(),
        "enrolmentKey": run.enrolment.key.public_key.hex() if lying else None,
        "policy": {"largestTotalEpsilon": "20"},
        "range": None,
        "windowMs": 0,
        "now": NOW,
        "arms": list(ARMS),
    }


def main() -> None:
    """Print size and times."""
    random.seed(1)
    script = (DIST / "wallflower.js").read_bytes()
    print(f"wallflower.js: {len(script)} bytes, {len(gzip.compress(script))} gzip")
    bench = (DIST / "tests" / "bench.js").read_text()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        print(f"Chromium {browser.version}; median, p99, first of {COUNT} (ms)")
        for name, size, lying, proved in (
            ("dist-dp", 100, False, False),
            ("dist-dp", 1000, False, False),
            ("dist-dp", 1000, False, True),
            ("dist-dp", 1000, True, True),
            ("dist-rdp", 1000, False, False),
            ("dist-cdp", 1000, False, True),
            ("local-dp", 1000, False, False),
        ):
            page = browser.new_page()
            page.add_script_tag(content=bench, type="module")
            given = seat(name, size, lying=lying, proved=proved)
            found = page.evaluate(
                "([given, count]) => measure(given, count)", [given, COUNT]
            )
            kind = f"{'lying' if lying else 'semi-honest'} server"
            inputs = "proved" if proved else "trusted"
            print(f"{name}, n = {size}, {kind}, {inputs} inputs")
            for part, (median, most, first) in found.items():
                print(f"  {part:20} {median:8.2f} {most:8.2f} {first:8.2f}")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
