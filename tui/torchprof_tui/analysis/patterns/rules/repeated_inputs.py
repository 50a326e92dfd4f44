"""Patterns of inputs that are made or copied again: constants, lists of Python, samples that could be one batch."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.kernel.names.copies import is_to_device
from torchprof_tui.analysis.memory.findings.memory_finding import format_size
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.avoidable_work import NODE_REGEX, add_backward_nodes, answer_fault
from torchprof_tui.analysis.patterns.engine.event_tables import transfer_sizes
from torchprof_tui.analysis.patterns.engine.op_text import read_inputs, write_op_text
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_fault
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I64, Bool, find_median, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_MASK = "fT"
_POSITIONS = "(?:A[mdaspenRf]{0,4}){2,3}B[mBK]{0,4}"  # of one range alone the sine may be that of an input (a time)
_LIST_REGEX = r"aten::lift_fresh$"
_TO_REGEX = r"aten::(to|copy_|_to_copy)$"


@register_fault(
    "A constant is made again and again",
    meaning="the same tensor (a mask, a table of positions) is computed on the GPU at each of its uses",
    action="make it once, and keep it as a buffer of the module",
    code="self.register_buffer('mask', torch.full((n, n), -1e9).triu(1), persistent=False)",
    decided="A tensor is filled (full, ones, zeros) and made triangular at once, or sines are computed of two ranges "
    "(arange), at least as often as the limit in a step. Time at stake: these ops and the GPU work that they launched.",
    thresholds=(thresholds.CONSTANT_MIN_COUNT,),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
)
def repeated_mask(view: ScopeView) -> Answer:
    text, found = view.tables.compute_once(write_op_text), view.tables.compute_once(_find_constants)
    what = max(found, key=lambda name: len(found[name]))
    if len(found[what]) < thresholds.CONSTANT_MIN_COUNT.value * max(len(view.tables.steps), 1):
        return Answer.absent()
    rows = text.ops.row[np.concatenate([np.arange(first, stop) for first, stop in found[what]])]
    seen = f"a {what} is made {view.format_count(len(found[what]), 'time')}"
    return answer_fault(view, rows, seen, headline=f"the same {what} is made again at each use")


def _find_constants(tables: TraceTables) -> dict[str, list[tuple[int, int]]]:
    """Find where masks and tables of positions are made: stretches of the text of ops."""
    text = tables.compute_once(write_op_text)
    return {"mask": list(text.find(_MASK)), "table of positions": list(text.find(_POSITIONS))}


@register_fault(
    "Many copies of one size go to the GPU in a step",
    meaning="each copy from host memory has a fixed cost, and the CPU waits for each that is not pinned",
    action="copy once: stack what is copied item by item, keep constants on the GPU",
    decided="Copies from host memory to the GPU of one size, of the same op, more often in a step than the limit, "
    "outside the backward pass. Time at stake: the ops that copy, all but one in a step, and their copies.",
    thresholds=(thresholds.EQUAL_COPIES_MIN,),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
)
def equal_copies(view: ScopeView) -> Answer:
    tables, work = view.tables, view.work
    uploads = np.flatnonzero(tables.compute_once(_mark_uploads)[view.work_in_scope])
    sizes = transfer_sizes(view.trace, work.events.row[uploads])
    if not len(uploads):
        return Answer.absent()
    steps = max(len(tables.steps), 1)
    distinct, group = np.unique(sizes, return_inverse=True)
    count = np.bincount(group)
    often = np.flatnonzero(count > thresholds.EQUAL_COPIES_MIN.value * steps)
    if not len(often):
        return Answer.absent(f"at most {int(count.max()) // steps} of one size in a step")
    time = np.bincount(group, weights=work.events.duration[uploads])
    chosen = int(often[(time[often] + count[often]).argmax()])
    rows = view.outer_op[uploads[group == chosen]]
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
    return answer_fault(view, rows, seen, remedy, kept=kept, headline=headline)


def _mark_uploads(tables: TraceTables) -> Bool:
    """Mark the copies to the GPU that an op outside the backward pass made: bool[all work].

    What a backward pass copies to the GPU comes back from there (`offloaded-activations`).
    """
    work = tables.work
    marked: Bool = (work.kind == Kind.COPY) & (tables.launching_ops[1] >= 0)
    marked &= match_names(tables.trace, is_to_device, work.events.name)
    uploads = np.flatnonzero(marked)
    marked[uploads] = tables.innermost_ancestor(work.launch[uploads], tables.mark_ops(NODE_REGEX)) < 0
    return marked


@register_fault(
    "A tensor is made from a Python list in the step",
    meaning="torch.tensor(list) reads each number as a Python object on the CPU, then copies the result to the GPU",
    action="make it once, or from a numpy array: torch.from_numpy reads memory, not objects",
    code="kept = torch.tensor(values, device=device)  # once, before the loop",
    decided="aten::empty, then aten::lift_fresh, which torch.tensor() ends with, and the CPU time between them; with "
    "the time before, in which it reads the list for its type, if that is about as long. Time at stake: that time "
    "where the GPU is idle. Short ones are not counted.",
    thresholds=(thresholds.LIST_TENSOR_MIN,),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason),
)
def tensor_from_list(view: ScopeView) -> Answer:
    made = view.tables.compute_once(find_list_tensors)
    chosen = view.overlap_mask(made.begin, made.end)
    if not chosen.any():
        return Answer.absent()
    total, number = int((made.end - made.begin)[chosen].sum()), int(chosen.sum())
    seen = f"{format_count(number, 'tensor')} in {format_duration(total)}{view.format_per_step(number)}"
    before = made.before[chosen]
    gaps = np.concatenate([made.pairs[chosen], before[before[:, 0] >= 0]])
    return answer_fault(view, sorted_unique(made.pairs[chosen].ravel()), seen, gaps=gaps)


@record
class ListTensors:
    """The slow calls of torch.tensor(list): k of them.

    `pairs` int64[k, 2]: the op that each begins with, and the one that it ends with. `before` int64[k, 2]: the op
    before the call and its first one, where the call has read the list in between, else -1. `begin`, `end`
    int64[k]: ns.
    """

    pairs: I64
    before: I64
    begin: I64
    end: I64

    @property
    def times(self) -> Intervals:
        return union(self.begin, self.end)


def find_list_tensors(tables: TraceTables) -> ListTensors:
    """Find the slow calls of the whole trace; use `TraceTables.compute_once`.

    torch.tensor(list) reads all numbers for their type, allocates on the CPU (aten::empty), reads them again to fill
    it, may copy it (aten::to), and ends with aten::lift_fresh. The first reading takes about as long as the second; a
    longer time before it is another's.
    """
    trace, outer = tables.trace, tables.outermost_ops
    ends = tables.match_names(_LIST_REGEX, Kind.OP).row
    position = outer.row.searchsorted(ends)
    position = position[outer.row[np.minimum(position, len(outer) - 1)] == ends] if len(outer) else position[:0]
    empty, copy = tables.match_rows(outer.row, r"aten::empty$"), tables.match_rows(outer.row, _TO_REGEX)
    first = np.maximum(position - 1, 0)
    first = np.where(empty[first] | ~copy[first], first, np.maximum(position - 2, 0))
    is_call = empty[first] & (first < position) & (trace.lane[outer.row[first]] == trace.lane[outer.row[position]])
    is_call &= outer.start[position] - outer.start[first] >= thresholds.LIST_TENSOR_MIN.value
    first, position = first[is_call], position[is_call]
    begin, end, previous = outer.start[first], outer.end[position], np.maximum(first - 1, 0)
    reading = outer.start[first] - outer.end[previous]
    is_read = (first > 0) & (trace.lane[outer.row[previous]] == trace.lane[outer.row[first]])
    is_read &= (reading >= 0) & (reading < 2 * (outer.start[position] - outer.end[first]))
    begin = np.where(is_read, outer.end[previous], begin)
    before = np.stack([np.where(is_read, outer.row[previous], -1), outer.row[first]], axis=1)
    return ListTensors(np.stack([outer.row[first], outer.row[position]], axis=1), before, begin, end)


_PRODUCT_REGEX = r"aten::(conv[123]d|embedding|linear|matmul|mm|bmm|addmm)$"
_MAX_STEPS = 64


@register_fault(
    "The samples of a batch are run one by one",
    meaning="the CPU dispatches all of the model's ops for each sample, and each kernel has little to do",
    action="run the samples as one batch",
    code="loss = criterion(model(torch.stack(samples)), torch.stack(labels))",
    decided="The ops of a step are the same sequence twice or more, with the same shapes, and the first layer of each "
    "round reads a batch of one with more than one position (else it is a token). Time at stake: all rounds but one.",
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
)
def one_sample_at_a_time(view: ScopeView) -> Answer:
    found = view.tables.compute_once(_find_sample_rounds)
    if not len(found.rows):
        return Answer.cannot_tell(found.reason) if found.reason else Answer.absent()
    return answer_fault(
        view, found.rows, f"the model runs {found.most} times in a step, on one sample each", gaps=found.gaps
    )


@record
class SampleRounds:
    """Runs of the model on one sample: `rows` int64[k] of all but one, `gaps`; or the reason why none is known."""

    rows: I64
    gaps: I64
    most: int
    reason: str


def _find_sample_rounds(tables: TraceTables) -> SampleRounds:
    """Find the rounds of the whole trace; use `TraceTables.compute_once`."""
    trace, steps = tables.trace, tables.steps
    text = tables.compute_once(write_op_text)
    step_of, lane = steps.index_at(text.ops.start), np.asarray(trace.lane[text.ops.row])
    gone: list[I64] = [np.empty(0, np.int64)]
    gaps: list[I64] = [np.empty((0, 2), np.int64)]
    most, reason = 0, ""
    for step in range(min(len(steps), _MAX_STEPS)):
        index = np.flatnonzero((step_of == step) & (lane == int(trace.lane[int(steps.row[step])])))
        found = _find_rounds(text.ops.name[index].astype(np.int64))
        if found is None:
            continue
        first, period, count = found
        rounds = text.ops.row[index[first : first + period * count]].reshape(count, period)
        reads = _read_batches(tables, rounds)
        if reads is None:
            reason = "shapes were not recorded (record_shapes=True)"
        elif reads:
            gone.append(rounds[1:].ravel())
            whole = rounds.ravel()[period - 1 :]  # from the last op of the first round on
            gaps.append(np.stack([whole[:-1], whole[1:]], axis=1))
            most = max(most, count)
    return SampleRounds(add_backward_nodes(tables, np.concatenate(gone)), np.concatenate(gaps), most, reason)


def _find_rounds(names: I64) -> tuple[int, int, int] | None:
    """Find the longest sequence that a step repeats without a break: (first, period, rounds) of names int64[k].

    The repeat covers most of the step, and its round is no repeat itself: layers repeat inside a model.
    """
    size = len(names)
    count = np.bincount(names)
    rare = np.flatnonzero((count >= 2) & (count <= size // _MIN_ROUND))
    for name in rare[np.argsort(count[rare], kind="stable")][:_MAX_RARE].tolist():
        period = int(find_median(np.diff(np.flatnonzero(names == name))))
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

_MIN_ROUND = 12  # ops of a round from which it is a model, not a layer or a loop of small ops
_MIN_COVERED = 0.8  # share of a step's ops that the rounds cover: the rest prepares the batch, or updates the weights


def _read_batches(tables: TraceTables, rounds: I64) -> bool | None:
    """Read whether the first layer of each round runs on a batch of one; None without shapes. `rounds`: rows [n, k]."""
    products = tables.match_names(_PRODUCT_REGEX, Kind.OP).row
    layer = np.flatnonzero(is_in(rounds[0], products))
    if not len(layer):
        return False
    shapes, rows = [], rounds[:, int(layer[0])]
    if _is_flattened(tables, rounds[:, 0], rows):
        return True
    is_table = tables.name(int(rows[0])) == "aten::embedding"
    for inputs in read_inputs(tables.trace, rows):
        if inputs is None:
            return None
        dims = inputs.dims[1 if is_table and len(inputs.dims) > 1 else 0] if inputs.dims else None
        if not isinstance(dims, list) or len(dims) < 2 or not all(isinstance(size, int) for size in dims):
            return False
        shapes.append(tuple(dims))
    return len(set(shapes)) == 1 and shapes[0][0] == 1 and max(shapes[0][1:]) > 1


def _is_flattened(tables: TraceTables, first: I64, layers: I64) -> bool:
    """Return whether each round flattens a batch of one with several positions, and its first layer reads those.

    `first`, `layers`: rows of the first op and the first layer of each round.
    """
    ops = tables.outermost_ops
    flattening = ops.row[tables.match_rows(ops.row, r"aten::(flatten|reshape|view|squeeze)$")]
    start, stop = flattening.searchsorted(first), flattening.searchsorted(layers)
    if not (stop > start).all() or int((stop - start).max()) > _MAX_RARE:
        return False
    rows = np.concatenate([flattening[a:b] for a, b in zip(start.tolist(), stop.tolist(), strict=True)])
    number = np.repeat(np.arange(len(first)), stop - start)
    inputs = read_inputs(tables.trace, np.concatenate([layers, rows]))
    tensors = [each.tensor(0) if each is not None else None for each in inputs]
    positions = [tensor.sizes[0] if tensor is not None and len(tensor.sizes) == 2 else 0 for tensor in tensors]
    sizes = [tensor.sizes if tensor is not None else () for tensor in tensors[len(layers) :]]
    rounds = zip(number.tolist(), sizes, strict=True)
    found = {k for k, size in rounds if len(size) == 3 and size[0] == 1 and 1 < size[1] == positions[k]}
    return len(found) == len(first)
