"""Simulate a step as a slow, obvious loop: the reference for the critical path, the replay and the slack.

A program is a list of instructions of one thread. Every start is one microsecond after the last of what it waits for:
what decided each time is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.helpers.trace_builder import cpu, kernel, runtime, step, sync, trace
from torchprof_tui.trace.model.trace import Trace

LATENCY = 1
"""µs of each launch, stream, event and return."""

Instruction = tuple[Any, ...]
"""("host", µs), ("launch", stream, µs of the call, µs of the kernel), ("wait", waiting stream, stream), ("sync",)."""


@dataclass
class Simulation:
    """What happened. `path`: names of what lies on the critical path, in time order."""

    duration: int
    path: list[str]
    tied: bool
    entries: list[Any] = field(default_factory=list)

    def build_trace(self) -> Trace:
        return trace(*self.entries)


def simulate(program: list[Instruction], longer: dict[int, float] | None = None) -> Simulation:
    """Run a program; `longer`: µs that are added to the kernel of an instruction."""
    now: float = 0
    decided = "start"  # the node that the thread reached last
    before: dict[str, str] = {}  # node -> the node that decided it
    last: dict[int, tuple[float, str]] = {}  # stream -> end and node of its last work
    events: dict[int, list[tuple[float, str]]] = {}  # stream -> ends that its next work waits for
    tied, corr, entries = False, 0, []
    for number, instruction in enumerate(program):
        node, corr = f"{instruction[0]}{number}", corr + 10
        if instruction[0] == "host":
            entries.append(cpu(node, now, instruction[1]))
            before[node], decided, now = decided, node, now + instruction[1]
        elif instruction[0] == "launch":
            _, stream, call, work = instruction
            entries.append(runtime("cudaLaunchKernel", now, call, corr))
            before[node], decided, now = decided, node, now + call
            waits = [(now, node), *events.pop(stream, [])] + ([last[stream]] if stream in last else [])
            latest = max(waits)
            tied |= len({name for time, name in waits if time == latest[0]}) > 1
            begin = latest[0] + LATENCY
            work += (longer or {}).get(number, 0)
            name = f"kernel{number}"
            entries.append(kernel(name, begin, work, corr, stream=stream))
            before[name], last[stream] = latest[1], (begin + work, name)
        elif instruction[0] == "wait" and instruction[2] in last and instruction[1] != instruction[2]:
            _, waiting, stream = instruction
            entries.append(runtime("cudaEventRecord", now, 1, corr))
            entries.append(runtime("cudaStreamWaitEvent", now + 1, 1, corr + 1))
            more = {"wait_on_stream": stream, "wait_on_cuda_event_record_corr_id": corr}
            entries.append(sync("Stream Wait Event", now + 1, 1, corr + 1, stream=waiting, **more))
            before[node], decided, now = decided, node, now + 2
            events.setdefault(waiting, []).append(last[stream])
        elif instruction[0] == "sync":
            waits = [(now, decided), *last.values()]
            latest = max(waits)
            tied |= len({name for time, name in waits if time == latest[0]}) > 1
            entries.append(runtime("cudaDeviceSynchronize", now, latest[0] + LATENCY - now, corr))
            before[node], decided, now = latest[1], node, latest[0] + LATENCY
    entries.insert(0, step(1, 0, now))
    ends = [(now, decided), *last.values()]
    end = max(ends)
    tied |= len({name for time, name in ends if time == end[0]}) > 1
    path, node = [], end[1]
    while node in before:
        path.append(node)
        node = before[node]
    return Simulation(int(end[0] * 1000), path[::-1], tied, entries)
