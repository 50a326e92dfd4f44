"""Find the rank of a trace in its name, in the forms that training and serving tools write.

| tool | name |
|---|---|
| torch's trace handler, most scripts | `rank3.json`, `worker-3.pt.trace.json.gz`, `trace_r2.json` |
| torchtitan | `iteration_10/rank0_trace.json`, `rank_0/trace.json` |
| vLLM | `dp0_pp0_tp1_rank1.1763.pt.trace.json.gz`, beside `host_77.async_llm.1763.pt.trace.json.gz` without a rank |
| SGLang | `1763.5-TP-1.trace.json.gz`, with `-DP-0`, `-EP-1` and `-DECODE` or `-EXTEND` where it writes those |

Imported before the first frame: standard library only.
"""

from __future__ import annotations

import re

from torchprof_tui.trace.core.late_regex import compile_later

_RANK = compile_later(r"(?<![a-z])(?:rank|worker|r)[-_.]?([0-9]{1,6})(?![0-9])", re.IGNORECASE)

_TENSOR_PARALLEL_RANK = compile_later(r"(?<![A-Za-z0-9])TP-([0-9]{1,6})(?![0-9])")
"""SGLang counts all GPUs of a pipeline stage by their tensor-parallel rank, also with DP attention and experts."""

_PIPELINE_RANK = compile_later(r"(?<![A-Za-z0-9])PP-[0-9]")
"""With several stages, TP is the rank within one: only `distributedInfo` has the rank of the process."""

_PARALLEL_POSITION = compile_later(r"(?<![A-Za-z])((?:TP|DP|PP|EP|CP|DCP|PCP|SP)-?)[0-9]{1,6}(?![0-9])", re.IGNORECASE)

_GENERIC_NAME = compile_later(r"trace(?:_view)?\.(?:json(?:\.\w+)?|trace(?:\.gz)?)")
"""A file name that is the same for all ranks: the folder has the rank."""

_TIMESTAMP = compile_later(r"[0-9]{9,}(?:\.[0-9]+(?![0-9]))?")
"""Seconds (since 2001), with a fraction or in finer units, which TensorBoard's trace handler and SGLang write."""

_ASCEND_FOLDER = compile_later(r"[^/]*_ascend_(?:pt|ms)(?=/)")


def find_rank_digits(spec: str) -> tuple[int, int] | None:
    """Return where in a name the digits of its rank begin and end, None if it says no rank."""
    folder, slash, name = spec.rpartition("/")
    begin = len(folder) + len(slash)
    match = _RANK.search(spec, begin)
    if match is None and not _PIPELINE_RANK.search(spec, begin):
        match = _TENSOR_PARALLEL_RANK.search(spec, begin)
    if match is None and slash and _GENERIC_NAME.fullmatch(name):
        match = _RANK.fullmatch(spec, folder.rfind("/") + 1, len(folder))
    return None if match is None else match.span(1)


def rank_in_name(spec: str) -> int | None:
    """Return the rank in the name of a trace, None if there is none."""
    digits = find_rank_digits(spec)
    return None if digits is None else int(spec[slice(*digits)])


def says_position(spec: str) -> bool:
    """Tell whether the name has a rank, or a position in a parallel group (`PP-1`), of which the rank is unknown."""
    return find_rank_digits(spec) is not None or _PIPELINE_RANK.search(spec.rpartition("/")[2]) is not None


def wildcard_rank(spec: str, timestamps: bool = True) -> str:
    """Replace what differs between the ranks of a run by `*`: the rank, positions and, if wanted, timestamps."""
    digits = find_rank_digits(spec)
    begin = spec.rfind("/") + 1
    if digits is None and not _PIPELINE_RANK.search(spec, begin):
        return _ASCEND_FOLDER.sub("*_ascend_pt", spec)
    if digits is None:
        digits = (begin, begin)
    first = min(begin, digits[0])
    before, after = spec[first : digits[0]], spec[digits[1] :]
    rank = "*" if digits[0] != digits[1] else ""
    return spec[:first] + _wildcard_rest(before, timestamps) + rank + _wildcard_rest(after, timestamps)


def _wildcard_rest(text: str, timestamps: bool) -> str:
    text = _TIMESTAMP.sub("*", text) if timestamps else text
    return _PARALLEL_POSITION.sub(r"\1*", text)


def find_timestamps(spec: str) -> list[int]:
    """Return the timestamps in a file name, to sort the recordings of one rank."""
    return [int(digits) for match in _TIMESTAMP.findall(spec.rpartition("/")[2]) for digits in match.split(".")]
