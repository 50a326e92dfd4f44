"""Text for beginners beside the list of traces: what the program does, how to record, and the first keys."""

from __future__ import annotations

from textual.content import Content

GUIDE = Content.from_markup("""\
[b]What this does[/b]
Opens traces that torch.profiler recorded, and shows the
ops, launches and kernels of each training step.

[b]Record your own loop in one line[/b], from a shell
  torchprof-tui run python train.py
It records three steps and opens them; [b]R[/b] does it from here.
For code that you cannot start this way:
  with torch.profiler.profile() as prof:
      train_step(batch)
  prof.export_chrome_trace("trace.json.gz")

[b]New here?[/b] Open the first sample with [b]enter[/b], then
  [b]d a[/b]     pan               [b]w s[/b]    zoom in, out
  [b]← →[/b]     next event        [b]↑ ↓[/b]    parent, child
  [b]][/b]       from a launch to its kernel, [b]\\[[/b] back
  [b]} {[/b]     next, previous step
  [b]f[/b]       fit the event on screen, [b]0[/b] everything
  [b]/[/b]       search, then [b]n N[/b]
  [b]c l k t[/b] cheatsheet, chain, kernel, table
  [b]?[/b]       every key      [b]ctrl+p[/b]  every command

[b]Without this screen[/b]
  torchprof-tui info trace.json.gz --json
  torchprof-tui check trace.json.gz
  torchprof-tui snapshot trace.json.gz -o picture.svg
""")
