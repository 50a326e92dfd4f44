"""Choose how much text is read of a source that may never end: a pipe, a web server, a file that grows."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.trace.sources.source import UNPACK_ALL_OPTION, Source

MAX_STREAM_BYTES = 16 << 30
"""Text of a stream, which may have no end; the largest traces are some GB."""

MAX_STREAM_BYTES_WITHOUT_EVENT = 256 << 20
"""Text of a stream without a further event: top-level values above 64 MB are not read at all."""

MAX_FILE_BYTES_WITHOUT_EVENT = 4 << 30
"""Text of a local file without a further event: a sparse file may be larger than anything can be read."""


@dataclass(frozen=True, slots=True)
class TextLimits:
    """Bytes of text after which reading stops: in all (None: any number), and since the last event."""

    total: int | None
    without_event: int

    def explain_stop(self, read: int, since_event: int) -> str:
        """Say why reading stops after `read` bytes, the last `since_event` without an event; "" where it goes on."""
        if since_event > self.without_event:
            return f"no event in {self.without_event >> 20:,} MiB of text; {UNPACK_ALL_OPTION} reads on"
        if self.total is not None and read > self.total:
            return f"more than {self.total >> 20:,} MiB of text; {UNPACK_ALL_OPTION} reads on"
        return ""


def choose_text_limits(source: Source) -> TextLimits | None:
    """Choose the limits of a source, None where the user wants all of it."""
    if source.unpack_all:
        return None
    if source.is_local_file:
        return TextLimits(None, MAX_FILE_BYTES_WITHOUT_EVENT)
    return TextLimits(MAX_STREAM_BYTES, MAX_STREAM_BYTES_WITHOUT_EVENT)
