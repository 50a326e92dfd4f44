"""Format byte counts, shares, ordinals and ages.

Bytes of memory are in powers of 1024 (KiB, MiB), as the profiler counts them; sizes of files, rates and the progress of
loading are decimal (MB, GB/s), as disks and networks count them.
"""

from __future__ import annotations

from collections.abc import Callable

_FILE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

MAX_AGE_SECONDS = 100 * 365 * 86400  # older files have a damaged time, which is not shown


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


def format_file_size(size: float) -> str:
    """Format the bytes of a file: "512 B", "20.3 kB", "480 MB", with one decimal below 100."""
    step = 0
    while step < len(_FILE_UNITS) - 1 and size >= 999.5:
        size /= 1000
        step += 1
    return f"{size:.{0 if step == 0 or size >= 99.95 else 1}f} {_FILE_UNITS[step]}"


def format_share(share: float) -> str:
    """Format a share of 1 as percent, with one decimal below 10 %; "<0.1 %" for what would be rounded to nothing."""
    percent = abs(share) * 100
    sign = "-" * (share < 0)
    if 0 < percent < 0.05:
        return f"{sign}<0.1 %"
    return f"{sign}{percent:.1f} %" if 0 < percent < 9.95 else f"{sign}{percent:.0f} %"


def format_bandwidth(rate: float) -> str:
    """Format GB/s (10^9 bytes per second): "7.37 GB/s", "1,754 GB/s"."""
    return f"{rate:,.0f} GB/s" if rate >= 999.5 else f"{rate:.3g} GB/s"


def format_ordinal(number: int) -> str:
    """Format an ordinal: 1st, 2nd, 3rd, 4th …"""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def format_age(seconds: float) -> str:
    """Format an age in words, as "5 hours ago": "just now" for a time to come, "" beyond MAX_AGE_SECONDS."""
    seconds = max(seconds, 0.0)  # also for -inf, which cannot be rounded
    units: tuple[tuple[float, float, Callable[[int], str]], ...] = (
        (90, 1, lambda _: "just now"),
        (90 * 60, 60, lambda n: f"{n} minutes ago"),
        (36 * 3600, 3600, lambda n: f"{n} hours ago"),
        (60 * 86400, 86400, lambda n: f"{n} days ago"),
        (MAX_AGE_SECONDS, 30 * 86400, lambda n: f"{n} months ago"),
    )
    for limit, unit_seconds, format_count in units:
        if seconds < limit:
            return format_count(round(seconds / unit_seconds))
    return ""
