"""One colour and one mark per arm, the same wherever an arm is drawn.

The colours are Okabe and Ito's, which people with colour-blindness tell apart, without
the yellow that vanishes on paper. Beyond seven arms the mark tells those of one colour
apart.
"""

from __future__ import annotations

from dataclasses import dataclass

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#7F7F7F",
)
SHAPES = ("circle", "square", "diamond", "triangle")
_GLYPHS = {"circle": "●", "square": "■", "diamond": "◆", "triangle": "▲"}


@dataclass(frozen=True, slots=True)
class Mark:
    """How one arm is drawn."""

    colour: str
    shape: str

    @property
    def glyph(self) -> str:
        """The shape as a character, for terminals."""
        return _GLYPHS[self.shape]


def mark_of(arm: int) -> Mark:
    """Return the mark of an arm by its place in the experiment's file.

    Examples
    --------
    >>> mark_of(0) == mark_of(0), mark_of(0) == mark_of(7)
    (True, False)
    """
    return Mark(COLOURS[arm % len(COLOURS)], SHAPES[arm // len(COLOURS) % len(SHAPES)])
