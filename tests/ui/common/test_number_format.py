"""Test the formats of numbers: units of bytes say whether they are powers of 1024."""

from __future__ import annotations

import re

import pytest

from tests.helpers.paths import ROOT
from torchprof_tui.ui.common.number_format import format_file_size, format_share, format_value


def test_a_small_negative_share_is_not_minus_zero() -> None:
    shown = [format_share(share) for share in (-0.002, -0.065, -0.5, -0.0001, 0.0)]
    assert shown == ["-0.2 %", "-6.5 %", "-50 %", "-<0.1 %", "0 %"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (164308, "160 KiB"),
        (1_000_000, "977 KiB"),  # 1 MB is no MiB
        (1 << 20, "1.0 MiB"),
        (-3 << 30, "-3.0 GiB"),
        (80e9, "74.5 GiB"),  # "80 GB"
    ],
)
def test_bytes_are_in_powers_of_1024_and_say_so(value: float, text: str) -> None:
    assert format_value(value, "bytes") == text


def test_binary_sizes_have_binary_units_everywhere() -> None:
    """A number that is divided by 1024 or a power of it is not printed as KB, MB or GB in the same statement."""
    wrong = []
    for path in sorted((ROOT / "tui").rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            line = line.partition("  # ")[0]
            if re.search(r"/ ?1024|<< ?[123]0", line) and re.search(r"[^i][KMG]B\b", line):
                wrong.append(f"{path.name}:{number}")
    assert wrong == []


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (164_308, "164 kB"),
        (999_600, "1.0 MB"),
        (20_340_000, "20.3 MB"),
        (503_100_000, "503 MB"),
        (7_000_000_000, "7.0 GB"),
    ],
)
def test_sizes_of_files_are_decimal(size: int, text: str) -> None:
    """ "480 MB" in the list of traces was "503.1 MB" while loading: the first was in powers of 1024."""
    assert format_file_size(size) == text
