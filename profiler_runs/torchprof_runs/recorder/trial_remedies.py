"""Remedies that need no change of the source: each patches torch before the program runs, or after its first step.

Those of `AT_START` are called before the program; those of `AFTER_FIRST_STEP` get its outermost modules, and set what
the program itself may have set while it started. Both are called for the remedies that were asked for, in this order.
"""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

ITEM_EVERY = 10
MAX_PLACES = 8
"""Lines of the program that are noted for a remedy."""

places: dict[str, list[tuple[str, int]]] = {}
"""Remedies that changed something in this process, since a switch that nothing uses is no measurement, and the lines of
the program (file, number) at which they did."""


def note_use(name: str) -> None:
    """Note that a remedy changes something, and at which line of the program."""
    lines = places.setdefault(name, [])
    if len(lines) < MAX_PLACES:
        line = find_own_line()
        if line is not None and line not in lines:
            lines.append(line)


def find_own_line() -> tuple[str, int] | None:
    """Find the innermost line of the user's own code that is being executed."""
    frame = sys._getframe(1)
    while frame is not None and not is_own_file(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else (os.path.abspath(frame.f_code.co_filename), frame.f_lineno)


_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARIES = ("site-packages", "dist-packages", f"{os.sep}torch{os.sep}", f"{os.sep}lib{os.sep}python")


@functools.cache
def is_own_file(path: str) -> bool:
    """Whether a file of code is the user's own: no library, no recorder, no workload, and no code without a file."""
    return not (path.startswith((_HERE, "<")) or any(part in path for part in _LIBRARIES))


def _change_arguments(name: str, owner: Any, changes: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the arguments with which objects of a class are created; `changes` gets all, by name."""
    original = owner.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def changed_init(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind(self, *args, **kwargs).arguments
        except TypeError:
            original(self, *args, **kwargs)  # raises what the program would see
            return
        given.pop(next(iter(given)))
        more = given.pop("kwargs", {})
        changed = changes({**given, **more})
        if changed != {**given, **more}:
            note_use(name)
        original(self, **changed)

    owner.__init__ = changed_init


def _is_own_call() -> bool:
    """Whether the caller of the patched function is the user's code, not a library."""
    return is_own_file(sys._getframe(2).f_code.co_filename)


# --- data -------------------------------------------------------------------------------------------------------


def _load_in_workers() -> None:
    count = max(1, min(4, len(os.sched_getaffinity(0)) - 1))

    def changes(given: dict[str, Any]) -> dict[str, Any]:
        is_iterable = isinstance(given.get("dataset"), torch.utils.data.IterableDataset)  # each worker yields all of it
        if given.get("num_workers") or is_iterable:
            return given
        return {**given, "num_workers": count, "persistent_workers": True}

    _change_arguments("workers", torch.utils.data.DataLoader, changes)


def _pin_memory() -> None:
    def changes(given: dict[str, Any]) -> dict[str, Any]:
        return {**given, "pin_memory": True} if torch.cuda.is_available() and not given.get("pin_memory") else given

    _change_arguments("pin-memory", torch.utils.data.DataLoader, changes)


def _prefetch() -> None:
    def changes(given: dict[str, Any]) -> dict[str, Any]:
        return {**given, "prefetch_factor": 8} if given.get("num_workers") else given

    _change_arguments("prefetch", torch.utils.data.DataLoader, changes)


def _copy_without_blocking() -> None:
    for name in ("to", "cuda"):
        original = getattr(torch.Tensor, name)

        @functools.wraps(original)
        def changed(self: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            if self.device.type == "cpu" and not any(isinstance(each, bool) for each in args):
                kwargs["non_blocking"] = True
                note_use("non-blocking")
            return _original(self, *args, **kwargs)

        setattr(torch.Tensor, name, changed)


# --- numbers ----------------------------------------------------------------------------------------------------


def _use_tf32(_modules: Sequence[Any] = ()) -> None:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True


def _use_bf16(modules: Sequence[Any]) -> None:
    for module in modules:
        original = module.forward
        device = next((each.device.type for each in module.parameters()), "cpu")

        @functools.wraps(original)
        def autocast_forward(*args: Any, _original: Any = original, _device: str = device, **kwargs: Any) -> Any:
            with torch.autocast(_device, torch.bfloat16):
                return _original(*args, **kwargs)

        module.forward = autocast_forward


# --- code -------------------------------------------------------------------------------------------------------


def _compile(modules: Sequence[Any], mode: str) -> None:
    """Compile modules in place, as `torch.compile(module)` does.

    `module.compile()` compiles nothing where `forward` is defined in torch (nn.Sequential): dynamo skips frames of
    torch's own files unless they are called from a frame in another file, such as `call` below.
    """
    for module in modules:

        def call(*args: Any, _call: Any = module._call_impl, **kwargs: Any) -> Any:
            return _call(*args, **kwargs)

        module._compiled_call_impl = torch.compile(call, mode=mode)


def _use_channels_last(modules: Sequence[Any]) -> None:
    def convert(value: Any) -> Any:
        is_image = isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point()
        return value.contiguous(memory_format=torch.channels_last) if is_image else value

    optimizers = [each for each in gc.get_objects() if issubclass(type(each), torch.optim.Optimizer)]
    for module in modules:
        module.to(memory_format=torch.channels_last)
        for parameter in module.parameters():  # the first step has made these in the form that the parameter had
            parameter.grad = convert(parameter.grad)
            for optimizer in optimizers:
                state = optimizer.state.get(parameter, {})
                state.update({key: convert(value) for key, value in state.items()})
        original = module.forward

        @functools.wraps(original)
        def converting_forward(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
            return _original(*map(convert, args), **{key: convert(value) for key, value in kwargs.items()})

        module.forward = converting_forward


def _change_optimizers(name: str) -> None:
    for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):

        def changes(given: dict[str, Any]) -> dict[str, Any]:
            kept = {key: value for key, value in given.items() if key not in ("foreach", "fused")}
            return {**kept, name: True}

        _change_arguments(f"{name}-optimizer", kind, changes)


def _benchmark_convolutions(_modules: Sequence[Any] = ()) -> None:
    torch.backends.cudnn.benchmark = True


def _allow_fused_attention(_modules: Sequence[Any] = ()) -> None:
    for name in ("flash", "mem_efficient", "cudnn"):
        enable = getattr(torch.backends.cuda, f"enable_{name}_sdp", None)
        if enable is not None:
            enable(True)


def _allow_nondeterminism(_modules: Sequence[Any] = ()) -> None:
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = False


# --- several processes ------------------------------------------------------------------------------------------


def _change_ddp(name: str, **changed: Any) -> None:
    _change_arguments(name, torch.nn.parallel.DistributedDataParallel, lambda given: {**given, **changed})


def _prefetch_fsdp() -> None:
    fsdp = importlib.import_module("torch.distributed.fsdp")  # it is slow to import, and few programs use it
    _change_arguments("fsdp-prefetch", fsdp.FullyShardedDataParallel, lambda given: {**given, "forward_prefetch": True})


# --- what slows a step down from outside ------------------------------------------------------------------------


def _drop_gradients() -> None:
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        original = owner.zero_grad

        @functools.wraps(original)
        def zero_grad(self: Any, set_to_none: bool = True, _original: Any = original) -> None:
            if not set_to_none:
                note_use("set-to-none")
            _original(self, set_to_none=True)

        owner.zero_grad = zero_grad


def _freeze_collector(_modules: Sequence[Any] = ()) -> None:
    gc.collect()
    gc.freeze()
    gc.disable()


_set_anomaly_enabled = torch.set_anomaly_enabled


def _turn_anomaly_mode_off() -> None:
    def ignore(mode: bool = False, *_: Any) -> None:
        if mode:
            note_use("no-anomaly-mode")

    torch.set_anomaly_enabled = ignore


def _turn_anomaly_mode_off_again(_modules: Sequence[Any]) -> None:
    _set_anomaly_enabled(False)


def _keep_cache() -> None:
    torch.cuda.empty_cache = lambda: note_use("keep-cache")


def _skip_synchronisations() -> None:
    original = torch.cuda.synchronize

    def synchronize(*args: Any, **kwargs: Any) -> None:
        if _is_own_call():
            note_use("no-synchronize")
        else:
            original(*args, **kwargs)

    torch.cuda.synchronize = synchronize


def _thin_readings() -> None:
    """Read a number from the GPU at each place of the program only every tenth time; between, it is the last one."""
    known: dict[tuple[str, int], tuple[int, Any]] = {}
    original = torch.Tensor.item

    def item(self: Any) -> Any:
        if self.device.type == "cpu" or not _is_own_call():
            return original(self)
        frame = sys._getframe(1)
        place = frame.f_code.co_filename, frame.f_lineno
        count, value = known.get(place, (0, None))
        if count % ITEM_EVERY == 0:
            value = original(self)
        elif count == 1:  # once: a program reads thousands of numbers, and noting takes as long as reading
            note_use("thin-logging")
        known[place] = count + 1, value
        return value

    torch.Tensor.item = item


AT_START: dict[str, Callable[[], None]] = {
    "workers": _load_in_workers,
    "pin-memory": _pin_memory,
    "prefetch": _prefetch,
    "non-blocking": _copy_without_blocking,
    "tf32": _use_tf32,
    "fused-optimizer": lambda: _change_optimizers("fused"),
    "foreach-optimizer": lambda: _change_optimizers("foreach"),
    "cudnn-benchmark": _benchmark_convolutions,
    "bucket-view": lambda: _change_ddp("bucket-view", gradient_as_bucket_view=True),
    "bucket-size": lambda: _change_ddp("bucket-size", bucket_cap_mb=100),
    "fsdp-prefetch": _prefetch_fsdp,
    "set-to-none": _drop_gradients,
    "no-anomaly-mode": _turn_anomaly_mode_off,
    "keep-cache": _keep_cache,
    "no-synchronize": _skip_synchronisations,
    "thin-logging": _thin_readings,
}
AFTER_FIRST_STEP: dict[str, Callable[[Sequence[Any]], None]] = {
    "tf32": _use_tf32,
    "bf16": _use_bf16,
    "channels-last": _use_channels_last,
    "compile": lambda modules: _compile(modules, "default"),
    "compile-reduce-overhead": lambda modules: _compile(modules, "reduce-overhead"),
    "compile-max-autotune": lambda modules: _compile(modules, "max-autotune-no-cudagraphs"),
    "cudnn-benchmark": _benchmark_convolutions,
    "fused-attention": _allow_fused_attention,
    "no-deterministic-mode": _allow_nondeterminism,
    "no-anomaly-mode": _turn_anomaly_mode_off_again,
    "gc-frozen": _freeze_collector,
}
COUNTED = {
    *("workers", "pin-memory", "prefetch", "non-blocking", "fused-optimizer", "foreach-optimizer", "bucket-view"),
    *("bucket-size", "fsdp-prefetch", "set-to-none", "no-anomaly-mode", "keep-cache", "no-synchronize", "thin-logging"),
}
"""Remedies that may find nothing to change; `places` has those that did."""

BY_ENVIRONMENT = ("expandable-segments", "threads-physical", "threads-one")
"""Remedies that are variables of the process, which the viewer sets."""
