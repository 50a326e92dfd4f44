"""Read scenarios: what is changed in a step, as written on the command line."""

from __future__ import annotations

import math
import re
from enum import Enum

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.trace.core.records import record

MAX_FACTOR = 1000.0

EXAMPLES = "class=gemm*0.5, op=aten::mm*0.5, kernel=TEXT*0, sync=0, launch=graph, compile"


class ScenarioError(ValueError):
    """A scenario that cannot be read, or changes nothing in this step. `str()` is one line for the user."""


class ScenarioKind(str, Enum):
    """What a scenario changes."""

    CLASS = "class"  # kernels of a class
    OP = "op"  # CPU time and GPU work of an op
    KERNEL = "kernel"  # GPU work whose name is, or else contains, a text
    EVENT = "event"  # one event by its row, with what it calls and launches
    CPU = "cpu"  # all CPU time but waiting
    GPU = "gpu"  # all GPU work
    COPIES = "copies"
    COLLECTIVES = "collectives"  # by a factor, or overlapped with everything else
    DATALOADER = "dataloader"
    SYNC = "sync"  # blocking calls are gone
    LAUNCH = "launch"  # the step is launched as a graph
    COMPILE = "compile"
    OPTIMIZER = "optimizer"  # one fused kernel
    RANK = "rank"  # all that one rank does
    LATE_RANK = "late-rank"
    PATTERN = "pattern"  # what the cheatsheet found


_SCALED = (ScenarioKind.CPU, ScenarioKind.GPU, ScenarioKind.COPIES, ScenarioKind.COLLECTIVES, ScenarioKind.DATALOADER)
_WORDS = {
    ScenarioKind.LAUNCH: "graph",
    ScenarioKind.OPTIMIZER: "fused",
    ScenarioKind.SYNC: "0",
    ScenarioKind.LATE_RANK: "0",
}
OVERLAPPED = "overlapped"


@record
class Scenario:
    """One change. `subject`: the class, op, name, row, rank or pattern; `factor`: of its time, 1 for no change.

    `rows`: int64, as bytes; of EVENT, instead of a subject, where several events are meant; of the others, the events
    to which the change is restricted, with what they call and launch. `gaps`: of EVENT, pairs of events of a thread,
    whose time in between changes with them. `copies_left`: of SYNC, what is left of the time of copies among `rows`.
    """

    text: str
    kind: ScenarioKind
    subject: str = ""
    factor: float = 1.0
    rows: bytes = b""
    gaps: tuple[tuple[int, int], ...] = ()
    copies_left: float = 1.0


def parse_scenario(text: str) -> Scenario:
    """Read a scenario. Raises ScenarioError."""
    word, equals, value = text.strip().partition("=")
    known = [kind.value for kind in ScenarioKind]
    if word not in known:
        raise ScenarioError(f"unknown scenario {text!r}: it begins with {', '.join(known)}; for example {EXAMPLES}")
    kind = ScenarioKind(word)
    if kind is ScenarioKind.COMPILE:
        if equals:
            raise ScenarioError(f"{text!r}: `compile` takes no value")
        return Scenario(text, kind)
    if not value:
        raise ScenarioError(f"{text!r}: nothing after the `=`; for example {EXAMPLES}")
    if kind in _WORDS:
        if value != _WORDS[kind]:
            raise ScenarioError(f"{text!r}: only {word}={_WORDS[kind]}")
        return Scenario(text, kind, value, 0.0)
    if kind is ScenarioKind.COLLECTIVES and value == OVERLAPPED:
        return Scenario(text, kind, OVERLAPPED)
    if kind in _SCALED:
        return Scenario(text, kind, "", _parse_factor(text, value.removeprefix("*")))
    if kind is ScenarioKind.PATTERN:
        return Scenario(text, kind, value, 0.0)
    subject, star, factor = value.rpartition("*")
    if not star or not subject:
        raise ScenarioError(f"{text!r}: no factor; write {word}={value.rstrip('*')}*0.5 for half the time")
    scenario = Scenario(text, kind, subject, _parse_factor(text, factor))
    labels = [each.label for each in KernelClass]
    if kind is ScenarioKind.CLASS and subject not in labels:
        raise ScenarioError(f"{text!r}: no class {subject!r}; the classes: {', '.join(labels)}")
    if kind in (ScenarioKind.EVENT, ScenarioKind.RANK) and not re.fullmatch(r"[0-9]{1,10}", subject):
        raise ScenarioError(f"{text!r}: {subject!r} is no number")
    return scenario


def _parse_factor(text: str, word: str) -> float:
    try:
        factor = float(word)
    except ValueError:
        factor = math.nan
    if not 0 <= factor <= MAX_FACTOR:
        raise ScenarioError(f"{text!r}: {word!r} is no factor from 0 to {MAX_FACTOR:g}; 0.5 is half the time")
    return factor
