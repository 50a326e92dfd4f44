"""Count what the template decoder accepts, and whether the parts of several processes could be joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from torchprof_tui.trace.decode import parallel
from torchprof_tui.trace.decode.parallel import SplitNotVerifiedError
from torchprof_tui.trace.decode.template.template_decoder import TemplateDecoder


@dataclass
class DecodedBytes:
    """Bytes of text that the template decoder accepted, and that it refused."""

    accepted: int = 0
    refused: int = 0


def count_decoded_bytes(monkeypatch: pytest.MonkeyPatch) -> DecodedBytes:
    counts = DecodedBytes()
    try_decode = TemplateDecoder.try_decode

    def counted(decoder: TemplateDecoder, text: memoryview, separator: bytes) -> Any:
        begins = try_decode(decoder, text, separator)
        if begins is None:
            counts.refused += len(text)
        else:
            counts.accepted += len(text)
        return begins

    monkeypatch.setattr(TemplateDecoder, "try_decode", counted)
    return counts


@dataclass
class AppendedParts:
    """How often the parts of all processes were joined, and how often one process had to decode everything again."""

    joined: int = 0
    not_verified: int = 0


def count_appended_parts(monkeypatch: pytest.MonkeyPatch) -> AppendedParts:
    counts = AppendedParts()
    append_parts = parallel.ParallelDecoder.append_parts

    def counted(*arguments: Any) -> Any:
        try:
            end = append_parts(*arguments)
        except SplitNotVerifiedError:
            counts.not_verified += 1
            raise
        counts.joined += 1
        return end

    monkeypatch.setattr(parallel.ParallelDecoder, "append_parts", counted)
    return counts
