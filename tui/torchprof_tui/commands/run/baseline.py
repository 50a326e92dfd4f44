"""Compare a new recording with an earlier one: `torchprof-tui run … --compare-to LAST|TRACE`."""

from __future__ import annotations

import os
import shlex
from typing import Any

from msgspec import UNSET

from torchprof_tui.analysis.compare.comparison import require_torch_trace
from torchprof_tui.answers.diff import build_diff
from torchprof_tui.answers.record import as_fields
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.commands.common.options import UndecidedChoice
from torchprof_tui.commands.diff import DiffOptions
from torchprof_tui.commands.diff.main import load_comparison, parse_time_limit, report_limit
from torchprof_tui.commands.diff.text import format_comparison
from torchprof_tui.runs.history import MAX_FOLDERS, list_past_runs
from torchprof_tui.runs.recording_request import RecordingRequest
from torchprof_tui.runs.run_result import RunResult
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.records import record

LAST = "LAST"  # names the last recording of the same command. A file of this name: ./LAST


@record
class Baseline:
    """The earlier recording, as `diff` opens it, and the values of `--fail-on` and `--undecided`."""

    spec: str
    fail_on: str | None
    undecided: UndecidedChoice | None

    def compare(self, result: RunResult, as_json: bool) -> tuple[dict[str, Any] | None, int]:
        """Print what changed from the earlier recording to the new one, or return it as the JSON document of `diff`.

        Also returns the exit status of `diff`. Raises UsageError if the two cannot be compared.
        """
        options = DiffOptions(a=self.spec, b=name_recording(result), fail_on=self.fail_on, undecided=self.undecided)
        limit = None if self.fail_on is None else parse_time_limit(self.fail_on)
        try:
            comparison = load_comparison(options)
            if as_json:
                failed = UNSET if limit is None else limit.is_exceeded(comparison.account)
                document = as_fields(build_diff(comparison, options.by, failed))
            else:
                document = None
                print("\n".join(format_comparison(comparison, options.by)))
        except (UsageError, TraceError) as error:  # the recording is kept, and can be compared with other options
            command = shlex.join(["torchprof-tui", "diff", options.a, options.b])
            raise UsageError(f"not compared: {error} (the new trace is kept: {command})") from error
        return document, report_limit(comparison, limit, self.undecided)


def find_baseline(
    compare_to: str, fail_on: str | None, undecided: UndecidedChoice | None, request: RecordingRequest
) -> Baseline:
    """Find the earlier recording and check that it opens, before anything is recorded.

    It is loaded once more for the comparison, from the cache, so that it takes no memory while the program runs.
    Raises UsageError.
    """
    if fail_on is not None:
        parse_time_limit(fail_on)
    if compare_to == "-":
        raise UsageError("--compare-to -: a pipe can be read only once; name a file")
    spec = _find_last_recording(request) if compare_to == LAST else compare_to
    try:
        opened = load_specs([spec], cache=True)
        require_torch_trace(opened.trace)
    except (TraceError, UsageError) as error:
        raise UsageError(f"--compare-to {spec}: {error}; nothing was recorded") from error
    if opened.cache_entry is not None:
        opened.cache_entry.close()
    return Baseline(spec, fail_on, undecided)


def name_recording(result: RunResult) -> str:
    """Name what a run recorded as `diff` opens it: its (first) trace, or the folder with one trace of each rank."""
    is_folder = 1 < len(result.traces_to_open) == len(result.traces) and result.folder is not None
    path = result.folder if is_folder and result.folder is not None else result.traces_to_open[0]
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _find_last_recording(request: RecordingRequest) -> str:
    """Find the last run of the same command in the same folder whose trace is still there. Raises UsageError."""
    here = os.getcwd()
    for past in list_past_runs(request.output, MAX_FOLDERS):
        is_same = past.request.command == request.command and past.stored.cwd == here
        if is_same and past.result.traces and all(map(os.path.exists, past.result.traces_to_open)):
            return name_recording(past.result)
    raise UsageError(
        f"--compare-to {LAST}: no earlier recording of {shlex.join(request.command)} in {request.output}: "
        "record it once without --compare-to, or name a trace"
    )
