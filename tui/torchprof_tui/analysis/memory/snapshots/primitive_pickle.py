"""Read pickles of plain data: dicts, lists, tuples of integers, texts, numbers, truth values and None. Nothing can run.

A pickle is a program: some of its instructions import a name and call it. The whole file is first compared with the
grammar of the instructions that only build plain data; a file that holds any other one is refused before the first is
carried out. The unpickler that then reads it refuses names as well. See the tables of `pickletools` for the format.

Tuples may hold integers only, as those of snapshots do: a small file can nest tuples so that the hash of one, as a key
of a dict, takes hours. `text_pairs`: also pairs of texts are read, as flight recorders have them; what follows such a
pair cannot refer to it, so that pairs do not nest either.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from functools import lru_cache
from typing import Any, NoReturn

MAX_INT_BYTES = 9  # the longest integer: an unsigned one of 64 bits has nine bytes with its sign

_MAX_SHORT_TEXT = 256
_MAX_MATCHED = 10_000
"""Instructions that are matched at once: the expression keeps a record of each until the match ends."""


@lru_cache(maxsize=2)
def _build_grammar(text_pairs: bool = False) -> re.Pattern[bytes]:
    """Build the expression that matches as many instructions as possible; those with long texts are not in it."""
    integers = "|".join(rf"\x8a\x{size:02x}.{{{size}}}" for size in range(MAX_INT_BYTES + 1))
    integer = f"(?:K.|M..|J....|{integers})"
    texts = "|".join(rf"\x8c\x{size:02x}.{{{size}}}" for size in range(_MAX_SHORT_TEXT))
    # Most of a file are items of dicts: a key that was read before, and a value. An integer is not taken as such where
    # a tuple may follow, whose integers have to be matched together.
    value = rf"(?:(?:J....|K.|M..|{integers})(?![\x85JKM\x8a])|h.|j....)"
    # A pair is refused where it could be memoised: by the next instruction, or behind one that leaves it on the stack.
    forms = "|".join(rf"X\x{size:02x}\x00\x00\x00.{{{size}}}" for size in range(_MAX_SHORT_TEXT))
    text = rf"(?:{forms})(?:q.|r..\x00\x00)?"  # a larger number is checked in `_find_end`
    part = f"(?:h.|j....|{text})"
    pairs = (rf"{part}{part}\x86(?![qr\x94(\x95])", text, "h.", "j....")
    instructions = (
        *(pairs if text_pairs else ()),
        rf"h.{value}",
        rf"j....{value}",
        r"[\x94(\]})Nsaue\x88\x89]+",  # MEMOIZE, MARK, empty list, dict and tuple, None, items, True, False
        r"(?:j....)+",  # LONG_BINGET
        r"(?:h.)+",  # BINGET
        rf"{integer}(?:\x85|{integer}(?:\x86|{integer}\x87))",  # TUPLE1, TUPLE2, TUPLE3
        r"[Kq].",  # BININT1, BINPUT
        r"J....",  # BININT
        r"M..",  # BININT2
        r"G.{8}",  # BINFLOAT
        r"\x95.{8}",  # FRAME
        integers,
        texts,
    )
    return re.compile(f"(?:{'|'.join(instructions)}){{1,{_MAX_MATCHED}}}".encode("latin-1"), re.DOTALL)


_STOP = ord(".")
_PROTOCOLS = range(2, 6)
_SIZED_TEXTS = {ord("X"): 4, 0x8D: 8}  # BINUNICODE, BINUNICODE8: the bytes of the length before the text
_LONG_BINPUT = ord("r")


class UnsafePickleError(ValueError):
    """The pickle is damaged, or holds more than plain data. `str()` is one line for the user."""


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler that knows no names."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise UnsafePickleError(f"it names {module_name}.{global_name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UnsafePickleError("it refers to data outside of the file")


def starts_as_pickle(head: bytes) -> bool:
    """Return whether these first bytes of a file are those of a pickle of protocol 2 or later."""
    return len(head) >= 2 and head[0] == 0x80 and head[1] in _PROTOCOLS


def load_plain_pickle(data: bytes, text_pairs: bool = False) -> Any:
    """Read a pickle of plain data, with pairs of texts if so wanted.

    Raises UnsafePickleError, and MemoryError where it does not fit.
    """
    end = _find_end(data, _build_grammar(text_pairs))
    try:
        return _PlainUnpickler(io.BytesIO(data[:end])).load()
    except UnsafePickleError:
        raise
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise UnsafePickleError(f"damaged: {' '.join(str(error).split())[:100]}") from error


def _find_end(data: bytes, grammar: re.Pattern[bytes]) -> int:
    """Check every instruction; return where the pickle ends. Raises UnsafePickleError at the first that is refused."""
    if not starts_as_pickle(data):
        raise UnsafePickleError("damaged: no pickle of protocol 2 or later")
    position = 2
    while True:
        match = grammar.match(data, position)
        if match is not None:
            position = match.end()
            continue
        code = data[position] if position < len(data) else -1
        if code == _STOP:
            return position + 1
        if code in _SIZED_TEXTS:
            width = _SIZED_TEXTS[code]
            size = int.from_bytes(data[position + 1 : position + 1 + width], "little")
            position += 1 + width + size
        elif code == _LONG_BINPUT:
            # The unpickler allocates its memo up to this number.
            if int.from_bytes(data[position + 1 : position + 5], "little") > len(data):
                raise UnsafePickleError("it asks for more memory than its size explains")
            position += 5
        elif code < 0:
            raise UnsafePickleError("damaged: it has no end")
        else:
            name = next((each.name for each in pickletools.opcodes if each.code == chr(code)), "an unknown instruction")
            raise UnsafePickleError(f"it holds {name} at byte {position:,}")
        if position > len(data):
            raise UnsafePickleError("damaged: it ends within a value")
