"""Fill the form for a recording with the request that recorded a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchprof_tui.runs.history import read_request
from torchprof_tui.trace.core.errors import UnreadableFileError
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.record.record_screen import STACK_OPTION, RecordScreen

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace


def create_form_of_trace(path: str, trace: Trace | None, environment: Mapping[str, str] | None) -> RecordScreen:
    """Create the form with the request that recorded the trace at `path`, with stacks if `trace` has none.

    Empty where no request is known. One that this user did not make is only shown, see `runs.request_signature`.
    """
    try:
        stored = read_request(path)
    except UnreadableFileError as error:
        return RecordScreen(environment=environment, problem=str(error))
    if stored is None:
        return RecordScreen(environment=environment)
    lacks_stacks = trace is not None and not bool((trace.kind == Kind.PYTHON).any())
    foreign_file, switched_on = None if stored.is_own else stored.path, STACK_OPTION if lacks_stacks else ""
    return RecordScreen(stored.request, stored.cwd, foreign_file, environment, switched_on, stored.problem)
