"""Read the files that a job has left: of folders, patterns, ssh hosts and object stores."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from collections.abc import Iterable, Iterator, Sequence

from torchprof_hang.analysis.evidence import Evidence, gather_evidence
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.resolve import resolve_path
from torchprof_tui.trace.sources.listing import list_remote_traces
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.specs.address import is_pattern, is_remote
from torchprof_tui.trace.specs.rank_files import NotRanksError, expand_spec

MAX_BYTES = 256 << 20  # the largest file that is read, decompressed

MAX_FILES = 20_000
WATCH_FOLDER = "hang"  # the folder in that of a run that `run --watch-hang` writes to

_OTHER_FILES = (".pt.trace.json", ".pt.trace.json.gz", ".averages.json", ".py", ".part")
_TAR = b"ustar"
_COMPRESSED = (b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")


def read_evidence(names: Sequence[str]) -> Evidence:
    """Read what the names lead to. Raises UsageError where none of it is about a hang."""
    lost: list[tuple[str, str]] = []
    with contextlib.ExitStack() as connections:
        specs = _list_files(names, connections, lost)
        evidence = gather_evidence(_read_all(specs, lost))
    evidence.lost[:0] = lost
    if not evidence.used:
        reason = f"{evidence.lost[0][0]}: {evidence.lost[0][1]}" if evidence.lost else f"{names[0]}: no files"
        more = f" (and {len(evidence.lost) - 1:,} more)" if len(evidence.lost) > 1 else ""
        raise UsageError(f"{reason}{more}; expected dumps of torch's flight recorder, stacks, logs or RAS output")
    return evidence


def _list_files(names: Sequence[str], connections: contextlib.ExitStack, lost: list[tuple[str, str]]) -> list[str]:
    found: dict[str, None] = {}
    for name in map(resolve_path, names):
        if name == "-":
            raise UsageError("-: name a folder or files")
        if is_remote(name):
            found |= dict.fromkeys(_list_remote(name, connections, lost))
        elif os.path.isdir(name):
            found |= dict.fromkeys(_list_folder(name))
        else:
            try:
                found |= dict.fromkeys(expand_spec(name))
            except NotRanksError as error:
                lost.append((name, str(error).removeprefix(f"{name}: ")))
    return list(found)


def _list_folder(folder: str) -> Iterator[str]:
    """List the files of a folder, or of the folder of the watch in that of a run, with the logs beside it."""
    watched = os.path.join(folder, WATCH_FOLDER)
    if os.path.isdir(watched):
        yield from _list_folder(watched)
        yield from (os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".log"))
        return
    for name in sorted(os.listdir(folder))[:MAX_FILES]:
        path = os.path.join(folder, name)
        if not name.startswith(".") and not name.endswith(_OTHER_FILES) and os.path.isfile(path):
            yield path


def _list_remote(name: str, connections: contextlib.ExitStack, lost: list[tuple[str, str]]) -> list[str]:
    """List a remote file, or the files of a remote folder: its listing has traces only, a pattern has all."""
    stem = name.rstrip("/")
    names = [name] if is_pattern(name) else [f"{stem}/{WATCH_FOLDER}/*", f"{stem}/*", name]
    for each in names:
        (listing,) = list_remote_traces([each], connections)
        if listing.traces:
            return [trace.spec for trace in listing.traces if not trace.spec.endswith(_OTHER_FILES)]
    lost.append((name, listing.error.removeprefix(f"{name}: ") or "no files there"))
    return []


def _read_all(specs: Iterable[str], lost: list[tuple[str, str]]) -> Iterator[tuple[str, bytes]]:
    for spec in specs:
        try:
            data = _read_file(spec)
            if data[257:262] == _TAR:
                with tarfile.open(fileobj=io.BytesIO(data)) as archive:  # it is not unpacked
                    for member in filter(tarfile.TarInfo.isfile, archive):
                        file = archive.extractfile(member)
                        yield f"{spec}/{member.name.rpartition('/')[2]}", b"" if file is None else file.read()
            else:
                yield spec, data
        except (TraceError, OSError, tarfile.TarError) as error:
            lost.append((spec, " ".join(str(error).split()).removeprefix(f"{spec}: ")))


def _read_file(spec: str) -> bytes:
    """Read a file, decompressed. A small local one is not read through a source, which takes four times as long."""
    if not is_remote(spec):
        data = b""
        with contextlib.suppress(OSError), open(spec, "rb") as file:  # `open_source` explains what failed
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise TraceError(f"{spec}: larger than {MAX_BYTES >> 20} MB")
        if data and not data.startswith(_COMPRESSED):
            return data
    source = open_source(spec)
    try:
        parts, size = [], 0
        for block in source.blocks_in_this_thread():
            parts.append(block)
            size += len(block)
            if size > MAX_BYTES:
                raise TraceError(f"{spec}: larger than {MAX_BYTES >> 20} MB, decompressed")
        return b"".join(parts)
    finally:
        source.close()
