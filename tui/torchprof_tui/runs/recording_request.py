"""Build the harness's command line, under the user's own interpreter, from what the user wants to record."""

from __future__ import annotations

import ast
import contextlib
import glob
import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.user_files import create_state_folder, find_state_folder, replace_file

# Located relative to this package and not by sys.path, where a folder of the user may have the same name. Installed, it
# is in the same folder as this package; in a checkout, in the folder `profiler_runs`.
_INSTALLED = Path(__file__).resolve().parents[2] / "torchprof_runs"
_CHECKOUT = Path(__file__).resolve().parents[3] / "profiler_runs" / "torchprof_runs"
HARNESS_FOLDER = _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT
HARNESS = HARNESS_FOLDER / "harness.py"

WORKLOADS = (
    "matmul_add",
    "linear",
    "mlp",
    "attention",
    "train_gpt",
    "recompiles",
    "streams",
    "graph_replay",
    "generate",
    "train_images",
    "infer_resnet",
)
"""The built-in workloads, from simple to complex."""

DEFAULT_OUTPUT = "torchprof_runs"

SEARCH_VARIABLE = "TORCHPROF_PYTHON_SEARCH"
"""Environment variable for the recorder's message where the interpreter has no torch."""

_INTERPRETER = re.compile(r"(python|pypy)\d*(\.\d+)*[a-z]?")
_FLAGS_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")  # Python's options that take a value in the next word
_SCRIPT_SUFFIXES = (".py", ".pyw", ".pyz")


class RequestError(ValueError):
    """The request cannot be recorded; the message says why and what to do, in one line."""


@record
class Option:
    """One option of the harness. `help` is one line; `values` are the values that a choice accepts."""

    flag: str
    kind: Literal["count", "seconds", "switch", "choice", "text"]
    help: str
    metavar: str = ""
    values: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The option as an attribute name: ``with_stack`` for ``--with-stack``."""
        return self.flag[2:].replace("-", "_")


OPTIONS = (
    Option("--wait", "count", "steps to skip before the warm-up (2; workloads 1)", "N"),
    Option("--warmup", "count", "steps to profile without keeping them, to warm up the profiler (1)", "N"),
    Option("--active", "count", "steps to record (3)", "N"),
    Option("--repeat", "count", "cycles to record (1; 0: until the program ends)", "N"),
    Option(
        "--step",
        "text",
        "what counts as a step: optimizer.step(), each call of a function, or none (record the whole run); auto: "
        "optimizer steps if there are any, else the whole run",
        "auto|optimizer|MODULE:FUNCTION|none",
    ),
    Option("--after", "seconds", "record a window of time instead of steps: start after this long", "SECONDS"),
    Option("--for", "seconds", "length of that window; without --after it starts at once", "SECONDS"),
    Option(
        "--then", "choice", "after the recording: stop the program (default) or let it finish", "", ("stop", "finish")
    ),
    Option("--record-shapes", "switch", "record the shapes of each op's inputs"),
    Option("--profile-memory", "switch", "record allocations and frees, for the memory lane"),
    Option("--with-stack", "switch", "record every Python call; traces become large"),
    Option("--with-flops", "switch", "record estimated FLOPs, of matmuls and convolutions"),
    Option("--with-modules", "switch", "record the module hierarchy (TorchScript)"),
    Option("--capture", "switch", "record the capture of CUDA graphs, too: the ops of replayed kernels"),
    Option("--memory-snapshot", "switch", "write the CUDA allocator's history, with stacks, for torchprof-tui memory"),
    Option(
        "--watch-hang",
        "seconds",
        "let the program run on; when no step ends for this long, write what each rank waits for (torchprof-tui hang)",
        "SECONDS",
    ),
    Option("--nproc", "count", "start this many ranks on this machine", "N"),
    Option("--max-memory", "count", "end the recording at this growth (of the program's memory)", "MB"),
    Option("--max-size", "count", "above this size of the JSON, ask or record fewer steps (1000)", "MB"),
    Option("--yes", "switch", "record all steps without asking, also above that size"),
    Option("--no-preflight", "switch", "record no test step, which estimates the size of the trace"),
    Option("--table", "switch", "write torch's table, also of more than 150,000 events (slow)"),
    Option("--no-table", "switch", "write only the trace, without torch's table"),
)
"""The options of a recording, in the order of the form and of --help."""


@record
class RecordingRequest:
    """What to record: a workload or the user's own command, with the harness's options as words."""

    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    python: str | None = None
    output: str = DEFAULT_OUTPUT

    def argv(self, environment: Mapping[str, str] | None = None) -> list[str]:
        """Build the command that records this request. Raises RequestError if it cannot be recorded."""
        environment = os.environ if environment is None else environment
        python, flags, program = _parse_command(self.command, environment, self.python)
        return [
            python or find_default_python(environment),
            *flags,
            str(HARNESS),
            "--output",
            self.output,
            *self.options,
            *program,
        ]

    def search_environment(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variable that tells the recorder where its interpreter was looked for, if it was not named."""
        environment = os.environ if environment is None else environment
        if self.python is not None or _parse_command(self.command, environment, None)[0] is not None:
            return {}
        return {SEARCH_VARIABLE: describe_python_search(environment)}

    def equivalent_command(self) -> str:
        """Format the `torchprof-tui run` command line that records the same."""
        words = ["torchprof-tui", "run", *self.options]
        if self.python is not None:
            words += ["--python", self.python]
        if self.output != DEFAULT_OUTPUT:
            words += ["-o", self.output]
        is_user_command = bool(self.command) and not is_workload(self.command[0])
        return shlex.join([*words, *(["--"] if is_user_command else []), *self.command])


def is_workload(name: str) -> bool:
    """Return whether `name` is a built-in workload; a file of that name takes precedence."""
    return name in WORKLOADS and not os.path.exists(name)


def summarize_workload(workload: str) -> str:
    """Read the first line of a workload's docstring."""
    source = (HARNESS_FOLDER / "workloads" / f"{workload}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def workload_flags(workload: str) -> set[str]:
    """List the options of a workload's own parser, read from its source."""
    tree = ast.parse((HARNESS_FOLDER / "workloads" / f"{workload}.py").read_text(encoding="utf-8"))
    return {
        flag.value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
        for flag in call.args
        if isinstance(flag, ast.Constant) and isinstance(flag.value, str)
    }


def find_default_python(environment: Mapping[str, str]) -> str:
    """Find the default interpreter: the active environment's, the viewer's own if it has torch, or that on the PATH."""
    return next(path for _, path, _ in _search_default_python(environment) if path)


def describe_python_search(environment: Mapping[str, str]) -> str:
    """Describe in one line where the default interpreter was looked for, and which one the last good run had."""
    parts = []
    for place, path, problem in _search_default_python(environment):
        parts.append(f"{place}: {path or problem}")
        if path:
            break
    worked = recall_interpreter()
    return f"tried {', '.join(parts)}" + (f"; the last run that worked had --python {worked}" if worked else "")


def _search_default_python(environment: Mapping[str, str]) -> Iterator[tuple[str, str | None, str]]:
    """Yield (where, the interpreter, what is wrong there) in the order of preference; the last one always exists."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        python = os.path.join(environment.get(variable, ""), "bin", "python")
        if not environment.get(variable):
            yield f"${variable}", None, "not set"
        else:
            yield f"${variable}", python if os.access(python, os.X_OK) else None, f"no {python}"
    python = environment.get("TORCHPROF_TUI_PYTHON", "")  # set from the configuration file as well
    if python:
        python = os.path.join(python, "bin", "python") if os.path.isdir(python) else python
        usable = os.path.isfile(python) and os.access(python, os.X_OK)
        yield "the configured interpreter", python if usable else None, f"no {python}"
    has_torch = importlib.util.find_spec("torch") is not None  # does not import torch
    yield "torchprof-tui's own", sys.executable if has_torch else None, "no torch"
    yield "python3 on the PATH", shutil.which("python3", path=environment.get("PATH")) or sys.executable, ""


def _parse_command(
    command: Sequence[str], environment: Mapping[str, str], chosen: str | None
) -> tuple[str | None, list[str], list[str]]:
    """Split a command into (interpreter, None for the default; its flags; the program as the harness takes it).

    `chosen`: the interpreter that the user names beside the command; the command's own need not exist then.
    """
    python, flags, program = _split_command(command, environment, chosen is None)
    return python if chosen is None else _find_interpreter(chosen, environment), flags, program


def _split_command(
    command: Sequence[str], environment: Mapping[str, str], needs_interpreter: bool
) -> tuple[str | None, list[str], list[str]]:
    if not command:
        raise RequestError(f"nothing to run: name a workload ({', '.join(WORKLOADS)}) or a command after --")
    name, *arguments = command
    if _INTERPRETER.fullmatch(os.path.basename(name)):
        flags, program = _split_python_arguments(arguments)
        return _find_interpreter(name, environment) if needs_interpreter else None, flags, program
    if is_workload(name) or name.endswith(_SCRIPT_SUFFIXES) or os.path.isdir(name):
        return None, [], list(command)
    path = shutil.which(name, path=environment.get("PATH"))
    if path is None:
        raise RequestError(
            f"{name}: neither a workload ({', '.join(WORKLOADS)}) nor a command; your own: run -- python train.py"
        )
    interpreter = _read_shebang(path)
    if interpreter is None:
        raise RequestError(
            f"{name} is no Python program, and only Python programs can be recorded: run -- python SCRIPT …"
        )
    # The harness recognizes torchrun by its name and inserts itself before the script.
    return interpreter, [], ["torchrun" if os.path.basename(name) == "torchrun" else path, *arguments]


def _split_python_arguments(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of `python` into its own flags and the program with its arguments."""
    flags: list[str] = []
    remaining = list(words)
    while remaining and remaining[0].startswith("-") and remaining[0] != "-":
        word = remaining.pop(0)
        letters = "" if word.startswith(("--", "-X", "-W")) else word[1:]
        if "c" in letters:
            raise RequestError("python -c cannot be recorded: put the program into a file")
        if "m" in letters:  # flags may be joined: -Im MODULE, -mMODULE
            joined_flags, _, module = letters.partition("m")
            if joined_flags:
                flags.append(f"-{joined_flags}")
            return flags, ["-m", *([module] if module else []), *remaining]
        flags.append(word)
        if word in _FLAGS_WITH_VALUE and remaining:
            flags.append(remaining.pop(0))
    if not remaining or remaining[0] == "-":
        raise RequestError("python without a script: name one, or -m MODULE")
    return flags, remaining


def _find_interpreter(name: str, environment: Mapping[str, str]) -> str:
    """Find the interpreter at a path or on the PATH; a folder is taken as that of a virtual environment."""
    expanded = os.path.expanduser(name)
    if os.path.isdir(expanded):
        expanded = os.path.join(expanded, "bin", "python")
    # Links are not resolved: an environment's interpreter is a link, and finds its packages by the link's location.
    path = shutil.which(expanded, path=environment.get("PATH"))
    if path is None:
        raise RequestError(f"no interpreter {name}: give one with torch, as in --python /path/to/venv/bin/python")
    return os.path.abspath(path)


def _read_shebang(path: str) -> str | None:
    """Read the Python interpreter from the first line of a script; None if it names no Python."""
    try:
        with open(path, "rb") as file:
            first_line = file.readline(512).decode("utf-8", "replace")
            second_line = file.readline(512).decode("utf-8", "replace")
    except OSError:
        return None
    if not first_line.startswith("#!"):
        return None
    words = first_line[2:].split()
    if words[:1] == ["/bin/sh"] and second_line.startswith("'''exec'"):  # written by pip for long paths and spaces
        with contextlib.suppress(ValueError):  # quotes that do not match: no script of pip's
            words = shlex.split(second_line[len("'''exec'") :])[:1]
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if not words or not _INTERPRETER.fullmatch(os.path.basename(words[0])):
        return None
    return shutil.which(words[0])


INTERPRETER_FILE = "interpreter.txt"
MAX_PATH_BYTES = 4096  # Linux takes paths of at most this length


def remember_interpreter(path: str) -> None:
    """Store the absolute path of an interpreter that has just recorded a trace, in the user's state folder.

    Losing it is harmless, so errors of reading and writing are ignored.
    """
    with contextlib.suppress(OSError, ValueError):
        replace_file(create_state_folder() / INTERPRETER_FILE, os.fsencode(path), mode=0o600)


def recall_interpreter() -> str | None:
    """Return the stored interpreter if it can still be executed, else None."""
    folder = find_state_folder()
    if folder is None:
        return None
    try:
        with open(folder / INTERPRETER_FILE, "rb") as file:
            path = os.fsdecode(file.read(MAX_PATH_BYTES + 1))
        is_usable = os.path.isabs(path) and path.isprintable() and os.access(path, os.X_OK)
    except (OSError, ValueError):
        return None
    return path if is_usable else None


_DEVICE_FILES = (
    "/dev/nvidia[0-9]*",
    "/dev/kfd",  # AMD
    "/dev/dxg",  # Windows' GPUs in WSL
    "/dev/davinci[0-9]*",  # Ascend
)
_VISIBILITY_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

WORKLOADS_FOR_GPUS: Mapping[str, str] = {"streams": "", "graph_replay": "--eager"}
"""Workloads that need a GPU → the argument with which they do without; "" if there is none."""


def is_gpu_present(environment: Mapping[str, str]) -> bool:
    """Return whether there is a device file of a GPU, and `environment` does not hide all of them."""
    if any(environment.get(variable, "0").strip() in ("", "-1") for variable in _VISIBILITY_VARIABLES):
        return False
    return any(glob.glob(pattern) for pattern in _DEVICE_FILES)
