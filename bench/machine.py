"""Describes the machine that a benchmark ran on, for its JSON file: figures mean nothing without it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """Return the machine's CPU model, features, cores, load, GPU, and the versions of the compiler and of packages."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    wanted = (
        "sse4_2",
        "avx2",
        "fma",
        "avx512f",
        "avx512bw",
        "avx512vl",
        "avx512_bf16",
        "avx512_fp16",
        "amx_bf16",
        "amx_int8",
    )
    flags = set(fields.get("flags", "").split())
    return {
        "cpu": fields.get("model name", platform.machine()),
        "features": [flag for flag in wanted if flag in flags],
        "cores": len(os.sched_getaffinity(0)),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "compiler": _first_line(["cc", "--version"]),
        "packages": {name: _version(name) for name in PACKAGES},
        "gpu": gpu(),
    }


PACKAGES = (
    "kernel-silo",
    "triton",
    "fbtriton",
    "torch",
    "numpy",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "cuda-core",
    "cuda-bindings",
    "apache-tvm-ffi",
)


def gpu() -> dict[str, str]:
    """Return name, driver and clocks of the first NVIDIA GPU from ``nvidia-smi``; empty without a GPU."""
    fields = ("name", "driver_version", "clocks.sm", "clocks.max.sm", "persistence_mode", "power.limit")
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return {}
    values = [value.strip() for value in lines[0].split(",")] if lines else []
    return {**dict(zip(fields, values, strict=False)), "count": str(len(lines))} if lines else {}


def save(path: Path, machine: dict[str, object], document: dict[str, object]) -> None:
    """Write results as JSON with the machine that they were measured on; lists of numbers stay on one line."""
    text = json.dumps({"machine": machine, **document}, indent=1)
    text = re.sub(r"\[\s+[-+.\deE,\s]+\]", lambda found: " ".join(found[0].split()), text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def _first_line(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError) as error:
        return f"unknown: {error}"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"
