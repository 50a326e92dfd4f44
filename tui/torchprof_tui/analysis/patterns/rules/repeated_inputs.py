"""Patterns of inputs that are made or copied again: constants, lists of Python, samples that could be one batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.memory.findings.memory_finding import format_size
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.avoidable_work import add_backward_nodes, answer_fault
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable, transfer_sizes
from torchprof_tui.analysis.patterns.engine.op_text import read_inputs, write_op_text
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count
from torchprof_tui.trace.core.arrays import I64, is_in
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_LIST_REGEX = r"aten::lift_fresh$"
_TO_REGEX = r"aten::(to|copy_|_to_copy)$"


@register_pattern(
    "A constant is made again and again",
    meaning="the same tensor (a mask, a table of positions) is filled and cut on the GPU at each of its uses",
    action="make it once, and keep it as a buffer of the module",
    code="self.register_buffer('mask', torch.full((n, n), -1e9).triu(1), persistent=False)",
    decided="A tensor is filled (full, ones, zeros) and made triangular at once, at least as often as the limit in a "
    "step. Time at stake: these ops and the GPU work that they launched.",
    thresholds=(thresholds.CONSTANT_MIN_COUNT,),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
    is_fault=True,
)
def repeated_mask(view: ScopeView) -> Answer:
    text = view.tables.compute_once(write_op_text)
    found = list(text.find("fT"))
    steps = max(len(view.tables.steps), 1)
    if len(found) < thresholds.CONSTANT_MIN_COUNT.value * steps:
        return Answer.absent()
    index = np.concatenate([np.arange(first, stop) for first, stop in found])
    seen = f"a mask is made {format_count(len(found), 'time')}{view.format_per_step(len(found))}"
    answer = answer_fault(view, text.ops.row[index], seen)
    return replace(answer, headline="the same mask is made again at each use")


@register_pattern(
    "Many copies of one size go to the GPU in a step",
    meaning="each copy from host memory has a fixed cost, and the CPU waits for each that is not pinned",
    action="copy once: stack what is copied item by item, keep constants on the GPU",
    decided="Copies from host memory to the GPU of one size, of the same op, more often in a step than the limit. Time "
    "at stake: the ops that copy, all but one in a step, and their copies.",
    thresholds=(thresholds.EQUAL_COPIES_MIN,),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
    is_fault=True,
)
def equal_copies(view: ScopeView) -> Answer:
    tables, work = view.tables, view.work
    is_upload = (work.kind == Kind.COPY) & (work.launch >= 0)
    names = [number for number, name in enumerate(view.trace.names) if "HtoD" in name or "Host -> Device" in name]
    uploads = np.flatnonzero(is_upload & np.isin(work.events.name, names))
    uploads = uploads[view.outer_op[uploads] >= 0]
    sizes = transfer_sizes(view.trace, work.events.row[uploads])
    if not len(uploads) or sizes is None:
        return Answer.absent()
    steps = max(len(tables.steps), 1)
    distinct, group = np.unique(sizes, return_inverse=True)
    count = np.bincount(group.reshape(-1))
    often = np.flatnonzero(count > thresholds.EQUAL_COPIES_MIN.value * steps)
    if not len(often):
        return Answer.absent(f"at most {int(count.max()) // steps} of one size in a step")
    time = np.bincount(group.reshape(-1), weights=work.events.duration[uploads])
    chosen = int(often[(time[often] + count[often]).argmax()])
    rows = view.outer_op[uploads[group.reshape(-1) == chosen]]
    size, number = int(distinct[chosen]), int(count[chosen])
    step = tables.steps.index_at(np.asarray(view.trace.start[rows]))
    kept = rows[np.unique(step, return_index=True)[1]]
    seen = f"{format_count(number, 'copy', 'copies')} of {format_size(size)}{view.format_per_step(number)}"
    if size >= thresholds.SMALL_COPY_BYTES.value:
        remedy = Remedy(
            "copy a constant once, as a buffer on the GPU; send what is new in a step as one pinned copy",
            "self.register_buffer('table', table, persistent=False)",
        )
        headline = f"copies of {format_size(size)} from host to GPU, {number // steps} times a step"
    else:
        remedy = Remedy(
            "stack the parts on the CPU and copy them as one tensor, from pinned memory",
            "fields = torch.stack(fields).pin_memory().to(device, non_blocking=True)",
        )
        headline = f"many small copies from host to GPU, {number // steps} a step"
    return replace(answer_fault(view, rows, seen, remedy, kept=kept), headline=headline)


@register_pattern(
    "A tensor is made from a Python list in the step",
    meaning="torch.tensor(list) reads each number as a Python object on the CPU, then copies the result to the GPU",
    action="make it once, or from a numpy array: torch.from_numpy reads memory, not objects",
    code="kept = torch.tensor(values, device=device)  # once, before the loop",
    decided="aten::lift_fresh, which torch.tensor() ends with, and the CPU time before it, back to the op before. Time "
    "at stake: that time where the GPU is idle. Short ones are not counted.",
    thresholds=(thresholds.LIST_TENSOR_MIN,),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason),
    is_fault=True,
)
def tensor_from_list(view: ScopeView) -> Answer:
    tables, trace = view.tables, view.trace
    ends = view.match_names(_LIST_REGEX, Kind.OP)
    ends = ends.select(is_in(ends.row, tables.launching_thread_ops.row))
    if not len(ends):
        return Answer.absent()
    starts = _find_list_starts(view, ends)
    pairs = np.stack([starts[starts >= 0], ends.row[starts >= 0]], axis=1)
    length = np.asarray(trace.start[pairs[:, 1]]) - np.asarray(trace.start[pairs[:, 0]])
    pairs = pairs[length >= thresholds.LIST_TENSOR_MIN.value]
    if not len(pairs):
        return Answer.absent(f"{format_count(len(ends), 'tensor')}, each made quickly")
    total = int(length[length >= thresholds.LIST_TENSOR_MIN.value].sum())
    seen = f"{format_count(len(pairs), 'tensor')} in {format_duration(total)}{view.format_per_step(len(pairs))}"
    return answer_fault(view, np.unique(pairs.ravel()), seen, gaps=pairs)


def _find_list_starts(view: ScopeView, ends: EventTable) -> I64:
    """Find the op that torch.tensor() begins with for each that it ends with: int64[k], -1 for none.

    It allocates on the CPU (aten::empty), fills it in Python, and may copy (aten::to) before aten::lift_fresh.
    """
    trace, outer = view.trace, view.tables.outermost_ops
    empty = outer.row[is_in(outer.row, view.tables.match_names(r"aten::empty$", Kind.OP).row)]
    copies = outer.row[is_in(outer.row, view.tables.match_names(_TO_REGEX, Kind.OP).row)]
    position = outer.row.searchsorted(ends.row)
    found = np.full(len(ends), -1, dtype=np.int64)
    for back in (1, 2):
        before = outer.row[np.maximum(position - back, 0)]
        between = outer.row[np.maximum(position - 1, 0)]
        fits = is_in(before, empty) & (found < 0) & (position >= back)
        fits &= (back == 1) | is_in(between, copies)
        found[fits & (trace.lane[before] == trace.lane[ends.row])] = before[
            fits & (trace.lane[before] == trace.lane[ends.row])
        ]
    return found


_PRODUCT_REGEX = r"aten::(conv[123]d|embedding|linear|matmul|mm|bmm|addmm)$"
_MAX_STEPS = 64


@register_pattern(
    "The samples of a batch are run one by one",
    meaning="the model runs several times in a step, each time on a batch of one: the CPU dispatches all of its ops "
    "for each sample, and each kernel has little to do",
    action="run the samples as one batch",
    code="loss = criterion(model(torch.stack(samples)), torch.stack(labels))",
    decided="The ops of a step are the same sequence twice or more, with the same shapes, and the first layer of each "
    "round reads a batch of one with more than one position (else it is a token). Time at stake: all rounds but one.",
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
    is_fault=True,
)
def one_sample_at_a_time(view: ScopeView) -> Answer:
    trace, steps = view.trace, view.tables.steps
    text = view.tables.compute_once(write_op_text)
    step_of, lane = steps.index_at(text.ops.start), np.asarray(trace.lane[text.ops.row])
    gone: list[I64] = []
    most, reason = 0, ""
    for step in range(min(len(steps), _MAX_STEPS)):
        index = np.flatnonzero((step_of == step) & (lane == int(trace.lane[int(steps.row[step])])))
        found = _find_rounds(text.ops.name[index].astype(np.int64))
        if found is None:
            continue
        first, period, count = found
        rounds = text.ops.row[index[first : first + period * count]].reshape(count, period)
        reads = _read_batches(view, rounds)
        if reads is None:
            reason = "shapes were not recorded (record_shapes=True)"
        elif reads:
            gone.append(rounds[1:].ravel())
            most = max(most, count)
    if not gone:
        return Answer.cannot_tell(reason) if reason else Answer.absent()
    rows = add_backward_nodes(view.tables, np.concatenate(gone))
    return answer_fault(view, rows, f"the model runs {most} times in a step, on one sample each")


def _find_rounds(names: I64) -> tuple[int, int, int] | None:
    """Find the longest sequence that a step repeats without a break: (first, period, rounds) of names int64[k].

    The repeat covers most of the step, and its round is no repeat itself: layers repeat inside a model.
    """
    size = len(names)
    count = np.bincount(names)
    rare = np.flatnonzero((count >= 2) & (count <= size // _MIN_ROUND))
    for name in rare[np.argsort(count[rare], kind="stable")][:_MAX_RARE].tolist():
        period = int(np.median(np.diff(np.flatnonzero(names == name))))
        if not _MIN_ROUND <= period <= size // 2:
            continue
        same = names[:-period] == names[period:]
        edges = np.flatnonzero(np.diff(np.concatenate([[0], same.view(np.int8), [0]])))
        lengths = edges[1::2] - edges[::2]
        if not len(lengths):
            continue
        longest = int(lengths.argmax())
        first, rounds = int(edges[2 * longest]), (int(lengths[longest]) + period) // period
        if rounds >= 2 and rounds * period >= _MIN_COVERED * size:
            return first, period, rounds
    return None


_MAX_RARE = 8
"""Ops that are rare in a step, and occur once or a few times in a run of the model: their distance is its length."""

_MIN_ROUND = 12
"""Ops of a round from which it is a model, not a layer or a loop of small ops."""

_MIN_COVERED = 0.8
"""Share of a step's ops that the rounds cover: the rest prepares the batch, or updates the weights."""


def _read_batches(view: ScopeView, rounds: I64) -> bool | None:
    """Read whether the first layer of each round runs on a batch of one; None without shapes. `rounds`: rows [n, k]."""
    products = view.tables.match_names(_PRODUCT_REGEX, Kind.OP).row
    layer = np.flatnonzero(is_in(rounds[0], products))
    if not len(layer):
        return False
    shapes = []
    rows = rounds[:, int(layer[0])]
    is_table = view.tables.name(int(rows[0])) == "aten::embedding"
    for inputs in read_inputs(view.trace, rows):
        if inputs is None:
            return None
        dims = inputs.dims[1 if is_table and len(inputs.dims) > 1 else 0] if inputs.dims else None
        if not isinstance(dims, list) or len(dims) < 2 or not all(isinstance(size, int) for size in dims):
            return False
        shapes.append(tuple(dims))
    return len(set(shapes)) == 1 and shapes[0][0] == 1 and max(shapes[0][1:]) > 1
