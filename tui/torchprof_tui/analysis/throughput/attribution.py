"""Attribute an operator's bytes and FLOPs to its kernels, each of them once."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool

NO_FRACTION = 0.0

MAIN_SHARE = 2 / 3
"""Share of the time from which one of several kernels of a matrix product is the one that multiplies."""


def attribute_work(op: I64, variant: I64, name: I32, duration: I64, is_product: Bool) -> F64:
    """Return the fraction of its operator's work that each piece of GPU work does: float64[k].

    Pieces with the same operator (`op`: its row) and `variant` share its work. One kernel, launched several times, does
    it in proportion to `duration`. Of several kernels, that of a matrix product (`is_product`) which takes most of the
    time does it all; for others nothing says which one: 0.
    """
    if not len(op):
        return np.empty(0)
    _, part = np.unique(op * 4 + variant, return_inverse=True)
    part = part.reshape(-1)
    size = int(part.max()) + 1
    order = np.lexsort((name, part))
    changes = (np.diff(name[order]) != 0) & (np.diff(part[order]) == 0)
    kernels = 1 + np.bincount(part[order][1:][changes], minlength=size)
    time = np.bincount(part, weights=duration, minlength=size)
    share: F64 = duration / np.maximum(time[part], 1)
    is_main = (share >= MAIN_SHARE) & is_product
    return np.where(kernels[part] == 1, share, np.where(is_main, 1.0, NO_FRACTION))
