"""Record what a block of Python does, as in a cell of a notebook, and open its trace."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Any

from torchprof_tui.answers import html
from torchprof_tui.answers.arguments import check_flag
from torchprof_tui.api.trace import Trace
from torchprof_tui.api.trace import open as open_trace
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.extensions import import_extra

DEFAULT_FOLDER = "torchprof_runs"  # where recordings without a path go, as those of `torchprof-tui run`


class Recording:
    """A recording of a `with` block; made by `record`. `path`: the trace file."""

    def __init__(self, path: str, flags: dict[str, bool]) -> None:
        self.path = path
        self._flags = flags
        self._torch: Any = None
        self._profile: Any = None
        self._step_range: Any = None
        self._step_count = 0
        self._is_saved = False
        self._trace: Trace | None = None

    def __enter__(self) -> Recording:
        if self._profile is not None:
            raise TraceError("this recording has been used: call record() again")
        self._torch = import_extra("torch")
        if self._torch._C._autograd._profiler_enabled():
            raise TraceError("torch's profiler is on already: end the other recording first")
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        self._profile = self._torch.profiler.profile(**self._flags)
        self._profile.start()
        return self

    def step(self) -> None:
        """Begin a step, which lasts until the next one begins or the block ends."""
        if self._profile is None or self._is_saved:
            raise TraceError("step() marks steps inside of the with block")
        self._close_step()
        self._step_range = self._torch.profiler.record_function(f"ProfilerStep#{self._step_count}")
        self._step_range.__enter__()
        self._step_count += 1

    def _close_step(self) -> None:
        if self._step_range is not None:
            self._step_range.__exit__(None, None, None)
            self._step_range = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close_step()
        self._profile.stop()
        self._profile.export_chrome_trace(self.path)
        self._is_saved = True

    @property
    def trace(self) -> Trace:
        """The opened trace, once the block has ended. Raises TraceError before."""
        if not self._is_saved:
            raise TraceError("the trace is there once the with block has ended")
        if self._trace is None:
            self._trace = open_trace(self.path)
        return self._trace

    def __repr__(self) -> str:
        return f"<recording {self.path!r}{'' if self._is_saved else ', not ended'}>"

    def _repr_html_(self) -> str:
        if not self._is_saved:
            return html.build_block(repr(self))
        return self.trace._repr_html_() + self.trace.table()._repr_html_()


def record(
    path: str | os.PathLike[str] | None = None,
    *,
    record_shapes: bool = False,
    with_stack: bool = False,
    profile_memory: bool = False,
    with_flops: bool = False,
) -> Recording:
    """Record a block: `with tt.record() as rec: …`, then `rec.trace` is its opened trace.

    `path`: the file to write, .json or .json.gz, by default a new one in the folder torchprof_runs. `rec.step()` marks
    where a step begins. The other arguments are those of torch.profiler.profile. What an exception in the block leaves
    is saved as well. Raises TraceError where torch is missing or its profiler is on.
    """
    flags = {
        "record_shapes": record_shapes, "with_stack": with_stack, "profile_memory": profile_memory,
        "with_flops": with_flops,
    }  # fmt: skip
    for name, flag in flags.items():
        check_flag(name, flag)
    if path is None:
        path = os.path.join(DEFAULT_FOLDER, f"cell-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 1000:03}.json.gz")
    elif not os.fspath(path).endswith((".json", ".json.gz")):
        raise TraceError(f"{os.fspath(path)}: name a file that ends in .json or .json.gz")
    return Recording(os.path.abspath(os.fspath(path)), flags)
