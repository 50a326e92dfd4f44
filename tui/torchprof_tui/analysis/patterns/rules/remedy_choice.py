"""Choose what to do about a finding by the owner of its evidence, and by what the program does already.

Each function returns None where the pattern's own remedy fits. A remedy in use is never advised, and one for training
never where nothing is trained.
"""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import nearest_ancestor
from torchprof_tui.analysis.kernel.names.copies import is_to_host
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.idle_causes import DeviceTimeShares, IdleCause
from torchprof_tui.analysis.patterns.engine.pattern import Remedy
from torchprof_tui.analysis.patterns.engine.practices import COMPILE_WORK_REGEX, OPTIMIZER_STEP_REGEX, OptimizerKind
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.rules.host_code import measure_cpu_work
from torchprof_tui.analysis.patterns.rules.op_loop import find_experts
from torchprof_tui.analysis.patterns.rules.optimizer import FUSED_OPTIMIZERS, choose_optimizer_remedy
from torchprof_tui.analysis.patterns.rules.serving import find_token_loop
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.intervals import find_range_at
from torchprof_tui.trace.core.arrays import sorted_unique
from torchprof_tui.trace.model.event_kind import Kind

_SCALAR_OPS = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal")
_MASK_OP_REGEX = r"aten::(nonzero(_numpy)?|where|index|index_put_|masked_select)$"
_COPY_OPS = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::cpu")
_UNSCALE_REGEX = r"aten::_amp_foreach_non_finite_check_and_unscale_$"
_RECURRENCE_REGEX = r"aten::(lstm|gru|rnn_tanh|rnn_relu|_cudnn_rnn|miopen_rnn)"

_DECODE = Remedy(
    "replay the decode step as a CUDA graph, with a static KV cache",
    'model.forward = torch.compile(model.forward, mode="reduce-overhead")  # cache_implementation="static"',
)


_PIN_ONCE = "pin one buffer, fill it for each batch, and copy without blocking; or keep a small data set on the GPU"
_PIN_ONCE_CODE = "pinned.copy_(x); x = pinned.to(device, non_blocking=True)  # pinned = torch.empty(…, pin_memory=True)"
"""`x.pin_memory()` in each step would copy once more."""

_READ_BACK = Remedy("this op reads a size or a value from the GPU: give it fixed sizes, or move it out of the step")


def choose_sync_remedy(view: ScopeView, waits: EventTable, main_op: str, main_call: str) -> Remedy | None:
    """Choose by the op that owns most waits, "" for none, and the call that waits."""
    practices = view.tables.practices
    if re.match(_MASK_OP_REGEX, main_op):
        if len(view.select_in_scope(view.tables.compute_once(find_experts))):
            return Remedy(
                "the CPU reads the size of each expert's batch: sort the tokens by expert once, and use a grouped GEMM",
                "y[order] = torch._grouped_mm(x[order], weights, offs=offsets)  # order = expert.argsort()",
            )
        return Remedy(
            "nonzero and boolean masks read the size of their result: keep the shape fixed",
            "y = torch.where(mask, f(x), x)  # instead of y[mask] = f(x[mask])",
        )
    if main_op in _COPY_OPS:
        return choose_blocking_copy_remedy(view, waits)
    if main_op in _SCALAR_OPS:
        if practices.uses_gradscaler and _count_scaler_waits(view, waits) * 2 >= len(waits):
            # bf16 needs sm_80, and only some optimizers have a fused form.
            action = "GradScaler checks on the CPU whether gradients overflowed: a fused optimizer does that on the GPU"
            if practices.capability is None or practices.capability >= (8, 0):
                action += ", or train in bf16, which needs no scaler"
            fused = [name for name in practices.optimizer_names if name in FUSED_OPTIMIZERS]
            return Remedy(action, f"torch.optim.{fused[0] if fused else 'AdamW'}(params, fused=True)")
        if not practices.is_inference:
            return None  # a loss that is printed: the pattern's own remedy
        if len(view.tables.compute_once(find_token_loop)):
            return Remedy(
                "the program checks for the end of the sequence after each token: check every n tokens, and keep the "
                "flags on the GPU",
                "done |= next_token == eos; if token % 16 == 0 and done.all(): break",
            )
        if main_op == "aten::is_nonzero":
            return Remedy(
                "an `if` on a tensor waits for the GPU: use torch.where on the GPU, or a value that the CPU already "
                "has",
                "torch.where(mask, a, b)",
            )
        return Remedy(
            "keep results on the GPU, and copy them to the CPU once, at the end", "results = torch.stack(outputs).cpu()"
        )
    return _READ_BACK if main_op else _choose_explicit_remedy(view, waits, main_call)


def choose_blocking_copy_remedy(view: ScopeView, waits: EventTable) -> Remedy:
    """Choose by the direction of the copies that the waits belong to; to the GPU where it is unknown."""
    work, practices = view.tables.work, view.tables.practices
    copies = work.select((work.kind == Kind.COPY) & (work.launch >= 0))
    start = np.asarray(view.trace.start[copies.launch])
    order = np.argsort(start, kind="stable")
    # The copy launched last before a wait ended is the one that it waits for.
    index = start[order].searchsorted(waits.end, side="right") - 1
    names = copies.events.name[order[index[index >= 0]]]
    if 2 * match_names(view.trace, is_to_host, names).sum() > len(names):
        return Remedy(
            "copy into a pinned buffer without blocking, and wait only where the value is needed",
            "buffer.copy_(x, non_blocking=True)  # buffer = torch.empty_like(x, device='cpu', pin_memory=True)",
        )
    if len(view.gap_finder.loader_calls) and not practices.pins_memory:
        return Remedy(
            "let the loader pin its batches, and copy them without blocking: a pageable copy waits for the GPU",
            "DataLoader(…, pin_memory=True); x = x.to(device, non_blocking=True)",
        )
    return Remedy(f"copy from pinned memory without blocking, as a pageable copy waits: {_PIN_ONCE}", _PIN_ONCE_CODE)


def _count_scaler_waits(view: ScopeView, waits: EventTable) -> int:
    """Count the waits between a scaler's check of the gradients and the optimizer step behind it."""
    tables = view.tables
    checks = np.sort(tables.match_names(_UNSCALE_REGEX, Kind.OP).start)
    steps = np.sort(tables.match_names(OPTIMIZER_STEP_REGEX).start)
    if not len(checks):
        return 0
    last_check = checks.searchsorted(waits.start) - 1
    has_check = last_check >= 0
    since = checks[np.maximum(last_check, 0)]
    no_step_between = steps.searchsorted(waits.start) == steps.searchsorted(since)
    return int((has_check & no_step_between).sum())


def _choose_explicit_remedy(view: ScopeView, waits: EventTable, main_call: str) -> Remedy:
    practices = view.tables.practices
    if "EventSynchronize" in main_call and practices.has_name(r"DistributedDataParallel\.forward"):
        return Remedy(
            "DDP measures its first ten iterations and then every hundredth: record other ones",
            "schedule=torch.profiler.schedule(wait=10, warmup=2, active=3)",
        )
    if re.search(r"EventSynchronize|SynchronizeEvent|EventHostSynchronize", main_call):
        return Remedy(
            "the program waits for an event: let the stream that needs the result wait, not the CPU",
            "stream.wait_event(event)",
        )
    if main_call == "event_wait":
        return Remedy("the program waits for the device in each step: wait only before a result is read")
    if "Memcpy" in main_call or "memcpy" in main_call:
        return choose_blocking_copy_remedy(view, waits)
    module = "npu" if "aclrt" in main_call else "xpu" if main_call.startswith("ur") else "cuda"
    return Remedy(f"the program calls torch.{module}.synchronize(): use it only around measurements")


def choose_copy_remedy(view: ScopeView, copies: EventTable) -> Remedy | None:
    """Choose by the direction that takes more time, and by who makes the batches."""
    practices, to_host = view.tables.practices, view.tables.filter_by_name(copies, is_to_host)
    if int(to_host.duration.sum()) * 2 > int(copies.duration.sum()):
        return Remedy(
            "copy into a pinned buffer without blocking, and read it later",
            "buffer.copy_(x, non_blocking=True)  # buffer = torch.empty_like(x, device='cpu', pin_memory=True)",
        )
    if len(view.gap_finder.loader_calls) and not practices.pins_memory:
        return None
    also = "pin this memory as well, as for the other copies: " if practices.pins_memory else ""
    return Remedy(also + _PIN_ONCE, _PIN_ONCE_CODE)


HIDDEN_COPY_REMEDIES = {
    "aten::select_backward": Remedy(
        "each index such as qkv[0] writes its gradient into zeros of the whole tensor: take all parts at once",
        "q, k, v = qkv.unbind(0)  # once, instead of qkv[0], qkv[1], qkv[2]",
    ),
    "aten::slice_backward": Remedy(
        "each slice writes its gradient into zeros of the whole tensor: split it once",
        "a, b = x.split(sizes, dim=-1)  # once, instead of x[..., :n], x[..., n:]",
    ),
    "aten::_index_put_impl_": Remedy(
        "each index writes its gradient into zeros of the whole tensor: index once, with all indices together",
        "y = x.index_select(0, indices)  # once, instead of x[i] for each i",
    ),
    "aten::masked_fill": Remedy(
        "masked_fill copies its input first: fill in place where the input is not needed again",
        "scores.masked_fill_(mask, float('-inf'))  # in place: no clone",
    ),
    "aten::addmm": Remedy(
        "addmm copies a bias of two dimensions into its output: give it one of one dimension, which the GEMM adds "
        "itself, or add in place where the bias may be overwritten",
        "y = b.addmm_(x, w)  # instead of torch.addmm(b, x, w)",
    ),
}


"""By the op that made most of the copies."""

WORKERS_TOO_SLOW = Remedy(
    "the loader's workers are too slow: start more, let each prepare more batches ahead, or decode faster",
    "DataLoader(…, num_workers=16, prefetch_factor=8)",
)


def choose_input_remedy(view: ScopeView) -> Remedy | None:
    """Choose by what the loader does already."""
    practices = view.tables.practices
    if practices.uses_workers:
        return WORKERS_TOO_SLOW
    if not len(view.gap_finder.loader_calls):
        return Remedy("check what the CPU does before the first op; if it loads data, load ahead in worker processes")
    if practices.pins_memory:
        return Remedy(
            "load in worker processes, ahead of the step",
            "DataLoader(…, num_workers=8, prefetch_factor=4, persistent_workers=True)",
        )
    return None


def choose_cpu_input_remedy(view: ScopeView) -> Remedy:
    """Choose for a program without a GPU, for which pinned memory does nothing."""
    if view.tables.practices.uses_workers:
        return Remedy(
            "workers are in use and too slow: start more (up to the number of cores), let each prepare more batches "
            "ahead, or decode faster",
            "DataLoader(…, num_workers=os.cpu_count(), prefetch_factor=8)",
        )
    return Remedy(
        "load in worker processes, up to the number of cores, ahead of the step",
        "DataLoader(…, num_workers=min(4, os.cpu_count()), prefetch_factor=4, persistent_workers=True)",
    )


def choose_tiny_kernel_remedy(view: ScopeView, owner_name: str) -> Remedy:
    """Choose by the owner: an optimizer step has a fused form, other ops are compiled or captured."""
    practices = view.tables.practices
    if re.match(_RECURRENCE_REGEX, owner_name):
        return Remedy(
            "the library launches the kernels of a recurrence one by one, compiled or not: use a larger batch"
        )
    if owner_name.startswith("Optimizer.step#"):
        return choose_optimizer_remedy(owner_name, practices.optimizer_kind)
    if practices.is_inference and len(view.tables.compute_once(find_token_loop)) and not practices.uses_cuda_graphs:
        return _DECODE
    if practices.uses_cuda_graphs:
        return Remedy("capture this op in the graph as well")
    if practices.uses_compile:
        return Remedy("this op is outside the compiled regions: compile the code around it as well")
    return Remedy("compile the code around this op, so that its kernels are fused", "f = torch.compile(f)")


def choose_call_count_remedy(view: ScopeView, calls: EventTable) -> Remedy | None:
    """Choose by the owner of most of the calls: an optimizer step has a fused form, launches can be replayed."""
    tables = view.tables
    steps = tables.match_names(OPTIMIZER_STEP_REGEX)
    if len(steps) and tables.practices.optimizer_kind is not OptimizerKind.FUSED:
        steps = steps.select(np.argsort(steps.start, kind="stable"))
        step = find_range_at(steps.start, steps.end, calls.start)
        if int((step >= 0).sum()) * 2 > len(calls):
            step_name = tables.name(int(steps.row[step[step >= 0][0]]))
            return choose_optimizer_remedy(step_name, tables.practices.optimizer_kind)
    if not len(tables.work):
        return Remedy("call it once on a whole tensor, not once for each element or slice, or compile the region")
    return choose_overhead_remedy(view)


def choose_cpu_remedy(view: ScopeView) -> Remedy | None:
    """Choose for a GPU that waits for the CPU by what the CPU does most; if that is launching, by what is in use."""
    times = view.gaps.time_by_cause()
    causes = [cause for cause in DeviceTimeShares.OVERHEAD_CAUSES if cause in times]
    main = max(causes, key=lambda cause: times[cause], default=IdleCause.DISPATCH)
    if 2 * times.get(main, 0) > sum(times[cause] for cause in causes):
        if main is IdleCause.CPU_COMPUTE:
            return view.compute_once(measure_cpu_work).remedy
        if main in _MAIN_CAUSE_REMEDIES:
            return _MAIN_CAUSE_REMEDIES[main]
    return choose_overhead_remedy(view)


_MAIN_CAUSE_REMEDIES = {
    IdleCause.HOST: Remedy(
        "most of it is Python code outside any op: move it out of the step, or launch GPU work before it"
    ),
    IdleCause.COLD_CALL: Remedy(
        "most of it are calls that load or allocate, once: run some steps before the recording",
        "schedule=torch.profiler.schedule(wait=1, warmup=3, active=3)",
    ),
    IdleCause.SYNC: Remedy("most of it are calls that wait for the GPU: keep values on the GPU, and read them later"),
}


def choose_overhead_remedy(view: ScopeView) -> Remedy | None:
    """Choose by what is in use: graphs, compiled code, a loop over tokens."""
    tables, practices = view.tables, view.tables.practices
    if practices.uses_cuda_graphs:
        return Remedy(
            "graphs are replayed already: check what the CPU does between the replays, and capture more of it"
        )
    if len(view.match_names(COMPILE_WORK_REGEX)):
        return Remedy(
            "the recording contains compilation: warm up first, and keep shapes fixed",
            "schedule=torch.profiler.schedule(wait=3, warmup=3, active=5)",
        )
    if op := practices.data_dependent_op:
        return Remedy(f"{op} reads a size from the GPU, which no CUDA graph replays: give it a fixed size first")
    if practices.is_inference and len(tables.compute_once(find_token_loop)):
        return _DECODE
    if practices.uses_compile:
        return Remedy(
            "the code is compiled: replay it as CUDA graphs, and compile larger regions",
            'model = torch.compile(model, mode="reduce-overhead")',
        )
    return None


def choose_allocation_remedy(view: ScopeView, calls: EventTable) -> Remedy | None:
    """Choose by what is seen: no cache, a cache that is emptied, segments that are given back, or shapes that grow."""
    tables = view.tables
    names = [tables.name(int(row)) for row in calls.row]
    is_amd = any(name.startswith("hip") for name in names)
    if is_allocator_off(view, calls):
        variable = "PYTORCH_NO_HIP_MEMORY_CACHING" if is_amd else "PYTORCH_NO_CUDA_MEMORY_CACHING"
        return Remedy(
            "memory is allocated and freed op by op: the caching allocator is off, or memory is short: turn it on",
            f"unset {variable}",
        )
    frees = calls.row[["Free" in name for name in names]]
    allocations = calls.row[["alloc" in name.lower() for name in names]]
    # Where memory is short the allocator frees inside the op that asks for it.
    is_outside = len(frees) > 0 and bool((nearest_ancestor(view.trace, frees) < 0).all())
    is_asked_by_ops = len(allocations) > 0 and bool((nearest_ancestor(view.trace, allocations) >= 0).all())
    if tables.practices.has_name(r".*\bempty_cache\b") or (is_outside and is_asked_by_ops):
        return Remedy("remove torch.cuda.empty_cache(): it gives memory back that the next step allocates again", "")
    if is_outside:  # torch allocates inside ops alone
        return Remedy(
            "memory is freed and allocated outside of ops: let the library that does it keep its memory, or remove "
            "torch.cuda.empty_cache()"
        )
    if any("MemCreate" in name or "MemMap" in name for name in names):
        return Remedy("expandable segments are in use already: run the largest batch first, or keep shapes fixed")
    code = "" if is_amd else "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py"
    if len(frees):
        return Remedy(
            "memory is freed and allocated again: either it is short (use a smaller batch"
            f"{'' if is_amd else ', or expandable segments'}), or the program calls torch.cuda.empty_cache()",
            code,
        )
    return Remedy(
        "each step needs more memory than the one before: pad or bucket shapes, or run the largest batch first", code
    )


def is_allocator_off(view: ScopeView, calls: EventTable) -> bool:
    """Return whether the driver is called op by op: many times in each step, allocating and freeing in turn.

    A cache that is emptied, or that is too small, frees many blocks in a row.
    """
    index = view.tables.steps.index_at(calls.start)
    steps = len(sorted_unique(index))
    if not len(calls) or len(calls) < thresholds.ALLOCATOR_OFF_CALLS.value * steps:
        return False
    in_order = calls.name[np.argsort(calls.start, kind="stable")].tolist()
    frees = np.array(["Free" in view.trace.names[name] for name in in_order])
    return int((frees[1:] != frees[:-1]).sum()) >= thresholds.ALLOCATOR_OFF_TURNS.value * len(calls)
