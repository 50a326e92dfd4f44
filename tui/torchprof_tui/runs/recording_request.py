"""What the user asks to be recorded → the command line of the harness, under the user's own interpreter."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# Found beside this package and not on sys.path, where a folder of the user's may have the same name: installed, it lies
# in the same folder; in a checkout, under the folder `profiler_runs`.
_INSTALLED = Path(__file__).resolve().parents[2] / "torchprof_runs"
_CHECKOUT = Path(__file__).resolve().parents[3] / "profiler_runs" / "torchprof_runs"
HARNESS_FOLDER = _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT
HARNESS = HARNESS_FOLDER / "harness.py"

WORKLOADS = ("matmul_add", "linear", "mlp", "attention", "train_gpt", "recompiles", "streams", "graph_replay")
"""The built-in ones, from the simplest on."""

DEFAULT_OUTPUT = "torchprof_runs"

_INTERPRETER = re.compile(r"(python|pypy)\d*(\.\d+)*[a-z]?")
_FLAGS_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")  # options of Python's that have a value in the next word
_SCRIPT_SUFFIXES = (".py", ".pyw", ".pyz")


class RequestError(ValueError):
    """It cannot be recorded; the text says why and what to do, in one line."""


@dataclass(frozen=True, slots=True)
class Option:
    """One of the harness's options. `help` is one line; `values` are the only ones that a choice takes."""

    flag: str
    kind: Literal["count", "seconds", "switch", "choice", "text"]
    help: str
    metavar: str = ""
    values: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As an attribute: ``with_stack`` for ``--with-stack``."""
        return self.flag[2:].replace("-", "_")


OPTIONS = (
    Option("--wait", "count", "steps before anything is done (2; workloads 1)", "N"),
    Option("--warmup", "count", "steps with the profiler warming up (1)", "N"),
    Option("--active", "count", "steps to record (3)", "N"),
    Option("--repeat", "count", "how often all that, 0 for as long as it runs (1)", "N"),
    Option(
        "--step",
        "text",
        "what a step is in a program with no prof.step(): an optimizer's step, a function's call, nothing (the whole "
        "run is recorded); auto takes the optimizer, and the whole run where there is none",
        "auto|optimizer|MODULE:FUNCTION|none",
    ),
    Option("--after", "seconds", "a window of time instead of steps: start recording after so long", "SECONDS"),
    Option("--for", "seconds", "… and record for so long", "SECONDS"),
    Option(
        "--then",
        "choice",
        "when it is recorded: stop the program (the default) or let it finish",
        "",
        ("stop", "finish"),
    ),
    Option("--record-shapes", "switch", "the shapes of each op's inputs"),
    Option("--profile-memory", "switch", "allocations and frees: the memory curve"),
    Option("--with-stack", "switch", "every Python call; traces get large"),
    Option("--with-flops", "switch", "estimated FLOPs of matmuls and convolutions"),
    Option("--with-modules", "switch", "the module hierarchy (TorchScript)"),
    Option("--nproc", "count", "start so many ranks on this machine", "N"),
    Option("--max-memory", "count", "end the recording when the program has grown by so much", "MB"),
    Option("--no-preflight", "switch", "do not measure a step first to tell how large the trace gets"),
    Option("--no-table", "switch", "write the trace alone, without torch's table"),
)
"""What can be said about a recording, in the order in which it is asked."""


@dataclass(frozen=True, slots=True)
class RecordingRequest:
    """What to record: a workload or the user's own command, and the harness's options as words."""

    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    python: str | None = None
    output: str = DEFAULT_OUTPUT

    def argv(self, environment: Mapping[str, str] | None = None) -> list[str]:
        """The command that records it. Raises RequestError where it cannot be."""
        environment = os.environ if environment is None else environment
        python, flags, program = _parse_command(self.command, environment)
        if self.python is not None:
            python = _find_interpreter(self.python, environment)
        return [
            python or find_default_python(environment),
            *flags,
            str(HARNESS),
            "--output",
            self.output,
            *self.options,
            *program,
        ]

    def equivalent_command(self) -> str:
        """The command line that asks for the same."""
        words = ["torchprof-tui", "run", *self.options]
        if self.python is not None:
            words += ["--python", self.python]
        if self.output != DEFAULT_OUTPUT:
            words += ["-o", self.output]
        own = bool(self.command) and not is_workload(self.command[0])
        return shlex.join([*words, *(["--"] if own else []), *self.command])


def is_workload(name: str) -> bool:
    """Whether a built-in workload is meant; a file of that name goes first."""
    return name in WORKLOADS and not os.path.exists(name)


def summarize_workload(workload: str) -> str:
    """The first line of what a workload says about itself."""
    source = (HARNESS_FOLDER / "workloads" / f"{workload}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def workload_flags(workload: str) -> set[str]:
    """The options that a workload's own parser has, read from its source."""
    tree = ast.parse((HARNESS_FOLDER / "workloads" / f"{workload}.py").read_text(encoding="utf-8"))
    return {
        flag.value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
        for flag in call.args
        if isinstance(flag, ast.Constant) and isinstance(flag.value, str)
    }


def find_default_python(environment: Mapping[str, str]) -> str:
    """The interpreter where none is named: the active environment's, ours if it has torch, else the PATH's."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = os.path.join(environment.get(variable, ""), "bin", "python")
        if environment.get(variable) and os.access(active, os.X_OK):
            return active
    if importlib.util.find_spec("torch") is not None:  # looks for it, imports nothing
        return sys.executable
    return shutil.which("python3", path=environment.get("PATH")) or sys.executable


def _parse_command(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str | None, list[str], list[str]]:
    """(interpreter, None for the default one; its own flags; what it runs, as the harness takes it)."""
    if not command:
        raise RequestError(f"nothing to run: name a workload ({', '.join(WORKLOADS)}) or a command after --")
    first, *rest = command
    if _INTERPRETER.fullmatch(os.path.basename(first)):
        flags, program = _split_python_arguments(rest)
        return _find_interpreter(first, environment), flags, program
    if is_workload(first) or first.endswith(_SCRIPT_SUFFIXES) or os.path.isdir(first):
        return None, [], list(command)
    path = shutil.which(first, path=environment.get("PATH"))
    if path is None:
        raise RequestError(
            f"{first}: neither a workload ({', '.join(WORKLOADS)}) nor a command; your own: run -- python train.py"
        )
    interpreter = _read_shebang(path)
    if interpreter is None:
        raise RequestError(f"{first} is no Python program, and only those are recorded: run -- python SCRIPT …")
    # torchrun is known by its name to the harness, which puts itself between it and its script.
    return interpreter, [], ["torchrun" if os.path.basename(first) == "torchrun" else path, *rest]


def _split_python_arguments(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Python's own flags, and its program with what belongs to it."""
    flags: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        letters = "" if word.startswith(("--", "-X", "-W")) else word[1:]
        if "c" in letters:
            raise RequestError("python -c cannot be recorded: put the program into a file")
        if "m" in letters:
            before, _, attached = letters.partition("m")
            return [*flags, *([f"-{before}"] if before else [])], ["-m", *([attached] if attached else []), *rest]
        flags.append(word)
        if word in _FLAGS_WITH_VALUE and rest:
            flags.append(rest.pop(0))
    if not rest or rest[0] == "-":
        raise RequestError("python without a script: name one, or -m MODULE")
    return flags, rest


def _find_interpreter(name: str, environment: Mapping[str, str]) -> str:
    """The interpreter at a path or on the PATH; a folder is taken for an environment's."""
    expanded = os.path.expanduser(name)
    if os.path.isdir(expanded):
        expanded = os.path.join(expanded, "bin", "python")
    # Not resolved: an environment's interpreter is a link, and knows its packages by where the link lies.
    path = shutil.which(expanded, path=environment.get("PATH"))
    if path is None:
        raise RequestError(f"no interpreter {name}: name one that has torch, as in --python /path/to/venv/bin/python")
    return os.path.abspath(path)


def _read_shebang(path: str) -> str | None:
    """The Python interpreter that the first line of a script names; None where it is none."""
    try:
        with open(path, "rb") as file:
            first = file.readline(512).decode("utf-8", "replace")
            second = file.readline(512).decode("utf-8", "replace")
    except OSError:
        return None
    if not first.startswith("#!"):
        return None
    words = first[2:].split()
    if words[:1] == ["/bin/sh"] and second.startswith("'''exec'"):  # pip's way around long paths and spaces
        words = shlex.split(second[len("'''exec'") :])[:1]
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if not words or not _INTERPRETER.fullmatch(os.path.basename(words[0])):
        return None
    return shutil.which(words[0])
