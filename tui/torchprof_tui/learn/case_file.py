"""Cases: a sample and questions about it, each read from one TOML file that is written without Python.

`docs/tasks/learn.md` describes the format. Cases lie in `cases/` beside this file, and in `cases/` beside the user's
configuration file. What is wrong with a file is one line that names the file and the place in it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from torchprof_tui.learn.expression import FIELD, FORMATS, KNOWN_NAMES, ExpressionError, check_expression
from torchprof_tui.program.config_file import find_config_file
from torchprof_tui.program.settings import parse_toml, shorten_home
from torchprof_tui.trace.core.errors import UnreadableFileError
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.typed_json import explain_mismatch, read_small_file

SUFFIX = ".toml"
MAX_BYTES = 64 << 10
MAX_FILES = 500  # files of a folder that are read

Line = Annotated[str, Meta(min_length=1, max_length=200)]
Paragraph = Annotated[str, Meta(min_length=1, max_length=2_000)]
Expression = Annotated[str, Meta(min_length=1, max_length=500)]
Name = Annotated[str, Meta(max_length=40, pattern=r"^[a-z][a-z0-9_]*\Z")]


Panel = Literal["details", "chain", "kernel", "cheatsheet", "path", "doctor"]
Screen = Literal["table", "tree", "flame", "memory", "diff"]
PANELS, SCREENS = get_args(Panel), get_args(Screen)


class Target(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the evidence is: what must be selected, which panel be open, which screen be shown; at least one of them.

    `event`: the name of the selected event, `nth`: only that one, by time from 0; `also`: another name whose event at
    the same place will do. `finding`: the id of a pattern; any event of its evidence.
    """

    event: Line = ""
    nth: Annotated[int, Meta(ge=0)] | None = None
    also: Line = ""
    finding: Line = ""
    panel: Panel | None = None
    screen: Screen | None = None


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    """One question: expect, look, read what it is.

    `answer`: the number of the right one of `choices`, from 1, and `proof`: a comparison of values that is true where
    it is right. Without choices the answer is the value of `number`; `within`: how far off a right answer may be, as a
    share of it. `look`: what to look at, and `keys`: what leads to `at`. `tell`: the explanation, with values such as
    <share:%>.
    """

    ask: Paragraph
    look: Paragraph
    tell: Paragraph
    at: Target
    keys: Line = ""
    choices: Annotated[tuple[Line, ...], Meta(max_length=5)] = ()
    answer: Annotated[int, Meta(ge=1)] | None = None
    proof: Expression = ""
    number: Expression = ""
    within: Annotated[float, Meta(ge=0, le=1)] = 0.0


class Case(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file. `id`: its name, "" for a case that is made of the findings of the open trace.

    `sample`, `against`: what to open and to compare it with, as on the command line. `own`: how to ask the same of an
    own trace. `order`: its place in the list.
    """

    title: Line
    sample: Line
    own: Paragraph
    questions: Annotated[tuple[Question, ...], Meta(min_length=1, max_length=20)] = field(name="question")
    against: Line | Literal[""] = ""
    minutes: Annotated[int, Meta(ge=1, le=60)] = 3
    order: int = 1000
    values: dict[Name, Expression] = {}
    id: str = ""


@record
class CaseList:
    """The cases in the order in which they teach, and what is wrong with the files that are none."""

    cases: tuple[Case, ...]
    problems: tuple[str, ...]

    def find(self, name: str) -> Case | None:
        """Find the case of this id or title, or the only one whose id or title begins so."""
        wanted = name.strip().casefold()
        names = [(case, (case.id.casefold(), case.title.casefold())) for case in self.cases]
        exact = [case for case, known in names if wanted in known]
        close = exact or [case for case, known in names if wanted and any(each.startswith(wanted) for each in known)]
        return close[0] if len(close) == 1 else None


def list_folders() -> list[Path]:
    """List the folders of cases: those of the program, then the user's."""
    config = find_config_file()
    own = [] if config is None else [Path(config).parent / "cases"]
    return [Path(__file__).resolve().parent / "cases", *own]


def list_cases(folders: Sequence[Path] | None = None) -> CaseList:
    """Read all cases; a user's case replaces the one of the program that has its name. Never raises."""
    cases: dict[str, Case] = {}
    problems: list[str] = []
    for folder in list_folders() if folders is None else folders:
        paths: list[Path] = []
        with contextlib.suppress(OSError):
            paths = [each for each in folder.iterdir() if each.name.endswith(SUFFIX) and each.name[0] != "."]
        for path in sorted(paths)[:MAX_FILES]:
            try:
                case = read_case(path)
                cases[case.id] = case
            except UnreadableFileError as error:
                problems.append(str(error))
    return CaseList(tuple(sorted(cases.values(), key=lambda case: (case.order, case.id))), tuple(problems))


def read_case(path: Path) -> Case:
    """Read one file. Raises UnreadableFileError with one line that says where it is wrong."""
    shown = shorten_home(path)
    try:
        case = msgspec.convert(parse_toml(read_small_file(path, MAX_BYTES)), Case)
        _check_case(case)
    except OSError as error:
        raise UnreadableFileError(f"{shown}: {error.strerror or error}") from error
    except UnreadableFileError as error:
        raise UnreadableFileError(f"{shown}: {str(error).removeprefix(f'{path.name}: ')}") from error
    except msgspec.ValidationError as error:
        raise UnreadableFileError(f"{shown}: {_explain(str(error))}") from error
    sample, against = _resolve_trace(path, case.sample), _resolve_trace(path, case.against)
    return replace(case, id=path.name.removesuffix(SUFFIX), sample=sample, against=against)


def _resolve_trace(path: Path, name: str) -> str:
    if not name:
        return ""
    return str(path.parent / name) if "/" in name or "." in name else f"sample:{name}"


def _explain(message: str) -> str:
    """Say in plain words what msgspec's message says, with questions counted from 1."""
    message = re.sub(r"`\$\.question\[(\d+)\]", lambda found: f"`$.question {int(found[1]) + 1}", message)
    place = re.search(r" - at `\$\.?(.*)`$", message)
    where = f"{place[1]}: " if place is not None else ""
    unknown = re.match(r"Object contains unknown field `(.*?)`", message)
    if unknown is not None:
        return clean(f"{where}{unknown[1]}: no such key")
    choice = re.match(r"Invalid enum value (.*?)(?: - at|$)", message)
    if choice is not None:
        known = PANELS if where.endswith("panel: ") else SCREENS
        return clean(f"{where}{choice[1]} is none of {', '.join(known)}")
    return explain_mismatch(message)


def _check_case(case: Case) -> None:
    """Check what the types do not say. Raises UnreadableFileError."""
    earlier: set[str] = set()
    for name, expression in case.values.items():
        if name in KNOWN_NAMES:
            raise UnreadableFileError(f"values.{name}: is the name of an answer or a function")
        _check_names(f"values.{name}", expression, earlier)
        earlier.add(name)
    for number, question in enumerate(case.questions, 1):
        place = f"question {number}"
        if not (question.at.event or question.at.finding or question.at.panel or question.at.screen):
            raise UnreadableFileError(f"{place}: at: names no event, finding, panel or screen")
        if question.at.nth is not None and not question.at.event:
            raise UnreadableFileError(f"{place}: at: nth needs an event")
        if question.at.also and not question.at.event:
            raise UnreadableFileError(f"{place}: at: also needs an event")
        if question.at.screen == "diff" and not case.against:
            raise UnreadableFileError(f'{place}: at: screen "diff" needs the key against of the case')
        if bool(question.choices) == bool(question.number):
            raise UnreadableFileError(f"{place}: needs either choices or number")
        if question.choices:
            if question.answer is None or question.answer > len(question.choices):
                raise UnreadableFileError(f"{place}: answer: not one of its {len(question.choices)} choices")
            if not question.proof:
                raise UnreadableFileError(f"{place}: proof: is missing; it says when the answer is right")
            _check_names(f"{place}: proof", question.proof, case.values)
        else:
            _check_names(f"{place}: number", question.number, case.values)
        for key, template in (("ask", question.ask), ("look", question.look), ("tell", question.tell)):
            _check_template(f"{place}: {key}", template, case.values)
    _check_template("own", case.own, case.values)


def _check_names(place: str, expression: str, names: Container[str]) -> None:
    try:
        check_expression(expression, names)
    except ExpressionError as error:
        raise UnreadableFileError(f"{place}: {error}") from error


def _check_template(place: str, template: str, names: Mapping[str, str]) -> None:
    for found in FIELD.finditer(template):
        if found[1] not in names:
            raise UnreadableFileError(f"{place}: {found[0]}: no such value")
        if (found[2] or "") not in FORMATS:
            known = ", ".join(filter(None, FORMATS))
            raise UnreadableFileError(f"{place}: {clean(found[0])}: the formats are {known}")
