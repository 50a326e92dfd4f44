"""Find the traces of the same program in the other mode: the eager one of a compiled one, and the reverse."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Sequence

from torchprof_samples import SAMPLES
from torchprof_tui.runs.history import list_past_runs, read_request
from torchprof_tui.trace.core.errors import UnreadableFileError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.loading.recordings_beside import is_compiled_command, reduce_command
from torchprof_tui.trace.specs.address import (
    SAMPLE_PREFIX,
    is_key_averages_file,
    is_remote,
    is_url,
    list_local_suffixes,
)
from torchprof_tui.ui.start.recent_traces import MAX_SCANNED, list_recent_traces

_COMPILED = frozenset({"compile", "compiled"})
_WARMTH = frozenset({"cold", "warm"})
"""Words of names that say nothing about the program: a compiled recording has always been warmed up."""


@record
class _Mode:
    """What was recorded, without the mode: `exact` with the warm-up's word. `is_compiled`: through torch.compile."""

    program: tuple[str, ...]
    exact: tuple[str, ...]
    is_compiled: bool


def list_known_traces(opened: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return (name, what it is) of the open trace's twins; of other traces beside it, recent ones and samples.

    The others are sorted by how many words their names begin with that the open trace's name begins with as well.
    """
    names = {str(sample.path): f"{SAMPLE_PREFIX}{sample.name}" for sample in SAMPLES}
    specs = [trace.spec for trace in list_recent_traces() if trace.spec != opened]
    known = [(names.get(spec, spec), "opened before") for spec in specs]
    known += [(f"{SAMPLE_PREFIX}{sample.name}", sample.ran) for sample in SAMPLES]
    twins = find_twins(names.get(opened, opened), [name for name, _ in known])
    beside = [name for name in _list_neighbours(opened) if name != opened] if opened and opened not in names else []
    words = _read_name(names.get(opened, opened)).exact
    others = [*((name, "in the same folder") for name in beside), *known]
    return twins, sorted(others, key=lambda other: -_count_common_words(words, _read_name(other[0]).exact))


def _count_common_words(a: Sequence[str], b: Sequence[str]) -> int:
    """Count the words that both begin with."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def find_twins(opened: str, others: Sequence[str]) -> list[tuple[str, str]]:
    """Return (name, note) of twins of the open trace: among `others`, beside it and of its runs, the closest first.

    The names tell (`mlp_eager`, `mlp_compile`), or the request of the run that recorded them. Reads the disk.
    """
    beside = _list_neighbours(opened) if _is_local(opened) else others
    asked = _read_run(opened)
    by_request = []
    if asked is not None:  # among the runs beside that of the open trace, newest first
        output = os.path.dirname(os.path.dirname(os.path.abspath(os.path.expanduser(opened))))
        runs = [(run.result.traces_to_open[:1], _read_command(run.request.command)) for run in list_past_runs(output)]
        by_request = _choose(asked, ((trace, mode) for traces, mode in runs for trace in traces))
    by_name = _choose(_read_name(opened), ((name, _read_name(name)) for name in beside))
    return list(dict([*by_request, *by_name]).items())


def _is_local(spec: str) -> bool:
    return not (spec.startswith(SAMPLE_PREFIX) or is_remote(spec) or is_url(spec))


def _choose(opened: _Mode, candidates: Iterable[tuple[str, _Mode]]) -> list[tuple[str, str]]:
    """List the twins of `opened`, those with the same warm-up first."""
    same = [(name, mode) for name, mode in candidates if mode.program == opened.program]
    twins = [(name, mode) for name, mode in same if mode.is_compiled != opened.is_compiled]
    twins.sort(key=lambda twin: twin[1].exact != opened.exact)
    return [(name, "the same, compiled" if mode.is_compiled else "the same, eager") for name, mode in twins]


def _read_name(spec: str) -> _Mode:
    """Read the mode from the words of a file's name; the folder must be the same."""
    folder, _, name = spec.removeprefix(SAMPLE_PREFIX).rpartition("/")
    suffix = max((end for end in list_local_suffixes() if name.endswith(end)), key=len, default="")
    words = re.findall(r"[^\W_]+", name.removesuffix(suffix).casefold())
    exact = tuple(word for word in words if word not in _COMPILED and word != "eager")
    program = tuple(word for word in exact if word not in _WARMTH)
    return _Mode((folder, *program), exact, not _COMPILED.isdisjoint(words))


def _list_neighbours(spec: str) -> list[str]:
    """List the traces beside a local trace; beside a folder of ranks, the folders; [] beside what is remote."""
    if not _is_local(spec):
        return []
    folder, name = os.path.split(spec)
    suffixes = list_local_suffixes()
    with contextlib.suppress(OSError), os.scandir(os.path.expanduser(folder) or ".") as entries:
        several = itertools.islice(entries, MAX_SCANNED)
        wanted = name.endswith(suffixes)
        names = [each.name for each in several if (each.name.endswith(suffixes) if wanted else each.is_dir())]
        return sorted(os.path.join(folder, each) for each in names if not is_key_averages_file(each))
    return []


def _read_run(spec: str) -> _Mode | None:
    """Read the mode from the request that recorded a local trace; None without one."""
    with contextlib.suppress(UnreadableFileError, OSError):
        stored = read_request(os.path.expanduser(spec)) if _is_local(spec) else None
        return None if stored is None else _read_command(stored.request.command)
    return None


def _read_command(command: Sequence[str]) -> _Mode:
    """Read the mode from a program's own options: `--compile`, or `--mode` with a mode of torch.compile."""
    program = reduce_command(command)
    return _Mode(program, program, is_compiled_command(command))
