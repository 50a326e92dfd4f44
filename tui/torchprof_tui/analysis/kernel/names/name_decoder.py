"""What a GPU kernel's name says: class, library, architecture, data types, tile, stages, what was fused.

By the grammar of the library that generated the name, one module per family; never by guessing. A name that none of
them reads is returned as it is with `known=False`.
"""

from __future__ import annotations

from functools import lru_cache

from torchprof_tui.analysis.kernel.names import (
    amd_gemm,
    attention,
    collectives,
    convolution,
    libraries,
    memory,
    nvidia_gemm,
    pytorch,
    triton,
)
from torchprof_tui.analysis.kernel.names.model import KernelName
from torchprof_tui.analysis.kernel.names.syntax import parse_function

_FAMILY_DECODERS = (
    memory.decode,
    collectives.decode,
    amd_gemm.decode,
    triton.decode,
    attention.decode,
    convolution.decode,
    nvidia_gemm.decode,
    pytorch.decode,
    libraries.decode,
)
"""Asked in turn; the narrow grammars before those that go by words."""

_MAX_DISPLAY_LENGTH = 40
"""Characters of an undecoded name that a bar or a table's cell can use."""


@lru_cache(maxsize=8192)  # distinct kernel names of a trace: rarely a thousand
def decode_kernel_name(name: str) -> KernelName:
    """What the name of a kernel, copy or fill says. Never raises; unknown names have `known=False`."""
    parsed = parse_function(name)
    for family in _FAMILY_DECODERS:
        found = family(name, parsed)
        if found is not None:
            return found
    base = parsed.base or name
    return KernelName(
        name,
        display=base if len(base) <= _MAX_DISPLAY_LENGTH else base[: _MAX_DISPLAY_LENGTH - 1] + "…",
        summary="name not decoded",
    )
