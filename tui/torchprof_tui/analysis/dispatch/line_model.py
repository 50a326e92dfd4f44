"""The line of a program, and how it is read from the args of an op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchprof_tui.analysis.dispatch.frame_names import Frame, FrameOrigin, parse_frame

FRAME, ANNOTATION, MODULE = "frame", "annotation", "module"

UNKNOWN_LINE = "line unknown: this frame began before the recording"


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the program, or the annotation or module that is known instead. Texts are as recorded: `clean` them.

    `kind`: "frame", "annotation" or "module". `file`, `line`: only of frames. `line` is where the function begins,
    because the profiler records no other; None for a frame that was open when the recording began, of which no line is
    known. `text`: to show, such as "train.py(42): forward". `from_forward`: it belongs
    to the forward op of a backward event. `library`: the innermost frame of an installed package that the line called
    on the way to the event, "" for none.
    """

    kind: str
    file: str | None
    line: int | None
    function: str
    text: str
    from_forward: bool = False
    library: str = ""

    @property
    def location(self) -> str | None:
        """Return `file:line`, the file alone where the line is unknown, None without a file."""
        return self.file if self.file is None or self.line is None else f"{self.file}:{self.line}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON; `library` is None where there is none."""
        return {
            "kind": self.kind,
            "text": self.text,
            "function": self.function,
            "from_forward": self.from_forward,
            "library": self.library or None,
        }


def parse_recorded_line(args: dict[str, Any]) -> SourceLine | None:
    """Parse `Call stack` (frames joined by `;`, innermost first) or `Module Hierarchy` of an op's args."""
    stack, hierarchy = args.get("Call stack"), args.get("Module Hierarchy")
    library = None
    for name in stack.split(";") if isinstance(stack, str) else []:
        frame = parse_frame(name.strip())
        if frame is not None and frame.origin is FrameOrigin.USER:
            return build_frame_line(frame, library)
        if frame is not None and frame.origin is FrameOrigin.LIBRARY:
            library = library or frame
    if library is not None:
        return build_frame_line(library)
    if isinstance(hierarchy, str) and hierarchy.strip():
        return SourceLine(MODULE, None, None, hierarchy.strip(), hierarchy.strip())
    return None


def build_frame_line(frame: Frame, library: Frame | None = None) -> SourceLine:
    text = frame.text if frame.line is not None else f"{frame.text} ({UNKNOWN_LINE})"
    return SourceLine(FRAME, frame.file, frame.line, frame.function, text, library=library.text if library else "")


def build_annotation_line(name: str) -> SourceLine:
    return SourceLine(ANNOTATION, None, None, name, name)
