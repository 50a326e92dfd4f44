"""Read `execution_details.json`, the list of captures that vLLM and SGLang write beside them."""

from __future__ import annotations

import msgspec

from torchprof_tui.trace.core.typed_json import Count, Text, read_typed_file

MAX_DETAILS_BYTES = 1 << 20


class CaptureDetails(msgspec.Struct, frozen=True):
    """One capture: its file, batch size and mode (`FULL`, `PIECEWISE`)."""

    file: Text
    batch_size: Count
    mode: Text = ""


def read_capture_details(path: str) -> tuple[CaptureDetails, ...]:
    """Read the list. Raises UnreadableFileError with a reason of one line."""
    return read_typed_file(path, tuple[CaptureDetails, ...], MAX_DETAILS_BYTES)
