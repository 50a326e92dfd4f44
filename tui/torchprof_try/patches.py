"""Write what a remedy changes as a unified diff against the user's files, where its place is known.

A trial reports the lines of the program at which a remedy changed something. Without one, the function is searched that
the finding which suggests the remedy names, then the whole script: the only call of that name there is the place. A
file is parsed, not searched as text, and a change after which it could not be parsed is dropped: then the patch is text
that says where it belongs. Nothing is applied.
"""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from torchprof_try.remedies import Remedy
from torchprof_tui.trace.core.records import record

Line = tuple[str, int]
MAX_FILE_BYTES = 4 << 20


@record
class Places:
    """What is known of the program's files. `lines`: of each remedy, (file, number); `calls`: that call its modules.

    `script`: its main file, "" where that is none of the user's. `suggested`: of each remedy, the lines of the findings
    that suggest it: where a function begins, because the profiler records no other line.
    """

    script: str = ""
    lines: dict[str, list[Line]] = field(default_factory=dict)
    calls: list[Line] = field(default_factory=list)
    suggested: dict[str, list[Line]] = field(default_factory=dict)

    def add(self, script: str, lines: Mapping[str, Sequence[Sequence[Any]]], calls: Sequence[Sequence[Any]]) -> Places:
        """Return these places with what another process reports."""
        known = {name: [(str(path), int(line)) for path, line in found] for name, found in lines.items()}
        return Places(
            script or self.script,
            {**self.lines, **known},
            list(dict.fromkeys([*self.calls, *((str(path), int(line)) for path, line in calls)])),
            self.suggested,
        )


@record
class Patch:
    """`diff`: "" where no place is known; `places`: "FILE:LINE" of the remedies. `left`: remedies without a diff."""

    diff: str
    places: tuple[str, ...]
    left: tuple[Remedy, ...]


@record
class Edit:
    """Replace the bytes from `start` to `end` of a file."""

    start: int
    end: int
    text: str


class ProgramFile:
    """A file of the program, parsed. Raises OSError, ValueError, SyntaxError where it cannot be."""

    def __init__(self, path: str) -> None:
        if os.path.getsize(path) > MAX_FILE_BYTES:
            raise ValueError(f"{path} is too large")
        self.path = path
        self.source = Path(path).read_bytes()
        self.tree = ast.parse(self.source)
        self._starts = [0]
        for line in self.source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def text(self, node: ast.expr) -> str:
        return self.source[self.start(node) : self.end(node)].decode("utf-8")

    def line_start(self, number: int) -> int:
        """Return the offset of a line, or of the end of the file."""
        return self._starts[min(number, len(self._starts)) - 1]

    def indent(self, statement: ast.stmt) -> str:
        return self.source[self.line_start(statement.lineno) : self.start(statement)].decode("utf-8")

    def list_calls(self, names: Sequence[str], line: int | None = None) -> list[ast.Call]:
        """List the calls of a function by the last part of its name; those of a line, or all of the file."""
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and _name_call(node) in names]
        return [call for call in found if line is None or call.lineno <= line <= (call.end_lineno or call.lineno)]

    def find_statements(self, line: int) -> list[ast.stmt]:
        """List the statements around a line, the outermost first; functions and classes begin the list anew."""
        found: list[ast.stmt] = []
        for node in ast.walk(self.tree):  # breadth first: outer ones before inner ones
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
                is_scope = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                found = [] if is_scope else [*found, node]
        return found

    def apply(self, edits: Sequence[Edit]) -> bytes | None:
        """Return the changed source; None where edits overlap, or it could not be parsed."""
        changed, before = self.source, len(self.source) + 1
        for edit in sorted(edits, key=lambda each: (-each.start, -each.end)):
            if edit.end > before:
                return None
            before = edit.start
            changed = changed[: edit.start] + edit.text.encode("utf-8") + changed[edit.end :]
        try:
            ast.parse(changed)
        except (SyntaxError, ValueError):
            return None
        return changed


def _name_call(call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


# --- changes ------------------------------------------------------------------------------------------------------

Change = Callable[[ProgramFile, int], list[Edit]]
"""Takes a file and a line; returns no edit where the line has nothing to change."""


def _set_arguments(names: Sequence[str], **arguments: str) -> Change:

    def change(file: ProgramFile, line: int) -> list[Edit]:
        edits = []
        for call in file.list_calls(names, line):
            given = {each.arg: each.value for each in call.keywords}
            known = [(given[name], text) for name, text in arguments.items() if name in given]
            edits += [Edit(file.start(value), file.end(value), text) for value, text in known]
            added = ", ".join(f"{name}={text}" for name, text in arguments.items() if name not in given)
            if added:
                everything: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
                last = max(everything, key=file.end, default=None)
                place = file.end(call) - 1 if last is None else file.end(last)
                edits.append(Edit(place, place, added if last is None else f", {added}"))
        return edits

    return change


def _set_first(*functions: str, text: str) -> Change:
    """Set the first argument of the calls of a line, whether it has a name or not."""

    def change(file: ProgramFile, line: int) -> list[Edit]:
        edits = []
        for call in file.list_calls(functions, line):
            first = [*call.args, *(each.value for each in call.keywords)][:1]
            edits += [Edit(file.start(each), file.end(each), text) for each in first]
        return edits

    return change


def _remove_calls(*functions: str) -> Change:
    """Remove the statements of a line that are nothing but a call."""

    def change(file: ProgramFile, line: int) -> list[Edit]:
        calls = file.list_calls(functions, line)
        for statement in file.find_statements(line):
            if isinstance(statement, ast.Expr) and statement.value in calls:
                is_alone = any(
                    isinstance(body := getattr(node, name, None), list) and body == [statement]
                    for node in ast.walk(file.tree)
                    for name in ("body", "orelse", "finalbody")
                )
                if is_alone:
                    return [Edit(file.start(statement), file.end(statement), "pass")]
                end = (statement.end_lineno or statement.lineno) + 1
                return [Edit(file.line_start(statement.lineno), file.line_start(end), "")]
        return []

    return change


def _turn_anomaly_off(file: ProgramFile, line: int) -> list[Edit]:
    edits = _set_first("set_detect_anomaly", text="False")(file, line)
    for call in file.list_calls(("detect_anomaly",), line):
        if isinstance(call.func, ast.Attribute):
            owner = file.text(call.func.value)
            edits.append(Edit(file.start(call), file.end(call), f"{owner}.set_detect_anomaly(False)"))
    return edits


def _find_module_call(file: ProgramFile, line: int) -> tuple[ast.Call, list[ast.stmt]] | None:
    """Find the call of a module, of a name or an attribute, and the statements around it."""
    statements = file.find_statements(line)
    calls = [
        node
        for node in ast.walk(statements[-1] if statements else ast.Pass())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and node.args
    ]
    inner = [each for each in calls if not any(isinstance(arg, ast.Call) for arg in each.args)]
    named = [each for each in inner if "model" in _name_call(each) or "net" in _name_call(each)] or inner
    return (named[0], statements) if len(named) == 1 else None


def _before_loop(text: str) -> Change:
    """Insert a statement before the outermost loop around the call of a module; {} is the module."""

    def change(file: ProgramFile, line: int) -> list[Edit]:
        found = _find_module_call(file, line)
        if found is None:
            return []
        call, statements = found
        loop = next((each for each in statements if isinstance(each, ast.For | ast.While)), None)
        if loop is None:
            return []
        place = file.line_start(loop.lineno)
        return [Edit(place, place, f"{file.indent(loop)}{text.format(file.text(call.func))}\n")]

    return change


def _use_channels_last(file: ProgramFile, line: int) -> list[Edit]:
    form = "to(memory_format=torch.channels_last)"
    edits, found = _before_loop(f"{{}}.{form}")(file, line), _find_module_call(file, line)
    if not edits or found is None or not isinstance(found[0].args[0], ast.Name | ast.Attribute | ast.Subscript):
        return []
    place = file.end(found[0].args[0])
    return [*edits, Edit(place, place, f".{form}")]


def _use_autocast(file: ProgramFile, line: int) -> list[Edit]:
    found = _find_module_call(file, line)
    if found is None or not isinstance(found[1][-1], ast.Assign | ast.AnnAssign | ast.Expr):
        return []
    statement = found[1][-1]
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    header = f'{file.indent(statement)}with torch.autocast("cuda", torch.bfloat16):\n'
    starts = [file.line_start(number) for number in range(first, last + 1)]
    return [Edit(starts[0], starts[0], f"{header}    "), *(Edit(start, start, "    ") for start in starts[1:])]


def _switch(text: str, *calls: str, attribute: str = "") -> Callable[[ProgramFile], list[Edit]]:
    """Change what the script itself sets, else set it after its imports.

    `calls`: functions whose first argument is changed, to True or False as `text` ends in, or to its argument;
    `attribute`: one that is assigned.
    """
    value = text.splitlines()[-1].rpartition("(")[2].rpartition(")")[0] if calls else text.rpartition("= ")[2]

    def change(file: ProgramFile) -> list[Edit]:
        edits = [
            edit
            for call in file.list_calls(calls)
            for edit in _set_first(_name_call(call), text=value)(file, call.lineno)
        ]
        edits += [
            Edit(file.start(node.value), file.end(node.value), value)
            for node in ast.walk(file.tree)
            if attribute and isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(attribute)
        ]
        return list(dict.fromkeys(edits)) or _after_imports(file, text)

    return change


def _after_imports(file: ProgramFile, text: str) -> list[Edit]:
    """Insert lines below the imports at the top of a script that has `torch` among them."""
    imports = [each for each in file.tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    names = {
        alias.asname or alias.name.partition(".")[0]
        for each in imports
        if isinstance(each, ast.Import)
        for alias in each.names
    }
    if "torch" not in names:
        return []
    last = imports[-1]
    place = file.line_start((last.end_lineno or last.lineno) + 1)
    return [Edit(place, place, f"\n{text}\n")]


_OPTIMIZERS = ("Adam", "AdamW", "SGD", "Adagrad")
_DDP = ("DistributedDataParallel", "DDP")
_AT_LINES: dict[str, tuple[tuple[str, ...], Change]] = {
    "pin-memory": (("DataLoader",), _set_arguments(("DataLoader",), pin_memory="True")),
    "prefetch": (("DataLoader",), _set_arguments(("DataLoader",), prefetch_factor="8")),
    "non-blocking": ((), _set_arguments(("to", "cuda"), non_blocking="True")),
    "fused-optimizer": (_OPTIMIZERS, _set_arguments(_OPTIMIZERS, fused="True")),
    "foreach-optimizer": (_OPTIMIZERS, _set_arguments(_OPTIMIZERS, foreach="True")),
    "bucket-view": (_DDP, _set_arguments(_DDP, gradient_as_bucket_view="True")),
    "bucket-size": (_DDP, _set_arguments(_DDP, bucket_cap_mb="100")),
    "fsdp-prefetch": (
        ("FullyShardedDataParallel", "FSDP"),
        _set_arguments(("FullyShardedDataParallel", "FSDP"), forward_prefetch="True"),
    ),
    "set-to-none": ((), _set_first("zero_grad", text="True")),
    "no-anomaly-mode": (("set_detect_anomaly", "detect_anomaly"), _turn_anomaly_off),
    "keep-cache": (("empty_cache",), _remove_calls("empty_cache")),
    "no-synchronize": ((), _remove_calls("synchronize")),
}
"""Changes at the lines of a remedy, and the functions of which a program that calls one of them once has the place."""

_AT_MODULE_CALLS: dict[str, Change] = {
    "bf16": _use_autocast,
    "channels-last": _use_channels_last,
    "compile": _before_loop("{}.compile()"),
    "compile-reduce-overhead": _before_loop('{}.compile(mode="reduce-overhead")'),
    "compile-max-autotune": _before_loop('{}.compile(mode="max-autotune-no-cudagraphs")'),
}
_IN_SCRIPT: dict[str, Callable[[ProgramFile], list[Edit]]] = {
    "tf32": _switch('torch.set_float32_matmul_precision("high")', "set_float32_matmul_precision"),
    "cudnn-benchmark": _switch("torch.backends.cudnn.benchmark = True", attribute="cudnn.benchmark"),
    "no-deterministic-mode": _switch(
        "torch.use_deterministic_algorithms(False)", "use_deterministic_algorithms", attribute="cudnn.deterministic"
    ),
    "fused-attention": _switch(
        "torch.backends.cuda.enable_flash_sdp(True)\ntorch.backends.cuda.enable_cudnn_sdp(True)",
        *("enable_flash_sdp", "enable_cudnn_sdp", "enable_mem_efficient_sdp"),
    ),
    "gc-frozen": lambda file: _after_imports(file, "import gc\n\ngc.freeze()\ngc.disable()"),
}


def _find_edits(
    remedy: Remedy, places: Places, read: Callable[[str], ProgramFile | None]
) -> Iterator[tuple[ProgramFile, int, list[Edit]]]:
    """Yield (file, line, edits) of each place of a remedy."""
    name = remedy.name
    if name in _IN_SCRIPT:
        file = read(places.script)
        edits = _IN_SCRIPT[name](file) if file is not None else []
        if file is not None and edits:
            yield file, file.source[: edits[0].start].count(b"\n") + 1, edits
        return
    change = _AT_MODULE_CALLS.get(name)
    functions: tuple[str, ...] = ()
    if change is None and name == "workers":
        words = remedy.patch.partition("(…, ")[2].removesuffix(")").split(", ")
        arguments = dict(word.split("=", 1) for word in words)
        functions, change = ("DataLoader",), _set_arguments(("DataLoader",), **arguments)
    elif change is None and name in _AT_LINES:
        functions, change = _AT_LINES[name]
    if change is None:
        return
    lines = places.calls if name in _AT_MODULE_CALLS else places.lines.get(name, [])
    if not lines and functions:
        searched = [*places.suggested.get(name, []), (places.script, 0)]
        lines = next(filter(None, (_search(read(path), line, functions) for path, line in searched)), [])
    for path, line in lines:
        file = read(path)
        if file is not None and (edits := change(file, line)):
            yield file, line, edits


def _search(file: ProgramFile | None, line: int, functions: Sequence[str]) -> list[Line]:
    """Find the only call of some functions in the function around a line; 0: in the file."""
    if file is None:
        return []
    scopes = [node for node in ast.walk(file.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [node for node in scopes if node.lineno <= line <= (node.end_lineno or node.lineno)]
    if line and not around:
        return []
    first, last = (around[-1].lineno, around[-1].end_lineno or 0) if around else (0, len(file.source))
    calls = [call for call in file.list_calls(functions) if first <= call.lineno <= last]
    return [(file.path, calls[0].lineno)] if len(calls) == 1 else []


def _read_file(path: str) -> ProgramFile | None:
    """Read a file of the program; None where it cannot be."""
    try:
        return ProgramFile(path) if path else None
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def build_patch(remedies: Sequence[Remedy], places: Places) -> Patch:
    """Build one diff of several remedies together, each against the files as they are."""
    read, edits, left, lines = cache(_read_file), {}, [], []  # type: ignore[var-annotated]
    for remedy in remedies:
        found = list(_find_edits(remedy, places, read))
        tried = {file.path: [*edits.get(file.path, [])] for file, _, _ in found}
        for changed, _, added in found:
            tried[changed.path] = list(dict.fromkeys([*tried[changed.path], *added]))
        if not found or any(file.apply(tried[file.path]) is None for file, _, _ in found):
            left.append(remedy)
            continue
        edits |= tried
        lines += [f"{name_path(file.path)}:{line}" for file, line, _ in found]
    diffs = [_format_diff(file, file.apply(each)) for path, each in edits.items() if (file := read(path))]
    return Patch("".join(diffs), tuple(dict.fromkeys(lines)), tuple(left))


def name_path(path: str) -> str:
    """Return a path relative to the current folder, where it is below that."""
    relative = os.path.relpath(path)
    return path.lstrip(os.sep) if relative.startswith(os.pardir) else relative


def _format_diff(file: ProgramFile, changed: bytes | None) -> str:
    """Format a unified diff as `git apply` and `patch -p1` take it from the current folder."""
    # at line feeds only, as git does
    before, after = (
        re.findall(r"[^\n]*\n|[^\n]+", text.decode("utf-8")) for text in (file.source, changed or file.source)
    )
    name = name_path(file.path)
    lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


_BY_FUNCTION = {"workers": "DataLoader", **{name: names[0] for name, (names, _) in _AT_LINES.items() if names}}
_WHERE = {
    "non-blocking": "where a batch is copied to the GPU",
    "set-to-none": "where gradients are cleared",
    "no-synchronize": "where the GPU is waited for in a step",
    "thin-logging": "where a number is read from the GPU",
    "bf16": "around the call of the model",
    "channels-last": "before the first step, and where the model is called",
}


def describe_place(remedy: Remedy) -> str:
    """Describe in words where a remedy belongs."""
    if remedy.environment:
        return "in the environment of the process, before it starts"
    function = _BY_FUNCTION.get(remedy.name)
    return _WHERE.get(remedy.name) or (f"where {function} is called" if function else "before the first step")


def format_patch(remedies: Sequence[tuple[Remedy, str]], places: Places) -> str:
    """Format the file of a patch: the remedies, each with what was measured, as comments; then one diff."""
    patch = build_patch([remedy for remedy, _ in remedies], places)
    lines = []
    for remedy, measured in remedies:
        lines.append(f"# {remedy.name}: {remedy.says}; {measured}")
        if remedy in patch.left:
            near = [f"{name_path(path)}:{line}" for path, line in places.lines.get(remedy.name, [])]
            lines.append(f"# belongs {describe_place(remedy)}{', at ' + ', '.join(near) if near else ''}:")
            lines += [f"#     {line}" for line in remedy.patch.splitlines()]
    return "\n".join(lines) + f"\n{patch.diff}"
