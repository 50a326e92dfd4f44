"""What is known of each rank of a job that hangs: its last operations, and the stacks of its threads."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from torchprof_tui.trace.core.records import record

Sizes = tuple[tuple[int, ...], ...]


class State(Enum):
    """The state of an operation on one rank, or why it differs from that of the others. The value is shown."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    COMPLETED = "completed"
    ABSENT = "absent"
    OTHER_OP = "other op"
    OTHER_SIZE = "other size"
    OTHER_DTYPE = "other dtype"
    NO_DUMP = "no dump"
    LOST = "before the dump"
    """The ring buffer of the rank no longer has it."""


@record
class Frame:
    """A Python frame. `peers`: the arguments dst, src of a send or receive, where they are recorded."""

    name: str
    file: str
    line: int
    peers: Mapping[str, int] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The file's name and the line: train.py:7."""
        return f"{self.file.replace(chr(92), '/').rpartition('/')[2]}:{self.line}"


@record
class Thread:
    """A thread. `frames`: innermost first. `is_idle`: it slept when py-spy looked; None: unknown."""

    name: str
    is_main: bool
    frames: tuple[Frame, ...]
    is_idle: bool | None = None


@dataclass(slots=True)
class Operation:
    """A collective, or a send or receive. `number`: in its group, from 1 on. Times in ns of the Unix clock, 0: unknown.

    `peer`: the rank in the group that a send or receive is for, -1 for none. `raw_frames`: as recorded, innermost
    first; `sizes` and `dtypes`: of all tensors that must agree between the ranks.
    """

    group: str
    number: int
    name: str
    sizes: Sizes
    dtypes: tuple[str, ...]
    state: State
    created: int = 0
    raw_frames: Sequence[Any] = ()
    is_p2p: bool = False
    peer: int = -1

    @property
    def is_pending(self) -> bool:
        return self.state in (State.SCHEDULED, State.STARTED)

    @property
    def key(self) -> tuple[str, Sizes, tuple[str, ...]]:
        """What must be the same on all ranks."""
        return self.name, self.sizes, self.dtypes

    @property
    def label(self) -> str:
        """The operation with its sizes: all_reduce [64]."""
        shown = " ".join(f"[{', '.join(map(str, each))}]" for each in self.sizes[:4])
        return f"{self.name} {shown}{' …' if len(self.sizes) > 4 else ''}".rstrip()

    @property
    def frames(self) -> tuple[Frame, ...]:
        return read_frames(self.raw_frames)

    @property
    def place(self) -> str:
        """The line that called it; "" for none."""
        return find_place(self.frames)

    @property
    def site(self) -> Hashable:
        """What is the same in each step of a program."""
        return self.group, self.key, self.place

    @property
    def shown(self) -> str:
        """The operation, its sizes and its line."""
        place = self.place
        return f"{self.label} at {place}" if place else self.label


@dataclass(slots=True)
class RankRecord:
    """All that is known of one rank. Times in seconds, None: unknown.

    `operations`: in the order of the program. `members`: ranks of the groups that its dump lists. `labels`: what the
    groups are for. `error`: type and message of the exception or signal that ended it. `resumed_frames`: of the first
    dump after which the rank went on. `knows_starts`: NCCL's recorder does so with TORCH_NCCL_ENABLE_TIMING=1.
    """

    rank: int
    sources: list[str] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    threads: list[Thread] = field(default_factory=list)
    has_recorder: bool = False
    knows_starts: bool = False
    world_size: int = 0
    host: str = ""
    pid: int = 0
    dumped: int = 0
    reason: str = ""
    steps: int | None = None
    since_step: float | None = None
    median_step: float | None = None
    resumed_after: float | None = None
    resumed_frames: tuple[Frame, ...] = ()
    error: str = ""
    error_frames: tuple[Frame, ...] = ()
    size_refused: tuple[int, int] | None = None
    """Bytes that arrived and that were expected, from gloo's message."""

    @property
    def stack(self) -> tuple[Frame, ...]:
        """The frames of the main thread, innermost first; of the exception, where there is only that."""
        main = self._main_thread
        return main.frames if main is not None and main.frames else self.error_frames

    @property
    def _main_thread(self) -> Thread | None:
        return next((each for each in self.threads if each.is_main), None)

    @property
    def is_idle(self) -> bool:
        """Whether the main thread is known to sleep: it computes nothing."""
        return self._main_thread is not None and bool(self._main_thread.is_idle)

    @property
    def is_empty(self) -> bool:
        """Whether the rank left neither a flight recorder nor a stack; its log may be known."""
        return not (self.threads or self.has_recorder or self.error_frames or self.operations)


LIBRARIES = (
    *("/torch/", "/torchprof_runs/", "/threading.py", "/queue.py", "/selectors.py", "/multiprocessing/"),
    *("/typing_extensions.py", "/contextlib.py", "/functools.py"),
)
"""Parts of paths of frames that are not the user's."""


ENGINE_CALLS = {
    "backward": ("torch/autograd/", "torch/_tensor.py"),
    "forward of DistributedDataParallel": ("torch/nn/parallel/distributed.py",),
}
"""Innermost files of stacks while C++ calls collectives: hooks of DistributedDataParallel on gradients, its buffers."""


def read_frames(raw: Iterable[Any]) -> tuple[Frame, ...]:
    """Read frames as flight recorders, py-spy and the recorder of `run` write them, innermost first."""
    frames = []
    for each in raw:
        if isinstance(each, dict):
            line, peers = each.get("line"), each.get("peers")
            known = peers.items() if isinstance(peers, dict) else ()
            numbers = {str(key): value for key, value in known if type(value) is int}
            name, file = str(each.get("name", "")), str(each.get("filename", ""))
            frames.append(Frame(name, file, line if type(line) is int else 0, numbers))
    return tuple(frames)


def find_collective(frames: Sequence[Frame]) -> str:
    """Find the call of torch.distributed that a stack is in; "" for none."""
    inside = (each for each in frames if "torch/distributed/" in each.file.replace("\\", "/"))
    return next((each.name for each in inside if each.name not in ("wrapper", "wait")), "")


def find_engine_call(frames: Sequence[Frame]) -> str:
    """Find what of torch a stack is in where collectives are called without a frame of their own; "" for none."""
    file = frames[0].file.replace("\\", "/") if frames else ""
    return next((name for name, parts in ENGINE_CALLS.items() if any(part in file for part in parts)), "")


def find_place(frames: Sequence[Frame]) -> str:
    """Find the file and line of the innermost frame that is neither of torch, the recorder, nor a wait of Python's;
    of the outermost one that has a file where there is none; "" for none."""
    named = [each for each in frames if each.file]
    for each in named:
        path = each.file.replace("\\", "/")
        if not path.startswith("<frozen") and not any(part in f"/{path}" for part in LIBRARIES):
            return each.place
    return named[-1].place if named else ""
