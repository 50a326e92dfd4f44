"""All keys of all screens: the only source for bindings, hints, help, palette commands and `docs/keys.md`.

Each line of a table has: keys, id, action, and "label: sentence". An indented line continues the sentence. The sentence
is shown in the help and in the command palette; without one the key is not listed there. A line with `=` lists the ids
of shared keys. Keys are plain letters, because modifiers do not survive every terminal and tmux.

- `!` after the keys: the key is also taken where the focus is in a text field (textual's priority).
- `1..9` are nine keys; `{}` stands for the number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from textual.binding import Binding, BindingType

from torchprof_tui.ui.common.bindings import KeyHelp

MAX_NUMBER_KEYS = 9
"""Findings that have a key of their own. Defined here: the panels import numpy, this is imported before a frame."""


def parse_keys(table: str) -> list[BindingType]:
    """Parse a table of keys; see the module docstring."""
    return list(_parse_lines(table))


def _parse_lines(table: str) -> Iterator[Binding]:
    for line in table.replace("\n    ", " ").splitlines():
        if line.startswith("= "):
            yield from (_shared[name] for name in line[2:].split())
            continue
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


def parse_hints(text: str) -> tuple[tuple[str, str], ...]:
    """Parse "keys = label; …", most useful first, for the last line of a screen."""
    return tuple((keys, label) for keys, _, label in (hint.partition(" = ") for hint in text.split("; ")))


_SHARED = """\
w                  time.zoom-in        zoom(1)           zoom: zoom in at the cursor
s                  time.zoom-out       zoom(-1)          zoom out: zoom out at the cursor
a                  time.pan-left       pan(-1)           earlier: move to earlier times
d                  time.pan-right      pan(1)            later: move to later times
W                  time.zoom-in-far    zoom(5)           zoom in far: zoom in five times as far
S                  time.zoom-out-far   zoom(-5)          zoom out far: zoom out five times as far
A,less_than_sign   time.pan-left-far   pan(-5)           much earlier: move five times as far back
greater_than_sign  time.pan-right-far  pan(5)            much later: move five times as far on
0                  time.fit-all        fit_all           all: show the whole trace
home               time.start          to_end(False)     start: go to the trace's start
end                time.end            to_end(True)      end: go to the trace's end
backspace          time.back           go_back           view back: return to the view before a jump
/                  find.search         search            search: search all names: text, or /regular expression/; a
    capital makes it case-sensitive; ↑ earlier ones
J                  panels.down         scroll_panel(1)   panel down: scroll the panel down
K                  panels.up           scroll_panel(-1)  panel up: scroll the panel up
up                 rows.up             move(-1)          up: the row above
down               rows.down           move(1)           down: the row below
pageup             rows.page-up        page(-1)          page up: a page up
pagedown           rows.page-down      page(1)           page down: a page down
home               rows.first          edge(False)       first: the first row
end                rows.last           edge(True)        last: the last row
n                  find.next           match(1)          next match: next match
N                  find.previous       match(-1)         previous match: previous match
y                  rows.copy           copy(False)       copy: copy the row
question_mark      program.help        app.help          help: help
Y                  rows.copy-all       copy(True)        copy all: copy the list
escape             run.back            back              back: back
"""
"""Keys that several screens have, by id."""

_shared = {binding.id or "": binding for binding in _parse_lines(_SHARED)}

EVERYWHERE = parse_keys("""\
question_mark  program.help     help  help: help: keys, what is on screen, and words
f1 !           program.help-f1  help  help
""")
"""Keys of all screens."""

PROGRAM = parse_keys("""\
q         program.leave    leave            leave: leave this screen; from the lanes: quit
ctrl+c    program.quit     quit             quit
ctrl+z !  program.suspend  suspend_process  suspend: suspend the program; fg in the shell continues it
o         program.open     open_another     open: open another trace
R         program.record   record           record: record a run, and open its trace
r         program.again    again            run again: repeat the run of this trace
""")
"""Keys of the program, on all screens that have no other meaning for them."""

LANES = parse_keys("""\
= time.zoom-in time.zoom-out time.pan-left time.pan-right time.zoom-in-far time.zoom-out-far time.pan-left-far
= time.pan-right-far
f                time.fit              fit                  fit: fit the selected event to the screen; again: its
    parent
= time.fit-all
g                time.go-to            go_to                go to: go to a time (12ms, 1.5s) or a step (#3)
= time.start time.end time.back
left,comma       events.previous       beside(-1)           event: previous event in the row
right,full_stop  events.next           beside(1)            event: next event in the row
up               events.parent         up                   parent: the parent; from the outermost: the lane above
down             events.child          down                 child: the first child; from the innermost: the lane below
]                events.forward        follow(True)         link: follow the link: launch ⇢ kernel, forward ⇢ backward
[                events.back           follow(False)        back: follow the link back: kernel ⇢ launch
}                events.next-step      step(True)           step: next step; the next repetition where no steps were
    recorded
{                events.previous-step  step(False)          step back: previous step, or repetition
u                time.fold-repeats     fold_repeats         one repeat: show one of the repeats (steps, tokens, then
    layers), p50 and p95 of the others; at last: all again
U                time.slowest-repeat   slowest_repeat       slowest repeat: show the slowest of the folded repeats; }
    { the next and the previous one
escape           events.clear          clear                clear: clear the mark, the search, the selection
space            lanes.fold            fold                 fold: fold or unfold the lane, or the rank
p                lanes.pin             pin                  pin: pin the lane on top, or unpin it
h                lanes.hide            hide                 hide: hide the lane; H shows it again
H                lanes.show            show_hidden          show: show hidden lanes again
pageup           lanes.page-up         scroll_page(-1)      page up: scroll up: the lanes, or the panel that has the
    keys (↑↓ beside its title)
pagedown         lanes.page-down       scroll_page(1)       page down: scroll down: the lanes, or the panel
= find.search
n                find.next             to_found(True)       next found: next event found
N                find.previous         to_found(False)      previous found: previous event found
m                find.mark             mark                 mark: mark a range for its statistics; again: set its end
1..9             panels.finding        finding({})          finding {}: open the cheatsheet at this finding of the
    list, and show its first evidence on the lanes
z                panels.enlarge        enlarge              enlarge: enlarge the panels; again: the whole screen;
    again, or esc: their normal size
tab              panels.next           next_panel(1)        panel: next panel
shift+tab        panels.previous       next_panel(-1)       panel: previous panel
i                panels.details        panel('details')     details: show or hide the details
l                panels.chain          panel('chain')       chain: show or hide the chain: from the step down to the
    GPU work; then ↑ ↓ walk it, enter fits
k                panels.kernel         panel('kernel')      kernel: show or hide the kernel: its footprint, its
    occupancy and what limits it
c                panels.cheatsheet     panel('cheatsheet')  cheatsheet: show or hide the cheatsheet: patterns on
    screen; ↑ ↓ choose, enter and n N go through their evidence
C                panels.path           path                 critical path: critical path of the step, or the marked
    range: dims the rest; ↑ ↓ choose, enter shows, n N walk it
P                panels.what-if        what_if              what if: predict, what if: the step time with changes,
    such as class=gemm*0.5; sync=0, and what limits it then
v                panels.scope          scope(1)             scope: scope of the cheatsheet: the screen, the selection,
    the whole trace; n N keep their list
V                panels.scope-back     scope(-1)            scope back: the previous scope
E                panels.rule           rule                 rule: show or hide how the finding under the cursor was
    found: its rule and its limits
x                panels.labels         labels               labels: show or hide labels: why the GPU was idle, kernel
    classes, the profiler's own events
!                panels.doctor         panel('doctor')      doctor: show or hide the trace doctor: data lost,
    repaired, odd, not recorded; ↑ ↓ choose, enter shows it
T                panels.tree           child('tree')        tree: dispatch tree: all calls by their path, heaviest
    first
F                panels.flame          child('flame')       flame graph: flame graph: stacks, modules or ops by self
    GPU or CPU time
M                panels.memory         child('memory')      memory: memory: its curve by category, the lifetimes of
    allocations, and what is alive at the cursor
enter            panels.jump           jump                 jump: show the panel's event on the lanes; on a line of
    the program: open its source
L                panels.source         open_source          source: open the source line that the finding or the chain
    names
= panels.down panels.up
y                panels.copy           copy(False)          copy: copy the selected event's name, if the terminal
    takes it (OSC 52)
Y                panels.copy-all       copy(True)           copy all: copy the panel's text, at most 120 columns wide
t                panels.table          child('table')       table: the profiler table; from an event: its row
D                find.compare          compare              compare: compare with another trace (path, sample:,
    host:path), two steps (step 3/4) or two ranks (rank 0/3)
G                find.guess            child('learn')       guess: guess, then look: which kernels do you expect in
    the marked range, or the selected event? Also questions about this trace, and cases to learn with
e                find.slice            slice                slice: write the marked range (or the selected event, or
    the screen) as a smaller trace file
""")
"""Keys of the lanes and the panels of the explorer."""

TABLE = parse_keys("""\
= rows.up rows.down rows.page-up rows.page-down rows.first rows.last
tab !        table.next          tab(1)        table: next table
shift+tab !  table.previous      tab(-1)       table: previous table
right        table.sort-right    sort(1)       sort: sort by the next column
left         table.sort-left     sort(-1)      sort: sort by the previous column
r            table.reverse       reverse       reverse: reverse the order
b            table.group         group(1)      group by: group calls by name, shape, stack, module, kernel class,
    step; B goes back
B            table.group-back    group(-1)     group by: the previous grouping
v            table.scope         scope(1)      scope: scope of the table: whole trace, marked range, screen, step,
    lane; V goes back
V            table.scope-back    scope(-1)     scope: the previous scope
/            find.filter         ask_filter    filter: list only rows with this text, or /regular expression/; a
    capital makes it case-sensitive; ↑ earlier ones
n            find.next           match(1)      next match: next matching row
N            find.previous       match(-1)     previous match: previous matching row
full_stop    rows.next-instance  instance(1)   instance: next instance
comma        rows.instance       instance(-1)  instance: previous instance
enter        rows.show           show          on the lanes: show the instance on the lanes
y            rows.copy           copy(False)   copy: copy the row's full name
Y            rows.copy-all       copy(True)    copy table: copy the rows on screen, 120 columns
J            panels.down         panel(1)      panel down: scroll the panel down
K            panels.up           panel(-1)     panel up: scroll the panel up
e            table.export        ask_export    export: write the rows as .csv, .json or .md
backspace    table.back          go_back       view back: the previous table, order and row
escape       table.clear         back          back: clear the filter; again: leave
q,t          table.leave         leave         lanes: back to the lanes
T            table.tree          child('tree')   tree: the dispatch tree
F            table.flame         child('flame')  flame graph: the flame graph
""")
"""Keys of the profiler's table."""

TREE = parse_keys("""\
= rows.up rows.down rows.page-up rows.page-down rows.first rows.last
right      tree.open       open         open: open the node; again: its first child
left       tree.close      close        close: close the node; again: its parent
space      tree.toggle     open_close   open, close: open or close the node
plus       tree.open-all   all(True)    open all: open all nodes
minus      tree.close-all  all(False)   close all: close all nodes
enter      tree.show       show         on the lanes: show the longest call on the lanes
= find.search find.next find.previous
y          rows.copy       copy(False)  copy: copy the node's full name
Y          rows.copy-all   copy(True)   copy tree: copy the rows on screen, 120 columns
backspace  tree.back       go_back      view back: the previous folding and node
escape     tree.clear      back         back: show all nodes again; again: leave
q,T        tree.leave      leave        lanes: back to the lanes
t          tree.table      child('table')  table: the profiler table
F          tree.flame      child('flame')  flame graph: the flame graph
""")
"""Keys of the dispatch tree."""

FLAME = parse_keys("""\
up,w         flame.up          up              caller: the frame above: its caller
down,s       flame.down        down            called: the heaviest frame below
left,a       flame.left        beside(-1)      left: the frame to the left
right,d      flame.right       beside(1)       right: the frame to the right
pageup       flame.page-up     page(-1)        page up: a page of frames up
pagedown     flame.page-down   page(1)         page down: a page of frames down
home         flame.first       edge(False)     first: the first frame of the row
end          flame.last        edge(True)      last: the last frame of the row
enter        flame.zoom-in     zoom_in         zoom: zoom into the frame; into ░, frames too narrow to draw; again:
    show it on the lanes
backspace    flame.back        go_back         view back: the view before the last change
0            flame.all         zoom_out        all: zoom out to all frames
f            flame.show        show            on the lanes: show the frame's first event on the lanes
tab !        flame.next        frames(1)       frames: stacks, modules or ops
shift+tab !  flame.previous    frames(-1)      frames: the previous kind of frames
g            flame.time        time            GPU or CPU: GPU time or CPU time
v            flame.scope       scope(1)        scope: scope: whole trace, marked range, screen, step, lane; V goes
    back
V            flame.scope-back  scope(-1)       scope: the previous scope
= find.search find.next find.previous
y            rows.copy         copy(False)     copy: copy the frame's full name
Y            rows.copy-all     copy(True)      copy path: copy the frames from the outermost
e            flame.export      ask_export      export: write all frames as folded stacks (.folded) or for speedscope
    (.speedscope.json)
escape       flame.clear       back            back: clear the search, then zoom out; again: leave
q,F          flame.leave       leave           lanes: back to the lanes
t            flame.table       child('table')  table: the profiler table
T            flame.tree        child('tree')   tree: the dispatch tree
""")
"""Keys of the flame graph."""

MEMORY = parse_keys("""\
= time.zoom-in time.zoom-out time.pan-left time.pan-right time.zoom-in-far time.zoom-out-far time.pan-left-far
D,greater_than_sign  memory.pan-right-far  pan(5)          much later: move five times as far on
= time.fit-all
f                    memory.fit            fit             fit: fit the lifetime of the allocation to the screen
left                 memory.left           step(-1)        cursor: move the cursor a cell back
right                memory.right          step(1)         cursor: move the cursor a cell on
= time.start time.end
p                    memory.peak           peak            peak: move the cursor to the peak of the trace
= rows.up rows.down rows.page-up rows.page-down
J                    memory.down           scroll(1)       groups down: scroll the groups down
K                    memory.up             scroll(-1)      groups up: scroll the groups up
tab !                memory.next           group(1)        group by: group what is alive by category, op, module,
    line, phase or shape
shift+tab !          memory.previous       group(-1)       group by: the previous grouping
v                    memory.alive          alive           alive: list the allocations on screen, or those that are
    alive at the cursor
g                    memory.device         device          device: the next device: GPUs, then the CPU
enter                memory.show           show            on the lanes: select the op that made the allocation, on
    the lanes
backspace            memory.back           go_back         view back: the view before a jump
/                    memory.filter         search          filter: list only allocations whose op, module, line,
    category or phase has a text or /expression/
n                    memory.later          match(1)        next: the listed allocation made next
N                    memory.earlier        match(-1)       previous: the one made before
= rows.copy
Y                    rows.copy-all         copy(True)      copy all: copy the groups at the cursor
escape               memory.clear          back            back: clear the filter; again: leave
q,M                  memory.leave          leave           lanes: back to the lanes
t                    memory.table          child('table')  table: the profiler table
T                    memory.tree           child('tree')   tree: the dispatch tree
F                    memory.flame          child('flame')  flame graph: the flame graph
""")
"""Keys of the memory of a trace."""

SNAPSHOT = parse_keys("""\
= program.help time.zoom-in time.zoom-out time.pan-left time.pan-right time.zoom-in-far time.zoom-out-far
= time.pan-left-far
D,greater_than_sign  snapshot.pan-right-far  pan(5)         much later: move five times as far on
0                    time.fit-all            fit_all        all: show the whole history
left                 snapshot.left           step(-1)       cursor: move the cursor a cell back
right                snapshot.right          step(1)        cursor: move the cursor a cell on
home                 time.start              to_end(False)  start: go to the start of the history
end                  time.end                to_end(True)   end: go to the end: the snapshot itself
p                    snapshot.peak           peak           peak: move the cursor to the peak of the history
= rows.up rows.down rows.page-up rows.page-down
tab !                snapshot.next           list(1)        list: list what is alive by line, by stack or one by one;
    segments; failed allocations; findings
shift+tab !          snapshot.previous       list(-1)       list: the previous list
g                    snapshot.device         device         device: the next GPU of the snapshot
y                    rows.copy               copy(False)    copy: copy the row, with its whole stack
= rows.copy-all
escape               snapshot.back           app.leave      back: leave the snapshot
""")
"""Keys of a memory snapshot."""

DIFF = parse_keys("""\
n            diff.next           difference(1)                difference: the next difference, by size
N            diff.previous       difference(-1)               difference: the previous difference
enter        diff.fit            fit                          fit both: fit both sides to the difference
f            diff.fit            fit                          fit both: fit both sides to the difference
M            diff.lock           lock                         lock at ops: align both sides at the selected op instead
    of the step's start; again: at the steps
}            diff.next-step      step(1)                      step: the next pair of compared steps
{            diff.previous-step  step(-1)                     step: the previous pair of steps
1            diff.explore-a      explore(0)                   explorer of A: A's explorer at this event
2            diff.explore-b      explore(1)                   explorer of B: B's explorer at this event
i            diff.explore-panel  explore_panel('details')     details: the explorer of the side with the keys (else of
    B), with its details, chain, kernel, cheatsheet
l            diff.explore-panel  explore_panel('chain')       chain: the explorer of the side with the keys (else of
    B), with its details, chain, kernel, cheatsheet
k            diff.explore-panel  explore_panel('kernel')      kernel: the explorer of the side with the keys (else of
    B), with its details, chain, kernel, cheatsheet
c            diff.explore-panel  explore_panel('cheatsheet')  cheatsheet: the explorer of the side with the keys (else
    of B), with its details, chain, kernel, cheatsheet
X            diff.swap           swap                         swap: swap A and B
D            diff.compare        compare                      compare: compare with another trace, step or rank
w            time.zoom-in        zoom(1)                      zoom: zoom both sides in
s            time.zoom-out       zoom(-1)                     zoom out: zoom both sides out
= time.zoom-in-far time.zoom-out-far
a,left       time.pan-left       pan(-1)                      earlier: move both to earlier times
d,right      time.pan-right      pan(1)                       later: move both to later times
= time.pan-left-far time.pan-right-far
home         time.start          to_end(False)                start: go to the start
end          time.end            to_end(True)                 end: go to the end
0            time.fit-all        fit_all                      all: show all of both traces
= time.back
up           rows.up             move(-1)                     up: scroll up the part with the keys; in the rows: up
down         rows.down           move(1)                      down: scroll down the part with the keys
= rows.page-up rows.page-down
space        lanes.fold          fold                         fold: fold or unfold the lanes
/            find.filter         ask_filter                   filter: list only rows with this text, or /regular
    expression/; n N then go through them; ↑ earlier ones
b            panels.group        group(1)                     rows by: rows by op, kernel, module, class
B            panels.group-back   group(-1)                    rows by: the previous grouping
tab !        panels.next         part(1)                      part: the next part: account, rows, remarks, A, B
shift+tab !  panels.previous     part(-1)                     part: the previous part
z            panels.enlarge      enlarge                      enlarge: enlarge the panels, or back
= panels.down panels.up
y            panels.copy         copy(False)                  copy: copy the names of the difference
Y            panels.copy-all     copy(True)                   copy all: copy the panel's text
escape       diff.clear          back                         back: clear the filter, the selection; then leave
""")
"""Keys of a comparison."""

SOURCE = parse_keys("""\
escape,q,enter    source.close      dismiss              close: back to the lanes
down,j            source.down       scroll(1)            down: a line down
up,k              source.up         scroll(-1)           up: a line up
pagedown,J,space  source.page-down  page(1)              page down: a page down
pageup,K          source.page-up    page(-1)             page up: a page up
home              source.start      scroll(-10_000_000)  start: the start of the file
end               source.end        scroll(10_000_000)   end: the end of the file
= program.help
""")
"""Keys of the source of a line."""

LEARN = parse_keys("""\
escape           guess.back    leave     back: back to the lanes
tab !            guess.switch  switch    guess, cases: from the guess to the cases, and back
question_mark !  program.help  app.help  help: help
""")
"""Keys of the screen "Learn"."""

LESSON = parse_keys("""\
1..9       lesson.answer  press('{}')         {}: the answer, or a digit of it
0          lesson.zero    press('0')          zero: a digit of the answer
full_stop  lesson.point   press('.')          point: the point of the answer
backspace  lesson.erase   press('backspace')  erase: take the last digit back
enter      lesson.next    press('enter')      next: that is the number; the next question
G          lesson.go-on   go_on               show me: go on without an answer; then: show the evidence on the screen
q          lesson.leave   leave               leave: leave the case
""")
"""Keys of a case above the lanes, while they are of use to it."""

START = parse_keys("""\
o          start.path    type_path('')     type a path: type the path of a trace; also / ~ .
escape     start.back    back              back: back to the list, or to the trace
g          start.guide   guide             guide: guide: what this program does, how to record, and the first keys
backspace  start.parent  parent            up: the parent folder, or the trace below
up         start.up      scroll_guide(-1)  up
down       start.down    scroll_guide(1)   down
""")
"""Keys of the start screen."""

PATH_INPUT = parse_keys("""\
tab  path.complete  complete  complete: complete the path
""")
"""Keys of typing a path."""

LOADING = parse_keys("""\
escape  loading.cancel  give_up  cancel: cancel, or go back
r       loading.retry   retry    try again: try again after a failure
""")
"""Keys of loading."""

RECORD = parse_keys("""\
ctrl+r !     run.start     start     start: start the run
= run.back
tab !        run.next      next      next: next field
shift+tab !  run.previous  previous  previous: previous field
""")
"""Keys of the form of a recording."""

RECORDING = parse_keys("""\
ctrl+c !  run.stop        stop                  stop: stop, and keep what was recorded
enter     run.open        show_trace            open: open the trace
y         run.all         answer('y')           record all: record all steps of a large run
f         run.fewer       answer('f')           fewer: record fewer steps
n         run.none        answer('n')           record none: stop, record nothing
r         run.again       again                 again: run it again
d         run.compare     compare               compare: compare it with the trace before it
= run.back
pageup    rows.page-up    scroll_page(-1)       page up: a page up
pagedown  rows.page-down  scroll_page(1)        page down: a page down
up        rows.up         scroll_lines(-1)      up: a line up
down      rows.down       scroll_lines(1)       down: a line down
home      rows.first      scroll_to_end(False)  first: the first line
end       rows.last       scroll_to_end(True)   last: the last line
""")
"""Keys of a recording that runs."""

HELP = parse_keys("""\
escape                help.close      back             close: clear the filter, or close the help
q,question_mark,f1,enter  help.leave      dismiss          close: close the help
slash                 help.filter     type_filter('')  filter: filter keys and sentences
tab,right !           help.next       cycle_page(1)    page: next page
shift+tab,left        help.previous   cycle_page(-1)   page: previous page
down                  help.down       scroll(1)        down: scroll down
up                    help.up         scroll(-1)       up: scroll up
pagedown,space        help.page-down  page(1)          down: scroll a page down
pageup                help.page-up    page(-1)         up: scroll a page up
home                  help.start      page(-1000)      start: scroll to the start
end                   help.end        page(1000)       end: scroll to the end
""")
"""Keys of the help."""

PROMPT = parse_keys("""\
escape,ctrl+c  prompt.close    close       close
up             prompt.earlier  recall(1)   earlier
down           prompt.later    recall(-1)  later
""")
"""Keys of the prompt in the last line."""

LANES_HINTS = parse_hints(
    "? = help; / = search; t = table; c = cheatsheet; q = quit; l = chain; k = kernel; wasd = zoom, pan; ←→↑↓ = "
    "events; f 0 = fit; ] [ = link; { } = steps; m = mark; space = fold; tab = panel; T F = tree, flame; D = compare; "
    "R = record"
)

TABLE_HINTS = parse_hints(
    "? = help; q = back; / = filter; tab = table; ← → = sort; enter = on the lanes; v = scope; b = group by; r = "
    "reverse; , . = instance; n N = match; e = export; y Y = copy; J K = panel; backspace = view back"
)

TREE_HINTS = parse_hints(
    "? = help; q = back; / = search; → ← = open, close; enter = on the lanes; n N = match; + - = open, close all; y Y "
    "= copy; t = table; backspace = view back"
)

FLAME_HINTS = parse_hints(
    "? = help; q = back; enter = zoom; tab = stacks, modules, ops; g = GPU, CPU; f = on the lanes; / = search; v = "
    "scope; n N = match; backspace = view back; e = export; y Y = copy"
)

MEMORY_HINTS = parse_hints(
    "? = help; q = back; enter = on the lanes; p = peak; tab = group by; wasd = zoom, pan; ←→ = cursor; / = filter; v "
    "= alive, on screen; g = device; J K = groups; n N = by time; y Y = copy"
)

SNAPSHOT_HINTS = parse_hints(
    "? = help; q = leave; tab = list; p = peak; ←→ = cursor; wasd = zoom, pan; end = the snapshot; o = open; y Y = "
    "copy; g = device"
)

DIFF_HINTS = parse_hints(
    "? = help; n N = difference; q = back; enter = fit both; tab = part; 1 2 = explorer of A, B; M = lock at ops; / = "
    "filter; b = rows by; { } = step; wasd = zoom, pan; X = swap; D = compare other; space = fold; y Y = copy"
)

DIFF_FAILED_HINTS = parse_hints("? = help; D = compare others; esc = back; q = back")

LEARN_HINTS = parse_hints("? = help; esc = back; enter = compare the guess, begin the case; tab = guess, cases")

KEYLESS_COMMANDS = (
    KeyHelp("", "Lanes: fold all lanes", "fold_all(True)"),
    KeyHelp("", "Lanes: unfold all lanes", "fold_all(False)"),
)
"""Commands of the palette that are too rare for a key."""
