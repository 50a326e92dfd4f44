"""What a folder, a pattern, several names or remote names mean: the ranks of a run, or names that hosts must list."""

from __future__ import annotations

import os
from collections.abc import Sequence

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.resolve import ResolvedInput, check_readable
from torchprof_tui.trace.specs.address import ListedTrace, is_pattern, is_remote
from torchprof_tui.trace.specs.rank_files import (
    NO_TRACE_IN_FOLDER,
    NotRanksError,
    RankFile,
    expand_spec,
    explain_unreadable_ranks,
    leave_out_unranked,
    list_local_traces,
    resolve_rank_files,
)
from torchprof_tui.trace.specs.runs_by_name import FolderError, group_recordings


def resolve_paths(specs: Sequence[str], expanded: Sequence[str]) -> ResolvedInput:
    """Resolve everything but one local file."""
    try:
        paths = [path for spec in expanded for path in expand_spec(spec)]
        for path in paths:
            check_readable(path)
        if "-" in paths and len(paths) > 1:
            raise NotRanksError("-: stdin is one trace; the ranks of a run are files")
        if any(is_remote(path) and (len(paths) > 1 or is_pattern(path)) for path in paths):
            label = specs[0] if len(specs) == 1 else _common_prefix(paths)
            return ResolvedInput(paths[0], label, expanded[0] if len(specs) == 1 else "", (), tuple(paths))
        if len(paths) == 1:
            label = specs[0] if paths == list(expanded) else paths[0]
            return ResolvedInput(paths[0], label, paths[0])
        paths, left_out = leave_out_unranked(paths)
        files = tuple(resolve_rank_files(paths, specs[0] if len(specs) == 1 else ""))
    except TraceError:
        raise
    except ValueError as error:  # NotRanksError
        raise TraceError(str(error)) from error
    first = files[0].spec
    if len(specs) == 1:
        return ResolvedInput(first, specs[0], "", files, left_out=left_out)
    label = os.path.commonpath(paths) if _share_named_folder(paths) else first
    return ResolvedInput(first, label, "", files, left_out=left_out)


def resolve_folder(spec: str, folder: str, list_folders: bool) -> ResolvedInput:
    """Resolve a local folder: the one recording in it or below. Raises FolderError where there are several."""
    traces = list_local_traces(folder)
    recordings = group_recordings(traces)
    if not traces:
        raise TraceError(f"{spec}: {NO_TRACE_IN_FOLDER}")
    if recordings.are_parts_of_a_run:
        _resolve_ranks(spec, [trace for trace in traces if trace.rank is not None])  # raises
    if len(recordings.all) > 1:
        error = FolderError(spec, sorted(traces, key=lambda trace: -trace.modified))
        if list_folders:
            return ResolvedInput(folder, spec, "", folder=error)
        raise error
    (recording,) = recordings.all
    paths = [trace.spec for trace in recording.traces]
    reasons = explain_unreadable_ranks(folder, {trace.spec for trace in traces})
    left_out = (*recordings.left_out, *(f"{name}: {reason}" for name, reason in reasons))
    for path in paths:
        check_readable(path)
    if len(paths) == 1:
        return ResolvedInput(paths[0], paths[0], paths[0], left_out=left_out)
    files = _resolve_ranks(spec, recording.traces)
    return ResolvedInput(files[0].spec, spec, folder, files, left_out=left_out)


def _common_prefix(paths: Sequence[str]) -> str:
    """Return the folder or host that all are in, as the user names it; the first path where there is none."""
    folders = {path[: max(path.rfind("/"), path.rfind(":") + 1)] for path in paths}
    return folders.pop() if len(folders) == 1 and "" not in folders else paths[0]


def _share_named_folder(paths: Sequence[str]) -> bool:
    return len({os.path.dirname(path) for path in paths}) == 1 and bool(os.path.dirname(paths[0]))


def _resolve_ranks(folder: str, traces: Sequence[ListedTrace]) -> tuple[RankFile, ...]:
    """Resolve the traces of a folder to ranks. Raises TraceError where they are no run, such as two of one rank."""
    known = {trace.spec: trace.rank for trace in traces if trace.rank is not None}
    try:
        return tuple(resolve_rank_files([trace.spec for trace in traces], folder, known))
    except NotRanksError as error:
        raise TraceError(str(error)) from error
