"""Starting profiling runs from here: what is run, what it says meanwhile, what it kept.

The recording itself is `profiler_runs`, which runs under the user's interpreter in a process of its own and is known
here by its path alone: neither it nor torch is imported.

===========  =========================================================================
`request`    what the user asks for → the command that records it, or why it cannot be
`channel`    what the run says while it goes on
`recording`  a run in a terminal of its own, for the screen that shows it
`result`     what it kept, read from its folder
`past`       runs of before, and asking for them again
===========  =========================================================================
"""
