"""Find what differs in how two traces were recorded, and what each difference means for the comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from torchprof_tui.analysis.compare.execution import describe_set_up, find_execution, find_set_up
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis, are_same_steps
from torchprof_tui.analysis.throughput.op_inputs import parse_inputs
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

_MAX_CALLS = 16
"""Calls of each op whose inputs are read: the first ones of the first compared step, the same in equal programs."""

_MAX_CHARACTERS = 80  # an op may take hundreds of tensors

_SHORT_TYPES = {"c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "fp32", "double": "fp64", "long int": "int64"}


@record
class InputDifference:
    """An op whose inputs differ: its name and the inputs that only one side has, as texts."""

    op: str
    a: str
    b: str


def find_input_difference(a: SideAnalysis, b: SideAnalysis) -> InputDifference | None:
    """Find the op, of those on both sides, whose inputs differ; the one that takes most GPU time. None if none does.

    Also None where the shapes of a side were not recorded, or where its file is gone.
    """
    (inputs_a, times_a), (inputs_b, times_b) = _read_step_inputs(a), _read_step_inputs(b)
    times = times_a + times_b
    for name in sorted(inputs_a.keys() & inputs_b.keys(), key=lambda name: (-times[name], name)):
        if inputs_a[name] == inputs_b[name]:
            continue
        only_a, only_b = inputs_a[name] - inputs_b[name], inputs_b[name] - inputs_a[name]
        return InputDifference(name, _describe_commonest(only_a), _describe_commonest(only_b))
    return None


def _read_step_inputs(side: SideAnalysis) -> tuple[dict[str, Counter[str]], Counter[str]]:
    """Read the inputs of the launching ops of the first compared step: (op -> inputs, op -> ns of GPU time)."""
    trace, tables = side.trace, side.checker.tables
    work, op = tables.work, tables.launching_ops[0]
    t0, t1 = side.side.window
    if side.side.steps:
        t1 = side.side.steps[0].start + side.side.steps[0].duration
    start = np.asarray(trace.start[np.maximum(op, 0)])
    chosen = (op >= 0) & (start >= t0) & (start < t1)
    rows, back = np.unique(op[chosen], return_inverse=True)
    time = np.bincount(back.reshape(-1), weights=work.events.duration[chosen], minlength=len(rows)).astype(np.int64)
    order = np.lexsort((trace.start[rows], trace.name[rows]))
    rows, time = rows[order].astype(np.int64), time[order]
    is_read = np.arange(len(rows)) - np.searchsorted(trace.name[rows], trace.name[rows]) < _MAX_CALLS
    rows, time = rows[is_read], time[is_read]
    found: dict[str, Counter[str]] = {}
    times: Counter[str] = Counter()
    try:
        for position, entry in read_entries(trace, rows):
            args = entry.get("args")
            inputs = parse_inputs(args) if isinstance(args, dict) else None
            if inputs is None:
                continue
            name = trace.names[int(trace.name[rows[position]])]
            tensors = [
                f"{_SHORT_TYPES.get(kind, kind)}{sizes}".replace(" ", "")
                for sizes, kind in zip(inputs.dims, inputs.types, strict=False)
                if sizes
            ]
            found.setdefault(name, Counter())[" ".join(tensors)] += 1
            times[name] += int(time[position])
    except (OSError, LookupError):
        return {}, Counter()
    return found, times


def _describe_commonest(inputs: Counter[str]) -> str:
    """Describe the inputs that occur most often, and how many others there are; "fewer calls" for none."""
    if not inputs:
        return "fewer such calls"
    (text, count), *rest = inputs.most_common()
    times = f"{count} x " if count > 1 else ""
    text = text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"
    return f"{times}{text}" + (f" and {len(rest)} more" if rest else "")


_NOT_RECORDED = "not recorded"
_OTHER_GPU = "kernel times differ by the hardware"


@record
class RecordingDifference:
    """Something that is not the same in both recordings. Texts may be from the files: `clean` them."""

    what: str
    a: str
    b: str
    consequence: str


def list_recording_differences(a: SideAnalysis, b: SideAnalysis) -> list[RecordingDifference]:
    """List what differs between two recordings, what matters most for the comparison first."""
    found = [*_compare_programs(a, b), *_compare_hardware(a, b), *_compare_options(a.trace, b.trace)]
    found.sort(key=lambda each: each.consequence != _OTHER_GPU)  # which explains what the rest only adds to
    difference = find_input_difference(a, b)
    if difference is not None:
        what = f"inputs of {difference.op}"
        found.append(RecordingDifference(what, difference.a, difference.b, "the two may not do the same work"))
    return [*found, *_compare_versions(a.trace, b.trace), *_compare_steps(a, b)]


def _compare_programs(a: SideAnalysis, b: SideAnalysis) -> Iterator[RecordingDifference]:
    """Compare whether set-up was recorded, how the program runs, and whether the recordings represent it."""
    setups = find_set_up(a), find_set_up(b)
    if any(setups):
        in_a, in_b = (f"{setup.share}: {setup.signs}" if setup else "none found" for setup in setups)
        yield RecordingDifference("set-up recorded", in_a, in_b, describe_set_up(a, b).partition(" (")[0])
    modes = find_execution(a), find_execution(b)
    if modes[0].modes != modes[1].modes:
        reasons = ["compiled code has other kernels"] if modes[0].is_compiled != modes[1].is_compiled else []
        if bool(modes[0].replays) != bool(modes[1].replays):
            reasons.append("a replay launches many at once")
        consequence = f"{', '.join(reasons)}: compare parts before ops"
        yield RecordingDifference("how it runs", modes[0].text, modes[1].text, consequence)
    faults = a.verdict.recording_fault, b.verdict.recording_fault
    if any(faults):
        sides = "both" if all(faults) else "A" if faults[0] else "B"
        words = [fault or "no fault found" for fault in faults]
        yield RecordingDifference("recording", words[0], words[1], f"the times of {sides} do not represent the program")


def _compare_hardware(a: SideAnalysis, b: SideAnalysis) -> Iterator[RecordingDifference]:
    words = {True: "recorded", False: "none"}
    consequence = "only the time of the main thread can be compared"
    yield from _differ("GPU work", (words[a.has_gpu_work], words[b.has_gpu_work]), consequence)
    names = (sorted({device.name for device in side.trace.devices} - {""}) for side in (a, b))
    gpus = [", ".join(each) or _NOT_RECORDED for each in names]
    known = _NOT_RECORDED not in gpus
    consequence = _OTHER_GPU if known else "whether the GPU is the same is not known"
    yield from _differ("GPU", gpus, consequence)
    devices = len(a.checker.tables.devices), len(b.checker.tables.devices)
    if all(devices):
        yield from _differ("GPUs in one trace", devices, "times are the mean of the GPUs of each side")
    if are_same_steps(a, b):
        consequence = "the same steps are compared one by one; what one waits in collectives is the delay of another"
        yield from _differ("ranks of one run", (f"rank {side.trace.rank}" for side in (a, b)), consequence)
    sizes = (side.trace.world_size or 1 for side in (a, b))
    yield from _differ("ranks", sizes, "work and communication of a rank change with the number of ranks")


def _differ(what: str, values: Iterable[object], consequence: str) -> Iterator[RecordingDifference]:
    """Yield a difference where the two values differ."""
    a, b = map(str, values)
    if a != b:
        yield RecordingDifference(what, a, b, consequence)


def _compare_options(a: Trace, b: Trace) -> Iterator[RecordingDifference]:
    """Compare what the profiler recorded: each option costs the CPU time, stacks most."""
    stacks = [_has_option(trace, "with_stack") or bool((trace.kind == Kind.PYTHON).any()) for trace in (a, b)]
    memory = [trace.memory is not None or _has_option(trace, "profile_memory") for trace in (a, b)]
    shapes = [_has_option(trace, "record_shapes") for trace in (a, b)]
    words = {True: "recorded", False: _NOT_RECORDED}
    for what, (in_a, in_b), consequence in (
        ("Python stacks", stacks, "stacks inflate the CPU's time of {side}: compare GPU time, or record both without"),
        ("memory", memory, "each allocation costs {side} CPU time to record"),
        ("shapes", shapes, "each op costs {side} CPU time to record; inputs cannot be compared"),
    ):
        yield from _differ(what, (words[in_a], words[in_b]), consequence.format(side="A" if in_a else "B"))


def _compare_versions(a: Trace, b: Trace) -> Iterator[RecordingDifference]:
    headers = a.header, b.header
    torch = (str(each.get("pytorch_version", each.get("torch_version", ""))) or _NOT_RECORDED for each in headers)
    yield from _differ("torch", torch, "ops may be dispatched in another way")
    for key, what, consequence in (
        ("runtime", "GPU runtime", "libraries may choose other kernels, and launches cost more or less"),
        ("driver", "GPU driver", "launches may cost more or less"),
    ):
        yield from _differ(what, (_format_gpu_version(trace, key) for trace in (a, b)), consequence)


def _format_gpu_version(trace: Trace, key: str) -> str:
    """Format the version of the GPU's runtime or driver.

    CUDA: 1000 major + 10 minor (cudaRuntimeGetVersion). ROCm: 10^7 major + 10^5 minor + patch (HIP_VERSION).
    """
    for vendor in ("cuda", "hip"):
        try:
            number = int(trace.header[f"{vendor}_{key}_version"])
        except (KeyError, TypeError, ValueError):
            continue
        if vendor == "cuda":
            return f"CUDA {number // 1000}.{number % 1000 // 10}"
        return f"ROCm {number // 10**7}.{number % 10**7 // 10**5}.{number % 10**5}"
    return _NOT_RECORDED


def _compare_steps(a: SideAnalysis, b: SideAnalysis) -> Iterator[RecordingDifference]:
    counts = len(a.side.steps), len(b.side.steps)
    if all(counts):
        consequence = "times are those of one step; only the noise differs"
        yield from _differ("steps compared", counts, consequence)
    else:
        words = (count or "none: one piece" for count in counts)
        consequence = "a step is compared with a whole recording: give --range or --steps"
        yield from _differ("steps", words, consequence)


def _has_option(trace: Trace, name: str) -> bool:
    return trace.header.get(name) in (1, True)
