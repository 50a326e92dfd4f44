"""Format byte counts, shares and ordinals.

Bytes of memory are in powers of 1024 (KiB, MiB); rates, the sizes of files and the progress of loading and saving are
decimal (GB/s, MB).
"""

from __future__ import annotations

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_value(value: float, unit: str) -> str:
    """Format a counter's value; bytes in powers of 1024, as the profiler counts them, with their own names."""
    if unit != "bytes":
        return f"{value:,.6g}"
    size, step = abs(value), 0
    while size >= 1024 and step < len(_BYTES) - 1:
        size /= 1024
        step += 1
    digits = 0 if step == 0 or size >= 100 else 1
    return f"{'-' if value < 0 else ''}{size:.{digits}f} {_BYTES[step]}"


def format_file_size(count: int) -> str:
    """Format the size of a file, bytes: "205 kB", "1.2 MB", "480 MB"; decimal, as the progress of loading it."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:,.1f} {unit}" if count < 10 * limit else f"{count / limit:,.0f} {unit}"
    return f"{count} B"


def format_share(share: float) -> str:
    """Format a share of 1 as percent, with one decimal below 10 %."""
    percent = share * 100
    return f"{percent:.1f} %" if 0 < percent < 9.95 else f"{percent:.0f} %"


def format_ordinal(number: int) -> str:
    """Format an ordinal: 1st, 2nd, 3rd, 4th …"""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
