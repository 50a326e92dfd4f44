"""Find the Python frames and modules from which calls were made, as far as `with_stack` recorded them."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor_or_self
from torchprof_tui.analysis.dispatch.frame_names import AUTOGRAD_ENGINE_PREFIX, MODULE_CALL_PREFIX
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


class CallSites:
    """Call sites of one trace; arrays over all events are computed on first use and kept."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def factorize_stacks(self, events: I32, depth: int) -> tuple[I32, list[str]]:
        """Return (text index int32[k], texts): `depth` innermost frames of each event, innermost first, one per line.

        The first text is "": no frame around it.
        """
        frame = self._calling_frame[events]
        parent_frame = self._frame_above
        names = self._trace.names
        frames, inverse = np.unique(frame, return_inverse=True)
        path_of_frame = np.zeros(len(frames), np.int64)
        paths: list[tuple[int, ...]] = [()]
        current = frames
        for _ in range(depth):
            name = np.where(current >= 0, self._trace.name[np.maximum(current, 0)], -1)
            keys, path_index = np.unique(path_of_frame * (len(names) + 1) + name + 1, return_inverse=True)
            previous = (keys // (len(names) + 1)).tolist()
            added_names = (keys % (len(names) + 1) - 1).tolist()
            paths = [
                paths[path] + ((name_id,) if name_id >= 0 else ())
                for path, name_id in zip(previous, added_names, strict=True)
            ]
            path_of_frame = path_index.astype(np.int64)
            current = np.where(current >= 0, parent_frame[np.maximum(current, 0)], -1).astype(np.int32)
        texts = ["\n".join(names[name] for name in path) for path in paths]
        return _put_empty_first(path_of_frame[inverse], texts)

    def factorize_modules(self, events: I32) -> tuple[I32, list[str]]:
        """Return (path index int32[k], paths): modules around each event, outermost first: `A_0/B_1`; "" for none."""
        modules, inverse = np.unique(self._calling_module[events], return_inverse=True)
        path_of_module: dict[int, str] = {-1: ""}
        index_of_path: dict[str, int] = {}
        path_index = []
        for module in modules.tolist():
            calls = [module]
            while calls[-1] not in path_of_module:
                calls.append(int(self._module_above[calls[-1]]))
            path = path_of_module[calls.pop()]
            for call in reversed(calls):
                name = self._trace.names[self._trace.name[call]].removeprefix(MODULE_CALL_PREFIX)
                path = path_of_module[call] = f"{path}/{name}" if path else name
            path_index.append(index_of_path.setdefault(path, len(index_of_path)))
        return _put_empty_first(np.array(path_index, np.int64)[inverse], list(index_of_path))

    @cached_property
    def _is_frame(self) -> Bool:
        return np.asarray(self._trace.kind == Kind.PYTHON)

    @cached_property
    def _frame_above(self) -> I32:
        """int32[n]: the innermost frame around each event, excluding itself."""
        return self._find_enclosing(self._is_frame)

    @cached_property
    def _module_above(self) -> I32:
        return self._find_enclosing(self._is_module)

    @cached_property
    def _is_module(self) -> Bool:
        return np.asarray(self._is_frame & match_names(self._trace, lambda name: name.startswith(MODULE_CALL_PREFIX)))

    @cached_property
    def _calling_frame(self) -> I32:
        """int32[n]: the innermost frame that each event was called from."""
        return self.find_callers(self._is_frame)

    @cached_property
    def _calling_module(self) -> I32:
        return self.find_callers(self._is_module)

    def _find_enclosing(self, wanted: Bool) -> I32:
        parent = self._trace.parent
        nearest = find_nearest_ancestor_or_self(parent, wanted)
        return np.where(parent >= 0, nearest[np.maximum(parent, 0)], np.int32(-1)).astype(np.int32)

    def find_callers(self, wanted: Bool) -> I32:
        """Find the innermost wanted event that called each event in the program: int32[n]; -1 for none.

        Backward operators are called by their forward (as in torch's own tables), GPU work by its launch.
        """
        trace = self._trace
        caller = find_nearest_ancestor_or_self(trace.parent, wanted)
        forward = self._forward_of
        backward = find_nearest_ancestor_or_self(trace.parent, forward >= 0)
        in_backward = np.flatnonzero(backward >= 0)
        caller[in_backward] = caller[forward[backward[in_backward]]]
        launched = np.flatnonzero(trace.links.launch_of >= 0)
        caller[launched] = caller[trace.links.launch_of[launched]]
        return caller

    @cached_property
    def _forward_of(self) -> I32:
        """int32[n]: the forward operator of each backward node and of the engine's call around it, else -1."""
        trace = self._trace
        links = trace.links
        forward_of = np.full(len(trace), -1, np.int32)
        parents = trace.parent[links.backward]
        is_engine = match_names(trace, lambda name: name.startswith(AUTOGRAD_ENGINE_PREFIX))
        in_engine = parents >= 0
        in_engine[in_engine] = is_engine[parents[in_engine]]
        forward_of[parents[in_engine]] = links.forward[in_engine]
        forward_of[links.backward] = links.forward
        return forward_of


def _put_empty_first(code: I64, texts: list[str]) -> tuple[I32, list[str]]:
    """Renumber so that "" comes first, whether any event has it or not."""
    ordered = ["", *(text for text in texts if text)]
    index = {text: number for number, text in enumerate(ordered)}
    return np.array([index[text] for text in texts], np.int32)[code], ordered
