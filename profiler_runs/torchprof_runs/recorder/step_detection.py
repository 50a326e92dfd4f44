"""What counts as a step in a program that does not say so itself: an optimizer's step, or the call of a function."""

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

# Code that torch.compile traces must not see the counting: it would break the graph, or forbid fullgraph=True.
_is_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling

# Where torch.compile gives up on a frame and runs it, ours would be the next that it compiles, and with it the
# profiler. Frames of `_unseen` functions are left to Python, and so is all that `_unseen_call` calls.
_dynamo_eval_frame: Any = torch._C._dynamo.eval_frame


def _skip_dynamo(function: Any) -> Any:
    code = function.__code__
    with contextlib.suppress(AttributeError):  # an interface of torch's own: where it is gone, it only costs time
        if hasattr(_dynamo_eval_frame, "skip_code"):  # its older name
            _dynamo_eval_frame.skip_code(code)
        else:
            action = _dynamo_eval_frame._FrameAction
            _dynamo_eval_frame.set_code_exec_strategy(
                code, _dynamo_eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
            )
    return function


@_skip_dynamo
def _call_without_dynamo(function: Callable[[], None]) -> None:
    before = _dynamo_eval_frame.set_eval_frame(None)
    try:
        function()
    finally:
        _dynamo_eval_frame.set_eval_frame(before)


# An optimizer that has not stepped while another stepped so often has been replaced by it.
REPLACED_AFTER_STEPS = 3


class OptimizerStepCounter:
    """Calls `on_step` each time the program's first optimizer has stepped, `on_made` when it makes one.

    With several optimizers (a GAN's two, one for each parameter) the first that steps is counted: one step a loop.
    """

    def __init__(self, on_step: Callable[[], None], on_create: Callable[[], None] = lambda: None) -> None:
        self._on_step, self._on_create = on_step, on_create
        self._pid = os.getpid()
        self._counted_id: int | None = None  # id of the optimizer that is counted
        self._other_steps = 0  # steps of others since it stepped
        self._nesting = threading.local()
        self.step_count = 0

    def install(self) -> None:
        """Watch every optimizer made from now on."""
        optimizer: Any = torch.optim.Optimizer
        make_step, make = optimizer.profile_hook_step, optimizer.__init__

        # A post hook (register_optimizer_step_post_hook) is called inside the range "Optimizer.step#…" that torch
        # records, so a step that ended there would cut that range in two. Around the hooked method it has just closed.
        @functools.wraps(make_step)
        def profile_hook_step(step: Callable[..., Any]) -> Any:
            hooked = make_step(step)

            @_skip_dynamo
            @functools.wraps(hooked)
            def counted(*args: Any, **kwargs: Any) -> Any:
                if _is_compiling():
                    return hooked(*args, **kwargs)
                depth = getattr(self._nesting, "depth", 0)
                self._nesting.depth = depth + 1
                try:
                    result = hooked(*args, **kwargs)
                finally:
                    self._nesting.depth = depth
                if depth == 0:  # a subclass's step calls its parent's
                    self._count_step(args[0])
                return result

            return counted

        @functools.wraps(make)
        def made(instance: Any, *args: Any, **kwargs: Any) -> None:
            make(instance, *args, **kwargs)
            if os.getpid() == self._pid:
                self._on_create()

        optimizer.profile_hook_step = staticmethod(profile_hook_step)
        optimizer.__init__ = made

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
    """Calls `on_step` after each call of one function, named ``MODULE:FUNCTION`` or ``MODULE:CLASS.METHOD``."""

    def __init__(self, name: str, on_step: Callable[[], None], report: Callable[[str], None]) -> None:
        self.name = name
        self.module, _, self.function = name.partition(":")
        self._on_step, self._report = on_step, report
        self._pid = os.getpid()
        self._nesting = threading.local()
        self.step_count = 0
        self.is_decorated = False

    def install(self) -> None:
        """Wrap the function now, or when its module is imported. ``__main__`` is decorated where it is compiled."""
        if self.module == "__main__":
            return
        module = sys.modules.get(self.module)
        if module is not None:
            self._wrap_function(module)
        else:
            sys.meta_path.insert(0, _ImportHook(self.module, self._wrap_function))

    def decorate(self, function: Any) -> Any:
        """`function`, counting its calls; also around staticmethod and classmethod objects and coroutines."""
        self.is_decorated = True
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(self.decorate(function.__func__))
        if inspect.iscoroutinefunction(function):

            async def stepped_async(*args: Any, **kwargs: Any) -> Any:
                result = await function(*args, **kwargs)
                self._count_call(0)
                return result

            return functools.wraps(function)(stepped_async)

        @_skip_dynamo
        def stepped(*args: Any, **kwargs: Any) -> Any:
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

        return functools.wraps(function)(stepped)

    @_skip_dynamo
    def _count_call(self, depth: int) -> None:
        if depth == 0 and os.getpid() == self._pid:  # a recursive function steps once
            self.step_count += 1
            _call_without_dynamo(self._on_step)

    def _wrap_function(self, module: types.ModuleType) -> None:
        owner: Any = module
        *path, last = self.function.split(".")
        try:
            for part in path:
                owner = getattr(owner, part)
            function = inspect.getattr_static(owner, last)
            setattr(owner, last, self.decorate(function))
        except (AttributeError, TypeError):
            self._report(f"--step {self.name}: {self.module} has no function {self.function} that can be wrapped")


class _ImportHook(importlib.abc.MetaPathFinder):
    """Calls `then` with a module once it has been imported, then takes itself away."""

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
