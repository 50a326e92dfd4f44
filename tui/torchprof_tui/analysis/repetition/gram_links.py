"""Link each place of a sequence to the previous place that continues in the same way.

A gram is k consecutive values. k is chosen so that two grams of a random sequence with the same frequencies of values
are hardly ever equal: a link is then evidence of a repetition by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.arrays import I64

U64 = npt.NDArray[np.uint64]

MIN_GRAM = 3
MARGIN_BITS = 6.0
"""Bits of a gram above log2(n): then about n / 2^(MARGIN_BITS + 1) pairs of grams of a random sequence are equal."""

MIN_ENTROPY = 0.2
"""Bits per value below which a sequence is one value with few others, whose grams say nothing."""

_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True, slots=True)
class GramLinks:
    """Links of a sequence of n values: m = max(n - length + 1, 0) grams.

    `hash` uint64[m]: of the gram that begins at each place. `distance` int64[m]: to the previous equal gram, 0: none.
    """

    length: int
    hash: U64
    distance: I64


def measure_entropy(values: I64) -> float:
    """Measure the collision entropy of a sequence in bits per value: -log2(sum of squared frequencies)."""
    if not len(values):
        return 0.0
    shares = np.unique(values, return_counts=True)[1] / len(values)
    return float(-np.log2(np.square(shares).sum()))


def link_grams(values: I64, entropy: float) -> GramLinks | None:
    """Link the grams of `values` int64[n]; None where it is too short, or too uniform, for any evidence."""
    if len(values) < 2 * MIN_GRAM or entropy < MIN_ENTROPY:
        return None
    length = max(MIN_GRAM, math.ceil((math.log2(len(values)) + MARGIN_BITS) / entropy))
    if 2 * length > len(values):
        return None
    hashes = hash_grams(values, length)
    order = np.argsort(hashes, kind="stable")
    is_equal = hashes[order[1:]] == hashes[order[:-1]]
    distance = np.zeros(len(hashes), np.int64)
    distance[order[1:][is_equal]] = np.diff(order)[is_equal]
    return GramLinks(length, hashes, distance)


def hash_grams(values: I64, length: int) -> U64:
    """Hash each gram of `length` values with a polynomial modulo 2^64: uint64[n - length + 1]."""
    mixed = mix_values(values)
    count = len(values) - length + 1
    hashes = np.zeros(max(count, 0), np.uint64)
    for offset in range(length if count > 0 else 0):
        hashes *= _MULTIPLIER
        hashes += mixed[offset : offset + count]
    return hashes


def mix_values(values: I64) -> U64:
    """Spread the bits of each value (the finalizer of SplitMix64): uint64[n]."""
    mixed: U64 = (values.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed
