"""The one table of keys: each key is one verb with one meaning, on all screens of the program and of its extensions.

`VERBS` has the keys; the tables below it say which verbs a screen has and what it does for them. A screen names no
keys, so a key cannot mean two things. Bindings, hints, help, palette commands and `docs/keys.md` are made of both.
Keys are plain letters, because modifiers do not survive every terminal and tmux.

A line of `VERBS` has: keys, id, action, and "label: sentence". A line of a screen has the id, and where they differ
the action and "label: sentence"; a line with `=` lists ids that are as in `VERBS`. An indented line continues the
sentence. The sentence is shown in the help and in the command palette; without one the key is not listed there.

- `!` after the keys, or after the id on a screen: the key is also taken where the focus is in a text field.
- `1..9` are nine keys; `{}` stands for the number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from textual.binding import Binding, BindingType

from torchprof_tui.ui.common.bindings import KeyHelp

MAX_NUMBER_KEYS = 9
"""Findings that have a key of their own. Defined here: the panels import numpy, this is imported before a frame."""

MAX_VERBS = 60  # verbs that a user may have to learn: with more, one has to look each of them up


def parse_keys(table: str) -> list[BindingType]:
    """Parse a screen's table of verbs; see the module docstring. Raises KeyError for a verb that is not in `VERBS`."""
    bindings: list[BindingType] = []
    for line in _join_lines(table):
        if line.startswith("= "):
            for name in line[2:].split():
                bindings += _by_verb[name]
            continue
        name, action, *text = re.split(r"  +", line)
        name, _, priority = name.partition(" ")
        for verb in _by_verb[name]:
            label, _, sentence = text[0].partition(": ") if text else (verb.description, "", verb.tooltip)
            bindings.append(
                Binding(
                    verb.key,
                    action.replace("{}", verb.key),
                    label.replace("{}", verb.key),
                    id=name,
                    tooltip=sentence,
                    priority=verb.priority or bool(priority),
                )
            )
    return bindings


def _parse_verbs(table: str) -> Iterator[Binding]:
    for line in _join_lines(table):
        keys, name, action, text = re.split(r"  +", line)
        keys, _, priority = keys.partition(" ")
        label, _, sentence = text.partition(": ")
        for number in range(1, MAX_NUMBER_KEYS + 1) if keys == "1..9" else (0,):
            yield Binding(
                str(number) if number else keys,
                action.replace("{}", str(number)),
                label.replace("{}", str(number)),
                id=name,
                tooltip=sentence,
                priority=bool(priority),
            )


def _join_lines(table: str) -> list[str]:
    return table.replace("\n    ", " ").splitlines()


def parse_hints(text: str) -> tuple[tuple[str, str], ...]:
    """Parse "keys = label; …", most useful first, for the last line of a screen."""
    return tuple((keys, label) for keys, _, label in (hint.partition(" = ") for hint in text.split("; ")))


VERBS = """\
w                time.zoom-in         zoom(1)              zoom: zoom in at the cursor
s                time.zoom-out        zoom(-1)             zoom out: zoom out at the cursor
W                time.zoom-in-far     zoom(5)              zoom in far: zoom in five times as far
S                time.zoom-out-far    zoom(-5)             zoom out far: zoom out five times as far
a                time.pan-left        pan(-1)              earlier: move to earlier times
d                time.pan-right       pan(1)               later: move to later times
f                time.fit             fit                  fit: fit what is under the cursor to the screen
0                time.fit-all         fit_all              all: show all of it
left,comma       move.left            step(-1)             left: the previous event, column, frame, node or step
right,full_stop  move.right           step(1)              right: the next event, column, frame, node or step
up               move.up              move(-1)             up: the row above; on the lanes the parent
down             move.down            move(1)              down: the row below; on the lanes the child
pageup           move.page-up         page(-1)             page up: a page up
pagedown         move.page-down       page(1)              page down: a page down
home             move.first           edge(False)          first: the start of it, or the first row
end              move.last            edge(True)           last: the end of it, or the last row
enter            move.open            show                 open: go to what is under the cursor
space            move.toggle          fold                 fold: fold or unfold what is under the cursor
]                move.link            follow(True)         link: follow the link: launch ⇢ kernel, forward ⇢ backward
[                move.link-back       follow(False)        link back: follow the link back: kernel ⇢ launch
}                move.next-step       next_step(1)         step: the next step, call, device or process group
{                move.previous-step   next_step(-1)        step back: the previous step, call, device or process group
backspace        move.back            go_back              view back: return to the view before a jump
escape           move.clear           back                 back: clear the filter, the mark, the selection; again: leave
/                find.search          search               search: search or filter: text, or /regular expression/; a
    capital makes it case-sensitive; ↑ earlier ones
n                find.next            match(1)             next: the next match, evidence or difference
N                find.previous        match(-1)            previous: the previous match, evidence or difference
colon,g          find.go-to           app.go_anywhere      go to: go anywhere: a time (12ms), a step (#3), a rank, a
    screen, a panel, a trace
m                find.mark            mark                 mark: mark: both ends of a range, ranks, the op to align at
tab              move.next-panel      next_panel(1)        panel: the next panel, list or page
shift+tab        move.previous-panel  next_panel(-1)       panel: the previous panel, list or page
b                view.group           group(1)             group by: group the rows by the next property
v                view.scope           scope(1)             scope: the next scope: what is counted
x                view.switch          switch               switch: show it the other way: labels, GPU or CPU time,
    reverse order, A and B swapped
u                view.repeat          fold_repeats         one repeat: show one of the repeats (steps, tokens, then
    layers), p50 and p95 of the others; at last: all again
p                view.peak            peak                 peak: the extreme: the peak of memory, the slowest repeat
z                view.enlarge         enlarge              enlarge: enlarge the panels, or back
1..9             panels.number        finding({})          {}: the entry of that number: finding, cause, answer
i                panels.details       panel('details')     details: show or hide the details
l                panels.chain         panel('chain')       chain: show or hide the chain: from the step down to the
    GPU work
k                panels.kernel        panel('kernel')      kernel: show or hide the kernel: its footprint, its
    occupancy and what limits it
c                panels.cheatsheet    panel('cheatsheet')  cheatsheet: show or hide the cheatsheet: what was found,
    why, what to do
C                panels.path          path                 critical path: the critical path of the step, or the marked
    range
E                panels.rule          rule                 rule: show or hide how the finding under the cursor was
    found: its rule and its limits
L                panels.source        open_source          source: open the source line that the finding or the chain
    names
J                panels.down          scroll_panel(1)      panel down: scroll the panel down; ▾7: 7 lines are below
K                panels.up            scroll_panel(-1)     panel up: scroll the panel up; ▴7: 7 lines are above
t                screens.table        child('table')       table: the profiler table; on it: back
T                screens.tree         child('tree')        tree: the dispatch tree: all calls by their path, heaviest
    first; on it: back
F                screens.flame        child('flame')       flame graph: the flame graph: stacks, modules or ops by self
    GPU or CPU time; on it: back
M                screens.memory       child('memory')      memory: memory: its curve by category, the lifetimes of
    allocations, and what is alive at the cursor; on it: back
D                screens.compare      compare              compare: compare with another trace, two steps or two ranks
G                screens.guess        child('learn')       guess: guess, then look; also questions about this trace, and
    cases to learn with
y                write.copy           copy(False)          copy: copy the row
Y                write.copy-all       copy(True)           copy all: copy all that is listed
e                write.export         ask_export           export: write what is shown as a file
q                program.leave        leave                leave: leave this screen; from the lanes: quit
o                program.open         open_another         open: open another trace
r                program.record       again                record: repeat the run of this trace; without one: record a
    run, and open its trace
question_mark    program.help         app.help             help: help: the keys that act here, what is on screen, words
"""
"""The verbs, at most MAX_VERBS: each counts once with all of its keys, `1..9` too. What is rarer is in the palette."""

ALSO_WHILE_TYPING = """\
f1 !      program.help-f1   help             help
ctrl+c    program.quit      quit             quit: quit; stop a run
ctrl+z !  program.suspend   suspend_process  suspend: suspend the program; fg in the shell continues it
ctrl+r !  program.start     start            start: start the run
"""
"""Keys that also act in text fields, as ctrl+p does. Not counted as verbs."""

_by_verb: dict[str, list[Binding]] = {}
for _binding in _parse_verbs(VERBS + ALSO_WHILE_TYPING):
    _by_verb.setdefault(_binding.id or "", []).append(_binding)

EVERYWHERE = parse_keys("""\
program.help  help
= program.help-f1
""")

PROGRAM = parse_keys("""\
= program.leave program.quit program.suspend program.open program.record find.go-to
""")
"""Verbs of the program, on all screens that do nothing else for them."""

LANES = parse_keys("""\
= time.zoom-in time.zoom-out time.zoom-in-far time.zoom-out-far time.pan-left time.pan-right
time.fit  fit  fit: fit the selected event to the screen; again: its parent
= time.fit-all
move.left  beside(-1)  event: previous event in the row
move.right  beside(1)  event: next event in the row; before one is selected, the first kernel on screen
move.up  up  parent: the parent; from the outermost: the lane above
move.down  down  child: the first child; from the innermost: the lane below
move.page-up  page(-1)  page up: scroll up: the lanes, or the panel that has the keys (↑↓ beside its title)
move.page-down  page(1)  page down: scroll down: the lanes, or the panel
= move.first move.last
move.open  jump  jump: show the panel's event on the lanes; on a line of the program: open its source
move.toggle  fold  fold: fold or unfold the lane, or the rank
move.link  follow(True)  link: follow the link: launch ⇢ kernel, forward ⇢ backward; of a straggler: open the late rank
= move.link-back
move.next-step  next_step(1)  step: next step; the next repetition where no steps were recorded
= move.previous-step move.back move.clear find.search
find.go-to  go_to
find.next  match(1)  next found: next event found, or the finding's next evidence
= find.previous
find.mark  mark  mark: mark a range for its statistics; again: set its end
= move.next-panel move.previous-panel
view.scope  scope(1)  scope: scope of the cheatsheet: the screen, the selection, the whole trace; n N keep their
    list
view.switch  labels  labels: hide or show labels: why the GPU was idle, kernel classes, the profiler's own events
= view.repeat
view.peak  slowest_repeat  slowest repeat: show the slowest of the folded repeats; } { the next and the
    previous one
view.enlarge  enlarge  enlarge: enlarge the panels; again: the whole screen; again, or esc: their normal size
panels.number  finding({})  finding {}: open the cheatsheet at this finding of the list, and show its first
    evidence on the lanes
= panels.details
panels.chain  panel('chain')  chain: show or hide the chain: from the step down to the GPU work; then ↑ ↓ walk it,
    enter fits
= panels.kernel
panels.cheatsheet  panel('cheatsheet')  cheatsheet: show or hide the cheatsheet: patterns on screen; ↑ ↓ choose, enter
    and n N go through their evidence
panels.path  path  critical path: critical path of the step, or the marked range: dims the rest; ↑ ↓ choose,
    enter shows, n N walk it
= panels.rule panels.source panels.down panels.up
screens.table  child('table')  table: the profiler table; from an event: its row
= screens.tree screens.flame screens.memory
screens.compare  compare  compare: compare with another trace (path, sample:, host:path), two steps (step 3/4) or two
    ranks (rank 0/3)
screens.guess  child('learn')  guess: guess, then look: which kernels do you expect in the marked range, or the
    selected event? Also questions about this trace, and cases to learn with
write.copy  copy(False)  copy: copy the selected event's name, if the terminal takes it (OSC 52)
write.copy-all  copy(True)  copy all: copy the panel's text, at most 120 columns wide
write.export  slice  slice: write the marked range (or the selected event, or the screen) as a smaller trace file
""")

TABLE = parse_keys("""\
= move.up move.down move.page-up move.page-down move.first move.last move.next-panel move.previous-panel
move.right  sort(1)  sort: sort by the next column
move.left  sort(-1)
view.switch  reverse  reverse: reverse the order
view.group  group(1)  group by: group calls by name, shape, stack, module, kernel class, step
view.scope  scope(1)  scope: scope of the table: whole trace, marked range, screen, step, lane
find.search  ask_filter  filter: list only rows with this text, or /regular expression/; a capital makes it
    case-sensitive; ↑ earlier ones
= find.next find.previous
move.next-step  next_step(1)  instance: next instance: the next call of the row
= move.previous-step
move.open  show  on the lanes: show the instance on the lanes
write.copy  copy(False)  copy: copy the row's full name
write.copy-all  copy(True)  copy table: copy the rows on screen, 120 columns
= panels.down panels.up
write.export  ask_export  export: write the rows as .csv, .json or .md
= move.back move.clear
screens.table  leave  lanes: back to the lanes
= program.leave screens.tree screens.flame screens.memory
screens.compare  compare  compare: compare the trace with another one, two of its steps or ranks
""")

TREE = parse_keys("""\
= move.up move.down move.page-up move.page-down move.first move.last
move.right  open  open: open the node; again: its first child
move.left  close
move.toggle  open_close  open, close: open or close the node
move.open  show  on the lanes: show the longest call on the lanes
= find.search find.next find.previous
write.copy  copy(False)  copy: copy the node's full name
write.copy-all  copy(True)  copy tree: copy the rows on screen, 120 columns
= move.back move.clear
screens.tree  leave  lanes: back to the lanes
= program.leave screens.table screens.flame screens.memory
screens.compare  compare  compare: compare the trace with another one, two of its steps or ranks
""")

FLAME = parse_keys("""\
move.up  up  caller: the frame above: its caller
move.down  down  called: the heaviest frame below
= move.left move.right
time.pan-left  pan(-1)  left: the frame to the left
= time.pan-right
time.zoom-in  zoom(1)  zoom: zoom into the frame
= time.zoom-out
time.fit  zoom(1)  zoom: zoom into the frame
= time.fit-all move.page-up move.page-down move.first move.last
move.open  zoom_in  zoom: zoom into the frame; into ░, frames too narrow to draw; again: show it on the lanes
= move.back
move.next-panel  next_panel(1)  frames: stacks, modules or ops
= move.previous-panel
view.switch  time  GPU or CPU: GPU time or CPU time
view.scope  scope(1)  scope: scope: whole trace, marked range, screen, step, lane
= find.search find.next find.previous
write.copy  copy(False)  copy: copy the frame's full name
write.copy-all  copy(True)  copy path: copy the frames from the outermost
write.export  ask_export  export: write all frames as folded stacks (.folded) or for speedscope (.speedscope.json)
move.clear  back  back: clear the search, then zoom out; again: leave
screens.flame  leave  lanes: back to the lanes
= program.leave screens.table screens.tree screens.memory
screens.compare  compare  compare: compare the trace with another one, two of its steps or ranks
""")

MEMORY = parse_keys("""\
= time.zoom-in time.zoom-out time.pan-left time.pan-right time.zoom-in-far time.zoom-out-far time.fit time.fit-all
= move.left
move.right  step(1)  cursor: move the cursor a cell on
= move.first move.last
view.peak  peak  peak: move the cursor to the peak of the trace
= move.up move.down move.page-up move.page-down panels.down panels.up
view.group  group(1)  group by: group what is alive by category, op, module, line, phase or shape
move.next-panel  next_panel(1)  group by: the next grouping
= move.previous-panel
view.scope  alive  alive: list the allocations alive at the cursor, or all on screen
move.next-step  next_step(1)  device: the next device: GPUs, then the CPU
= move.previous-step
move.open  show  on the lanes: select the op that made the allocation, on the lanes
= move.back
find.search  search  filter: list only allocations whose op, module, line, category or phase has a text or /expression/
find.next  match(1)  next: the listed allocation made next
= find.previous write.copy
write.copy-all  copy(True)  copy all: copy the groups at the cursor
= move.clear
screens.memory  leave  lanes: back to the lanes
= program.leave screens.table screens.tree screens.flame
screens.compare  compare  compare: compare the trace with another one, two of its steps or ranks
""")

SNAPSHOT = parse_keys("""\
= program.help time.zoom-in time.zoom-out time.pan-left time.pan-right time.zoom-in-far time.zoom-out-far time.fit-all
= move.left
move.right  step(1)  cursor: move the cursor a cell on
= move.first
move.last  edge(True)  end: go to the end: the snapshot itself
view.peak  peak  peak: move the cursor to the peak of the history
= move.up move.down move.page-up move.page-down
move.next-panel  next_panel(1)  list: list what is alive by line, by stack or one by one; segments; failed allocations;
    findings
= move.previous-panel
move.next-step  next_step(1)  device: the next GPU of the snapshot
= move.previous-step
write.copy  copy(False)  copy: copy the row, with its whole stack
= write.copy-all
move.clear  app.leave
""")

DIFF = parse_keys("""\
find.next  match(1)  difference: the next difference, by size
= find.previous
panels.number  cause({})  cause {}: the difference of that number, by size, on both sides
move.open  fit  fit both: fit both sides to the difference
= time.fit
find.mark  lock  align at op: align both sides at the selected op instead of the step's start; again: at the steps
move.next-step  next_step(1)  step: the next pair of compared steps
= move.previous-step
panels.details  panel('details')  explorer: the explorer of the side with the keys (else of B), with its details
= panels.chain panels.kernel panels.cheatsheet
view.switch  swap  swap: swap A and B
screens.compare  compare  compare: compare with another trace, step or rank
= time.zoom-in time.zoom-out time.zoom-in-far time.zoom-out-far time.pan-left time.pan-right move.left
move.right  step(1)  later: move both to later times
= move.first move.last time.fit-all move.back move.up move.down move.page-up move.page-down move.toggle
find.search  ask_filter  filter: list only rows with this text, or /regular expression/; n N then go through them; ↑
    earlier ones
view.group  group(1)  group by: rows by op, kernel, module, class
move.next-panel  next_panel(1)  part: the next part: account, rows, remarks, A, B
= move.previous-panel view.enlarge panels.down panels.up
write.copy  copy(False)  copy: copy the names of the difference
= write.copy-all
move.clear  back  back: clear the filter, the selection; then leave
""")

ROOFLINE = parse_keys("""\
move.clear  leave  back: back to the lanes
= program.leave program.help move.page-down move.page-up move.down move.up move.first move.last
write.copy  copy(True)  copy: copy the plot and the table as text
""")

SOURCE = parse_keys("""\
move.clear  dismiss  back: back to the lanes
program.leave  dismiss
move.open  dismiss
panels.source  dismiss  source: back to the lanes
= move.down move.up move.page-down move.page-up panels.down panels.up move.first move.last program.help
""")

LEARN = parse_keys("""\
move.clear  leave  back: back to the lanes
move.next-panel !  switch  guess, cases: from the guess to the cases, and back
program.help !  app.help
""")

START = parse_keys("""\
program.open  type_path('')  type a path: type the path of a trace; also / ~ .
move.clear  back  back: back to the list, or to the trace
panels.details  guide  guide: guide: what this program does, how to record, and the first keys
move.back  parent  up: the parent folder, or the trace below
move.up  scroll_guide(-1)  up
move.down  scroll_guide(1)  down
""")

LOADING = parse_keys("""\
move.clear  give_up  cancel: cancel, or go back
program.record  retry  try again: try again after a failure
""")

RECORD = parse_keys("""\
= program.start move.clear
move.next-panel !  cycle_focus(1)
move.previous-panel !  cycle_focus(-1)
""")

RECORDING = parse_keys("""\
program.quit !  stop  stop: stop, and keep what was recorded
move.open  show_trace  open: open the trace
panels.number  answer({})  answer {}: the answer of that number, where the run asks
program.record  again  run again: run it again
move.back  app.record  change it: back to the form, to change the run
screens.compare  compare  compare: compare it with the trace before it
= move.clear move.page-up move.page-down move.up move.down move.first move.last
""")

HELP = parse_keys("""\
move.clear  back  close: clear the filter, or close the help
program.leave  dismiss
program.help  dismiss
program.help-f1  dismiss  close: close the help
find.search  type_filter('')  filter: filter keys and sentences
move.next-panel !  next_panel(1)
move.previous-panel !  next_panel(-1)
move.right !  next_panel(1)
move.left  next_panel(-1)
= move.down move.up move.page-down move.page-up move.first move.last
""")


# Tables of text fields name their keys: they type, complete and answer there.
LESSON: list[BindingType] = [
    *_parse_verbs("""\
1..9       lesson.answer  press('{}')         {}: the answer, or a digit of it
0          lesson.zero    press('0')          zero: a digit of the answer
full_stop  lesson.point   press('.')          point: the point of the answer
backspace  lesson.erase   press('backspace')  erase: take the last digit back
enter      lesson.next    press('enter')      next: that is the number; the next question
G          lesson.go-on   go_on               show me: go on without an answer; then: show the evidence on the screen
q          lesson.leave   leave               leave: leave the case
""")
]
"""Keys of the field for the answer of a case above the lanes, while the case takes one."""

PATH_INPUT: list[BindingType] = [
    *_parse_verbs("""\
tab  path.complete  complete  complete: complete the path
""")
]
"""Keys of typing a path."""

PROMPT: list[BindingType] = [
    *_parse_verbs("""\
escape,ctrl+c  prompt.close    close       close
tab            prompt.complete  complete   complete
up             prompt.earlier  recall(1)   earlier
down           prompt.later    recall(-1)  later
""")
]
"""Keys of the prompt in the last line."""

LANES_HINTS = parse_hints(
    "? = help; / = search; t = table; c = cheatsheet; D = compare; q = quit; l = chain; k = kernel; : = go to; wasd = "
    "zoom, pan; ←→↑↓ = events; f = fit; ] [ = link; { } = step; m = mark; space = fold; tab = panel; T F = tree, "
    "flame"
)

CPU_HINTS = tuple(hint for hint in LANES_HINTS if hint[0] not in ("k", "] ["))  # those of a trace without GPU work
MEMORY_HINT = parse_hints("M = memory")  # behind the first hints of the lanes where the trace has allocations

TABLE_HINTS = parse_hints(
    "? = help; q = back; / = filter; tab = table; ← → = sort; enter = on the lanes; v = scope; b = group by; x = "
    "reverse; { } = instance; n N = match; e = export; y Y = copy; J K = panel; backspace = view back"
)

TREE_HINTS = parse_hints(
    "? = help; q = back; / = search; → ← = open, close; enter = on the lanes; n N = match; y Y = copy; t F M = table, "
    "flame, memory; backspace = view back"
)

FLAME_HINTS = parse_hints(
    "? = help; q = back; enter = zoom; tab = stacks, modules, ops; x = GPU, CPU; 0 = all; / = search; v = scope; n N = "
    "match; backspace = view back; e = export; y Y = copy"
)

MEMORY_HINTS = parse_hints(
    "? = help; q = back; enter = on the lanes; p = peak; b = group by; wasd = zoom, pan; ←→ = cursor; / = filter; v = "
    "alive, on screen; { } = device; J K = groups; n N = by time; y Y = copy"
)

NO_MEMORY_HINTS = parse_hints("? = help; q = back; r = record; D = compare; t T F = table, tree, flame")

ROOFLINE_HINTS = parse_hints("? = help; q = back; ↑↓ = scroll; y = copy; :export = as SVG")

SNAPSHOT_HINTS = parse_hints(
    "? = help; q = leave; tab = list; p = peak; ←→ = cursor; wasd = zoom, pan; end = the snapshot; o = open; y Y = "
    "copy; { } = device"
)

DIFF_HINTS = parse_hints(
    "? = help; n N = difference; q = back; enter = fit both; tab = part; i = explorer; D = compare other; m = align at "
    "op; / = filter; b = group by; { } = step; wasd = zoom, pan; x = swap; space = fold; y Y = copy"
)

DIFF_FAILED_HINTS = parse_hints("? = help; D = compare others; esc = back; q = back")

LEARN_HINTS = parse_hints("? = help; esc = back; enter = compare the guess, begin the case; tab = guess, cases")

_COMMANDS = """\
doctor      panel('doctor')   Panels: show or hide the trace doctor: data lost, repaired, odd, not recorded
what-if     what_if           Panels: the step time with changes, such as class=gemm*0.5; sync=0
pin         pin               Lanes: pin the lane on top, or unpin it
hide        hide              Lanes: hide the lane
unhide      show_hidden       Lanes: show hidden lanes again
fold-all    fold_all(True)    Lanes: fold all lanes
unfold-all  fold_all(False)   Lanes: unfold all lanes
try         try_remedies      Panels: repeat the run of this trace with the remedies of the finding, and measure them
roofline    child('roofline') Screens: the roofline: the rates of the kernels beside what the GPU reaches
far-left    pan(-5)           Time: move five times as far back
far-right   pan(5)            Time: move five times as far on
"""
"""Commands of the lanes that are too rare for a key, by the name that `:` takes."""

KEYLESS_COMMANDS = tuple(
    KeyHelp(f":{name}", sentence, action)
    for name, action, sentence in (line.split(None, 2) for line in _COMMANDS.splitlines())
)
"""Commands of the lanes without a key, for the palette."""

TREE_COMMANDS = (KeyHelp("", "Tree: open all nodes", "all(True)"), KeyHelp("", "Tree: close all nodes", "all(False)"))

DIFF_COMMANDS = (
    KeyHelp("", "Comparison: A's explorer at this event", "explore(0)"),
    KeyHelp("", "Comparison: B's explorer at this event", "explore(1)"),
)

EXPORT = "export"

PROGRAM_COMMANDS = (
    KeyHelp(":record", "Program: record a run, and open its trace", "app.record"),
    KeyHelp(f":{EXPORT}", "Program: write this screen, and its curve or waterfall, as pictures (SVG)", "app.export"),
)


def list_verbs() -> list[Binding]:
    """Return the verbs in the order of the table, one binding each; `1..9` is one of them."""
    return [bindings[0] for name, bindings in _by_verb.items() if name not in _TYPING]


_TYPING = {binding.id for binding in _parse_verbs(ALSO_WHILE_TYPING)}


def list_named_commands() -> dict[str, tuple[str, str]]:
    """Return (action, sentence) of what `:` of the lanes takes by name: those without a key, panels and screens."""
    named, program = (
        {key.keys[1:]: (key.action, key.description.partition(": ")[2]) for key in commands}
        for commands in (KEYLESS_COMMANDS, PROGRAM_COMMANDS)
    )
    for binding in (*LANES, *PROGRAM):
        assert isinstance(binding, Binding)
        section, _, name = (binding.id or "").partition(".")
        if (name == "open" and section == "program") or (section in ("panels", "screens") and name not in _UNNAMED):
            namespace = "app." if section == "program" else ""
            named.setdefault(name, (f"{namespace}{binding.action}", binding.tooltip))
    # memory first, as in the hint of the prompt
    return {"memory": named["memory"]} | named | program | {"quit": ("app.quit", "quit")}


_UNNAMED = {"number", "down", "up", "rule"}
