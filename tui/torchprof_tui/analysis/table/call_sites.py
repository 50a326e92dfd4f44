"""Where in the Python program a call was made: its frames and its modules, as far as `with_stack` recorded them."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor_or_self
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

MODULE_PREFIX = "nn.Module: "


class CallSites:
    """Answers over one trace; what it must look up over all events is computed once, when first asked."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def factorize_stacks(self, events: I32, depth: int) -> tuple[I32, list[str]]:
        """(which of the texts int32[k], texts): the `depth` innermost frames, innermost first, a line each.

        The first text is "": no frame around it.
        """
        frame = self._calling_frame[events]
        above = self._frame_above
        names = self._trace.names
        used, inverse = np.unique(frame, return_inverse=True)
        code = np.zeros(len(used), np.int64)
        paths: list[tuple[int, ...]] = [()]
        at = used
        for _ in range(depth):
            name = np.where(at >= 0, self._trace.name[np.maximum(at, 0)], -1)
            keys, where = np.unique(code * (len(names) + 1) + name + 1, return_inverse=True)
            before = (keys // (len(names) + 1)).tolist()
            added = (keys % (len(names) + 1) - 1).tolist()
            paths = [paths[path] + ((step,) if step >= 0 else ()) for path, step in zip(before, added, strict=True)]
            code = where.astype(np.int64)
            at = np.where(at >= 0, above[np.maximum(at, 0)], -1).astype(np.int32)
        texts = ["\n".join(names[name] for name in path) for path in paths]
        return _put_empty_first(code[inverse], texts)

    def factorize_modules(self, events: I32) -> tuple[I32, list[str]]:
        """(which of the paths int32[k], paths): the modules around each, outermost first: `A_0/B_1`; "" for none."""
        used, inverse = np.unique(self._calling_module[events], return_inverse=True)
        known: dict[int, str] = {-1: ""}
        distinct: dict[str, int] = {}
        texts = [self._module_path(event, known) for event in used.tolist()]
        code = np.array([distinct.setdefault(text, len(distinct)) for text in texts], np.int64)
        return _put_empty_first(code[inverse], list(distinct))

    def _module_path(self, event: int, known: dict[int, str]) -> str:
        """The path of one module's call, through those above it."""
        calls = []
        while event not in known:
            calls.append(event)
            event = int(self._module_above[event])
        path = known[event]
        for event in reversed(calls):
            name = self._trace.names[self._trace.name[event]].removeprefix(MODULE_PREFIX)
            path = known[event] = f"{path}/{name}" if path else name
        return path

    @cached_property
    def _is_frame(self) -> Bool:
        return np.asarray(self._trace.kind == Kind.PYTHON)

    @cached_property
    def _frame_above(self) -> I32:
        """int32[n]: the innermost frame around each event, itself left out."""
        return self._find_enclosing(self._is_frame)

    @cached_property
    def _module_above(self) -> I32:
        return self._find_enclosing(self._is_module)

    @cached_property
    def _is_module(self) -> Bool:
        names = self._trace.names
        named = np.fromiter((name.startswith(MODULE_PREFIX) for name in names), np.bool_, len(names))
        found: Bool = self._is_frame & named[self._trace.name]
        return found

    @cached_property
    def _calling_frame(self) -> I32:
        """int32[n]: the innermost frame that each event was called from."""
        return self._find_callers(self._is_frame)

    @cached_property
    def _calling_module(self) -> I32:
        return self._find_callers(self._is_module)

    def _find_enclosing(self, wanted: Bool) -> I32:
        parent = self._trace.parent
        found = find_nearest_ancestor_or_self(parent, wanted)
        return np.where(parent >= 0, found[np.maximum(parent, 0)], np.int32(-1)).astype(np.int32)

    def _find_callers(self, wanted: Bool) -> I32:
        """int32[n]: the innermost wanted event around each, as the program sees it; -1 for none.

        What runs backward was called by what ran forward (as torch's own tables have it), GPU work by its launch.
        """
        trace = self._trace
        around = find_nearest_ancestor_or_self(trace.parent, wanted)
        forward = self._forward_of
        backward = find_nearest_ancestor_or_self(trace.parent, forward >= 0)
        mine = np.flatnonzero(backward >= 0)
        around[mine] = around[forward[backward[mine]]]
        launched = np.flatnonzero(trace.links.launch_of >= 0)
        around[launched] = around[trace.links.launch_of[launched]]
        return around

    @cached_property
    def _forward_of(self) -> I32:
        """int32[n]: the forward operator of each backward node and of the engine's call around it, else -1."""
        trace = self._trace
        links = trace.links
        found = np.full(len(trace), -1, np.int32)
        above = trace.parent[links.backward]
        engine = np.fromiter(
            (name.startswith(_AUTOGRAD_ENGINE_PREFIX) for name in trace.names), np.bool_, len(trace.names)
        )
        inside = (above >= 0) & engine[trace.name[np.maximum(above, 0)]]
        found[above[inside]] = links.forward[inside]
        found[links.backward] = links.forward
        return found


_AUTOGRAD_ENGINE_PREFIX = "autograd::engine::evaluate_function"


def _put_empty_first(code: I64, texts: list[str]) -> tuple[I32, list[str]]:
    """The same with "" in the first place, whether anything has it or not."""
    if "" not in texts:
        return (code + 1).astype(np.int32), ["", *texts]
    empty = texts.index("")
    order = [empty, *(place for place in range(len(texts)) if place != empty)]
    number = np.empty(len(texts), np.int32)
    number[order] = np.arange(len(texts), dtype=np.int32)
    return number[code], [texts[place] for place in order]
