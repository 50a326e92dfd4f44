"""Write the man pages in docs/man from the parsers of all commands: `python -m tools.man_pages`.

They are installed with the wheel (share/man/man1). Run this after an option was added or changed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torchprof_tui import __version__
from torchprof_tui.commands.common.parsers import PROGRAM, build_parser, list_commands
from torchprof_tui.commands.completion.main import OPEN, expand_help

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "man"

EXIT_STATUS = (
    ("0", "The command did what it was asked."),
    ("1", "The answer is no: \\-\\-fail\\-on found something."),
    ("3", "\\-\\-fail\\-on asks what the trace cannot tell; \\-\\-undecided pass makes it 0."),
    ("2", "The call, the input or the configuration file is wrong; one line on standard error says what."),
    ("128+n", "The program was ended by signal n: 130 by Ctrl-C, 143 by SIGTERM, 129 by a closed terminal."),
)

ENVIRONMENT = (
    ("TORCHPROF_TUI_CACHE", "Folder of decoded traces."),
    ("TORCHPROF_TUI_CACHE_LIMIT", "Bytes of decoded traces at most, or a size such as 20 GB."),
    ("TORCHPROF_TUI_PYTHON", "Interpreter for recordings where no environment is active."),
    ("NO_COLOR, TEXTUAL_COLOR_SYSTEM, TEXTUAL_DRIVER", "As in every Textual program."),
    ("XDG_CONFIG_HOME, XDG_CACHE_HOME, XDG_STATE_HOME", "Folders of configuration, cache and state."),
)

FILES = (
    ("~/.config/torchprof\\-tui/config.toml", "Settings; see torchprof\\-tui\\-config(1)."),
    ("~/.cache/torchprof\\-tui", "Decoded traces."),
    ("~/.local/state/torchprof\\-tui/crashes", "Reports about bugs of the program."),
)


def format_pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    pages = {f"{PROGRAM}.1": _format_page(OPEN)}
    for name in list_commands():
        pages[f"{PROGRAM}-{name}.1"] = _format_page(name)
    return pages


def main() -> None:
    """Write the pages, and remove those of commands that are gone."""
    pages = format_pages()
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.1"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def _format_page(name: str) -> str:
    parser = build_parser(name)
    title = PROGRAM if name == OPEN else f"{PROGRAM}-{name}"
    summary = parser.description if name == OPEN else list_commands()[name]
    lines = [
        '.\\" Written by tools/man_pages.py.',
        f'.TH "{_escape(title.upper())}" "1" "" "torchprof\\-tui {_escape(__version__)}" "User commands"',
        ".SH NAME",
        f"{_escape(title)} \\- {_escape((summary or '').rstrip('.'))}",
        ".SH SYNOPSIS",
        *_format_synopsis(parser),
    ]
    if parser.description and parser.description != summary:
        lines += [".SH DESCRIPTION", _protect(_escape(parser.description))]
    lines += _format_actions(parser)
    if name == OPEN:
        lines.append(".SH COMMANDS")
        for command, does in list_commands().items():
            lines += [".TP", f".BR {_escape(PROGRAM)}\\-{_escape(command)} (1)", _protect(_escape(does))]
    elif parser.epilog:
        lines += [".SH NOTES", ".nf", *(_protect(_escape(line)) for line in parser.epilog.splitlines()), ".fi"]
    for heading, entries in (("EXIT STATUS", EXIT_STATUS), ("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)):
        lines.append(f".SH {heading}")
        for label, text in entries:
            lines += [".TP", f"\\fB{label}\\fR", text]
    others = [PROGRAM] if name != OPEN else [f"{PROGRAM}-{command}" for command in list_commands()]
    lines += [".SH SEE ALSO", ",\n".join(f"\\fB{_escape(other)}\\fR(1)" for other in others)]
    return "\n".join(lines) + "\n"


def _format_actions(parser: argparse.ArgumentParser) -> list[str]:
    shown = [action for action in parser._actions if not _is_hidden(action)]
    lines = []
    for heading, is_option in (("ARGUMENTS", False), ("OPTIONS", True)):
        actions = [action for action in shown if bool(action.option_strings) is is_option]
        lines += [f".SH {heading}"] if actions else []
        for action in actions:
            lines += [".TP", _format_name(action), _protect(_escape(expand_help(parser, action)) or "No help.")]
    return lines


def _format_synopsis(parser: argparse.ArgumentParser) -> list[str]:
    usage = parser.format_usage().removeprefix("usage: ") if parser.usage else ""
    if usage:
        return [".nf", *(_protect(_escape(line.strip())) for line in usage.splitlines()), ".fi"]
    words = [f"\\fB{_escape(parser.prog)}\\fR", "[\\fIOPTIONS\\fR]"]
    for action in parser._actions:
        if not action.option_strings and not _is_hidden(action):
            name = f"\\fI{_escape(_metavar(action))}\\fR"
            words.append({"*": f"[{name} ...]", "+": f"{name} ...", "?": f"[{name}]"}.get(str(action.nargs), name))
    return [" ".join(words)]


def _format_name(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"\\fI{_escape(_metavar(action))}\\fR"
    flags = ", ".join(f"\\fB{_escape(flag)}\\fR" for flag in action.option_strings)
    return flags if action.nargs == 0 else f"{flags} \\fI{_escape(_metavar(action))}\\fR"


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return "|".join(map(str, action.choices)) if action.choices is not None else action.dest.upper()


def _is_hidden(action: argparse.Action) -> bool:
    return action.help == argparse.SUPPRESS


def _escape(text: str) -> str:
    """Escape what roff would read as a request, and write other characters than ASCII as roff's own names."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in text)


def _protect(line: str) -> str:
    """Keep a line that begins with a control character from being a request."""
    return f"\\&{line}" if line.startswith((".", "'")) else line


if __name__ == "__main__":
    main()
