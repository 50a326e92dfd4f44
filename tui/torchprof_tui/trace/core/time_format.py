"""Format and parse durations and times given in ns."""

from __future__ import annotations

from torchprof_tui.trace.core.late_regex import compile_later

_UNITS = (("s", 9), ("ms", 6), ("µs", 3), ("ns", 0))
_SCALES = {"s": 9, "ms": 6, "us": 3, "µs": 3, "μs": 3, "ns": 0}  # µ: the micro sign and the Greek letter
_TIME = compile_later(r"([+-]?)([0-9]*)(?:\.([0-9]*))?\s*([a-zµμ]*)")

MAX_TIME = 2**62
"""ns, 146 years: a longer time that a user writes means the end of the trace, and sums of two times fit 64 bits."""


def format_duration(ns: float) -> str:
    """Format with three or four digits in the largest unit that fits: "640 ns", "1.92 µs", "159.6 ms"."""
    size = abs(round(ns))
    sign = "-" if round(ns) < 0 else ""
    if size < 1000:
        return f"{sign}{size} ns"
    for unit, power in reversed(_UNITS[:-1]):
        scale = 10**power
        hundredths = (200 * size + scale) // (2 * scale)
        if hundredths < 1000:
            return f"{sign}{hundredths // 100}.{hundredths % 100:02} {unit}"
        tenths = (20 * size + scale) // (2 * scale)
        if tenths < 10_000 or unit == "s":
            break
    return f"{sign}{tenths // 10:,}.{tenths % 10} {unit}"


def format_part(part: float, total: float) -> str:
    """Format a part of a time: "371.2 of 383.9 ms", "80.0 µs of 2.10 ms"."""
    number, _, unit = format_duration(part).partition(" ")
    whole = format_duration(total)
    return f"{number} of {whole}" if whole.endswith(f" {unit}") else f"{number} {unit} of {whole}"


def format_time(ns: int, step: int = 1, magnitude: int | None = None) -> str:
    """Format a time with just enough decimals to distinguish it from its neighbours `step` ns away.

    The unit fits `magnitude` (default: the time itself), so that the labels of one time axis share it.
    """
    magnitude = abs(ns) if magnitude is None else magnitude
    unit, power = next(((unit, power) for unit, power in _UNITS if magnitude >= 10**power), _UNITS[-1])
    decimals = max(power - (len(str(step)) - len(str(step).rstrip("0"))), 0)
    whole, rest = divmod(abs(ns), 10**power)
    fraction = f".{rest // 10 ** (power - decimals):0{decimals}}" if decimals else ""
    return f"{'-' if ns < 0 else ''}{whole}{fraction} {unit}"


def parse_time(text: str) -> int:
    """Parse "12.5ms", "120 us", "1.5s" or "300 ns" to ns; a bare number is in µs, the unit of trace files.

    Longer times than MAX_TIME become MAX_TIME. Raises ValueError with a line for the user.
    """
    match = _TIME.fullmatch(text.strip().lower())
    sign, whole, fraction, unit = match.groups(default="") if match else ("", "", "", "")
    power = _SCALES.get(unit or "us")
    if not (whole or fraction) or power is None:
        raise ValueError(f"not a time: {text.strip()!r} (write it like 12.5ms, 300us or 1.2s)")
    digits = (fraction + "0" * power)[:power]  # traces have a resolution of 1 ns
    number = (whole + digits).lstrip("0")
    ns = MAX_TIME if len(number) > len(str(MAX_TIME)) else min(int(number or "0"), MAX_TIME)
    return -ns if sign == "-" else ns
