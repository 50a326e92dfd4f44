"""Decode kernels that move data between ranks: NCCL, RCCL, DeepEP, NVSHMEM, the all-reduces of serving engines."""

from __future__ import annotations

import re

from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName, join_parts, join_words
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName, parse_dtypes
from torchprof_tui.analysis.kernel.names.xmma import ELEMENT_TYPES
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.model.communication_kernels import WAITING_OPERATIONS, Operation, classify_communication

_COLLECTIVES = {
    "AllReduce": "all-reduce",
    "AllGather": "all-gather",
    "ReduceScatter": "reduce-scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "SendRecv": "send and receive",
    "AllToAll": "all-to-all",
    "AllToAllPivot": "all-to-all",
    "Gather": "gather",
    "Scatter": "scatter",
}
_OPERATIONS = {
    "Sum": "sum",
    "Prod": "product",
    "Max": "max",
    "Min": "min",
    "MinMax": "min or max",
    "PreMulSum": "scaled sum",
}
_ALGORITHMS = {"RING": "ring", "TREE": "tree", "NVLS": "NVLink SHARP", "PAT": "PAT", "COLLNET": "CollNet"}
_PROTOCOLS = {"LL": "LL (low latency)", "LL128": "LL128", "SIMPLE": "Simple"}
_DTYPES = {
    "float": "fp32",
    "half": "fp16",
    "double": "fp64",
    "u8": "uint8",
    "i32": "int32",
    "i64": "int64",
    "u32": "uint32",
    **ELEMENT_TYPES,
}
_STAGE = compile_later(r"([12])_?stage|(one|two)_?shot", re.IGNORECASE)
_STAGE_TEXTS = {"1": "1 stage", "2": "2 stages", "one": "one shot", "two": "two shots"}


def decode(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode a kernel that communicates; None for any other name."""
    base = parsed.base
    if re.match(r"(nccl|rccl)\w*(Kernel|kernel|Symk)", base) or base == "rccl_main_kernel":
        return _decode_nccl(name, base)
    kernel = classify_communication(name)
    if kernel is None:
        return None
    stage = _STAGE.search(base)
    stage_text = _STAGE_TEXTS[(stage[1] or stage[2]).lower()] if stage else None
    operation = "communication" if kernel.operation is Operation.OTHER else kernel.operation.value
    return KernelName(
        name,
        KernelClass.COLLECTIVE,
        family=kernel.library,
        library=kernel.library,
        dtypes=parse_dtypes(parsed.arguments),
        display=f"{kernel.library} {operation}",
        summary=join_parts(
            f"{operation} of {kernel.library}",
            "" if kernel.has_process_group else "over peer memory, without NCCL",
            stage_text,
            "waits for other ranks, moves no payload" if kernel.operation in WAITING_OPERATIONS else None,
        ),
    )


def _decode_nccl(name: str, base: str) -> KernelName:
    words = base.split("_")
    collective = _find_word(words, _COLLECTIVES)
    operation = _find_word(words, _OPERATIONS)
    algorithm = _find_word(words, _ALGORITHMS)
    protocol = _find_word(words, _PROTOCOLS)
    dtype = "int8" if "int8_t" in base else _find_word(words, _DTYPES)
    library = "RCCL" if base.startswith("rccl") else "NCCL"
    # NCCL 2.x up to 2.18 names a sum in every send and gather, although nothing is summed.
    reduces = collective is not None and "reduce" in collective
    return KernelName(
        name,
        KernelClass.COLLECTIVE,
        family=library,
        library=library,
        dtypes=(dtype,) if dtype else (),
        display=join_words(library, collective or "collective", dtype),
        summary=join_parts(
            f"{library} {collective or 'collective of unknown kind'}",
            operation if reduces else None,
            dtype,
            algorithm,
            f"{protocol} protocol" if protocol else None,
        ),
        details=tuple((label, value) for label, value in (("algorithm", algorithm), ("protocol", protocol)) if value),
    )


def _find_word(words: list[str], meanings: dict[str, str]) -> str | None:
    return next((meanings[word] for word in words if word in meanings), None)
