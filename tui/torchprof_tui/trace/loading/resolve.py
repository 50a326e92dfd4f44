"""What the user's names mean: one trace, the ranks of a run, or remote names that their hosts must list first.

Checked before anything is started. Imported on the way to the first frame: standard library only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.loading.opener import FolderOpener, SingleTraceOpener, TraceOpener
from torchprof_tui.trace.specs.address import SAMPLE_PREFIX, SshPath, is_remote, is_url, parse_ssh_path

if TYPE_CHECKING:
    from torchprof_tui.trace.sources.ssh_connections import SshConnections
    from torchprof_tui.trace.specs.rank_files import RankFile
    from torchprof_tui.trace.specs.runs_by_name import FolderError

FILE_URL_PREFIX = "file://"


@record
class ResolvedInput:
    """What the user named: one trace at `path`; the ranks of one run where there are `rank_files`; names that their
    hosts must list first where there are `remote_names`.

    `label` is what the user called it. `spec` is the name that opens it again, "" where no single name does.
    `left_out`: one line for each trace of the folder or pattern that is not opened, as it says no rank. `folder`: lists
    the traces of a folder with several recordings, from which the user must choose.
    """

    path: str
    label: str
    spec: str
    rank_files: tuple[RankFile, ...] = ()
    remote_names: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    folder: FolderError | None = None

    def create_opener(
        self,
        cache: bool = True,
        stdin: int | None = None,
        defer_blocks: bool = False,
        connections: SshConnections | None = None,
    ) -> TraceOpener:
        """Create its opener. `stdin` and `defer_blocks` are for one trace.

        `connections`: those of the session, which the opener makes first where the names are on ssh hosts.
        """
        opener = self._create_opener(cache, stdin, defer_blocks)
        if connections is not None and (hosts := self.ssh_hosts()):
            opener.connect_first(hosts, connections)
        return opener

    def ssh_hosts(self) -> list[SshPath]:
        """Return one path on each ssh host that is named."""
        names = self.remote_names or [file.spec for file in self.rank_files] or [self.path]
        paths = [path for path in map(parse_ssh_path, names) if path is not None]
        return list({(path.host, path.port): path for path in reversed(paths)}.values())[::-1]

    def _create_opener(self, cache: bool, stdin: int | None, defer_blocks: bool) -> TraceOpener:
        if self.folder is not None:
            return FolderOpener(self.folder)
        if self.remote_names:
            from torchprof_tui.trace.loading.open_ranks import RemoteOpener  # deferred: one trace does not need it

            return RemoteOpener(self.remote_names, self.label, self.spec, cache)
        if self.rank_files:
            from torchprof_tui.trace.loading.open_ranks import RanksOpener  # deferred: imports asyncio

            return RanksOpener(self.rank_files, self.label, self.spec, cache, left_out=self.left_out)
        return SingleTraceOpener(self.path, self.label, cache, stdin, defer_blocks, self.left_out)


def resolve_specs(specs: Sequence[str], list_folders: bool = False) -> ResolvedInput:
    """Resolve what the user named: a file, or the ranks in a folder, a pattern or several names.

    Raises TraceError where it is certain without opening it that it cannot be opened; FolderError for a local folder
    with several recordings, unless `list_folders`: its opener then lists them for the user to choose.
    """
    expanded = [resolve_path(spec) for spec in specs]
    path = expanded[0]
    if len(expanded) == 1 and os.path.isfile(path) and not is_remote(path):
        check_readable(path)
        return ResolvedInput(path, specs[0], path)
    # deferred: one local file does not need it
    from torchprof_tui.trace.loading.resolve_several import resolve_folder, resolve_paths

    if len(expanded) == 1 and os.path.isdir(path) and not is_remote(path):
        return resolve_folder(specs[0], path, list_folders)
    return resolve_paths(specs, expanded)


def resolve_path(spec: str) -> str:
    """Resolve `sample:NAME` to its file, `file://` to its path, `~` to the home folder. Raises TraceError."""
    if spec.startswith(FILE_URL_PREFIX):
        return unquote(spec.removeprefix(FILE_URL_PREFIX))
    if not spec.startswith(SAMPLE_PREFIX) or os.path.exists(spec):
        return os.path.expanduser(spec)
    from torchprof_samples import find  # deferred: only samples need it

    try:
        return str(find(spec.removeprefix(SAMPLE_PREFIX)).path)
    except LookupError as error:
        raise TraceError(str(error.args[0])) from error


def check_readable(spec: str) -> None:
    """Raise TraceError where it is certain without connecting: no such file, a folder, an empty file, no fsspec."""
    if spec == "-":
        return
    if is_url(spec):
        from torchprof_tui.trace.sources.url import require_fsspec  # deferred: only URLs need it

        require_fsspec(spec)
        return
    if parse_ssh_path(spec) is not None:
        return  # connecting takes long: the worker does it
    try:
        status = os.stat(spec)
        if stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode):
            return  # opening it here would take bytes that the worker is to read
        if stat.S_ISREG(status.st_mode) and status.st_size > 0 and os.access(spec, os.R_OK):
            return
    except (OSError, ValueError):
        pass
    from torchprof_tui.trace.sources.source import open_source  # deferred: only a refusal needs it

    open_source(spec).close()
