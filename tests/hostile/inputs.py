"""Generate what a session reads: intact inputs, of which a few are replaced by hostile ones."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache

from hypothesis import strategies as st

from tests.fuzz.__main__ import load_corpus
from tests.fuzz.mutate import mutate
from tests.helpers import hostile_json, hostile_traces
from tests.hostile.cases import FOLDER, TRACE, CommandCase, Inputs, ScreenCase, TerminalCase
from tests.hostile.commands import COMMANDS
from tests.hostile.screens import list_keys
from torchprof_tui.ui.start.recent_traces import MAX_ENTRIES

MARK = b"\n\x1etorchprof-tui "
"""Begins each line of the script that lists a folder on another host."""

ENVIRONMENTS: tuple[tuple[str, str | None], ...] = (
    ("HOME", None),
    ("HOME", ""),
    ("HOME", "{file}"),
    ("HOME", "relative"),
    ("HOME", "{root}/nonexistent"),
    ("XDG_STATE_HOME", None),
    ("XDG_STATE_HOME", "{file}"),
    ("XDG_STATE_HOME", "{file}/below"),
    ("XDG_CACHE_HOME", "{file}"),
    ("TORCHPROF_TUI_CACHE", None),
    ("TORCHPROF_TUI_CACHE", "{file}"),
    ("TORCHPROF_TUI_CACHE", "{file}/below"),
    ("TERM", "dumb"),
    ("TERM", "no such terminal"),
    ("TERM", ""),
    ("TERM", None),
    ("LANG", "C"),
    ("LC_ALL", "xx_YY.broken"),
    ("COLUMNS", "0"),
    ("COLUMNS", "-5"),
    ("COLUMNS", "wide"),
    ("LINES", "1000000"),
    ("NO_COLOR", "1"),
    ("COLORTERM", "x"),
    ("TZ", "Nowhere/Nothing"),
    ("PATH", "/nonexistent"),
    ("TORCHPROF_TUI_SSH_SOCKETS", "{file}"),
)
"""Variables, one change each; several of them are combined."""

OTHER_TRACE = "b.json"

FILE_NAMES = ("manifest.json", "request.json", "manifest.rank0.json", "manifest.rank1.json", OTHER_TRACE, "rank1.json")

SLOW_COMMANDS = ("snapshot", "run")
"""Commands that start processes."""

LEAVING = ("q", "ctrl+c")
"""Keys that end most sessions: seldom drawn."""

OPENING = (
    "t",
    "T",
    "F",
    "D",
    "k",
    "c",
    "d",
    "s",
    "o",
    "R",
    "r",
    "g",
    "?",
    "p",
    "slash",
    "y",
    "e",
    "enter",
    "down",
    "n",
)
"""Keys that open screens, panels and prompts, or move to what they show: most others need them first."""

COMPARING = ("D", *f"{FOLDER}/{OTHER_TRACE}", "enter")
"""Keys that compare the trace with another one beside it."""

NAMES = [
    "a.json",
    "rank0.json",
    "rank1.json",
    "../../etc/rank0.json",
    "nul\0.json",
    "escape\x1b[31m.json",
    "tab\t.json",
    "\udcff\udcfe.json",
    "ü \u202e.json",
    "-rf.json",
    "x" * 5000 + ".json",
    "",
]

SPECS = ["a.json", TRACE, "box:runs", "box:runs/a.json", "https://", "s3://x/\x1b[2J", "/", "~nobody/x", "-", "x\0y"]


@cache
def _trace_corpus() -> list[bytes]:
    return load_corpus()


def mutated_bytes(data: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return a strategy of the bytes of another, damaged at one to five places by `tests.fuzz.mutate`."""
    return st.builds(
        lambda data, seed, times: mutate(random.Random(seed), [data]) if times else data,
        data,
        st.integers(0, 2**32),
        st.sampled_from([0, 0, 1]),
    )


def traces() -> st.SearchStrategy[bytes]:
    """Return a strategy of traces: steps with hostile values, and damaged files of the fuzzer's corpus."""
    steps = hostile_traces.documents().map(lambda text: text.encode(errors="surrogatepass"))
    files = st.integers(0, 99).map(lambda number: _trace_corpus()[number % len(_trace_corpus())])
    return st.one_of(steps, mutated_bytes(steps), mutated_bytes(files))


def _dump(document: object) -> bytes:
    return json.dumps(document).encode()


def small_files() -> st.SearchStrategy[bytes]:
    """Return a strategy of what the program's own small files may hold."""
    documents = hostile_json.documents().map(_dump)
    odd = st.sampled_from([b"", b"null", b"\xff\xfe", b'{"schema": 99}'])
    deep = st.sampled_from([b"[", b'{"kept":']).map(lambda text: text * 20_000)
    return st.one_of(documents, mutated_bytes(documents), odd, deep)


def recent_lists() -> st.SearchStrategy[bytes]:
    """Return a strategy of lists of recent traces."""
    times = st.floats() | st.integers() | st.sampled_from([1e308, -1, 10**400])
    specs = st.sampled_from(SPECS) | st.text(max_size=20)
    entries = st.lists(st.tuples(specs, times), max_size=MAX_ENTRIES + 5).map(_dump)
    return st.one_of(entries, mutated_bytes(entries), small_files())


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Draw what a host answers: a listing in one of the forms of the scripts, or a file, then damaged."""
    kind = draw(st.sampled_from([b"folder", b"pattern", b"file", b"file cat 5 1 2 3", b"denied", b"missing", b"x"]))
    number = st.one_of(st.integers(), st.sampled_from(["", "-", "nan", "9" * 5000])).map(str)
    lines = []
    for name in draw(st.lists(st.sampled_from(NAMES) | st.text(max_size=12), max_size=6)):
        folder = draw(st.sampled_from(["./", "./runs/", "/runs/"]))
        form = draw(st.sampled_from(["{0}:{1}:{2}", "{0} {1} {1} 5 {2}", "- {2}"]))
        lines.append(form.format(draw(number), draw(number), folder + name))
    text = "\n".join(lines).encode(errors="surrogateescape" if draw(st.booleans()) else "replace")
    banner = draw(st.sampled_from([b"", b"Welcome to \x1b[31mbox\n"]))
    return draw(mutated_bytes(st.just(banner + MARK + kind + b"\n" + text + b"\n" + MARK + b"end\n")))


def status_lines() -> st.SearchStrategy[bytes]:
    """Return a strategy of what a recorded program writes to the status pipe; never longer than the pipe."""
    lines = st.lists(small_files().filter(lambda data: len(data) < 3000), max_size=8)
    return lines.map(lambda lines: b"\n".join(lines)[:30_000])


def environments() -> st.SearchStrategy[tuple[tuple[str, str | None], ...]]:
    """Return a strategy of changes to the environment."""
    return st.lists(st.sampled_from(ENVIRONMENTS), max_size=3, unique_by=lambda pair: pair[0]).map(tuple)


@st.composite
def inputs(draw: st.DrawFn, console: bool = False, cache: bool = True) -> Inputs:
    """Draw the inputs of a session. `console`: those of recordings, too. `cache`: of the cache, too."""

    def sometimes(strategy: st.SearchStrategy[bytes]) -> bytes:
        return draw(strategy) if draw(st.booleans()) else b""

    flips = st.tuples(st.integers(0, 40), st.integers(0, 100_000), st.integers(0, 7))
    names = draw(st.lists(st.sampled_from(FILE_NAMES), max_size=3, unique=True))
    return Inputs(
        trace=draw(traces()),
        run_files=tuple(
            (name, draw(traces() if name in (OTHER_TRACE, "rank1.json") else small_files())) for name in names
        ),
        recent=draw(st.none() | recent_lists()),
        answer=sometimes(answers()),
        status_lines=sometimes(status_lines()) if console else b"",
        console=sometimes(st.binary(max_size=300)) if console else b"",
        environment=draw(environments()),
        cache_flips=tuple(draw(st.lists(flips, max_size=3))) if cache and draw(st.booleans()) else None,
    )


def bursts() -> st.SearchStrategy[tuple[tuple[str, ...], ...]]:
    """Return a strategy of what the user does: keys in bursts, clicks, other sizes of the terminal."""
    keys = st.sampled_from([key for key in list_keys() if key not in LEAVING])
    sizes = st.builds("resize:{}x{}".format, st.integers(1, 500), st.integers(1, 200))
    clicks = st.builds("click:{},{}".format, st.integers(0, 150), st.integers(0, 50))
    leaving = st.integers(0, 15).map(lambda number: LEAVING[number] if number < len(LEAVING) else "escape")
    others = st.one_of(leaving, sizes, clicks)
    steps = st.one_of(keys, keys, keys, st.sampled_from(OPENING), st.sampled_from(OPENING), others)
    drawn = st.lists(steps, min_size=1, max_size=6).map(tuple)
    return st.lists(st.one_of(*[drawn] * 7, st.just(COMPARING)), min_size=4, max_size=16).map(tuple)


def sizes() -> st.SearchStrategy[tuple[int, int]]:
    """Return a strategy of terminal sizes: (columns, lines), from one cell to a wall of screens."""
    usual = st.sampled_from([(80, 24), (160, 48), (240, 60), (1, 1), (500, 200), (2, 200), (500, 1)])
    return usual | st.tuples(st.integers(1, 500), st.integers(1, 200))


def screen_cases() -> st.SearchStrategy[ScreenCase]:
    """Return a strategy of sessions of the app."""
    at = st.sampled_from([None, None, None, "ProfilerStep#1", "5", "1e400", "nan", "-1ms", "step 9999999999999999999"])
    return st.builds(ScreenCase, inputs(console=True), bursts(), sizes(), st.sampled_from([True, True, False]), at)


def command_cases() -> st.SearchStrategy[CommandCase]:
    """Return a strategy of calls of the command line; the slow ones are drawn less often."""
    fast = [words for words in COMMANDS if words[0] not in SLOW_COMMANDS]
    words = st.sampled_from([*fast, *fast, *fast, *COMMANDS])
    return st.builds(CommandCase, inputs(console=True), words, st.sampled_from(["utf-8", "utf-8", "ascii", "latin-1"]))


def terminal_cases() -> st.SearchStrategy[TerminalCase]:
    """Return a strategy of sessions in a real terminal. The worker and the program see no home folder but ours."""
    words = st.sampled_from([(), (TRACE,), (FOLDER,), (TRACE, "--no-mouse"), ("box:runs",)])
    keys = st.lists(st.sampled_from("nkctsdeyjlhJKg?/Rr \t\r\x1b"), max_size=12).map(
        lambda keys: "".join(keys).encode()
    )
    shown = inputs(console=True, cache=False).map(_name_folders)
    return st.builds(TerminalCase, shown, words, keys, sizes())


def _name_folders(drawn: Inputs) -> Inputs:
    """Name the folders of cache and state: another process finds the home folder of the user who runs the tests."""
    kept = {
        name: value for name, value in drawn.environment if value is not None or not name.startswith(("TORCH", "XDG"))
    }
    return replace(drawn, environment=tuple(kept.items()))
