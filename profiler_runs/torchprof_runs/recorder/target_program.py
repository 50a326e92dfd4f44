"""Find the program to record and run it as Python itself would: as ``__main__``, with its sys.argv and sys.path[0]."""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import importlib.util
import io
import os
import sys
import types
import zipfile
import zipimport
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .options import Options, UsageError

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
_WORKLOADS_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "workloads")
WORKLOAD_STEP = "__main__:step"  # a step of a workload is one call of its function `step`
WORKLOADS_WITH_GRAPHS = ("graph_replay", "generate")  # whose captures are recorded without --capture
WORKLOAD_WAIT, WORKLOAD_WARMUP = 1, 1  # steps that a workload's loop runs before its --active steps
_STEP_DECORATOR_NAME = "__torchprof_step__"
# Globals that `python FILE` sets in __main__ besides its name, its file and its loader.
_MAIN_GLOBALS = {"__package__": None, "__doc__": None, "__spec__": None, "__cached__": None}


@dataclass
class TargetProgram:
    """A program, ready to run. `argv` becomes sys.argv, `path0` sys.path[0] (None: sys.path stays as it is)."""

    name: str
    argv: list[str]
    code: types.CodeType
    main_globals: dict[str, Any]
    path0: str | None
    workload: bool = False

    def run(self) -> None:
        """Run the program in this process as ``__main__``. Its exceptions propagate."""
        main = types.ModuleType("__main__")
        vars(main).update(self.main_globals)
        vars(main)["__builtins__"] = builtins
        sys.modules["__main__"] = main
        sys.argv[:] = self.argv
        isolated = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
        if self.path0 is not None and not isolated:
            sys.path.insert(0, self.path0)
        exec(self.code, vars(main))


def find_program(
    options: Options, step_function: str | None, step_decorator: Callable[..., Any] | None
) -> TargetProgram:
    """Find the program that `options.command` names. Raises UsageError if there is none.

    `step_function` names a function of the program's ``__main__`` (``train_step``, ``Trainer.step``), which is then
    decorated with `step_decorator`.
    """
    name, *arguments = options.command
    if options.module:
        target = _load_module(name, arguments)
    elif is_workload(options):
        target = _load_script(os.path.join(_WORKLOADS_FOLDER, f"{name}.py"), arguments)
        # The workloads' folder stays off sys.path: a workload needs only torch, and the names of the other workloads
        # could shadow modules.
        target.name, target.path0, target.workload = name, None, True
    elif os.path.exists(name):
        target = _load_script(name, arguments)
    else:
        raise UsageError(f"no file {name}, and no workload of that name ({', '.join(WORKLOADS)})")
    if step_function is not None:
        target.code = _compile_decorated(target, step_function)
        target.main_globals[_STEP_DECORATOR_NAME] = step_decorator
    return target


def is_workload(options: Options) -> bool:
    """Return whether the command names a built-in workload; a file of that name takes precedence."""
    name = options.command[0]
    return not options.module and name in WORKLOADS and not os.path.exists(name)


def _load_script(path: str, arguments: list[str]) -> TargetProgram:
    argv = [path, *arguments]
    if os.path.isdir(path):
        main_file = os.path.join(path, "__main__.py")
        if not os.path.isfile(main_file):
            raise UsageError(f"{path} is a folder without a __main__.py")
        package: str | None = ""
        code, file, path0 = _compile_file(main_file), os.path.abspath(main_file), os.path.abspath(path)
    elif zipfile.is_zipfile(path):
        try:
            archive_code = zipimport.zipimporter(path).get_code("__main__")
        except (ImportError, OSError) as error:
            raise UsageError(f"{path} is an archive without a __main__.py") from error
        package = ""
        code, file, path0 = archive_code, os.path.join(path, "__main__.py"), os.path.abspath(path)
    else:
        package = None
        code, file, path0 = _compile_file(path), os.path.abspath(path), os.path.dirname(os.path.realpath(path))
    loader = importlib.machinery.SourceFileLoader("__main__", file)
    fields = {**_MAIN_GLOBALS, "__file__": file, "__loader__": loader, "__package__": package}
    return TargetProgram(path, argv, code, fields, path0)


def _load_module(name: str, arguments: list[str]) -> TargetProgram:
    # `python -m` searches the working folder first, so it is on sys.path during this search.
    cwd = os.getcwd()
    sys.path.insert(0, cwd)
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
        get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
        code = get_code(spec.name) if spec is not None and get_code is not None else None
    except (ImportError, ValueError) as error:
        raise UsageError(f"no module {name}: {error}") from error
    except SyntaxError as error:
        raise UsageError(f"{name} is not Python: {error}") from error
    finally:
        sys.path.remove(cwd)
    if spec is None or code is None:
        raise UsageError(f"no module {name} that can be run in {cwd} or in {sys.executable}")
    fields = {
        **_MAIN_GLOBALS,
        "__file__": spec.origin,
        "__spec__": spec,
        "__package__": spec.parent,
        "__loader__": spec.loader,
        "__cached__": spec.cached,
    }
    return TargetProgram(name, [spec.origin or name, *arguments], code, fields, cwd)


def _read_source(path: str) -> bytes:
    try:
        with io.open_code(os.path.abspath(path)) as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _compile_file(path: str) -> types.CodeType:
    try:
        return compile(_read_source(path), os.path.abspath(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path} is not Python: {error}") from error


def _compile_decorated(target: TargetProgram, function: str) -> types.CodeType:
    """Compile the target's source with the step decorator added to `function`, which exists only once the code runs."""
    file = str(target.main_globals["__file__"])
    tree = ast.parse(_read_source(file))
    body: list[ast.stmt] = tree.body
    for part in function.split("."):
        definitions = [node for node in _find_definitions(body) if node.name == part]
        if not definitions:
            raise UsageError(
                f"--step __main__:{function}: {file} does not define {part}; if it is imported, name its module"
            )
        node = definitions[-1]
        body = node.body
    if isinstance(node, ast.ClassDef):
        raise UsageError(f"--step __main__:{function} is a class: name one of its functions")
    decorator = ast.Name(_STEP_DECORATOR_NAME, ast.Load(), lineno=node.lineno, col_offset=node.col_offset)
    node.decorator_list.insert(0, decorator)
    return compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True)


def _find_definitions(body: list[ast.stmt]) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """List the functions and classes defined in `body`, also inside if, try and with statements."""
    definitions: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = []
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            definitions.append(node)
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
            handler_bodies = [child for handler in getattr(node, "handlers", []) for child in handler.body]
            definitions += _find_definitions([*children, *handler_bodies])
    return definitions
