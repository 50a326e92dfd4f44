"""Declare the options of commands: frozen dataclasses whose fields are the arguments of the command line.

argparse fills them; the app, `run --compare-to` and the MCP server build them. What argparse would refuse is refused
whoever builds them. Standard library only: `--help` and a wrong call import nothing else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.process_state import MAX_JOBS
from torchprof_tui.trace.core.time_format import parse_time

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    from torchprof_tui.program.settings import Configuration
else:
    Configuration = object  # the types of fields are evaluated, and its module imports msgspec

    def dataclass_transform(**_: Any) -> Any:
        """Return a decorator that changes nothing: only type checkers read it."""
        return lambda cls: cls


UNDECIDED_STATUS = 3
"""Exit status where `--fail-on` asks what the trace cannot tell: a gate that does not know must not pass."""

SHARED = ("debug", "log", "unpack_all", "jobs")
"""Fields of all commands, and of all that read a trace; they come last in `--help`."""

AnyOptions = TypeVar("AnyOptions", bound="Options")


@dataclass(frozen=True)
class Number:
    """The whole numbers that an option takes; `what` ends the line "'x' is not …"."""

    what: str
    low: int = 0
    high: int = 10**18 - 1

    def parse(self, text: str) -> int:
        """Parse a number for argparse. Raises ArgumentTypeError."""
        is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(self.high))
        if is_number and self.low <= int(text) <= self.high:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not {self.what}")


ROWS = Number("a number of rows")


@dataclass(frozen=True)
class Argument:
    """How a field is given on the command line: by `--NAME`, as a positional argument, or by one flag per value.

    `short`: a second flag, "-o". `exclusive`: of the options with the same word at most one can be given. `section`:
    heading in `--help`. `flags_help`: help of each value, where each has a flag of its own. `off_flag`: a flag and its
    help that sets a switch to False. What follows is read off the type and the default of the field.
    """

    help: str = ""
    metavar: str | None = None
    short: str | None = None
    is_positional: bool = False
    number: Number | None = None
    exclusive: str = ""
    section: str = ""
    flags_help: Mapping[str, str] | None = None
    off_flag: tuple[str, str] | None = None
    kind: type = str
    is_list: bool = False
    choices: tuple[str, ...] | None = None
    default: Any = None
    is_required: bool = False

    def format_flag(self, name: str, value: object = None) -> str:
        """Format the flag that gives a field a value, or the name of a positional argument."""
        if self.flags_help is not None:
            return f"--{value}"
        return name if self.is_positional else f"--{name.replace('_', '-')}"

    def add_to(self, parser: Any, name: str) -> None:
        """Add the argument to a parser, or to a group of one."""
        if self.flags_help is not None:
            for value, line in self.flags_help.items():
                parser.add_argument(f"--{value}", dest=name, action="store_const", const=value, help=line)
            return
        flag = self.format_flag(name)
        told: dict[str, Any] = {"help": self.help or None}
        if self.kind is bool:
            parser.add_argument(flag, action="store_true", default=self.default, **told)
            if self.off_flag is not None:
                off, line = self.off_flag
                parser.add_argument(off, action="store_false", dest=name, default=self.default, help=line)
            return
        told |= {"metavar": self.metavar, "choices": self.choices}
        if self.is_positional:
            nargs = {"nargs": "+" if self.is_required else "*"} if self.is_list else {}
            parser.add_argument(name, **told, **nargs)
            return
        flags = [self.short, flag] if self.short else [flag]
        if self.is_list:
            parser.add_argument(*flags, action="append", default=[], **told)
            return
        told |= {"default": self.default, "required": self.is_required}
        parser.add_argument(*flags, type=self.kind if self.number is None else self.number.parse, **told)


def _find_argument(hint: Any, metadata: Mapping[str, Any], default: Any) -> Argument | None:
    """Return the argument of a field with what its type and its default say; None where it has none."""
    argument: Argument | None = metadata.get("argument")
    if get_origin(hint) is Annotated:
        hint, argument = get_args(hint)
    if argument is None:
        return None
    is_required = default is MISSING
    known = replace(argument, default=None if is_required else default, is_required=is_required)
    if get_origin(hint) is tuple:
        return replace(known, is_list=True)
    (kind,) = {*get_args(hint)} - {type(None)} if type(None) in get_args(hint) else (hint,)
    return replace(known, choices=get_args(kind)) if get_origin(kind) is Literal else replace(known, kind=kind)


def option(help_line: str = "", metavar: str | None = None, *, default: Any = MISSING, **more: Any) -> Any:
    """Declare a field by its `Argument` and its default."""
    return field(default=default, metadata={"argument": Argument(help_line, metavar, **more)})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field, option))
@dataclass(frozen=True, kw_only=True)
class Options:
    """What every command takes. `XOptions` in `commands/x/__init__.py` declares what the command `x` takes.

    Each subclass becomes a frozen dataclass. Its fields declare their arguments by `option`, or by a type that several
    commands share, such as `NoCache`. `configuration`: the user's file, None where there is none.
    """

    description: ClassVar[str] = ""
    """The first paragraph of `--help`, if it is longer than the line in the list of commands."""
    epilog: ClassVar[str] = ""
    command_name: ClassVar[str] = ""
    """The name of the command, where its package has another one."""
    arguments: ClassVar[dict[str, Argument]]
    """The arguments by the names of their fields."""

    debug: bool = option("print the traceback of an error", default=False)
    log: str | None = option("write phases with times, sizes and versions, for a bug report", "FILE", default=None)
    configuration: Configuration | None = field(default=None, compare=False, repr=False)

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)
        hints = get_type_hints(cls, include_extras=True)
        own = (*SHARED, *vars(cls).get("__annotations__", ()))
        ordered = sorted(fields(cls), key=lambda each: each.name not in own)  # what is inherited comes last
        found = {each.name: _find_argument(hints[each.name], each.metadata, each.default) for each in ordered}
        cls.arguments = {name: argument for name, argument in found.items() if argument is not None}

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError, as the parser does for the same mistake on the command line."""
        given: dict[str, str] = {}
        for name, argument in self.arguments.items():
            value = getattr(self, name)
            if value is None or value == argument.default:
                continue
            flag = argument.format_flag(name, value)
            if argument.choices and value not in argument.choices:
                self._refuse(f"argument {flag}: invalid choice: {value!r} (choose from {', '.join(argument.choices)})")
            if argument.number is not None and not argument.number.low <= value <= argument.number.high:
                self._refuse(f"argument {flag}: '{value}' is not {argument.number.what}")
            if argument.exclusive and given.setdefault(argument.exclusive, flag) != flag:
                self._refuse(f"argument {flag}: not allowed with argument {given[argument.exclusive]}")

    def _refuse(self, line: str) -> None:
        raise UsageError(f"{line} (see: torchprof-tui {self.get_command()} --help)")

    @classmethod
    def get_command(cls) -> str:
        """Return the name of the command: its own, or that of its package with `-` for `_`."""
        return cls.command_name or cls.__module__.rpartition(".")[2].replace("_", "-")

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Add the command's own options to a parser."""
        if cls.description:
            parser.description = cls.description
        if cls.epilog:
            parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, cls.epilog
        places: dict[tuple[str, str], Any] = {("", ""): parser}
        for name, argument in cls.arguments.items():
            if name in SHARED:
                continue
            place = places.get((argument.section, ""))
            if place is None:
                place = places[argument.section, ""] = parser.add_argument_group(argument.section)
            if argument.exclusive:
                chosen = places.get((argument.section, argument.exclusive))
                place = chosen or place.add_mutually_exclusive_group()
                places[argument.section, argument.exclusive] = place
            argument.add_to(place, name)

    @classmethod
    def add_shared_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options that all commands have, behind the command's own."""
        for name in SHARED:
            if name in cls.arguments:
                cls.arguments[name].add_to(parser, name)

    @classmethod
    def read(cls: type[AnyOptions], parsed: argparse.Namespace, configuration: Configuration | None) -> AnyOptions:
        """Build the options from what argparse has parsed."""
        values = {each.name: getattr(parsed, each.name) for each in fields(cls) if each.name != "configuration"}
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        return cls(**values, configuration=configuration)


class TraceOptions(Options):
    """What every command takes that reads a trace."""

    unpack_all: bool = option("allow compression ratios above 200:1, and text without an end", default=False)
    jobs: int | None = option(
        "processes and threads that read a trace, at most (all cores)",
        "N",
        number=Number(f"a number from 1 to {MAX_JOBS}", 1, MAX_JOBS),
        default=None,
    )


Theme = Annotated[Literal["dark", "light"], Argument()]


class ScreenOptions(Options):
    """What every command takes that shows a screen."""

    theme: Theme = "dark"
    color: Literal["auto", "truecolor", "256", "16", "none"] = option(
        "colours of the terminal; over ssh auto may choose too few, because COLORTERM is not forwarded", default="auto"
    )
    pictures: Literal["auto", "kitty", "blocks"] | None = option(
        "pictures where the terminal says that it draws them (kitty, ghostty), or characters everywhere", default=None
    )
    no_mouse: bool = option(
        "do not use the mouse, so that the terminal can select text",
        off_flag=("--mouse", "use the mouse where the configuration file says no"),
        default=False,
    )

    def list_appearance(self) -> dict[str, Any]:
        """Return the fields that another command with a screen takes over."""
        names = ("theme", "color", "pictures", "no_mouse", "debug", "configuration")
        return {name: getattr(self, name) for name in names}


RANKS_HELP = "several files, a folder or a pattern: the ranks of one run"

Traces = Annotated[
    tuple[str, ...], Argument(f"a trace, sample:NAME, or - for stdin; {RANKS_HELP}", "TRACE", is_positional=True)
]
TracesOrAddresses = Annotated[
    tuple[str, ...],
    Argument(f"a trace, host:path, a URL, sample:NAME, or - for stdin; {RANKS_HELP}", "TRACE", is_positional=True),
]
NoCache = Annotated[bool, Argument("neither read nor write the cache of decoded traces")]
Captures = Annotated[
    tuple[str, ...],
    Argument(
        "a trace of the capture of its graphs, of an eager run of the same model, or a folder of such: the ops of "
        "replayed kernels (default: capture_traces/ beside TRACE)",
        "PATH",
    ),
]
FirstRank = Annotated[int | None, Argument("which rank of a run (default: the first)", "N")]
JoinedRank = Annotated[int | None, Argument("only this rank of a run (default: all, joined)", "N")]
AnyRank = Annotated[int | None, Argument("only this rank of a run (default: all ranks)", "N")]
KeepMetadata = Annotated[bool, Argument("keep environment variables and secrets in the metadata of the file")]
UndecidedChoice = Literal["fail", "pass"]
Undecided = Annotated[
    UndecidedChoice | None, Argument("where --fail-on cannot be decided: `fail`: exit status 3 (default); `pass`: 0")
]
AsJson = Annotated[bool, Argument("print JSON")]

PICTURE = "OUT.svg, or OUT.png with pip install 'torchprof-tui[pictures]'"
"""Names of the files of pictures, for the help."""


def choose_undecided_status(undecided: str | None) -> int:
    """Return the exit status where `--fail-on` cannot be decided, and report on stderr how to allow it."""
    if undecided == "pass":
        return 0
    hint = f"exit status {UNDECIDED_STATUS}; to allow it: --undecided pass"
    print(f"torchprof-tui: --fail-on cannot be decided: {hint}", file=sys.stderr)
    return UNDECIDED_STATUS


def reject_undecided_alone(fail_on: str | None, undecided: str | None) -> None:
    """Raise UsageError for --undecided without --fail-on."""
    if undecided is not None and fail_on is None:
        raise UsageError("--undecided is about --fail-on, which is not given")


TIME_RANGE_HELP = "12.5ms:30ms; a bare number is µs"


def parse_time_range(text: str) -> tuple[int, int]:
    """Parse "T0:T1" into (start, end) in ns from the first event of the trace. Raises UsageError."""
    first, colon, last = text.partition(":")
    try:
        if not colon:
            raise ValueError("expected T0:T1")
        times = parse_time(first), parse_time(last)
    except ValueError as error:
        raise UsageError(f"--range {text}: {error}") from error
    if times[1] <= times[0]:
        raise UsageError(f"--range {text}: the end is before the start")
    return times
