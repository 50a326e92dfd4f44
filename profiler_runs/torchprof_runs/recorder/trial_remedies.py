"""Remedies that need no change of the source: each patches torch before the program runs, or after its first step.

Those of `AT_START` are called before the program; those of `AFTER_FIRST_STEP` get its outermost modules, and set what
the program itself may have set while it started. Both are called for the remedies that were asked for, in this order.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

ITEM_EVERY = 10


def _change_arguments(owner: Any, changes: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the keyword arguments with which objects of a class are created."""
    original = owner.__init__

    @functools.wraps(original)
    def changed_init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **(changes(kwargs) if type(self) is owner or owner in type(self).__mro__ else kwargs))

    owner.__init__ = changed_init


def _is_own_call() -> bool:
    """Whether the caller of the patched function is the user's code, not a library."""
    frame = sys._getframe(2)
    path = frame.f_code.co_filename
    return "site-packages" not in path and "dist-packages" not in path and f"{os.sep}torch{os.sep}" not in path


# --- data -------------------------------------------------------------------------------------------------------


def _load_in_workers(count: int | None = None) -> None:
    count = count or max(1, min(4, len(os.sched_getaffinity(0)) - 1))

    def changes(given: dict[str, Any]) -> dict[str, Any]:
        if given.get("num_workers"):
            return given
        return {**given, "num_workers": count, "persistent_workers": True}

    original = torch.utils.data.DataLoader.__init__

    @functools.wraps(original)
    def changed_init(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        is_iterable = isinstance(dataset, torch.utils.data.IterableDataset)  # each worker would yield all of it
        original(self, dataset, *args, **(kwargs if is_iterable or len(args) > 4 else changes(kwargs)))

    torch.utils.data.DataLoader.__init__ = changed_init  # type: ignore[method-assign]


def _pin_memory() -> None:
    _change_arguments(torch.utils.data.DataLoader, lambda given: {**given, "pin_memory": torch.cuda.is_available()})


def _prefetch() -> None:
    _change_arguments(
        torch.utils.data.DataLoader,
        lambda given: {**given, "prefetch_factor": 8} if given.get("num_workers") else given,
    )


def _copy_without_blocking() -> None:
    for name in ("to", "cuda"):
        original = getattr(torch.Tensor, name)

        @functools.wraps(original)
        def changed(self: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            if self.device.type == "cpu" and not any(isinstance(each, bool) for each in args):
                kwargs["non_blocking"] = True
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
    for module in modules:
        module.compile(mode=mode)


def _use_channels_last(modules: Sequence[Any]) -> None:
    def convert(value: Any) -> Any:
        is_image = isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point()
        return value.contiguous(memory_format=torch.channels_last) if is_image else value

    for module in modules:
        module.to(memory_format=torch.channels_last)
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

        _change_arguments(kind, changes)


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


def _change_ddp(**changed: Any) -> None:
    from torch.nn.parallel import DistributedDataParallel

    _change_arguments(DistributedDataParallel, lambda given: {**given, **changed})


def _prefetch_fsdp() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    _change_arguments(FullyShardedDataParallel, lambda given: {**given, "forward_prefetch": True})


# --- what slows a step down from outside ------------------------------------------------------------------------


def _drop_gradients() -> None:
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        original = owner.zero_grad

        @functools.wraps(original)
        def zero_grad(self: Any, set_to_none: bool = True, _original: Any = original) -> None:
            _original(self, set_to_none=True)

        owner.zero_grad = zero_grad  # type: ignore[method-assign]


def _freeze_collector(_modules: Sequence[Any] = ()) -> None:
    gc.collect()
    gc.freeze()
    gc.disable()


def _turn_anomaly_mode_off() -> None:
    torch.set_anomaly_enabled = lambda *_, **__: None


def _turn_anomaly_mode_off_again(_modules: Sequence[Any]) -> None:
    torch._C._set_anomaly_enabled(False, False)


def _keep_cache() -> None:
    torch.cuda.empty_cache = lambda: None


def _skip_synchronisations() -> None:
    original = torch.cuda.synchronize

    def synchronize(*args: Any, **kwargs: Any) -> None:
        if not _is_own_call():
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
        known[place] = count + 1, value
        return value

    torch.Tensor.item = item  # type: ignore[method-assign,assignment]


AT_START: dict[str, Callable[[], None]] = {
    "workers": _load_in_workers,
    "pin-memory": _pin_memory,
    "prefetch": _prefetch,
    "non-blocking": _copy_without_blocking,
    "tf32": _use_tf32,
    "fused-optimizer": lambda: _change_optimizers("fused"),
    "foreach-optimizer": lambda: _change_optimizers("foreach"),
    "cudnn-benchmark": _benchmark_convolutions,
    "bucket-view": lambda: _change_ddp(gradient_as_bucket_view=True),
    "bucket-size": lambda: _change_ddp(bucket_cap_mb=100),
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
BY_ENVIRONMENT = ("expandable-segments", "threads-physical", "threads-one")
"""Remedies that are variables of the process, which the viewer sets."""
