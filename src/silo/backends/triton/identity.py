"""What decides the bytes that Triton's back end makes, found without importing Triton or hashing its libraries."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata

from silo.core.target import Target
from silo.core.values import canonical_json
from silo.settings import child_environment
from silo.sources.triton.adapter import require_triton

__all__ = ["PLUGIN_SCHEMA", "compiler_identity"]

# Raised whenever this plug-in would make another artifact from the same job.
PLUGIN_SCHEMA = 1

# Where variables that change Triton's code generation start; and those among them that do not.
_PREFIXES = ("TRITON_", "AMDGCN_", "PTXAS_", "DISABLE_PTXAS_OPT", "DISABLE_LLVM_OPT", "LLVM_", "MLIR_", "NVPTX_")
_WITHOUT_EFFECT = frozenset(
    {
        "TRITON_ALWAYS_COMPILE",
        "TRITON_CACHE_AUTOTUNING",
        "TRITON_CACHE_DIR",
        "TRITON_CACHE_MANAGER",
        "TRITON_DISABLE_LINE_INFO",
        "TRITON_DUMP_DIR",
        "TRITON_HOME",
        "TRITON_INTERPRET",
        "TRITON_KERNEL_DUMP",
        "TRITON_PRINT_AUTOTUNING",
        "TRITON_STORE_BINARY_ONLY",
    }
)


def compiler_identity(target: Target, *, force: bool = False) -> str:
    """One line: version of Triton, digest of the files it was installed with, this plug-in's schema, environment.

    ptxas, libdevice and AMD's LLVM come inside Triton's distribution, whose RECORD lists the sha256 of each file. The
    target's kind says which of them matter, and jobs carry the target themselves.

    Raises:
        ToolchainError: no usable Triton.
    """
    version = require_triton(force=force)
    line = f"triton {version} files {_installed_files()} {target.kind} silo-triton {PLUGIN_SCHEMA}"
    environment = _relevant(child_environment())
    if environment:
        line += f" env {hashlib.sha256(canonical_json(environment)).hexdigest()[:16]}"
    return line


@lru_cache(maxsize=1)
def _installed_files() -> str:
    """A digest of the digests that the installer recorded."""
    record = metadata.distribution("triton").read_text("RECORD")
    if record is None:
        return "unrecorded"
    rows = sorted((row[0], row[1]) for row in csv.reader(record.splitlines()) if len(row) == 3 and row[1])
    # Scripts and the installer's own notes differ between installations of one and the same wheel.
    relevant = [row for row in rows if row[0].startswith("triton/")]
    return hashlib.sha256(canonical_json(relevant)).hexdigest()[:16]


def _relevant(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environment.items() if name.startswith(_PREFIXES) and name not in _WITHOUT_EFFECT
    }
