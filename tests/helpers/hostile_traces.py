"""Generate tiny traces with hostile values: a training step with a few events, of which a few values are replaced."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

from tests.helpers.trace_builder import (
    annotation,
    begin,
    counter,
    cpu,
    event,
    flow,
    kernel,
    memory,
    metadata,
    python,
    runtime,
    step,
)

DEEP = "nested 1000 levels deep"
"""Stands for a value that `json` cannot write."""

DEEP_TEXT = "[" * 1000 + "]" * 1000

ODD_NUMBERS = [0, -1, -5, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 1.5, 1e17, 1e308]
ODD_VALUES: list[Any] = [
    *ODD_NUMBERS,
    None,
    True,
    "",
    "text",
    "7",
    "9" * 5000,
    "\ud800",
    "é" * 3000,
    [],
    [1, [2]],
    {"a": {}},
    DEEP,
]

HEADER: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
    "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    "record_shapes": 1,
    "traceName": "a.json",
    "torchprof_tui_slice": {"of": "b.json", "range_ns": [0, 500], "origin_ns": 0},
}

OP_ARGS: dict[str, Any] = {"External id": 3, "Sequence number": 1, "Fwd thread id": 0, "Input Dims": [[8, 8], [8, 8]]}
SHAPE = {"grid": [4, 1, 1], "block": [128, 1, 1], "registers per thread": 32, "shared memory": 0, "External id": 3}
COLLECTIVE = {"Collective name": "allreduce", "In msg nelems": 64, "Group size": 2, "dtype": "Float"}


def training(k: int) -> list[dict[str, Any]]:
    """The entries of step k."""
    t = 100 * k
    return [
        step(k, t, 90),
        python("train.py(3): step", t, 80),
        annotation("## forward ##", t + 1, 40),
        cpu("aten::mm", t + 2, 20, **OP_ARGS),
        runtime("cudaLaunchKernel", t + 3, 5, corr=10 * k + 1),
        kernel("ampere_sgemm_128x64_nn", t + 9, 30, corr=10 * k + 1, **SHAPE),
        event(
            "Memcpy HtoD (Pageable -> Device)", t + 40, 5, "gpu_memcpy", args={"device": 0, "stream": 7, "bytes": 64}
        ),
        runtime("cudaStreamSynchronize", t + 50, 20, corr=10 * k + 2),
        kernel("ncclDevKernel_AllReduce_Sum_f32", t + 60, 20, corr=10 * k + 3, **COLLECTIVE),
        memory(t + 5, 1024, 1024),
        counter("queue", t + 6, length=3),
        begin("open", t + 7),
        flow("s", "fwdbwd", k, t + 2),
        flow("f", "fwdbwd", k, t + 70),
    ]


NAMES = [
    metadata("process_name", "python"),
    metadata("process_labels", "CPU"),
    metadata("process_sort_index", 5),
    metadata("thread_name", "main", tid=100),
]


@st.composite
def documents(draw: st.DrawFn) -> str:
    """The text of a trace with a few odd values, or all times of a kind replaced."""
    entries = copy.deepcopy([*NAMES, *(entry for k in range(draw(st.integers(1, 5))) for entry in training(k))])
    header = copy.deepcopy(HEADER)
    for _ in range(draw(st.integers(0, 4))):
        value = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))  # a later value may be put into it
        target: Any = draw(st.sampled_from([*entries, header]))
        while True:  # into args or a list, or not
            key = draw(st.sampled_from(sorted(target) if isinstance(target, dict) else range(len(target))))
            if not isinstance(target[key], (dict, list)) or not target[key] or draw(st.booleans()):
                break
            target = target[key]
        target[key] = value
    _replace_times(draw, entries)
    kept = draw(st.sampled_from([None, 1, 2, "user_annotation", "kernel", "cpu_op"]))
    if isinstance(kept, int):
        entries = entries[-kept:]
    elif kept is not None:
        entries = [entry for entry in entries if entry.get("cat") == kept]
    text = json.dumps({**header, "traceEvents": entries})
    return text.replace(json.dumps(DEEP), DEEP_TEXT)


def _replace_times(draw: st.DrawFn, entries: list[dict[str, Any]]) -> None:
    key, category = draw(st.sampled_from(["", "ts", "dur"])), draw(st.sampled_from(["", "user_annotation", "kernel"]))
    value = draw(st.sampled_from([0, 1, -3, 1e15, 4.6e15]))
    for entry in entries:
        if key in entry and entry.get("cat", "").startswith(category) if isinstance(entry.get("cat", ""), str) else key:
            entry[key] = value
