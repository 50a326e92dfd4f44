"""The profiler's table by a slow reference: lists of objects, event by event, as torch computes it.

Written from `torch/autograd/profiler.py` and `profiler_util.py` (2.11), not from this project's code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

IGNORED_NAMES = {"[memory]", "[OutOfMemory]", "aten::is_leaf", "aten::output_nr", "aten::_version"}
GPU = {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync"}
CATEGORIES_WITH_ID = {"cpu_op", "user_annotation"}

Key = tuple[str, bool, bool]
Sums = tuple[int, int, int, int, int]


@dataclass(eq=False)
class Call:
    """One call; `id` is its External id or correlation, `linked` the id of the call that it belongs to, 0 for none."""

    name: str
    category: str
    start: int
    end: int
    thread: Any
    id: int
    linked: int
    self_gpu: int = 0
    children: list[Call] = field(default_factory=list)
    parent: Call | None = None

    @property
    def on_gpu(self) -> bool:
        return self.category in GPU

    @property
    def duration(self) -> int:
        return self.end - self.start

    @property
    def gpu(self) -> int:
        return self.duration if self.on_gpu else self.self_gpu + sum(child.gpu for child in self.children)

    @property
    def self_cpu(self) -> int:
        return self.duration - sum(child.duration for child in self.children)


def rows(entries: list[dict[str, Any]], main: Any) -> list[tuple[Key, Sums]]:
    """[(name, on the GPU, annotation), (calls, self CPU, CPU, self GPU, GPU)] in torch's order; times as in the file.

    `main` is the (pid, tid) of the thread that ran the profiler. Times are whole numbers; the span of an annotation on
    the GPU is assumed to be widened by 1 at both ends.
    """
    calls = [_call(entry, main) for entry in entries if entry["ph"] == "X" and entry["name"] not in IGNORED_NAMES]
    calls = [call for call in calls if call.category not in ("python_function", "Trace")]
    _set_overhead_ids(calls, main)
    _link_calls(calls)
    calls.sort(key=lambda call: (call.start, -call.end))
    for thread in {call.thread for call in calls if not call.on_gpu}:
        _nest([call for call in calls if call.thread == thread and not call.on_gpu])
    return _sum_rows(_fold(calls))


def _set_overhead_ids(calls: list[Call], main: Any) -> None:
    """Give overhead the id of the operator on the main thread that it interrupts, 0 for none."""
    ops = [call for call in calls if call.category == "cpu_op" and call.thread == main]
    for call in calls:
        if call.category == "overhead":
            enclosing = [op for op in ops if op.start <= call.start < op.end]
            call.id = sorted(enclosing, key=lambda op: (op.start, -op.end))[-1].id if enclosing else 0


def _link_calls(calls: list[Call]) -> None:
    """Add GPU work to the calls that it is linked to, and move linked runtime calls to their operator's thread."""
    linked: dict[int, list[Call]] = {}
    for call in calls:
        if call.linked:
            linked.setdefault(call.linked, []).append(call)
    for call in sorted(calls, key=lambda call: call.start):  # in the order of torch's records: the last one wins
        if call.on_gpu or call.linked:
            continue
        for other in linked.get(call.id, []):
            if other.on_gpu:
                call.self_gpu += other.duration
            else:
                other.thread = call.thread


def _sum_rows(calls: list[Call]) -> list[tuple[Key, Sums]]:
    sums: dict[Key, list[int]] = {}
    for call in calls:
        row = sums.setdefault((call.name, call.on_gpu, call.category.endswith("user_annotation")), [0] * 5)
        cpu = (0, 0) if call.on_gpu else (call.self_cpu, call.duration)
        gpu = (call.duration, call.duration) if call.on_gpu else (call.self_gpu, call.gpu)
        for column, amount in enumerate((1, *cpu, *gpu)):
            row[column] += amount
    return [(key, tuple(row)) for key, row in sums.items()]  # type: ignore[misc]


def _call(entry: dict[str, Any], main: Any) -> Call:
    args, category = entry.get("args", {}), entry["cat"]
    external_id = args.get("External id", 0)
    has_own_id = category in CATEGORIES_WITH_ID
    widening = 1 if category == "gpu_user_annotation" and entry["dur"] >= 2 else 0
    linked = 0 if has_own_id or category == "gpu_user_annotation" else external_id
    on_main = category == "overhead" or (category.startswith("cuda_") and not linked)
    return Call(
        name="ProfilerStep*" if entry["name"].startswith("ProfilerStep#") else entry["name"],
        category=category,
        start=entry["ts"] + widening,
        end=entry["ts"] + entry["dur"] - widening,
        thread=main if on_main else (entry["pid"], entry["tid"]),
        id=external_id if has_own_id else args.get("correlation", 0),
        linked=linked,
    )


def _nest(calls: list[Call]) -> None:
    stack: list[Call] = []
    for call in calls:
        while stack:
            if call.start < stack[-1].end and call.end <= stack[-1].end:
                call.parent = stack[-1]
                stack[-1].children.append(call)
                break
            stack.pop()
        stack.append(call)


def _fold(calls: list[Call]) -> list[Call]:
    while True:
        folded: set[int] = set()
        for call in calls:
            parent = call.parent
            if parent is not None and parent.name == call.name and len(parent.children) == 1:
                parent.children, parent.self_gpu = call.children, call.self_gpu
                for child in call.children:
                    child.parent = parent
                folded.add(id(call))
        if not folded:
            return calls
        calls = [call for call in calls if id(call) not in folded]
