"""Count the steps of a program that does not call prof.step(): an optimizer's steps, or the calls of a function."""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

# Inside code that torch.compile traces, calls are not counted: that would break the graph, or forbid fullgraph=True.
_is_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling

# When torch.compile gives up on a frame and runs it in Python, it would next compile the counting functions that the
# frame calls, and with them the profiler. Functions marked with `_skip_dynamo` are not compiled, nor is anything that
# `_call_without_dynamo` calls.
_dynamo_eval_frame: Any = torch._C._dynamo.eval_frame


def _skip_dynamo(function: Any) -> Any:
    code = function.__code__
    with contextlib.suppress(AttributeError):  # a private interface of torch: without it, counting is only slower
        if hasattr(_dynamo_eval_frame, "skip_code"):  # older versions of torch
            _dynamo_eval_frame.skip_code(code)
        else:
            action = _dynamo_eval_frame._FrameAction
            _dynamo_eval_frame.set_code_exec_strategy(
                code, _dynamo_eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
            )
    return function


@_skip_dynamo
def _call_without_dynamo(function: Callable[[], None]) -> None:
    previous_callback = _dynamo_eval_frame.set_eval_frame(None)
    try:
        function()
    finally:
        _dynamo_eval_frame.set_eval_frame(previous_callback)


# If the counted optimizer does not step while others take this many steps, it is taken as replaced.
REPLACED_AFTER_STEPS = 3


class OptimizerStepCounter:
    """Call `on_step` after each step of the program's first optimizer, and `on_create` when it creates one.

    With several optimizers (the two of a GAN, one for each parameter) only the first that steps is counted, so that a
    loop iteration is one step.
    """

    def __init__(self, on_step: Callable[[], None], on_create: Callable[[], None] = lambda: None) -> None:
        self._on_step, self._on_create = on_step, on_create
        self._pid = os.getpid()
        self._counted_id: int | None = None  # id of the optimizer that is counted
        self._other_steps = 0  # steps of other optimizers since its last step
        self._nesting = threading.local()
        self.step_count = 0

    def install(self) -> None:
        """Count the steps of every optimizer created from now on."""
        optimizer: Any = torch.optim.Optimizer
        original_hook, original_init = optimizer.profile_hook_step, optimizer.__init__

        # A post hook (register_optimizer_step_post_hook) is called inside the range "Optimizer.step#…" that torch
        # records, so a step that ended there would cut that range in two. After the hooked method, the range is closed.
        @functools.wraps(original_hook)
        def profile_hook_step(step: Callable[..., Any]) -> Any:
            hooked_step = original_hook(step)

            @_skip_dynamo
            @functools.wraps(hooked_step)
            def counted_step(*args: Any, **kwargs: Any) -> Any:
                if _is_compiling():
                    return hooked_step(*args, **kwargs)
                depth = getattr(self._nesting, "depth", 0)
                self._nesting.depth = depth + 1
                try:
                    result = hooked_step(*args, **kwargs)
                finally:
                    self._nesting.depth = depth
                if depth == 0:  # a subclass's step calls that of its base class
                    self._count_step(args[0])
                return result

            return counted_step

        @functools.wraps(original_init)
        def reporting_init(instance: Any, *args: Any, **kwargs: Any) -> None:
            original_init(instance, *args, **kwargs)
            if os.getpid() == self._pid:
                self._on_create()

        optimizer.profile_hook_step = staticmethod(profile_hook_step)
        optimizer.__init__ = reporting_init

    @_skip_dynamo
    def _count_step(self, optimizer: Any) -> None:
        if os.getpid() != self._pid:  # a forked child
            return
        if self._counted_id is None or self._other_steps >= REPLACED_AFTER_STEPS:
            self._counted_id = id(optimizer)
        if id(optimizer) != self._counted_id:
            self._other_steps += 1
            return
        self._other_steps = 0
        self.step_count += 1
        _call_without_dynamo(self._on_step)


class FunctionStepCounter:
    """Call `on_step` after each call of one function, named ``MODULE:FUNCTION`` or ``MODULE:CLASS.METHOD``."""

    def __init__(self, name: str, on_step: Callable[[], None], report: Callable[[str], None]) -> None:
        self.name = name
        self.module, _, self.function = name.partition(":")
        self._on_step, self._report = on_step, report
        self._pid = os.getpid()
        self._nesting = threading.local()
        self.step_count = 0
        self.is_decorated = False

    def install(self) -> None:
        """Wrap the function now, or when its module is imported. ``__main__`` is decorated when it is compiled."""
        if self.module == "__main__":
            return
        module = sys.modules.get(self.module)
        if module is not None:
            self._wrap_function(module)
        else:
            sys.meta_path.insert(0, _ImportHook(self.module, self._wrap_function))

    def decorate(self, function: Any) -> Any:
        """Wrap `function` (also a staticmethod, classmethod or coroutine function) so that its calls are counted."""
        self.is_decorated = True
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(self.decorate(function.__func__))
        if inspect.iscoroutinefunction(function):

            async def counted_coroutine(*args: Any, **kwargs: Any) -> Any:
                result = await function(*args, **kwargs)
                self._count_call(0)
                return result

            return functools.wraps(function)(counted_coroutine)

        @_skip_dynamo
        def counted_function(*args: Any, **kwargs: Any) -> Any:
            if _is_compiling():
                return function(*args, **kwargs)
            depth = getattr(self._nesting, "depth", 0)
            self._nesting.depth = depth + 1
            try:
                result = function(*args, **kwargs)
            finally:
                self._nesting.depth = depth
            self._count_call(depth)
            return result

        return functools.wraps(function)(counted_function)

    @_skip_dynamo
    def _count_call(self, depth: int) -> None:
        if depth == 0 and os.getpid() == self._pid:  # a recursive call is one step
            self.step_count += 1
            _call_without_dynamo(self._on_step)

    def _wrap_function(self, module: types.ModuleType) -> None:
        owner: Any = module
        *owner_names, name = self.function.split(".")
        try:
            for owner_name in owner_names:
                owner = getattr(owner, owner_name)
            function = inspect.getattr_static(owner, name)
            setattr(owner, name, self.decorate(function))
        except (AttributeError, TypeError):
            self._report(f"--step {self.name}: {self.module} has no function {self.function} that can be wrapped")


class _ImportHook(importlib.abc.MetaPathFinder):
    """Call `on_import` with a module once it has been imported, and remove itself from sys.meta_path."""

    def __init__(self, name: str, on_import: Callable[[types.ModuleType], None]) -> None:
        self._name, self._on_import = name, on_import

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        execute = getattr(spec.loader, "exec_module", None) if spec is not None else None
        if spec is not None and execute is not None:

            def exec_module(module: types.ModuleType) -> None:
                execute(module)
                self._on_import(module)

            spec.loader.exec_module = exec_module  # type: ignore[union-attr,method-assign]
        return spec
