"""Decode copies and fills: `Memcpy HtoD (Pinned -> Device)`, `Memset (Device)`, `CopyDeviceToHost` of ROCm."""

from __future__ import annotations

from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName
from torchprof_tui.trace.core.late_regex import compile_later

_MEMCPY = compile_later(r"Memcpy (?P<way>[HDP]to[HDP])(?: \((?P<source>[\w ]+?) -> (?P<target>[\w ]+?)\))?")
_ROCM_COPY = compile_later(r"Copy(?P<source>Host|Device)To(?P<target>Host|Device)")
_TO_DEVICE = compile_later(r"HtoD|Host ?(->|To) ?Device")
_TO_HOST = compile_later(r"DtoH|Device ?(->|To) ?Host")
_WITHIN_DEVICE = compile_later(r"(?!.*PtoP).*(DtoD|D2D|Device ?(->|To) ?Device)")
_COPY_ENDS = {"H": "host", "D": "device", "P": "peer device"}
_COPY_END_LETTERS = {"host": "H", "device": "D"}


def is_to_device(name: str) -> bool:
    """Return whether a copy goes from the host to a device, by its name."""
    return _TO_DEVICE.search(name) is not None


def is_to_host(name: str) -> bool:
    """Return whether a copy goes from a device to the host, by its name."""
    return _TO_HOST.search(name) is not None


def is_host_copy(name: str) -> bool:
    """Return whether a copy goes to the host or comes from there, by its name."""
    return is_to_device(name) or is_to_host(name)


def is_within_device(name: str) -> bool:
    """Return whether a copy goes from a device to itself, by its name."""
    return _WITHIN_DEVICE.match(name) is not None


def is_pageable(name: str) -> bool:
    """Return whether a copy's name says that its host memory is pageable. ROCm's names do not say."""
    return "Pageable" in name


def is_pinned(name: str) -> bool:
    """Return whether a copy's name says that its host memory is pinned. ROCm's names do not say."""
    return "Pinned" in name


def decode_copy(name: str, parsed: QualifiedName) -> KernelName | None:
    """Decode a copy or fill; None for any other name."""
    del parsed
    match = _MEMCPY.match(name)
    if match:
        source, target = _COPY_ENDS[match["way"][0]], _COPY_ENDS[match["way"][-1]]
        host_kinds = [word for word in (match["source"], match["target"]) if word and word != "Device"]
        details = tuple(("host memory", word.lower()) for word in host_kinds[:1] if word in ("Pinned", "Pageable"))
        return _build_copy(name, source, target, match["way"], details)
    match = _ROCM_COPY.match(name)
    if match:
        source, target = match["source"].lower(), match["target"].lower()
        return _build_copy(name, source, target, f"{_COPY_END_LETTERS[source]}to{_COPY_END_LETTERS[target]}", ())
    if name == "dma_request":
        text = "copies between host and device"
        return KernelName(name, KernelClass.MEMORY, True, "memcpy", "MTIA", display="dma", summary=text)
    if name.startswith(("Memset", "FillBuffer")):
        text = "fills device memory with one value"
        return KernelName(name, KernelClass.MEMORY, True, "memset", display="memset", summary=text)
    return None


def _build_copy(name: str, source: str, target: str, way: str, details: tuple[tuple[str, str], ...]) -> KernelName:
    host_memory = f", {details[0][1]}" if details else ""
    return KernelName(
        name,
        KernelClass.MEMORY,
        family="memcpy",
        direction=f"{source} to {target}",
        display=f"memcpy {way}",
        summary=f"copies from {source} to {target}{host_memory}",
        details=details,
    )
