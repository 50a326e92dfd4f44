"""Make a large trace out of a real one: repeat it with shifted times and ids until it has enough events.

    python -m benchmarks.generate SOURCE.json[.gz|.xz] OUT.json --events 5000000

The layout stays byte for byte that of the source (Kineto's own), so what is measured on the result is what a
longer recording of the same program would cost.
"""

from __future__ import annotations

import argparse
import gzip
import lzma
import re
from pathlib import Path

SHIFTED = re.compile(rb'"(ts|correlation|id|External id|Ev Idx|Sequence number)": ?(\d+(?:\.\d+)?)')
HEAD = b'"traceEvents": ['
COMPACT_HEAD = b'"traceEvents":['
"""Of torch 2.15's layouts (`layouts.py`), whose files can be repeated as well."""

PHASE = re.compile(rb'"ph": ?"')

COMPACT_METADATA = re.compile(rb',\s*\{[^{}]*"ph": ?"M"[^{}]*(?:\{[^{}]*\}[^{}]*)?\}')
"""A metadata entry of a compact layout, with the comma before it."""


def read_text(path: Path) -> bytes:
    """Read the decompressed text of a trace."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        return gzip.decompress(data)
    return lzma.decompress(data) if data[:4] == b"\xfd7zX" else data


def split_text(text: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Split into the head up to the events, the events to repeat, the metadata to write once, and the tail."""
    if b"\n  ]" not in text:
        compact = COMPACT_HEAD if COMPACT_HEAD in text else HEAD
        start, end = text.index(compact) + len(compact), text.rindex(b"]")
        events = text[start:end].rstrip()
        names = b"".join(COMPACT_METADATA.findall(events))
        return text[:start], COMPACT_METADATA.sub(b"", events), names, text[end:]
    start = text.index(HEAD) + len(HEAD)
    end = text.rindex(b"\n  ]")
    metadata = text.find(b'\n  {\n    "name": "process_name", "ph": "M"', start, end)
    if metadata < 0:
        metadata = end
    return text[:start], text[start:metadata], text[metadata:end], text[end:]


def find_shifted_numbers(events: bytes) -> tuple[list[bytes], list[tuple[bytes, bytes]]]:
    """The text between the numbers to shift, and those numbers with their keys."""
    between, numbers, offset = [], [], 0
    for match in SHIFTED.finditer(events):
        between.append(events[offset : match.start(2)])
        numbers.append((match[1], match[2]))
        offset = match.end(2)
    between.append(events[offset:])
    return between, numbers


def repeat_trace(source: Path, out: Path, wanted: int) -> int:
    """Write the large trace. Returns the number of its entries of traceEvents."""
    head, events, metadata, tail = split_text(read_text(source))
    between, numbers = find_shifted_numbers(events)
    entries = len(PHASE.findall(events))
    times = [float(value) for key, value in numbers if key == b"ts"]
    period_us = int(max(times) - min(times)) + 1000
    id_step = 1 + max(int(value) for key, value in numbers if key != b"ts")
    copies = max(1, -(-wanted // entries))
    with out.open("wb") as file:
        file.write(head)
        for copy in range(copies):
            parts = []
            for text, (key, value) in zip(between, numbers, strict=False):
                parts.append(text)
                if key == b"ts":
                    whole, dot, fraction = value.partition(b".")
                    parts.append(b"%d%s%s" % (int(whole) + copy * period_us, dot, fraction))
                else:
                    parts.append(b"%d" % (int(value) + copy * id_step))
            parts.append(between[-1])
            body = b"".join(parts)
            if copy + 1 < copies and not body.rstrip().endswith(b","):
                body += b","
            file.write(body)
        file.write(metadata + tail)
    return entries * copies + len(PHASE.findall(metadata))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--events", type=int, default=5_000_000)
    options = parser.parse_args()
    print(f"{repeat_trace(options.source, options.out, options.events):,} events in {options.out}")


if __name__ == "__main__":
    main()
