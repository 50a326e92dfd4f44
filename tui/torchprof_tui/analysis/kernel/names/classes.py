"""Classify many kernel names at once. Separate from the decoder, which the first frame needs without numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.arrays import U8


def classify_names(names: Sequence[str]) -> U8:
    """Find the `KernelClass` of each name: uint8[n]. Pass the distinct names of GPU events only."""
    return np.fromiter((decode_kernel_name(name).kernel_class for name in names), dtype=np.uint8, count=len(names))
