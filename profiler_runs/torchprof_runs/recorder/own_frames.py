"""Remove the recorder's own Python frames from the text of a trace while it is compressed.

With --with-stack torch records every Python call: the recorder's frames would lead each stack of the program, and its
step counter would add dozens of calls to each step. They are removed from the file, and not in the viewer, so that
every reader of the trace is spared and the file is smaller. Only text near an own frame is parsed; all other text is
searched for two words.

torch writes one event after the other, each Python frame with its "Python id" and its "Python parent id", parents
before their children.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_EVENT_END = b"\n  },\n"  # since torch 1.8, in every version
_OWN_WORDS = (b"torchprof_runs/", b"torch/profiler/")
_OWN_FILE = re.compile(r"(?:^|.*/)(?:torchprof_runs/(?:harness|recorder/\w+)|torch/profiler/\w+)\.py\(\d+\): (.*)")
# Own functions that call the program's code: their own frames are removed, and what they call is kept.
_PASSING_FUNCTIONS = frozenset(
    {
        "<module>",
        "main",
        "run",
        "counted_step",
        "counted_function",
        "counted_coroutine",
        "reporting_init",
        "exec_module",
    }
)
_EXEC = re.compile(r"<built-in (?:function|method) exec\b")
_THREAD_START = re.compile(r"threading\.py\(\d+\): (?:_bootstrap|_bootstrap_inner|run)$")
_PARENT_FIELD = re.compile(rb'("Python parent id": )(\d+)')
_FRAME, _THREAD_WORD = b'"python_function"', b'"threading.py('
_NEVER = float("-inf")
MAX_EVENT_BYTES = 1 << 22  # a longer "event" is no text that torch wrote: it is passed on unchanged


def remove_own_frames(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the text of `chunks` without the recorder's frames, what they call, and the recorder's threads."""
    remover = _FrameRemover()
    rest = b""
    for chunk in chunks:
        text = rest + chunk
        end = text.rfind(_EVENT_END)
        if end < 0 and len(text) < MAX_EVENT_BYTES:
            rest = text
            continue
        end = len(text) if end < 0 else end + len(_EVENT_END)
        yield remover.filter_text(text[:end])
        rest = text[end:]
    yield remover.finish() + rest


class _FrameRemover:
    """Decides event by event. Text is split only after ends of events."""

    def __init__(self) -> None:
        # The ids of removed frames → the id of the nearest frame above that is kept (None: there is none).
        self._removed: dict[int | None, int | None] = {}
        self._passing: set[int | None] = set()  # removed frames whose callees are kept
        self._until = _NEVER  # µs: until then, frames may be called by a removed one that passes nothing
        self._expects_callee = False  # the last frame passes its callees, the first of which comes next
        self._held: list[tuple[int | None, bytes]] = []  # the first frames of a thread, which may be the recorder's

    def filter_text(self, text: bytes) -> bytes:
        """Return `text`, whole events, without those to remove."""
        parts: list[bytes] = []
        position = 0
        found = dict.fromkeys((_FRAME, *_OWN_WORDS, _THREAD_WORD), 0)  # the next offset of each word, -1: none
        while position < len(text):
            is_walking = bool(self._held) or self._expects_callee or self._until > _NEVER
            start = _find_event(text, position, found, (_FRAME,) if is_walking else (*_OWN_WORDS, _THREAD_WORD))
            if start > position and not self._held:
                parts.append(text[position:start])
                position = start
                continue
            end = text.find(_EVENT_END, position)
            end = len(text) if end < 0 else end + len(_EVENT_END)
            parts += self._filter_event(text[position:end])
            position = end
        return b"".join(parts)

    def finish(self) -> bytes:
        """Return what is still held back."""
        return b"".join(self._release())

    def _filter_event(self, text: bytes) -> list[bytes]:
        event = _parse_frame(text)
        if event is None:
            return [*self._release(), text]
        frame_id, parent, name = event["args"]["Python id"], event["args"].get("Python parent id"), event["name"]
        own = _OWN_FILE.fullmatch(name)
        self._expects_callee = False
        if own is None and parent not in self._removed:
            if _THREAD_START.search(name) and parent == (self._held[-1][0] if self._held else None):
                self._held.append((frame_id, text))
                return []
            if event["ts"] >= self._until:
                self._until = _NEVER
            return [*self._release(), text]
        if own is None and parent in self._passing and not name.startswith("<built-in"):
            return [*self._release(), _replace_parent(text, self._removed[parent])]
        if own is not None and self._held and parent == self._held[-1][0]:
            for held_id, _ in self._held:  # a thread of the recorder
                self._removed[held_id] = None
            self._held.clear()
        self._removed[frame_id] = self._removed.get(parent, parent)
        runs_program = own is None and parent in self._passing and _EXEC.match(name) is not None
        if runs_program or (own is not None and own[1] in _PASSING_FUNCTIONS):
            self._passing.add(frame_id)
            self._expects_callee = True
        else:
            self._until = max(self._until, event["ts"] + event.get("dur", 0))
        return self._release()

    def _release(self) -> list[bytes]:
        texts = [text for _, text in self._held]
        self._held.clear()
        return texts


def _find_event(text: bytes, position: int, found: dict[bytes, int], words: tuple[bytes, ...]) -> int:
    """Return the offset of the first event from `position` on that contains one of `words`; the end if there is none.

    `found` keeps the offsets between calls.
    """
    for word in words:
        if 0 <= found[word] < position or not position:
            found[word] = text.find(word, position)
    offsets = [found[word] for word in words if found[word] >= 0]
    if not offsets:
        return len(text)
    end = text.rfind(_EVENT_END, position, min(offsets))
    return position if end < 0 else end + len(_EVENT_END)


def _parse_frame(text: bytes) -> dict[str, Any] | None:
    """Parse an event of Python; None if it is another one, or no event at all."""
    if _FRAME not in text:
        return None
    try:
        event = json.loads(text[text.index(b"{") : text.rindex(b"}") + 1])
        return event if isinstance(event["args"]["Python id"], int) and isinstance(event["ts"], (int, float)) else None
    except (ValueError, KeyError, TypeError):
        return None


def _replace_parent(text: bytes, parent: int | None) -> bytes:
    return _PARENT_FIELD.sub(rb"\g<1>" + (b"null" if parent is None else str(parent).encode()), text, count=1)
