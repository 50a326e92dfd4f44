"""The profiler's table the obvious way: lists of dicts, one event after the other, as torch goes about it.

Written from what `torch/autograd/profiler.py` and `profiler_util.py` (2.11) do, not from our own code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

UNSEEN = {"[memory]", "[OutOfMemory]", "aten::is_leaf", "aten::output_nr", "aten::_version"}
GPU = {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync"}
OWN_ID = {"cpu_op", "user_annotation"}

Key = tuple[str, bool, bool]
Sums = tuple[int, int, int, int, int]


@dataclass(eq=False)
class Call:
    name: str
    category: str
    start: int
    end: int
    thread: Any
    id: int
    linked: int
    own_gpu: int = 0
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
        return self.duration if self.on_gpu else self.own_gpu + sum(child.gpu for child in self.children)

    @property
    def self_cpu(self) -> int:
        return self.duration - sum(child.duration for child in self.children)


def rows(entries: list[dict[str, Any]], main: Any) -> list[tuple[Key, Sums]]:
    """[(name, on the GPU, annotation), (calls, self CPU, CPU, self GPU, GPU)] in torch's order; times as in the file.

    `main` is the (pid, tid) of the thread that ran the profiler. Times are whole numbers; a span of an annotation on
    the GPU is taken to be 1 wider than it was at both ends.
    """
    calls = [_call(entry, main) for entry in entries if entry["ph"] == "X" and entry["name"] not in UNSEEN]
    calls = [call for call in calls if call.category not in ("python_function", "Trace")]
    for call in calls:
        if call.category == "overhead":
            inside = [op for op in calls if op.category == "cpu_op" and op.thread == main]
            inside = [op for op in inside if op.start <= call.start < op.end]
            call.id = sorted(inside, key=lambda op: (op.start, -op.end))[-1].id if inside else 0
    linked: dict[int, list[Call]] = {}
    for call in calls:
        if call.linked:
            linked.setdefault(call.linked, []).append(call)
    for call in sorted(calls, key=lambda call: call.start):  # the order of torch's records: the last one decides
        if call.on_gpu or call.linked:
            continue
        for other in linked.get(call.id, []):
            if other.on_gpu:
                call.own_gpu += other.duration
            else:
                other.thread = call.thread
    calls.sort(key=lambda call: (call.start, -call.end))
    for thread in {call.thread for call in calls if not call.on_gpu}:
        _nest([call for call in calls if call.thread == thread and not call.on_gpu])
    calls = _folded(calls)
    sums: dict[Key, list[int]] = {}
    for call in calls:
        row = sums.setdefault((call.name, call.on_gpu, call.category.endswith("user_annotation")), [0] * 5)
        cpu = (0, 0) if call.on_gpu else (call.self_cpu, call.duration)
        gpu = (call.duration, call.duration) if call.on_gpu else (call.own_gpu, call.gpu)
        for place, amount in enumerate((1, *cpu, *gpu)):
            row[place] += amount
    return [(key, tuple(row)) for key, row in sums.items()]  # type: ignore[misc]


def _call(entry: dict[str, Any], main: Any) -> Call:
    args, category = entry.get("args", {}), entry["cat"]
    external = args.get("External id", 0)
    has_own = category in OWN_ID
    wide = 1 if category == "gpu_user_annotation" and entry["dur"] >= 2 else 0
    linked = 0 if has_own or category == "gpu_user_annotation" else external
    on_main = category == "overhead" or (category.startswith("cuda_") and not linked)
    return Call(
        name="ProfilerStep*" if entry["name"].startswith("ProfilerStep#") else entry["name"],
        category=category,
        start=entry["ts"] + wide,
        end=entry["ts"] + entry["dur"] - wide,
        thread=main if on_main else (entry["pid"], entry["tid"]),
        id=external if has_own else args.get("correlation", 0),
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


def _folded(calls: list[Call]) -> list[Call]:
    while True:
        gone: set[int] = set()
        for call in calls:
            above = call.parent
            if above is not None and above.name == call.name and len(above.children) == 1:
                above.children, above.own_gpu = call.children, call.own_gpu
                for child in call.children:
                    child.parent = above
                gone.add(id(call))
        if not gone:
            return calls
        calls = [call for call in calls if id(call) not in gone]
