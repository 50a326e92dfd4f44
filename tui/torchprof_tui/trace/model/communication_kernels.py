"""Recognize kernels that communicate with other GPUs by name: their library and their operation.

A kernel is recognized by its function, never by its parameters or template arguments: `deep_ep::intranode::dispatch<8>`
communicates, a kernel of the user's called `dispatch` does not, nor does one that takes an `ncclComm` as an argument.
"""

from __future__ import annotations

import re

from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.text_enum import TextEnum

SYNCHRONIZING_OPERATIONS = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier", "sendrecv")
"""Operations that no rank leaves before the last one has entered: each needs data from every other. NCCL's kernel of
an all-to-all is called SendRecv."""


class Operation(TextEnum):
    """What a communication kernel does; the value is shown to the reader."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND_RECEIVE = "send/recv"
    BARRIER = "barrier"
    DISPATCH = "dispatch"  # tokens to the ranks of their experts
    COMBINE = "combine"  # tokens back from their experts
    NOTIFY = "notify"  # exchange of counts before a dispatch or a combine: the kernel waits for its peers
    OTHER = "other"  # not said by the name, or preparation


WAITING_OPERATIONS = frozenset({Operation.BARRIER, Operation.NOTIFY})
"""Operations that move no payload: their whole time is waiting for other ranks."""


@record
class CommunicationKernel:
    """A recognized kernel. `has_process_group`: torch records its collective, so that ranks can be matched by it."""

    library: str
    operation: Operation
    has_process_group: bool


_HINTS = (
    *("ccl", "hcom", "shmem", "deep_ep", "hybrid_ep", "mori::", "symm_mem", "symmetric_memory", "barrier_kernel"),
    *("allreduce", "all_reduce", "device_reduce", "quickreduce", "multimem", "lamport", "moea2a", "userbuffers"),
    *("aiter::", "alltoall", "reduce_scatter", "all_gather", "epdispatch", "epcombine", "internode", "intranode"),
)
"""Each recognized name holds one of these, in lower case. Searching for them takes 2 µs for a name of 2,000 bytes."""

_REDUCES = r"(all_?reduce|cross_device_reduce|reduce_?scatter|all_?gather)"

_LIBRARIES: tuple[tuple[str, re.Pattern[str], bool], ...] = tuple(
    (library, compile_later(pattern, re.IGNORECASE), has_process_group)
    for library, pattern, has_process_group in (
        ("NCCL", r"nccl", True),
        ("RCCL", r"(rccl|msccl(?!pp))", True),
        ("oneCCL", r"(oneccl|ccl::)", True),
        ("HCCL", r"(hccl|hcom)", True),
        ("MCCL", r"mccl", True),
        ("DeepEP", r"(.*::)?((deep_ep|hybrid_ep)::|ep::(internode(_ll)?|intranode)::)", False),
        ("MORI", r"(mori::.*)?Ep(Dispatch|Combine)(Intra|Inter)Node", False),
        ("NVSHMEM", r"(.*::)?nvshmem", False),
        ("rocSHMEM", r"(.*::)?rocshmem", False),
        ("MSCCL++", r"mscclpp::", False),
        ("quick all-reduce", r"(.*::)?(quickreduce::|quick_?all_?reduce|allreduce_prototype_(one|two)shot)", False),
        ("vLLM", rf"vllm::.*{_REDUCES}", False),
        ("AITER", rf"aiter::.*{_REDUCES}", False),
        ("SGLang", rf"sgl\w*::.*{_REDUCES}", False),
        ("FlashInfer", r"flashinfer::.*(all_?reduce|all_?to_?all|moeA2A|lamport)", False),
        (
            "TensorRT-LLM",
            r"(tensorrt_llm::.*(all_?reduce|all_?to_?all|lamport)"
            r"|(.*::)?(moeA2A|(one|two)_?shot_?all_?reduce(?!_kernel)|\w*allreduce_fusion_kernel|lamport_))",
            False,
        ),
        ("userbuffers", r"(.*::)?k?userbuffers_", False),
        (
            "symmetric memory",
            r"(.*(symm_mem|symmetric_memory)|(.*::)?((one|two)_shot|multimem)_(\w+_)?(all_reduce|all_gather|reduce_"
            r"scatter|broadcast|reduce)|c10d::(.*::)?barrier_kernel)",
            False,
        ),
        ("custom all-reduce", r"(.*::)?(cross_device_reduce_|custom_?all_?reduce)", False),
    )
)
"""(library, start of the qualified function, has a process group); the first match counts."""

_OPERATIONS: tuple[tuple[Operation, re.Pattern[str]], ...] = tuple(
    (operation, compile_later(pattern, re.IGNORECASE))
    for operation, pattern in (
        (Operation.OTHER, r"get_dispatch_layout|initialize|^lamport_init"),
        (Operation.NOTIFY, r"notify|prepare_?dispatch|prepare_?combine|(wait|put)_signal|signal_(wait|op)"),
        (Operation.BARRIER, r"barrier|sync_all|clean_low_latency_buffer"),
        (Operation.DISPATCH, r"dispatch"),
        (Operation.COMBINE, r"combine"),
        (Operation.ALL_TO_ALL, r"all_?to_?all|a2a"),
        (Operation.REDUCE_SCATTER, r"reduce_?scatter"),
        (Operation.ALL_GATHER, r"all_?gather"),
        (Operation.ALL_REDUCE, r"all_?reduce|cross_device_reduce|lamport|userbuffers_\w*sum"),
        (Operation.BROADCAST, r"broadcast"),
        (Operation.SEND_RECEIVE, r"send|recv|receive|coalesced|(^|_)(put|get)(_|$)"),
        (Operation.REDUCE, r"reduce"),
        (Operation.GATHER, r"gather"),
        (Operation.SCATTER, r"scatter"),
    )
)
"""Operations by a word of the function; the first match counts: `cached_notify_combine` notifies."""


def classify_communication(name: str) -> CommunicationKernel | None:
    """Recognize a communication kernel by its name, demangled or mangled; None for any other kernel."""
    folded = name.lower()
    if not any(hint in folded for hint in _HINTS):
        return None
    function = extract_function(name)
    for library, pattern, has_process_group in _LIBRARIES:
        if pattern.match(function):
            return CommunicationKernel(library, classify_operation(function), has_process_group)
    if function == "barrier_kernel" and "unsigned int**" in name:  # of symmetric memory: the signal pads of all ranks
        return CommunicationKernel("symmetric memory", Operation.BARRIER, has_process_group=False)
    return None


def classify_operation(text: str) -> Operation:
    """Classify a function, or the `Collective name` that torch records (`_allgather_base`, `all_to_allv`)."""
    word = text.rpartition("::")[2]
    return next((operation for operation, pattern in _OPERATIONS if pattern.search(word)), Operation.OTHER)


_LENGTH = compile_later(r"L?([0-9]{1,4})")  # the length before an identifier; `L` marks a function of internal linkage
_BRACKETS = compile_later(r"[<>()]")


def extract_function(name: str) -> str:
    """Extract the qualified function of a kernel: no return type, template arguments or parameters."""
    text = name.strip()
    if text.startswith("_Z"):
        return "::".join(_parse_mangled_path(text)) or text
    text = text.replace("(anonymous namespace)::", "").replace("->", "")
    parts: list[str] = []
    depth = position = 0
    for bracket in _BRACKETS.finditer(text):
        if depth == 0:
            parts.append(text[position : bracket.start()])
            if bracket.group() == "(":
                break
        depth += 1 if bracket.group() in "<(" else -1
        depth, position = max(depth, 0), bracket.end()
    else:
        parts.append(text[position:] if depth == 0 else "")
    words = "".join(parts).split()
    return words[-1] if words else ""


def _parse_mangled_path(text: str) -> list[str]:
    """Parse the identifiers of a mangled function: `_ZN7deep_ep9intranode8dispatchILi8EEEvPf` → its three."""
    is_nested = text.startswith("_ZN")
    position = len("_ZN") if is_nested else len("_Z")
    path: list[str] = []
    while (length := _LENGTH.match(text, position)) and (is_nested or not path):
        position = length.end() + int(length[1])
        identifier = text[length.end() : position]
        if not identifier.startswith("_GLOBAL__N"):
            path.append(identifier)
    return path
