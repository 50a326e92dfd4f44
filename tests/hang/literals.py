"""Literal jobs: dumps of a flight recorder as NCCL writes them, made of a line per call."""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Sequence
from typing import Any

from torchprof_hang.analysis.diagnosis import Diagnosis, diagnose
from torchprof_hang.analysis.evidence import gather_evidence

SECOND = 1_000_000_000


def call(
    number: int, name: str = "all_reduce", size: int = 64, state: str = "completed", line: int = 0, **more: Any
) -> dict[str, Any]:
    """Make an entry. `line`: of train.py, by default that of the operation's name."""
    line = line or {"all_reduce": 10, "all_gather": 20, "broadcast": 30}.get(name, 40)
    return {
        "record_id": more.pop("record_id", number),
        "pg_id": 0,
        "process_group": tuple(["0", "default_pg"]),  # noqa: C409 - a new one each time: torch shares none
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": number * SECOND,
        "input_sizes": [[size]],
        "input_dtypes": ["Float"],
        "output_sizes": [[size]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": None if state == "scheduled" else number * SECOND,
        "time_discovered_completed_ns": number * SECOND if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": False,
        "frames": [
            {"name": name, "filename": "/opt/torch/distributed/distributed_c10d.py", "line": 1},
            {"name": "step", "filename": "/home/me/train.py", "line": line},
        ],
        **more,
    }


def dump(entries: Sequence[dict[str, Any]], ranks: int, version: str = "2.10") -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    return {"version": version, "pg_config": config, "pg_status": {}, "entries": list(entries)}


def write(content: Any) -> bytes:
    """Pickle as torch does: with protocol 2, and pairs that nothing refers to."""
    return strip_memo(pickle.dumps(content, 2))


def strip_memo(data: bytes) -> bytes:
    """Remove the instruction that memoises a pair, which torch does not write."""
    out, before, end = bytearray(), "", 0
    operations = list(pickletools.genops(data))
    ends = [position for _, _, position in operations[1:]] + [len(data)]
    for (operation, _, position), end in zip(operations, ends, strict=True):
        if not (before == "TUPLE2" and operation.name in ("BINPUT", "LONG_BINPUT")):
            out += data[position:end]
        before = operation.name
    return bytes(out)


def explain(*ranks: Sequence[dict[str, Any]] | None, world: int = 0) -> Diagnosis:
    """Diagnose a job of ranks with these entries; None: no dump."""
    return diagnose(
        gather_evidence(
            (f"nccl_trace_rank_{rank}", write(dump(entries, world or len(ranks))))
            for rank, entries in enumerate(ranks)
            if entries is not None
        )
    )
