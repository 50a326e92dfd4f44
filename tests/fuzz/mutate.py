"""Mutate traces: bytes, tokens, entries, numbers, the compression. The same seed yields the same mutations."""

from __future__ import annotations

import gzip
import lzma
import random
import re
from collections.abc import Callable, Sequence

from torchprof_tui.trace.sources.zstd_codec import zstd

# fmt: off
TOKENS = [
    b'"', b'\\', b'{', b'}', b'[', b']', b',', b':', b'\n', b'\x00', b'\x1b[31m', b'\x9b2J', b'\x07', b'\xff\xfe',
    b'\xed\xa0\x80', b'NaN', b'-Infinity', b'1e999', b'-0', b'1e-400', b'9223372036854775807',
    b'-9223372036854775808', b"1" * 40, b'0x7f', b'null', b'true', b'[]', b'{}', b'""', b'"\\ud800"', b'"\\u0000"',
    b'"\\u202e"', b'007', b'1.', b'.5', b'+1', b"'x'", b'"ph": "B"', b'"ph": "E"', b'"ph": "s"', b'"ph": "C"',
    b'"ph": "M"', b'"ph": ""', b'"ph": 5', b'"ph": "XX"', b'"ts": "12.5"', b'"ts": -1', b'"dur": -5', b'"dur": 1e17',
    b'"ts": 1621401187223197.2', b'"pid": {}', b'"tid": [1]', b'"cat": "kernel"', b'"cat": 7', b'"name": null',
    b'"name": ["a"]', b'"args": 3', b'"args": [1]', b'"id": {"a": 1}', b'"traceEvents": [', b'"traceEvents": 3,',
    b']}', b'},\n  {\n    "ph": "X"', b'"correlation": -1', b'"stream": "x"', b'"grid": [1, 2]',
    b'"grid": [9223372036854775808, 1, 1]', b'2147483648', b'4294967296', b'4611686018427387905',
    b'9223372036854775809',
    b'-9223372036854775809', b'18446744073709551616', b'1e308', b'"stream": 9223372036854775809', b'"dur": 0',
    b'"correlation": 18446744073709551616', b'"External id": "x"', b'"bytes": 4611686018427387904', b'"ph": ["X"]',
    b'"deviceProperties": [{"id": [1], "name": {}, "numSms": "x"}]', b'"distributedInfo": {"rank": "99999999999"}',
    b'"record_shapes": [1]', b'"device": 2147483648', b'"dur": 4600000000000000', b'"deviceProperties": 3',
    b'"distributedInfo": [1]',
]
# fmt: on

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_VALUE = re.compile(rb'"(\w+(?: \w+)*)"\s*:\s*(-?[\d.]+|"[^"\\]*")')
# fmt: off
ODD_VALUES = [
    b"0", b"-1", b"2147483648", b"4611686018427387905", b"9223372036854775807", b"9223372036854775809", b"1e308",
    b"1.5", b'"text"', b'"7"', b'"\\ud800"', b"null", b"true", b"[]", b"[[1]]", b'{"a": {}}', b"[" * 300 + b"]" * 300,
]
# fmt: on
_ENTRY = re.compile(rb"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_COMPRESS: list[Callable[[bytes], bytes]] = [
    lambda text: gzip.compress(text, 1, mtime=0),
    lambda text: lzma.compress(text, preset=0),
    lambda text: zstd.compress(text, 1),
]
_MAX_BYTES = 60_000
"""Small files reproduce a finding as well, and many of them are checked in the time of a large one."""


def mutate(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Choose a file of the corpus and mutate it one to five times."""
    text = bytearray(rng.choice(corpus))
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        rng.choice(_MUTATIONS)(rng, text, corpus)
        del text[_MAX_BYTES:]
    if rng.random() < 0.06:
        compressed = bytearray(rng.choice(_COMPRESS)(bytes(text)))
        if rng.random() < 0.7:
            rng.choice((_flip_bit, _truncate, _remove_bytes, _repeat_bytes))(rng, compressed, corpus)
        return bytes(compressed)
    return bytes(text)


def _choose_offset(rng: random.Random, text: bytearray) -> int:
    return rng.randrange(len(text) + 1)


def _flip_bit(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    if text:
        text[rng.randrange(len(text))] ^= 1 << rng.randrange(8)


def _insert_token(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    offset = _choose_offset(rng, text)
    text[offset : offset + rng.choice((0, 0, 1, 3, 20))] = rng.choice(TOKENS)


def _replace_by_noise(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    offset = _choose_offset(rng, text)
    text[offset : offset + rng.randrange(4)] = rng.randbytes(rng.randrange(4))


def _remove_bytes(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    offset = _choose_offset(rng, text)
    del text[offset : offset + rng.choice((1, 2, 7, 60, 900))]


def _repeat_bytes(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    offset, size = _choose_offset(rng, text), rng.choice((1, 5, 40, 700))
    text[offset:offset] = text[offset : offset + size] * rng.choice((1, 1, 2, 30))


def _truncate(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    del text[_choose_offset(rng, text) :]


def _splice_file(rng: random.Random, text: bytearray, corpus: Sequence[bytes]) -> None:
    other = rng.choice(corpus)
    begin = rng.randrange(len(other) + 1)
    offset = _choose_offset(rng, text)
    text[offset : offset + rng.choice((0, 0, 200))] = other[begin : begin + rng.randrange(2000)]


def _change_number(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    numbers = list(_NUMBER.finditer(text))
    if numbers:
        number = rng.choice(numbers)
        changed = rng.choice(
            (b"0", b"-1", b"1e3", str(rng.getrandbits(63)).encode(), rng.choice(TOKENS), number[0] + b".0005")
        )
        text[number.start() : number.end()] = changed


def _swap_entries(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    spans = [entry.span() for entry in _ENTRY.finditer(text)]
    if len(spans) > 1:
        (a, b), (c, d) = sorted(rng.sample(spans, 2))
        text[a:d] = text[c:d] + text[b:c] + text[a:b]


def _insert_nesting(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    offset, depth = _choose_offset(rng, text), rng.choice((3, 200, 1500))
    text[offset:offset] = rng.choice((b"[" * depth, b'{"a":' * depth, b"[" * depth + b"]" * depth))


def _replace_value(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    """Replace the value of a key by one of another type or range: of one entry, or of all."""
    values = list(_VALUE.finditer(text))
    if not values:
        return
    chosen, odd = rng.choice(values), rng.choice(ODD_VALUES)
    every = rng.random() < 0.3
    for value in reversed(values):
        if value is chosen or (every and value[1] == chosen[1]):
            text[value.start(2) : value.end(2)] = odd


_MUTATIONS = [
    _flip_bit,
    _flip_bit,
    _insert_token,
    _insert_token,
    _insert_token,
    _replace_by_noise,
    _remove_bytes,
    _repeat_bytes,
    _truncate,
    _splice_file,
    _change_number,
    _change_number,
    _swap_entries,
    _insert_nesting,
    _replace_value,
    _replace_value,
]
