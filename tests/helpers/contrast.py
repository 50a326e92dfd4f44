"""Contrast of text, as WCAG 2 defines it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style

AA_TEXT = 4.5
"""Smallest contrast of text at level AA."""

Rgb = tuple[int, int, int]


def luminance(color: Rgb) -> float:
    """Return the relative luminance, 0..1."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(style: Style, sixteen: Sequence[Rgb] = ()) -> float:
    """Return the contrast of a style's colours, 1..21. `sixteen`: what a terminal shows for the colours 0 to 15."""
    pair = []
    for color in (style.color, style.bgcolor):
        assert color is not None
        number = color.number
        is_named = sixteen and number is not None and number < 16
        pair.append(sixteen[number] if is_named and number is not None else tuple(color.get_truecolor()))
    darker, lighter = sorted(luminance(color) for color in pair)
    return (lighter + 0.05) / (darker + 0.05)


XTERM: tuple[Rgb, ...] = (
    (0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229),
    (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255),
    (255, 255, 255),
)  # fmt: skip
VGA: tuple[Rgb, ...] = (
    (0, 0, 0), (170, 0, 0), (0, 170, 0), (170, 85, 0), (0, 0, 170), (170, 0, 170), (0, 170, 170), (170, 170, 170),
    (85, 85, 85), (255, 85, 85), (85, 255, 85), (255, 255, 85), (85, 85, 255), (255, 85, 255), (85, 255, 255),
    (255, 255, 255),
)  # fmt: skip
"""The sixteen colours of xterm, and of the Linux console."""
