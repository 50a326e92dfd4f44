"""Walk through the program at random in a real terminal: keys, mouse, paste and resizes, at several speeds.

Keys that the screen binds and that were not pressed on it yet come first. The program must not end, must answer within
`ANSWER_SECONDS`, and no exception may be raised anywhere in it.
"""

from __future__ import annotations

import codecs
import fcntl
import gzip
import json
import os
import pty
import random
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.keys import _character_to_key

from tests.hostile.cases import Inputs
from tests.hostile.oracle import FindingError
from tests.hostile.world import HARNESS, build_world
from torchprof_samples import SAMPLES
from torchprof_tui.trace.core.readable import wait_until_readable

ANSWER_SECONDS = 2.0
"""Longest time without an answer on a machine with nothing else to do; multiplied by the load per core."""

PAUSES = (0.0, 0.0, 0.0005, 0.003, 0.02, 0.06)
"""Seconds between the events of a burst; 0: all in one write, as over ssh or from a paste."""

SIZES = ((120, 40), (80, 24), (200, 60), (40, 10), (60, 15), (20, 6), (100, 5), (300, 20), (8, 3))
TEXTS = (
    "gemm",
    "aten::",
    "1",
    "99999999999",
    "[",
    "\\",
    "é",
    "λ",
    "x y",
    "step 2",
    "../",
    "~",
    ".json",
    "sample:linear_eager",
)

FLIPPED_BYTES = 200
LARGE_EVENTS = 300_000

SESSION_EVENTS = 5_000
"""Events of one session at most; the next one starts anew."""

_START = "import os; from tests.hostile.walk_agent import run_program; run_program({}, {})"


def _list_sequences() -> dict[str, str]:
    """Map textual's names of keys to what a terminal sends for them."""
    sequences: dict[str, str] = {}
    for sequence, keys in ANSI_SEQUENCES_KEYS.items():
        if isinstance(keys, tuple) and len(keys) == 1:
            name = str(keys[0].value if hasattr(keys[0], "value") else keys[0])
            if name not in sequences or len(sequence) < len(sequences[name]):
                sequences[name] = sequence
    for code in range(32, 127):
        sequences[_character_to_key(chr(code))] = chr(code)
    sequences |= {"enter": "\r", "escape": "\x1b", "tab": "\t", "backspace": "\x7f"}
    return sequences


SEQUENCES = _list_sequences()


@dataclass
class Coverage:
    """What all walks together have reached: (screen, key) bound, and pressed while bound."""

    bound: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    pressed: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def list_missed(self) -> list[str]:
        """List the bindings that were shown but never reached, one line for each screen."""
        lines = []
        for screen, keys in sorted(self.bound.items()):
            if missed := sorted(keys - set(self.pressed[screen])):
                lines.append(f"{screen}: {' '.join(missed)}")
        return lines


class Walk:
    """One session of the program. `words`: its arguments."""

    def __init__(self, words: Sequence[str], seed: int, coverage: Coverage, patience: float = 1.0) -> None:
        self.patience = patience  # factor of the time limits
        self.random = random.Random(seed)
        self.coverage = coverage
        self.words = tuple(words)
        self.sent: list[str] = []  # the last events, for a finding
        self.events = 0
        self.slowest = 0.0
        self._screen = ""
        self._keys: list[str] = []
        self._size = SIZES[0]
        self._number = 0
        self._pong = 0
        self._ready = False
        self._tail = bytearray()  # of what the program wrote
        self._report_text = ""
        self._stacks: list[str] = []
        self._errors: list[str] = []
        self._stacks_path = Path(tempfile.gettempdir()) / f"stacks-{seed}.txt"
        command_read, self._commands = os.pipe()
        self._reports, report_write = os.pipe()
        os.set_blocking(self._reports, False)
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            for number in (command_read, report_write):
                os.set_inheritable(number, True)
            environment = {
                "TERM": "xterm-256color",
                "PYTHONPATH": os.pathsep.join(sys.path[:1] + [path for path in sys.path if path]),
                "HOSTILE_HARNESS": str(HARNESS),
                "WALK_STACKS": str(self._stacks_path),
            }
            kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
            os.execvpe(
                sys.executable,
                [sys.executable, "-c", _START.format(command_read, report_write), *self.words],
                {**kept, **environment},
            )
        os.close(command_read)
        os.close(report_write)
        self._set_size(SIZES[0])
        self._decode = codecs.getincrementaldecoder("utf-8")().decode

    # -- the session -----------------------------------------------------------------------------------------------

    def run(self, events: int) -> None:
        """Send events until there were this many. Raises FindingError."""
        try:
            self._wait_for_screen()
            while self.events < events:
                self._send_burst()
                if self.random.random() < 0.5:
                    self._wait_for_answer()
            self._wait_for_answer()
            self._end()
        finally:
            self._kill()

    def _wait_for_screen(self) -> None:
        """Wait until the app is on the screen: until then there is nobody to answer."""
        deadline = time.monotonic() + 60 * self._load()
        while b"\x1b[?1049h" not in self._tail:
            self._exchange(0.1)
            if time.monotonic() > deadline:
                raise self._finding("the app is never on the screen")
        self._tail.clear()
        time.sleep(0.2)
        self._wait_for_answer(10)

    def _send_burst(self) -> None:
        pause = self.random.choice(PAUSES)
        pending = ""
        for _ in range(self.random.choice((1, 1, 2, 3, 5, 8, 20))):
            name, data = self._choose_event()
            self.sent.append(f"{name}" if pause else f"{name}+")
            del self.sent[:-60]
            self.events += 1
            if name.startswith("resize"):
                self._write(pending)
                pending = ""
            elif pause:
                self._write(data)
                self._exchange(pause)
            else:
                pending += data
        self._write(pending)
        self._exchange(0)

    def _choose_event(self) -> tuple[str, str]:
        draw = self.random.random()
        choose = self.random.choice
        if draw < 0.04:
            size = choose(SIZES)
            self._set_size(size)
            return f"resize {size}", ""
        if draw < 0.06:
            text = choose(TEXTS) * choose((1, 1, 40))
            return f"paste {text[:20]}", f"\x1b[200~{text}\x1b[201~"
        if draw < 0.08:
            text = choose(TEXTS)
            return f"text {text}", text
        if draw < 0.09:
            lost = choose("IO")
            return f"focus {lost}", f"\x1b[{lost}"
        if draw < 0.2:
            return self._choose_mouse()
        if draw < 0.24:
            return "ctrl+p", "\x10"
        if draw < 0.28:
            return "enter", "\r"
        return self._choose_key()

    def _choose_key(self) -> tuple[str, str]:
        """Choose a key that the screen binds, one that was pressed least most of the time."""
        keys = [key for key in self._keys if key in SEQUENCES]
        if not keys or self.random.random() < 0.1:
            key = self.random.choice(list(SEQUENCES))
        elif self.random.random() < 0.6:
            pressed = self.coverage.pressed[self._screen]
            least = min(pressed[key] for key in keys)
            key = self.random.choice([key for key in keys if pressed[key] <= least + 1])
        else:
            key = self.random.choice(keys)
        return ("no key", "") if key in ("ctrl+c",) else (key, SEQUENCES[key])

    def _choose_mouse(self) -> tuple[str, str]:
        columns, lines = self._size
        x, y = self.random.randint(1, columns + 2), self.random.randint(1, lines + 1)
        kind = self.random.choice(("click", "double", "double", "wheel", "drag", "move", "press", "right"))
        click = f"\x1b[<0;{x};{y}M\x1b[<0;{x};{y}m"
        wheel = self.random.choice((64, 65, 66, 67, 68, 80, 81))
        data = {
            "click": click,
            "double": click * 2,
            "wheel": f"\x1b[<{wheel};{x};{y}M" * self.random.randint(1, 5),
            "drag": f"\x1b[<0;{x};{y}M\x1b[<32;{x // 2 + 1};{y}M\x1b[<0;{x // 2 + 1};{y // 2 + 1}m",
            "move": f"\x1b[<35;{x};{y}M",
            "press": f"\x1b[<0;{x};{y}M",
            "right": f"\x1b[<2;{x};{y}M\x1b[<2;{x};{y}m",
        }[kind]
        return f"{kind} {x},{y}", data

    def _set_size(self, size: tuple[int, int]) -> None:
        self._size = size
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    # -- answers ---------------------------------------------------------------------------------------------------

    def _wait_for_answer(self, factor: float = 1.0) -> None:
        """Ping the program and wait for the answer. Raises FindingError for one that does not come in time."""
        self._number += 1
        expected = self._number
        start = time.monotonic()
        while self._pong < expected:
            self._command(f"ping {self._number}")  # again, because the screen that has it may be left meanwhile
            self._exchange(0.2)
            self._number += 1
            limit = ANSWER_SECONDS * self._load() * factor
            waited = time.monotonic() - start
            if waited > limit:
                raise self._finding(f"no answer for {waited:.1f} s")
        self.slowest = max(self.slowest, time.monotonic() - start)

    def _load(self) -> float:
        """Return how many processes share a core, at least 1, times the patience."""
        return max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0) * self.patience

    def _exchange(self, seconds: float) -> None:
        """Read what the program wrote and reported for up to `seconds`. Raises FindingError where it has ended."""
        deadline = time.monotonic() + seconds
        while True:
            ready = wait_until_readable([self._master, self._reports], max(deadline - time.monotonic(), 0))
            if self._master in ready:
                try:
                    data = os.read(self._master, 1 << 16)
                except OSError:
                    data = b""
                if not data:
                    raise self._ended()
                self._tail += data
                del self._tail[:-20000]
            if self._reports in ready:
                self._read_reports()
            if time.monotonic() >= deadline or (self._number and self._pong == self._number):
                return

    def _read_reports(self) -> None:
        try:
            data = os.read(self._reports, 1 << 16)
        except BlockingIOError:
            return
        *lines, self._report_text = (self._report_text + self._decode(data)).split("\n")
        for line in lines:
            report = json.loads(line)
            if "error" in report:
                self._errors.append(report["error"])
            elif "stacks" in report:
                self._stacks = report["stacks"]
            elif "key" in report:
                self.coverage.pressed[report["screen"]][report["key"]] += 1
            else:
                self._pong = report["pong"]
                self._screen, self._keys = report["screen"], report["keys"]
                self.coverage.bound[self._screen].update(key for key in self._keys if key in SEQUENCES)
        if self._errors:
            raise self._finding("an exception")

    def _command(self, line: str) -> None:
        os.write(self._commands, f"{line}\n".encode())

    def _write(self, data: str) -> None:
        if data:
            rest = data.encode()
            while rest:
                if self._can_write():
                    rest = rest[os.write(self._master, rest[:512]) :]
                self._exchange(0)

    def _can_write(self) -> bool:
        poll = select.poll()
        poll.register(self._master, select.POLLOUT)
        return bool(poll.poll(0))

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self._command("end")
        deadline = time.monotonic() + 10 * self._load()
        try:
            while time.monotonic() < deadline:
                self._number = self._pong + 1
                self._exchange(0.1)
        except FindingError:
            status = self._status
            if status != 0:
                raise
            return
        raise self._finding("the program does not end")

    _status: int | None = None

    def _ended(self) -> FindingError:
        self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        try:
            self._read_reports()
        except FindingError as finding:
            return finding
        return self._finding(f"the program ended with status {self._status}")

    def _finding(self, what: str) -> FindingError:
        if self._status is None and not self._errors:
            self._collect_stacks()
        written = re.sub(r"\x1b\[[0-9;?<>=]*[a-zA-Z]", "", bytes(self._tail[-3000:]).decode(errors="replace"))
        lines = [
            f"{what}: torchprof-tui {' '.join(self.words)}",
            f"screen {self._screen}, size {self._size}, event {self.events}",
            "last events: " + " ".join(self.sent[-30:]),
            *self._errors,
            *self._stacks,
            *((written[-1500:],) if self._status is not None else ()),
        ]
        return FindingError("\n".join(lines))

    def _collect_stacks(self) -> None:
        errors, self._stacks = self._errors, []
        self._command("stacks")
        os.kill(self.pid, signal.SIGUSR2)
        deadline = time.monotonic() + 3
        while not self._stacks and time.monotonic() < deadline:
            wait_until_readable([self._reports], 0.1)
            try:
                self._read_reports()
            except FindingError:
                break
        if not self._stacks:
            self._stacks = [self._stacks_path.read_text()]
        self._errors = errors

    def _kill(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        for descriptor in (self._master, self._commands, self._reports):
            os.close(descriptor)
        self._stacks_path.unlink(missing_ok=True)


def write_traces(folder: Path) -> list[tuple[str, ...]]:
    """Write what the walks open into a folder, and return the arguments of the program for each of the ten walks."""
    from benchmarks.generate import repeat_trace  # not needed by the short walk

    paths = {sample.name: sample.path for sample in SAMPLES}
    truncated, flipped, large = folder / "truncated.json.gz", folder / "flipped.json", folder / "large.json"
    truncated.write_bytes(paths["train_gpt_eager"].read_bytes()[:90_000])
    text = bytearray(gzip.decompress(paths["generate_compile"].read_bytes()))
    flips = random.Random(0)
    for _ in range(FLIPPED_BYTES):
        text[flips.randrange(len(text))] = flips.randrange(256)
    flipped.write_bytes(text)
    repeat_trace(paths["train_gpt_eager"], large, LARGE_EVENTS)
    return [
        ("sample:matmul_add_64_cold_eager",),
        ("sample:train_gpt_stack_memory",),
        ("sample:train_images_cpu",),
        ("sample:train_gpt_2ranks",),
        ("sample:generate_graph",),
        (str(truncated),),
        (str(flipped),),
        (str(large), "--no-cache"),
        ("diff", "--screen", "sample:generate_eager", "sample:generate_compile"),
        (),
    ]


def run_walks(events: int, seed: int, findings: Path) -> int:
    """Walk over ten traces with this many events in all; print what was found and which keys were never reached.

    Returns 1 where something was found, else 0.
    """
    coverage, found = Coverage(), 0
    with tempfile.TemporaryDirectory(prefix="walk-") as name:
        walks = write_traces(Path(name))
        per_session = min(SESSION_EVENTS, -(-events // len(walks)))
        for number in range(-(-events // per_session)):
            words = walks[number % len(walks)]
            finding = None
            with build_world(Inputs(b"{}"), named_outputs=True):
                walk = Walk(words, seed + number, coverage)
                try:
                    walk.run(per_session)
                except FindingError as error:
                    finding = str(error)
            line = f"{' '.join(words) or '(start screen)'}: {walk.events} events, slowest answer {walk.slowest:.1f} s"
            print(f"seed {seed + number}, {line}" + (f", {finding.splitlines()[0]}" if finding else ""), flush=True)
            if finding:
                found = 1
                (findings / f"walk-{seed + number}.txt").write_text(finding)
    print("never reached:", *coverage.list_missed(), sep="\n  ", flush=True)
    return found
