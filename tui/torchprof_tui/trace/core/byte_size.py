"""Parse sizes that users write: `500 MB`, `20 GB`, or a number of bytes."""

from __future__ import annotations

from torchprof_tui.trace.core.late_regex import compile_later

_BYTES_OF_UNIT = {"": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = compile_later(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?(MB|GB|TB|)\Z")


def parse_byte_size(text: str) -> int:
    """Return the bytes of a size. Raises ValueError."""
    match = _SIZE.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size")
    return int(float(match[1]) * _BYTES_OF_UNIT[match[2]])
