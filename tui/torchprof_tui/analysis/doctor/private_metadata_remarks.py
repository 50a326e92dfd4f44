"""Warn of environment variables and secrets in the metadata of a file, without showing them."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from torchprof_tui.analysis.completeness.private_metadata import (
    PrivateKind,
    PrivateValue,
    find_private_values,
)
from torchprof_tui.analysis.doctor.remark import Remark, Section
from torchprof_tui.trace.core.errors import TraceChangedError
from torchprof_tui.trace.core.problems import excerpt
from torchprof_tui.trace.model.trace import Trace

_MAX_READ_BYTES = 4 << 20
"""Larger values of a file (samples, stack tables) are searched when they are copied, not for a remark."""

_MEANINGS = {
    PrivateKind.ENVIRONMENT: "the file holds environment variables of the process, which often contain tokens",
    PrivateKind.SECRET: "the metadata of the file holds what looks like a password or token",
}
_KINDS = {PrivateKind.ENVIRONMENT: "environment variables", PrivateKind.SECRET: "secrets"}
_ACTION = "before you share the file: torchprof-tui export leaves this out, and so does slice"


def find_private_metadata(trace: Trace) -> Iterator[Remark]:
    """Find environment variables and secrets in the metadata of all ranks: one remark of each kind, on keys only."""
    found = [(rank.label_prefix(": "), value) for rank in trace.all_ranks for value in _find_values(rank.trace)]
    for kind in PrivateKind:
        of_kind = [(owner, value) for owner, value in found if value.kind is kind]
        if of_kind:
            owner, first = of_kind[0]
            more = f" and {len(of_kind) - 1} more" if len(of_kind) > 1 else ""
            count = sum(value.count for _, value in of_kind)
            example = excerpt(f"{owner}{first.path}{more}")
            yield Remark(Section.ODD, _KINDS[kind], count, _MEANINGS[kind], example, _ACTION)


def _find_values(trace: Trace) -> Iterator[PrivateValue]:
    yield from find_private_values(trace.header)
    if trace.large_keys is None:
        return
    for key, (_, size, _) in trace.large_keys.spans.items():
        if size <= _MAX_READ_BYTES:
            try:
                yield from find_private_values({key: orjson.loads(trace.large_keys.read_text(key))})
            except (OSError, ValueError, TraceChangedError):  # reported where the value is used
                continue
