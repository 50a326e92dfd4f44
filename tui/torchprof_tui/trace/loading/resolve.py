"""What the user may name as a trace, looked at before anything is started for it."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchprof_tui.trace.loading.open_trace import SingleTraceOpener
from torchprof_tui.trace.specs.address import is_pattern, is_remote, is_url, parse_ssh_path

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.open_ranks import RanksOpener
    from torchprof_tui.trace.loading.open_remote import RemoteOpener
    from torchprof_tui.trace.specs.rank_files import RankFile

    AnyOpener = SingleTraceOpener | RanksOpener | RemoteOpener

SAMPLE_PREFIX = "sample:"
FILE_URL_PREFIX = "file://"


@dataclass(frozen=True, slots=True)
class ResolvedInput:
    """What the user named: one trace at `path`; where there are `files`, these ranks of one run; where there are
    `names`, what their hosts have to say first.

    `label` is what they called it. `spec` opens it again, "" where no single name does.
    """

    path: str
    label: str
    spec: str
    rank_files: tuple[RankFile, ...] = ()
    remote_names: tuple[str, ...] = ()

    def create_opener(
        self, cache: bool = True, stdin: int | None = None, ask: bool = False, defer_blocks: bool = False
    ) -> AnyOpener:
        """On its way in; all else as `Opening` takes it: for one trace, `ask` also for `names`."""
        if self.remote_names:
            from torchprof_tui.trace.loading.open_remote import RemoteOpener

            return RemoteOpener(self.remote_names, self.label, self.spec, cache, ask)
        if self.rank_files:
            from torchprof_tui.trace.loading.open_ranks import (
                RanksOpener,  # with an event loop, which one trace begins without
            )

            return RanksOpener(self.rank_files, self.label, self.spec, cache)
        return SingleTraceOpener(self.path, self.label, cache, stdin, ask, defer_blocks)


def resolve_specs(specs: Sequence[str]) -> ResolvedInput:
    """What these mean: a file, or the ranks in a folder, a pattern or several names. Raises TraceError at once where a
    look here is enough to see that it cannot be opened."""
    from_specs = [resolve_path(spec) for spec in specs]
    path = from_specs[0]
    if len(from_specs) == 1 and os.path.isfile(path) and not is_remote(path):
        check_readable(path)
        return ResolvedInput(path, specs[0], path)
    return _resolve_paths(specs, from_specs)


def _resolve_paths(specs: Sequence[str], from_specs: Sequence[str]) -> ResolvedInput:
    """What is not simply one file here."""
    from torchprof_tui.trace.specs.rank_files import (
        NotRanksError,
        expand_spec,
        resolve_rank_files,
    )  # which one file need not wait for

    try:
        paths = [path for spec in from_specs for path in expand_spec(spec)]
        for path in paths:
            check_readable(path)
        if _needs_listing(paths):
            if "-" in paths:
                raise NotRanksError("-: stdin is one trace; the ranks of a run are files")
            label = specs[0] if len(specs) == 1 else _common_prefix(paths)
            return ResolvedInput(paths[0], label, from_specs[0] if len(specs) == 1 else "", (), tuple(paths))
        if len(paths) == 1:
            label = specs[0] if paths == list(from_specs) else paths[0]
            return ResolvedInput(paths[0], label, paths[0])
        if "-" in paths:
            raise NotRanksError("-: stdin is one trace; the ranks of a run are files")
        files = tuple(resolve_rank_files(paths, specs[0] if len(specs) == 1 else ""))
    except ValueError as error:  # NotRanksError, an address that is none, or TraceError itself
        from torchprof_tui.trace.core.errors import TraceError

        if isinstance(error, TraceError):
            raise
        raise TraceError(str(error)) from error
    if len(specs) == 1:
        return ResolvedInput(files[0].spec, specs[0], from_specs[0] if os.path.isdir(from_specs[0]) else "", files)
    return ResolvedInput(
        files[0].spec, os.path.commonpath(paths) if _share_named_folder(paths) else files[0].spec, "", files
    )


def _needs_listing(paths: Sequence[str]) -> bool:
    """Whether other hosts have to say what these are, before it is known what to open."""
    return any(is_remote(path) and (len(paths) > 1 or is_pattern(path)) for path in paths)


def _common_prefix(paths: Sequence[str]) -> str:
    """The folder or the host that all lie in, as the user names it; the first of them where there is none."""
    folders = {path[: max(path.rfind("/"), path.rfind(":") + 1)] for path in paths}
    return folders.pop() if len(folders) == 1 and "" not in folders else paths[0]


def _share_named_folder(paths: Sequence[str]) -> bool:
    """Whether all lie in one folder that has a name."""
    return len({os.path.dirname(path) for path in paths}) == 1 and bool(os.path.dirname(paths[0]))


def resolve_path(spec: str) -> str:
    """The path that is meant: `sample:NAME` is one of ours, `~` the home folder. Raises TraceError."""
    if spec.startswith(FILE_URL_PREFIX):
        from urllib.parse import unquote

        return unquote(spec.removeprefix(FILE_URL_PREFIX))
    if not spec.startswith(SAMPLE_PREFIX) or os.path.exists(spec):
        return os.path.expanduser(spec)
    from torchprof_samples import find

    try:
        return str(find(spec.removeprefix(SAMPLE_PREFIX)).path)
    except LookupError as error:
        from torchprof_tui.trace.core.errors import TraceError

        raise TraceError(str(error.args[0])) from error


def check_readable(spec: str) -> None:
    """Raise TraceError at once where a look here is enough: no such file, a folder, an empty file, no fsspec."""
    if spec == "-":
        return
    if is_url(spec):
        from torchprof_tui.trace.sources.url import require_fsspec

        require_fsspec(spec)
        return
    try:
        there = parse_ssh_path(spec)
    except ValueError as error:
        from torchprof_tui.trace.core.errors import TraceError

        raise TraceError(str(error)) from error
    if there is not None:
        return  # connecting takes its time, which the loader has
    try:
        found = os.stat(spec)
        if stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode):
            return  # opening it here would take from what the loader is to read
        if stat.S_ISREG(found.st_mode) and found.st_size > 0 and os.access(spec, os.R_OK):
            return
    except (OSError, ValueError):
        pass
    from torchprof_tui.trace.sources.open import open_source

    open_source(spec).close()
