"""Find what a program communicates for: data parallelism, sharded parameters, tensor or expert parallelism.

Decided by the callers of each launch and, for kernels of one purpose such as DeepEP's, by the kernel itself. What none
of these says has no owner, and nobody is told how to change it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

import numpy as np

from torchprof_tui.analysis.collectives.communication_records import CommunicationRecords
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.model.communication_kernels import Operation
from torchprof_tui.trace.model.trace import Trace


class Owner(str, Enum):
    """What a collective belongs to."""

    DDP = "DistributedDataParallel"
    FSDP2 = "fully_shard"
    FSDP1 = "FullyShardedDataParallel"
    TENSOR_PARALLEL = "tensor parallel"
    INFERENCE_TENSOR_PARALLEL = "tensor parallel inference"
    EXPERT_PARALLEL = "expert parallel"
    DEEP_EP = "DeepEP"


_FSDP1 = compile_later(r"FullyShardedDataParallel")
_FSDP2 = compile_later(r"FSDP::|fsdp::|FSDPState|fully_shard")
_DDP = compile_later(r"AccumulateGrad|DistributedDataParallel|distributed[.:]+(ddp[.:]+)?reducer")
_TENSOR_PARALLEL = compile_later(
    r"Redistribute|DTensor|_c10d_functional|ModelParallelRegion|tensor_parallel", re.IGNORECASE
)
_EMBEDDINGS = compile_later(r"KJT|All2All_|sparse_data_dist|all2all_data|embedding", re.IGNORECASE)
_ALL_TO_ALL = compile_later(r"all_?to_?all", re.IGNORECASE)
_BACKWARD = compile_later(r"autograd::engine|Backward\d*$")

_SERVING_LIBRARIES = frozenset(
    {"vLLM", "SGLang", "TensorRT-LLM", "FlashInfer", "AITER", "quick all-reduce", "custom all-reduce"}
)
_EXPERT_LIBRARIES = frozenset({"DeepEP", "MORI"})

_MAX_CALLERS = 64
"""Callers looked at above a launch; autograd's nodes and modules lie within a dozen."""


def find_owner(trace: Trace, records: CommunicationRecords, weight: I64) -> Owner | None:
    """Find what most of some communication belongs to, by weight (int64[k], ns); None if that is unknown."""
    weights: dict[Owner | None, int] = {}
    undecided = weight > 0
    for owner, chosen in _classify(trace, records):
        weights[owner] = weights.get(owner, 0) + int(weight[chosen & undecided].sum())
        undecided &= ~chosen
    weights[None] = weights.get(None, 0) + int(weight[undecided].sum())
    owner, most = max(weights.items(), key=lambda item: item[1])
    return owner if most else None


def _classify(trace: Trace, records: CommunicationRecords) -> list[tuple[Owner | None, Bool]]:
    """Select the kernels of each owner, bool[k]; the first that selects a kernel owns it."""
    called_by = _CallerSearch(trace, np.asarray(trace.links.launch_of[records.events]).astype(np.int64))

    def of_libraries(libraries: frozenset[str]) -> Bool:
        return np.isin(records.library, [k for k, name in enumerate(records.libraries) if name in libraries])

    all_reduces = records.operation_mask(Operation.ALL_REDUCE)
    shards = records.operation_mask(Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
    exchanges = records.operation_mask(Operation.ALL_TO_ALL, Operation.DISPATCH, Operation.COMBINE)
    exchanges |= records.operation_mask(Operation.SEND_RECEIVE) & called_by(_ALL_TO_ALL)
    has_fsdp1 = called_by.has_name(_FSDP1)
    has_fsdp = has_fsdp1 or called_by.has_name(_FSDP2)
    has_backward = called_by.has_name(_BACKWARD)
    is_tensor_parallel = called_by(_TENSOR_PARALLEL)
    groups: list[tuple[Owner | None, Bool]] = [
        (Owner.DEEP_EP, of_libraries(frozenset({"DeepEP"}))),
        (Owner.EXPERT_PARALLEL, of_libraries(_EXPERT_LIBRARIES) | records.operation_mask(Operation.DISPATCH)),
        (Owner.FSDP1, called_by(_FSDP1) & shards),
        (Owner.FSDP2, called_by(_FSDP2)),
        (
            Owner.TENSOR_PARALLEL if has_backward else Owner.INFERENCE_TENSOR_PARALLEL,
            is_tensor_parallel & (all_reduces | shards),
        ),
        (Owner.DDP, called_by(_DDP) & all_reduces),
        (None, called_by(_EMBEDDINGS) & exchanges),
        (Owner.EXPERT_PARALLEL, exchanges),
    ]
    if has_fsdp:
        groups.append((Owner.FSDP1 if has_fsdp1 else Owner.FSDP2, shards))
    groups.append((Owner.INFERENCE_TENSOR_PARALLEL, of_libraries(_SERVING_LIBRARIES) & all_reduces))
    if not has_backward and called_by.has_ops:
        groups.append((Owner.INFERENCE_TENSOR_PARALLEL, all_reduces))
    return groups


class _CallerSearch:
    """Tells which launches (int64[k], -1 for none) have a caller whose name matches; each name is matched once."""

    def __init__(self, trace: Trace, launch: I64) -> None:
        self._trace = trace
        self._launch = launch
        self._names: I64 = np.unique(trace.name)

    @property
    def has_ops(self) -> bool:
        return bool((self._launch >= 0).any())

    def has_name(self, pattern: re.Pattern[str]) -> bool:
        """Tell whether any event of the trace has such a name."""
        return bool(self._mark(pattern.search).any())

    def _mark(self, search: Callable[[str], object]) -> Bool:
        mark = np.zeros(len(self._trace.names), np.bool_)
        mark[[number for number in self._names.tolist() if search(self._trace.names[number])]] = True
        return mark

    def __call__(self, pattern: re.Pattern[str]) -> Bool:
        """Select the launches that have such a caller: bool[k]."""
        found = np.zeros(len(self._launch), np.bool_)
        mark = self._mark(pattern.search)
        if not mark.any():
            return found
        current = self._launch
        for _ in range(_MAX_CALLERS):
            valid = current >= 0
            if not valid.any():
                break
            row = np.maximum(current, 0)
            found |= valid & mark[self._trace.name[row]]
            current = np.where(valid, self._trace.parent[row], -1)
        return found
