"""Damages traces: bytes, tokens, whole entries, numbers, the packing. The same seed does the same."""

from __future__ import annotations

import gzip
import lzma
import random
import re
from collections.abc import Callable, Sequence

import zstandard

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
    b'"grid": [9223372036854775808, 1, 1]', b'"deviceProperties": 3', b'"distributedInfo": [1]',
]
# fmt: on

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_ENTRY = re.compile(rb"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_PACK: list[Callable[[bytes], bytes]] = [
    lambda text: gzip.compress(text, 1, mtime=0),
    lambda text: lzma.compress(text, preset=0),
    zstandard.ZstdCompressor(1).compress,
]
_LARGEST = 60_000
"""A finding is as good in a small file, and many small ones are tried in the time of a large one."""


def mutated(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """One file of the corpus, changed in one to five ways."""
    text = bytearray(rng.choice(corpus))
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        rng.choice(_WAYS)(rng, text, corpus)
        del text[_LARGEST:]
    if rng.random() < 0.06:
        packed = bytearray(rng.choice(_PACK)(bytes(text)))
        if rng.random() < 0.7:
            rng.choice((_flip, _cut, _remove, _repeat))(rng, packed, corpus)
        return bytes(packed)
    return bytes(text)


def _place(rng: random.Random, text: bytearray) -> int:
    return rng.randrange(len(text) + 1)


def _flip(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    if text:
        text[rng.randrange(len(text))] ^= 1 << rng.randrange(8)


def _put(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    at = _place(rng, text)
    text[at : at + rng.choice((0, 0, 1, 3, 20))] = rng.choice(TOKENS)


def _noise(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    at = _place(rng, text)
    text[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(4))


def _remove(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    at = _place(rng, text)
    del text[at : at + rng.choice((1, 2, 7, 60, 900))]


def _repeat(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    at, size = _place(rng, text), rng.choice((1, 5, 40, 700))
    text[at:at] = text[at : at + size] * rng.choice((1, 1, 2, 30))


def _cut(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    del text[_place(rng, text) :]


def _splice(rng: random.Random, text: bytearray, corpus: Sequence[bytes]) -> None:
    other = rng.choice(corpus)
    begin = rng.randrange(len(other) + 1)
    at = _place(rng, text)
    text[at : at + rng.choice((0, 0, 200))] = other[begin : begin + rng.randrange(2000)]


def _number(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    found = list(_NUMBER.finditer(text))
    if found:
        one = rng.choice(found)
        changed = rng.choice(
            (b"0", b"-1", b"1e3", str(rng.getrandbits(63)).encode(), rng.choice(TOKENS), one[0] + b".0005")
        )
        text[one.start() : one.end()] = changed


def _swap_entries(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    found = [one.span() for one in _ENTRY.finditer(text)]
    if len(found) > 1:
        (a, b), (c, d) = sorted(rng.sample(found, 2))
        text[a:d] = text[c:d] + text[b:c] + text[a:b]


def _nest(rng: random.Random, text: bytearray, _: Sequence[bytes]) -> None:
    at, depth = _place(rng, text), rng.choice((3, 200, 1500))
    text[at:at] = rng.choice((b"[" * depth, b'{"a":' * depth, b"[" * depth + b"]" * depth))


_WAYS = [
    _flip,
    _flip,
    _put,
    _put,
    _put,
    _noise,
    _remove,
    _repeat,
    _cut,
    _splice,
    _number,
    _number,
    _swap_entries,
    _nest,
]
