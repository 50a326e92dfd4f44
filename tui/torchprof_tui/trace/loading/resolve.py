"""What the user may name as a trace, looked at before anything is started for it."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchprof_tui.trace.loading.open_trace import Opening
from torchprof_tui.trace.specs.address import elsewhere, is_pattern, is_url, remote

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.open_ranks import RanksOpening
    from torchprof_tui.trace.loading.open_remote import ElsewhereOpening
    from torchprof_tui.trace.specs.rank_files import RankFile

    AnyOpening = Opening | RanksOpening | ElsewhereOpening

SAMPLE = "sample:"
FILE_URL = "file://"


@dataclass(frozen=True, slots=True)
class Named:
    """What the user named: one trace at `path`; where there are `files`, these ranks of one run; where there are
    `names`, what their hosts have to say first.

    `label` is what they called it. `spec` opens it again, "" where no single name does.
    """

    path: str
    label: str
    spec: str
    files: tuple[RankFile, ...] = ()
    names: tuple[str, ...] = ()

    def opening(
        self, cache: bool = True, stdin: int | None = None, ask: bool = False, late: bool = False
    ) -> AnyOpening:
        """On its way in; all else as `Opening` takes it: for one trace, `ask` also for `names`."""
        if self.names:
            from torchprof_tui.trace.loading.open_remote import ElsewhereOpening

            return ElsewhereOpening(self.names, self.label, self.spec, cache, ask)
        if self.files:
            from torchprof_tui.trace.loading.open_ranks import (
                RanksOpening,  # with an event loop, which one trace begins without
            )

            return RanksOpening(self.files, self.label, self.spec, cache)
        return Opening(self.path, self.label, cache, stdin, ask, late)


def named(specs: Sequence[str]) -> Named:
    """What these mean: a file, or the ranks in a folder, a pattern or several names. Raises TraceError at once where a
    look here is enough to see that it cannot be opened."""
    from_specs = [resolve(spec) for spec in specs]
    path = from_specs[0]
    if len(from_specs) == 1 and os.path.isfile(path) and not elsewhere(path):
        check(path)
        return Named(path, specs[0], path)
    return _looked_at(specs, from_specs)


def _looked_at(specs: Sequence[str], from_specs: Sequence[str]) -> Named:
    """What is not simply one file here."""
    from torchprof_tui.trace.specs.rank_files import NotRanksError, expand, ranks  # which one file need not wait for

    try:
        paths = [path for spec in from_specs for path in expand(spec)]
        for path in paths:
            check(path)
        if _to_be_asked(paths):
            if "-" in paths:
                raise NotRanksError("-: stdin is one trace; the ranks of a run are files")
            label = specs[0] if len(specs) == 1 else _together(paths)
            return Named(paths[0], label, from_specs[0] if len(specs) == 1 else "", (), tuple(paths))
        if len(paths) == 1:
            label = specs[0] if paths == list(from_specs) else paths[0]
            return Named(paths[0], label, paths[0])
        if "-" in paths:
            raise NotRanksError("-: stdin is one trace; the ranks of a run are files")
        files = tuple(ranks(paths, specs[0] if len(specs) == 1 else ""))
    except ValueError as error:  # NotRanksError, an address that is none, or TraceError itself
        from torchprof_tui.trace.core.errors import TraceError

        if isinstance(error, TraceError):
            raise
        raise TraceError(str(error)) from error
    if len(specs) == 1:
        return Named(files[0].spec, specs[0], from_specs[0] if os.path.isdir(from_specs[0]) else "", files)
    return Named(files[0].spec, os.path.commonpath(paths) if _beside(paths) else files[0].spec, "", files)


def _to_be_asked(paths: Sequence[str]) -> bool:
    """Whether other hosts have to say what these are, before it is known what to open."""
    return any(elsewhere(path) and (len(paths) > 1 or is_pattern(path)) for path in paths)


def _together(paths: Sequence[str]) -> str:
    """The folder or the host that all lie in, as the user names it; the first of them where there is none."""
    folders = {path[: max(path.rfind("/"), path.rfind(":") + 1)] for path in paths}
    return folders.pop() if len(folders) == 1 and "" not in folders else paths[0]


def _beside(paths: Sequence[str]) -> bool:
    """Whether all lie in one folder that has a name."""
    return len({os.path.dirname(path) for path in paths}) == 1 and bool(os.path.dirname(paths[0]))


def resolve(spec: str) -> str:
    """The path that is meant: `sample:NAME` is one of ours, `~` the home folder. Raises TraceError."""
    if spec.startswith(FILE_URL):
        from urllib.parse import unquote

        return unquote(spec.removeprefix(FILE_URL))
    if not spec.startswith(SAMPLE) or os.path.exists(spec):
        return os.path.expanduser(spec)
    from torchprof_samples import find

    try:
        return str(find(spec.removeprefix(SAMPLE)).path)
    except LookupError as error:
        from torchprof_tui.trace.core.errors import TraceError

        raise TraceError(str(error.args[0])) from error


def check(spec: str) -> None:
    """Raise TraceError at once where a look here is enough: no such file, a folder, an empty file, no fsspec."""
    if spec == "-":
        return
    if is_url(spec):
        from torchprof_tui.trace.sources.url import check_url

        check_url(spec)
        return
    try:
        there = remote(spec)
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
