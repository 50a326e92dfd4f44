"""How time and memory of opening a trace grow with its size: the numbers of `cores.py` on several sizes as Markdown.

The exponent of the growth is the slope of a straight line through the logarithms: 1 is linear, 2 quadratic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Result = dict[str, Any]

_CURVE_POINTS = 12

MAX_MEMORY_SHARE = 0.25
"""The budget: peak memory of all processes by the size of the file."""


def fit_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Fit `value = c * size ** exponent` by least squares of the logarithms; NaN for fewer than two sizes."""
    points = [(math.log(size), math.log(value)) for size, value in zip(sizes, values, strict=True) if value > 0]
    if len({x for x, _ in points}) < 2:
        return math.nan
    mean_x, mean_y = (sum(column) / len(points) for column in zip(*points, strict=True))
    slope: float = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return slope


def estimate_serial_seconds(wall: float, cpu: float, cores: int) -> float:
    """Estimate how long one core alone was busy, by Amdahl's law: `wall = serial + parallel / cores`, `cpu` is both.

    What the cores wait for each other counts as serial.
    """
    return wall if cores < 2 else min(max((cores * wall - cpu) / (cores - 1), 0.0), wall)


def format_growth(results: Sequence[Result]) -> str:
    """Format one result for each size: a table, the fitted exponents, and the memory over time of each."""
    lines = [
        "| events | MB | cores | decode s | build s | index s | lanes s | ns an event | peak GB | share of the file |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for result in results:
        times = [f"{result[key]:.2f}" for key in ("decode", "build", "index", "lanes")]
        per_event = f"{result['lanes'] / result['events'] * 1e9:,.0f}"
        share = f"{result['memory'] / result['bytes']:.2f}"
        cells = [f"{result['events']:,}", f"{result['bytes'] / 1e6:,.0f}", result["cores"], *times, per_event]
        cells += [f"{result['memory'] / 1e9:.2f}", share]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    sizes = [result["events"] for result in results]
    exponents = [
        f"{key} {fit_exponent(sizes, [result[key] for result in results]):.2f}"
        for key in ("decode", "build", "index", "lanes", "memory")
    ]
    lines += [
        "",
        f"Fitted growth, exponent of the number of events: {', '.join(exponents)}.",
        "",
        "Memory, GB at seconds:",
    ]
    lines += [f"- {result['events']:,} events: {_format_curve(result['curve'])}" for result in results]
    return "\n".join(lines) + "\n"


def _format_curve(samples: Sequence[tuple[float, int]]) -> str:
    """Format the highest sample of each of a few equal times."""
    if not samples:
        return "not sampled"
    width = samples[-1][0] / _CURVE_POINTS or 1.0
    highest: dict[int, tuple[int, float]] = {}
    for seconds, size in samples:
        part = min(int(seconds / width), _CURVE_POINTS - 1)
        highest[part] = max(highest.get(part, (0, 0.0)), (size, seconds))
    return ", ".join(f"{size / 1e9:.2f} at {seconds:.1f}" for _, (size, seconds) in sorted(highest.items()))
