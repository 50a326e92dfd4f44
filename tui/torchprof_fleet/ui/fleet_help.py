"""The keys of the screen of all ranks, and what its help says."""

from __future__ import annotations

from torchprof_tui.ui.common.help.guides import Guide
from torchprof_tui.ui.common.keys import parse_hints, parse_keys

KEYS = parse_keys("""\
= rows.up rows.down
left         fleet.left          step(-1)     step: the step before
right        fleet.right         step(1)      step: the next step
= rows.page-up rows.page-down rows.first rows.last
w            fleet.wider         zoom(1)      wider: wider cells; the widest show the value
s            fleet.narrower      zoom(-1)     narrower: narrower cells, more steps
a            fleet.earlier       pan(-1)      earlier: a page of steps back
d            fleet.later         pan(1)       later: a page of steps on
m            fleet.measure       measure(1)   measure: step time, busy, exposed, lateness
M            fleet.measure-back  measure(-1)  measure: the previous measure
g            fleet.group         group        group: rows by rank, host, DP, TP, PP or EP
space        fleet.choose        choose       mark: mark the ranks of the row, or unmark
enter        fleet.open          open         open: open the marked ranks, else the one of the row, at the step; of a
    group: list its ranks
tab !        fleet.list          list(1)      list: the next list: findings, ranks, …
shift+tab !  fleet.list-back     list(-1)     list: the previous list
J            fleet.entry         entry(1)     entry: the next entry of the list, on the map
K            fleet.entry-back    entry(-1)    entry: the entry before
backspace    fleet.back          go_back      view back: the view before a jump
/            fleet.find          search       find: find a rank or a host
n            fleet.next          match(1)     next: the next row that was searched for
N            fleet.previous      match(-1)    previous: the one before
= rows.copy rows.copy-all
escape       fleet.clear         back         back: stop reading; else forget the search, the marks, the group
""")

HINTS = parse_hints(
    "? = help; q = quit; enter = open; tab = list; m = measure; g = group; J K = entry; / = find; space = mark; w s = "
    "cells; n N = matches; y Y = copy"
)

GUIDE = Guide(
    "All ranks of a job",
    (
        ("map", "a row for each rank, or (g) for each host, DP, TP, PP or EP position: then its worst rank"),
        ("· ░ ▒ ▓ █", "from usual to far off; the line below the map has the limits. A blank: no such step"),
        ("▶ ▼ *", "the row and the step of the cursor; marked ranks, which enter opens together"),
        ("lateness", "by how much later than the median rank it comes to the collectives, as a share of the step"),
        ("GPU, CPU", "the time of the same kernels or ops over the median rank's: 1.30 × is 30 % slower"),
        ("waits", "who came last to collectives, how long the others waited, and which of them longest"),
        ("what if", "the step time if those ranks were as fast as the median of the others"),
        ("speed", "kernels and ops of the ranks under the cursor; ▲ slower than on the median rank"),
    ),
    ("collective", "exposed"),
)
