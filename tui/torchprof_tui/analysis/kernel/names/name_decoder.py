"""Decode the name of a GPU kernel: class, library, architecture, data types, tile, stages, fused operations.

Each family of names has a module with the grammar of the library that generates it; nothing is guessed. A name that no
family decodes is returned with `known=False`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from torchprof_tui.analysis.kernel.names import (
    amd_gemm,
    ascend,
    attention,
    collectives,
    convolution,
    copies,
    libraries,
    nvidia_gemm,
    pytorch,
    serving_gemm,
    triton,
)
from torchprof_tui.analysis.kernel.names.model import KernelName
from torchprof_tui.analysis.kernel.names.syntax import parse_function
from torchprof_tui.trace.core.arrays import U8

_FAMILY_DECODERS = (
    copies.decode_copy,
    collectives.decode,
    amd_gemm.decode,
    triton.decode,
    attention.decode,
    convolution.decode,
    amd_gemm.decode_composable_kernel,
    serving_gemm.decode,
    nvidia_gemm.decode,
    pytorch.decode,
    ascend.decode,
    libraries.decode,
)
"""Tried in order: strict grammars before those that search for words."""

_MAX_DISPLAY_LENGTH = 40  # characters of an undecoded name that fit into a bar or a table cell

MAX_DECODED_LENGTH = 1 << 14
"""Characters of the longest name that is decoded; real ones have some thousand. Searches in a name may cost the square
of its length."""


@lru_cache(maxsize=8192)  # distinct kernel names of a trace: rarely a thousand
def decode_kernel_name(name: str) -> KernelName:
    """Decode the name of a kernel, copy or fill. Never raises; unknown names have `known=False`."""
    if len(name) > MAX_DECODED_LENGTH:
        shown = name[: _MAX_DISPLAY_LENGTH - 1] + "…"
        return KernelName(name, known=False, display=shown, summary="name too long to decode")
    parsed = parse_function(name)
    for decode in _FAMILY_DECODERS:
        decoded = decode(name, parsed)
        if decoded is not None:
            return decoded
    base = parsed.base or name
    shown = base if len(base) <= _MAX_DISPLAY_LENGTH else base[: _MAX_DISPLAY_LENGTH - 1] + "…"
    return KernelName(name, known=False, display=shown, summary="name not decoded")


def classify_names(names: Sequence[str]) -> U8:
    """Find the `KernelClass` of each name: uint8[n]. Pass the distinct names of GPU events only."""
    return np.fromiter((decode_kernel_name(name).kernel_class for name in names), dtype=np.uint8, count=len(names))
