"""Learn with cases, or with questions about a trace: `torchprof-tui learn`."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from torchprof_tui.answers.learn import CaseListing, LearnCase
from torchprof_tui.api.trace import Trace
from torchprof_tui.commands.common import terminal
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.common.parsers import suggest
from torchprof_tui.commands.learn import LearnOptions
from torchprof_tui.commands.open import OpenOptions
from torchprof_tui.commands.open import main as open_command
from torchprof_tui.learn.case_answers import build_case_answer, build_listing
from torchprof_tui.learn.case_file import SUFFIX, Case, CaseList, list_cases, read_case
from torchprof_tui.learn.evidence import CaseError
from torchprof_tui.learn.progress import read_progress
from torchprof_tui.trace.core.errors import UnreadableFileError
from torchprof_tui.trace.core.printable import clean

WIDTH = 100  # columns of what is printed


def run(options: LearnOptions) -> int:
    known = list_cases()
    name = options.case[0] if options.case else ""
    if len(options.case) > 1:
        raise UsageError(f"one case or one trace at a time, not {len(options.case)}")
    if options.case and not name:
        raise UsageError("the name of the case or the trace is empty")
    if options.text and not name:
        raise UsageError("--text needs a case or a trace; --list lists the cases")
    if options.text and options.json:
        raise UsageError("--text and --json: choose one")
    if options.list or (not name and (options.json or terminal.find_terminal_problem())):
        listing = build_listing(known, *read_progress())
        _report(listing.problems)
        if options.json:
            print_answer(listing)
        else:
            _print_list(listing)
        return 0
    _report(known.problems)
    case = _find_case(name, known)
    spec = name if case is None else case.sample
    if options.text or options.json:
        answer = _build_case(case, Trace(load_specs([spec], cache=not options.no_cache).trace))
        if options.json:
            print_answer(answer)
        else:
            _print_case(answer)
        return 0
    trace = (spec,) if spec else ()
    opened = OpenOptions(trace=trace, no_cache=options.no_cache, **options.list_appearance())
    return open_command.run(opened, learn=True, case=case)


def _report(problems: Sequence[str]) -> None:
    for problem in problems:
        print(f"torchprof-tui: {clean(problem)}", file=sys.stderr)


def _find_case(name: str, known: CaseList) -> Case | None:
    """Find a case by its name or its file; None where the word names a trace, or is missing. Raises UsageError."""
    if name.endswith(SUFFIX):
        try:
            return read_case(Path(name))
        except UnreadableFileError as error:
            raise UsageError(str(error)) from error
    case = known.find(name)
    is_words = not set(name) & set("/.:*~") and name != "-"
    if name and case is None and is_words and not os.path.exists(name):
        names = [each.id for each in known.cases]
        hint = ", ".join(each for each in names if each.startswith(name)) or suggest(name, names)
        hint = f"{hint}; " if hint else ""
        raise UsageError(
            f"{clean(name)}: no case of this name or title, and no file ({hint}learn --list lists the cases)"
        )
    return case


def _print_list(listing: CaseListing) -> None:
    width = max((len(case.id) for case in listing.cases), default=0)
    for case in listing.cases:
        done = "" if case.asked is None else f"{case.as_expected} of {case.asked}"
        print(f"{clean(case.id):<{width}}  {done:<8}  {case.minutes} min  {clean(case.title)}")
    done_count = sum(case.asked is not None for case in listing.cases)
    print(f"\n{done_count} of {len(listing.cases)} done · torchprof-tui learn CASE · torchprof-tui learn YOUR_TRACE")


def _build_case(case: Case | None, trace: Trace) -> LearnCase:
    try:
        return build_case_answer(case, trace)
    except CaseError as error:
        raise UsageError(clean(str(error))) from error


def _print_case(case: LearnCase) -> None:
    against = f", compared with {case.against}" if case.against else ""
    print(clean(f"{case.title}  ({case.sample}{against})"))
    for number, question in enumerate(case.questions, 1):
        print()
        _print_paragraph(f"{number}. ", question.ask)
        for place, choice in enumerate(question.choices, 1):
            _print_paragraph(f"   {place}  ", choice)
        _print_paragraph("   look: ", question.look)
        if question.keys:
            _print_paragraph("   keys: ", question.keys)
        _print_paragraph("   it is: ", question.answer)
        _print_paragraph("   ", question.tell)
    print()
    _print_paragraph("Now in your trace: ", case.own)


def _print_paragraph(lead: str, text: str) -> None:
    indent = " " * (len(lead) if lead.strip().rstrip(".").isdigit() or not lead.strip() else 3)
    lines = textwrap.wrap(clean(text), WIDTH, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False)
    print("\n".join(lines))
