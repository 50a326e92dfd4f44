"""What runs on the host of a job: standard library only, Python 3.8 and later, so that it can be sent over ssh.

=============  ==========================================================================================
`processes`    list the user's processes that use torch: rank, command, ways in
`gpu_use`      memory and load of GPUs per process, by NVML
`fabric`       Kineto's IPC fabric: the socket on which profilers ask for work
`trace_file`   what a recorded file holds, and the rank that is written into it
`servers`      the endpoints of vLLM and SGLang, dynolog's command
`in_process`   SIGUSR2, and `sys.remote_exec` of Python 3.14
`hang_dump`    since when a process makes no progress, and what it waits for
`agent`        takes requests as JSON lines and answers with events
=============  ==========================================================================================
"""
