"""Change one operator or number at a time and run the tests of that function: ``python -m tools.mutation --seed 1``

Prints which changes (mutants) the tests catch, the difference of each that survives, and the share that was caught.
Mutants are drawn at random from the modules in TOPICS. A survivor needs a test, or changes nothing that can be seen.

The tests of all topics are collected once. Each mutant is a process forked from there, in which the code of one
function is replaced; it runs the tests that call the function, the quickest first, then the rest of their files. Other
processes that tests start see no mutant. A run goes on where an earlier one with the same `--results` ended.

mutmut and cosmic-ray run one test command for all mutants; here that would be all of the tests, minutes for each.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import difflib
import hashlib
import json
import os
import random
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib import import_module
from inspect import CO_OPTIMIZED, unwrap
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tui" / "torchprof_tui"

TOPICS: dict[str, tuple[str, str]] = {
    "decoder": (
        "trace/decode/timestamps.py trace/decode/entry_decoder.py trace/decode/json_document.py "
        "trace/decode/template/*.py",
        "tests/trace/decode tests/commands/test_info.py --ignore=tests/trace/decode/test_real_traces.py "
        "--ignore=tests/trace/decode/perfetto_protobuf",
    ),
    "nesting": (
        "trace/build/nesting.py trace/build/pushed_events.py trace/build/lane_*.py",
        "tests/trace/build --ignore=tests/trace/build/test_threads.py",
    ),
    "idle time": (
        "analysis/patterns/engine/gpu_gaps.py analysis/patterns/engine/host_activity.py analysis/time/intervals.py",
        "tests/analysis/patterns/engine tests/analysis/time tests/analysis/patterns/verdict",
    ),
    "diff": ("analysis/compare/account.py analysis/compare/ste*.py", "tests/analysis/compare"),
    "replay": (
        "analysis/critical_path/*.py",
        "tests/analysis/critical_path tests/analysis/what_if tests/analysis/rank_path",
    ),
    "memory": ("analysis/memory/*.py", "tests/analysis/memory"),
    "clocks": ("trace/ranks/*.py", "tests/trace/ranks"),
    "cache": (
        "trace/core/column_file.py trace/storage/*.py",
        "tests/trace/core/test_checksum.py tests/trace/storage tests/program/test_settings.py",
    ),
    "redaction": (
        "analysis/privacy/private_metadata.py trace/core/printable.py",
        "tests/analysis/privacy tests/trace/core/test_printable.py tests/analysis/slicing",
    ),
    "keys": (
        "ui/common/debounced_worker.py ui/common/*keys.py ui/common/bindings.py ui/common/child_screen.py",
        "tests/ui/common/test_child_screen.py tests/ui/common/test_debounced_worker.py "
        "tests/ui/common/test_ordered_keys.py tests/ui/common/test_remapped_keys.py "
        "tests/ui/common/test_running_work.py "
        "tests/ui/common/test_key_tables.py tests/ui/common/test_list_keys.py "
        "tests/ui/common/test_prompt_choices.py tests/ui/explorer/test_keys.py tests/ui/flame/test_flame_screen.py",
    ),
}
"""Topic -> (its modules, below the package; its tests)."""

MIN_SECONDS, TIMES_SLOWER = 60, 8
"""The tests of a mutant that take longer than this, and than so many times their usual time, count as failed."""

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_NAMES = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
    "median": "mean",
}
_STRINGS = {"left": "right", "right": "left"}


@cache
def read_module(module: str) -> str:
    """Read a module, as it is when the run begins: the file may change before it ends."""
    return (PACKAGE / module).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Mutant:
    """A module (its path below the package) and its text with one change; `line` counts from 1."""

    topic: str
    module: str
    line: int
    text: str

    @property
    def difference(self) -> str:
        """The changed lines."""
        before = read_module(self.module).splitlines()
        lines = difflib.unified_diff(before, self.text.splitlines(), lineterm="", n=0)
        return "\n".join(line for line in lines if line[:3] not in ("---", "+++"))


def list_modules(patterns: str = " ".join(topic[0] for topic in TOPICS.values())) -> list[Path]:
    """List the modules that these patterns name, sorted."""
    return sorted({path for pattern in patterns.split() for path in PACKAGE.glob(pattern)})


def list_mutants() -> list[Mutant]:
    """List every mutant of every module, in a fixed order."""
    mutants = []
    for topic, (patterns, _) in TOPICS.items():
        for path in list_modules(patterns):
            module = path.relative_to(PACKAGE).as_posix()
            text = read_module(module)
            for node, changed in _list_changes(ast.parse(text), is_function=False):
                mutant = _replace(text, node, ast.unparse(changed))
                mutants.append(Mutant(topic, module, node.lineno, mutant))
    return mutants


def _list_changes(node: ast.AST, is_function: bool) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """List nodes below one with what replaces them. Only functions: constants of modules are mostly tuned sizes.

    Nor what checks the program itself, which a program that is right never trips: `raise`, `assert`, `strict` of zip.
    """
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    is_function = is_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.arguments):
        return
    if is_function and isinstance(node, ast.expr | ast.stmt):
        yield from _change(node)
    for name, value in ast.iter_fields(node):
        if name in ("decorator_list", "annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _list_changes(child, is_function)


def _change(node: Any) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """List the changes of one node: what is replaced, and by what."""
    changed = copy.copy(node)
    if isinstance(node, ast.Compare):
        changed.ops = [_COMPARED[type(node.ops[0])](), *node.ops[1:]]
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _COMPUTED:
        changed.op = _COMPUTED[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        changed = node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
        changed.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.Constant) and node.value in _STRINGS:
        changed.value = _STRINGS[node.value]
    elif isinstance(node, ast.Name) and node.id in _NAMES:
        changed.id = _NAMES[node.id]
    elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
        changed.attr = _NAMES[node.attr]
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        node, changed = node.test, ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        changed = ast.Pass()
    else:
        return
    yield node, changed


def _replace(text: str, node: ast.expr | ast.stmt, by: str) -> str:
    """Replace the text of a node; columns of ast count bytes."""
    lines = text.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    padding = "\n" * (last - first)  # all other code keeps its line
    replaced = by + padding if isinstance(node, ast.stmt) else f"({by}{padding})"
    lines[first : last + 1] = [before + replaced.encode() + after]
    return b"".join(lines).decode()


def _list_functions(code: CodeType) -> Iterator[CodeType]:
    """List the code of a module's functions and of its classes' methods, without the functions inside of them."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if const.co_flags & CO_OPTIMIZED:
                yield const
            else:  # the body of a class
                yield from _list_functions(const)


@dataclass(frozen=True)
class _Change:
    """The code of a function before and after; None where a mutant changes only what runs at import."""

    before: CodeType
    after: CodeType

    @classmethod
    def of(cls, mutant: Mutant) -> _Change | None:
        texts, path = (read_module(mutant.module), mutant.text), str(PACKAGE / mutant.module)
        pairs = zip(*(_list_functions(compile(text, path, "exec")) for text in texts), strict=True)
        return next((cls(before, after) for before, after in pairs if before != after), None)

    @property
    def lines(self) -> range:
        """The lines of the function, from its first decorator on."""
        last, pending = self.before.co_firstlineno, [self.before]
        while pending:
            code = pending.pop()
            last = max([last, *(line for _, _, line in code.co_lines() if line)])
            pending += [const for const in code.co_consts if isinstance(const, CodeType)]
        return range(self.before.co_firstlineno, last + 1)

    def apply(self, module: ModuleType) -> None:
        """Replace the code of the function wherever the module defines it. Raises LookupError where it does not."""
        defined = [each for each in _iterate_functions(vars(module)) if each.__code__ == self.before]
        if not defined:
            raise LookupError(f"{self.before.co_name} of {self.before.co_filename} is not as it was imported")
        for each in defined:
            each.__code__ = self.after


def _iterate_functions(names: Mapping[str, Any]) -> Iterator[FunctionType]:
    """Iterate over the functions of a module and the methods of its classes, without what decorators made of them."""
    for value in list(names.values()):
        if issubclass(type(value), ModuleType):  # isinstance would load a lazy one
            continue
        if isinstance(value, type):
            if value.__module__ == names.get("__name__", names.get("__module__")):
                yield from _iterate_functions(vars(value))
            continue
        if isinstance(value, property | cached_property | classmethod | staticmethod):
            value = next(getattr(value, name) for name in ("fget", "func", "__func__") if hasattr(value, name))
        if callable(value) and type(value := unwrap(value)) is FunctionType:
            yield value


@dataclass
class _Child:
    """A forked process. What `work` returns is written to a file, as JSON."""

    work: Callable[[], Any]
    limit: float

    def __post_init__(self) -> None:
        self.file = Path(tempfile.mkstemp(prefix="mutation-")[1])
        self.began = time.monotonic()
        self.pid = os.fork()
        if not self.pid:
            try:
                os.setpgid(0, 0)
                result = {"result": self.work()}
            except BaseException:
                result = {"error": traceback.format_exc()}
            self.file.write_text(json.dumps(result), encoding="utf-8")
            os._exit(0)

    def has_ended(self) -> bool:
        """Look whether the process has ended; end it at its time limit."""
        if time.monotonic() - self.began > self.limit:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            return True
        return os.waitpid(self.pid, os.WNOHANG)[0] != 0

    def take(self) -> Any:
        """Return what the work returned, None where its time was up. Raises RuntimeError where the work failed."""
        text = self.file.read_text(encoding="utf-8")
        self.file.unlink()
        answer = json.loads(text or "{}")
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer.get("result")


def _run_children(works: Iterable[tuple[Any, Callable[[], Any], float]], jobs: int) -> Iterator[tuple[Any, Any, float]]:
    """Run (key, work, time limit) in processes, `jobs` at a time; yields (key, result or None, seconds) as they end."""
    pending = iter(works)
    running: dict[int, tuple[Any, _Child]] = {}
    while True:
        while len(running) < jobs and (following := next(pending, None)) is not None:
            key, work, limit = following
            child = _Child(work, limit)
            running[child.pid] = (key, child)
        if not running:
            return
        select.select([], [], [], 0.02)
        for pid, (key, child) in list(running.items()):
            if child.has_ended():
                del running[pid]
                yield key, child.take(), time.monotonic() - child.began


def _run_traced(items: list[pytest.Item]) -> list[tuple[str, bool, float, list[tuple[str, int]]]]:
    """Run tests; returns the id of each, whether it passed, its seconds, and the functions of TOPICS that it called."""
    called: set[tuple[str, int]] = set()
    prefix, modules = f"{PACKAGE}{os.sep}", {str(path) for path in list_modules()}

    def trace(frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if code.co_filename in modules:
            called.add((code.co_filename[len(prefix) :], code.co_firstlineno))

    results = []
    for item, following in zip(items, [*items[1:], None], strict=False):
        called.clear()
        began = time.monotonic()
        threading.settrace(trace)
        sys.settrace(trace)
        reports = runtestprotocol(item, log=False, nextitem=following)
        sys.settrace(None)
        threading.settrace(None)
        passed = not any(report.failed for report in reports)
        results.append((item.nodeid, passed, time.monotonic() - began, sorted(called)))
    return results


def _compute_digest(file: str, traced: list[Any]) -> str:
    """Compute a digest of a file of tests and of the modules that it called. `traced`: as of `_run_traced`."""
    called = sorted({module for *_, functions in traced for module, _ in functions})
    texts = [path.read_bytes() for path in (ROOT / file, *(PACKAGE / module for module in called)) if path.exists()]
    return hashlib.sha256(b"".join(texts)).hexdigest()


def _find_failure(name: str, change: _Change | None, items: list[pytest.Item]) -> str:
    """Run tests with a changed function of a module; returns the id of the first that fails, "" if none does."""
    if change is not None:
        change.apply(import_module(f"{PACKAGE.name}.{name.removesuffix('.py').replace('/', '.')}"))
    for item, following in zip(items, [*items[1:], None], strict=False):
        if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
            return item.nodeid
    return ""


class MutationRun:
    """A plugin of pytest that runs mutants in place of the tests. `results`: a line of JSON for each mutant."""

    def __init__(self, mutants: list[Mutant], results: Path, jobs: int) -> None:
        self._mutants, self._results, self._jobs = mutants, results, jobs
        self._screen = os.fdopen(os.dup(1), "w")  # pytest captures what is printed

    def _find_callers(
        self, items: list[pytest.Item]
    ) -> tuple[dict[pytest.Item, float], dict[str, list[tuple[int, pytest.Item]]]]:
        """Run all tests once; returns the seconds of those that pass, and (line of a function, test) of each module.

        What was found is kept beside the results: a file of tests is not run again where it is as it was, and so are
        the modules that it called.
        """
        files: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            files[item.location[0]].append(item)
        kept_file = self._results.with_suffix(".calls.json")
        kept: dict[str, Any] = json.loads(kept_file.read_text(encoding="utf-8")) if kept_file.exists() else {}
        missing = [file for file in files if file not in kept or kept[file][0] != _compute_digest(file, kept[file][1])]
        works = [(file, partial(_run_traced, files[file]), 3600.0) for file in missing]
        for number, (file, traced, _) in enumerate(_run_children(works, self._jobs), start=1):
            print(f"{number} of {len(missing)} files of tests: {file}", file=self._screen, flush=True)
            kept[file] = [_compute_digest(file, traced or []), traced or []]
            kept_file.write_text(json.dumps(kept), encoding="utf-8")
        seconds: dict[pytest.Item, float] = {}
        callers: dict[str, list[tuple[int, pytest.Item]]] = defaultdict(list)
        for file in files:
            tests = {item.nodeid: item for item in files[file]}
            for name, passed, taken, called in kept[file][1]:
                if passed and name in tests:
                    seconds[tests[name]] = taken
                    for module, line in called:
                        callers[module].append((line, tests[name]))
                elif not passed:
                    print(f"fails without a mutant, left out: {name}", file=self._screen)
        return seconds, callers

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        seconds, callers = self._find_callers(session.items)

        def prepare() -> Iterator[tuple[Mutant, Callable[[], str], float]]:
            for mutant in self._mutants:
                change = _Change.of(mutant)
                tests: list[pytest.Item] = []
                if change is not None:
                    lines = change.lines
                    direct = {item for line, item in callers[mutant.module] if line in lines}
                    beside = {item for item in seconds if item.location[0] in {each.location[0] for each in direct}}
                    tests = sorted(direct, key=seconds.__getitem__)
                    tests += sorted(beside - direct, key=session.items.index)
                limit = MIN_SECONDS + TIMES_SLOWER * sum(seconds[item] for item in tests)
                yield mutant, partial(_find_failure, mutant.module, change, tests), limit

        for mutant, failed, taken in _run_children(prepare(), self._jobs):
            outcome = "survived" if failed == "" else "caught"
            row = {"topic": mutant.topic, "module": mutant.module, "line": mutant.line, "difference": mutant.difference}
            row |= {"outcome": outcome, "by": failed, "seconds": round(taken, 1)}
            with self._results.open("a", encoding="utf-8") as file:
                print(json.dumps(row), file=file)
            print(f"{outcome:8} {taken:5.0f} s  {mutant.module}:{mutant.line}", file=self._screen, flush=True)
        return True


def read_results(path: Path, mutants: list[Mutant]) -> dict[Mutant, dict[str, Any]]:
    """Read the results that earlier runs wrote of these mutants. Those of other text count no more."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    known = {tuple(row[key] for key in ("module", "line", "difference")): row for row in rows}
    keys = {mutant: (mutant.module, mutant.line, mutant.difference) for mutant in mutants}
    return {mutant: known[key] for mutant, key in keys.items() if key in known}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--topic", choices=TOPICS, action="append", help="only mutants of this topic; may be repeated")
    parser.add_argument("--results", type=Path, help="file of JSON lines that results are appended to, and read from")
    parser.add_argument("--again", action="store_true", help="run those that survived again")
    options = parser.parse_args()
    mutants = [mutant for mutant in list_mutants() if mutant.topic in (options.topic or TOPICS)]
    drawn = random.Random(options.seed).sample(mutants, min(options.count, len(mutants)))
    print(f"{len(drawn)} of {len(mutants):,} mutants, seed {options.seed}", flush=True)
    results = options.results or Path(tempfile.gettempdir()) / f"mutation-{options.seed}.jsonl"
    known = read_results(results, drawn)
    missing = [mutant for mutant in drawn if mutant not in known]
    if options.again:
        missing += [mutant for mutant, row in known.items() if row["outcome"] == "survived"]
    if missing:
        words = {word: None for mutant in missing for word in TOPICS[mutant.topic][1].split()}
        with tempfile.TemporaryDirectory(prefix="mutation-") as examples:
            os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = examples
            arguments = [*words, "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
            os.chdir(ROOT)
            pytest.main([*arguments, "-m", "not slow and not long"], [MutationRun(missing, results, options.jobs)])
    print_results(read_results(results, drawn), drawn)
    return 0


def print_results(known: dict[Mutant, dict[str, Any]], drawn: list[Mutant]) -> None:
    """Print how many mutants of each topic were caught, and those that were not."""
    for topic in dict.fromkeys(mutant.topic for mutant in drawn):
        outcomes = Counter(row["outcome"] for mutant, row in known.items() if mutant.topic == topic)
        print(f"{topic}: {outcomes['caught']} of {outcomes.total()} caught")
    for mutant, row in known.items():
        if row["outcome"] != "caught":
            print(f"{mutant.topic}: {mutant.module}:{mutant.line} {row['outcome']}\n{mutant.difference}")
    caught = sum(row["outcome"] == "caught" for row in known.values())
    print(f"{caught} of {len(known)} caught ({caught / max(len(known), 1):.0%})")


if __name__ == "__main__":
    sys.exit(main())
