"""Start profiling runs from the viewer, follow their status, and read what they saved.

The recorder is the package `torchprof_runs`. It runs under the user's interpreter in a process of its own and is known
here only by its path: neither it nor torch is imported.

====================  ==========================================================================
`recording_request`   what the user wants to record → the command that records it
`status_channel`      status messages of a run while it goes on
`recording_process`   a run in a pseudo-terminal of its own, for the screen that shows it
`run_result`          what a run saved, read from its folder, and the types of the files there
`history`             earlier runs and their requests, so that they can be repeated
`request_signature`   whether this user made a request, so that it may be repeated at one key
====================  ==========================================================================
"""
