"""Act as the profiler of a torch program does on Kineto's IPC fabric: ``python fake_kineto.py FOLDER TRACE [MODE]``

Asks the socket FOLDER/dynolog every 50 ms, and writes TRACE where it is told to. It maps a file that is called
libtorch_cpu.so, by which `attach` knows programs that use torch. MODE: `slow` counts no iterations, `full` stops in the
middle of a file, `exit` ends when it is asked, `late` sleeps after its question. Each answer is a line on stdout.
"""

from __future__ import annotations

import mmap
import os
import shutil
import socket
import struct
import sys
import time

HEADER = struct.Struct("=Q32s")


def ask(client: socket.socket, server: str, is_free: bool = True) -> str | None:
    """Ask what to record; None without an answer within 50 ms, as Kineto."""
    body = struct.pack("=iiqii", 3 if is_free else 1, 2, 0, os.getpid(), os.getppid())
    try:
        client.sendto(HEADER.pack(len(body), b"req") + body, server)
        answer = client.recv(1 << 16)
    except OSError:
        return None
    size, kind = HEADER.unpack_from(answer)
    assert kind.startswith(b"req\0")
    assert size == len(answer) - HEADER.size
    return answer[HEADER.size :].decode()


def record(config: str, trace: str, mode: str) -> None:
    """Write a trace as Kineto does: NAME_PID.json.tmp first."""
    lines = dict(line.split("=", 1) for line in config.splitlines())
    path = f"{lines['ACTIVITIES_LOG_FILE'].removesuffix('.json')}_{os.getpid()}.json"
    if mode == "slow":
        return
    if mode == "exit":
        os._exit(0)
    shutil.copyfile(trace, f"{path}.tmp")
    if mode == "full":
        os.truncate(f"{path}.tmp", 1000)
        return
    os.replace(f"{path}.tmp", path)


def main() -> None:
    folder, trace, mode = [*sys.argv[1:], ""][:3]
    library = os.path.join(folder, "libtorch_cpu.so")
    with open(library, "wb") as file:
        file.write(b"\0" * 4096)
    with open(library, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    client.bind(f"{folder}/dynoconfigclient{os.getpid()}")
    client.settimeout(0.05)
    print("ready", flush=True)
    while not mapped.closed:
        config = ask(client, f"{folder}/dynolog")
        if config:
            print(config.replace("\n", ";"), flush=True)
            record(config, trace, mode)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
