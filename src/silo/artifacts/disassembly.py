"""Machine code as text, by installed disassemblers: on PATH, in usual folders, or inside of packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from silo.errors import ToolchainError

__all__ = ["DISASSEMBLED", "BroughtTools", "disassemble"]


@dataclass(frozen=True, slots=True)
class BroughtTools:
    """Programs inside of an installed package: the kinds of blobs they read, their folders, the package in words."""

    kinds: tuple[str, ...]
    folders: tuple[str, ...]
    package: str


@dataclass(frozen=True, slots=True)
class _Tool:
    """A disassembler: its command without the file, folders besides PATH to look in, how to install it."""

    name: str
    arguments: tuple[str, ...]
    install: str
    folders: tuple[str, ...] = ()

    def find(self, brought: Sequence[str]) -> str | None:
        """The path of the program, or None."""
        return shutil.which(self.name) or shutil.which(self.name, path=os.pathsep.join((*self.folders, *brought)))


_CUDA = "it is in the CUDA toolkit"
_LLVM = "install an LLVM that knows the target (Debian, Ubuntu: apt-get install llvm), or ROCm for amdgcn"
_TOOLS = {
    "cubin": (
        _Tool("nvdisasm", ("-c",), _CUDA, ("/usr/local/cuda/bin",)),
        _Tool("cuobjdump", ("-sass",), _CUDA, ("/usr/local/cuda/bin",)),
    ),
    "hsaco": (_Tool("llvm-objdump", ("-d",), _LLVM, ("/opt/rocm/llvm/bin",)),),
    "so": (
        _Tool("objdump", ("-d", "--no-show-raw-insn"), "install binutils (Debian, Ubuntu: apt-get install binutils)"),
        _Tool("llvm-objdump", ("-d", "--no-show-raw-insn"), _LLVM),
    ),
}

# The name of each kind of blob's text.
DISASSEMBLED = {"cubin": "sass", "hsaco": "amdgcn", "so": "asm"}


def disassemble(data: bytes, kind: str, brought: Sequence[BroughtTools] = ()) -> str:
    """The instructions of a blob of kind ``cubin``, ``hsaco`` or ``so``; ``brought`` are further folders to search.

    Raises:
        ToolchainError: without a disassembler, or if all fail; names the package to install.
    """
    problems: list[str] = []
    fitting = [one for one in brought if kind in one.kinds]
    folders = [folder for one in fitting for folder in one.folders]
    also = "".join(f" and in {one.package}" for one in fitting)
    for tool in _TOOLS[kind]:
        place = tool.find(folders)
        if place is None:
            problems.append(f"{tool.name} is not on PATH: {tool.install}{also}")
            continue
        with tempfile.TemporaryDirectory(prefix="silo-") as folder:
            file = Path(folder, f"kernel.{kind}")
            file.write_bytes(data)
            try:
                done = subprocess.run([place, *tool.arguments, str(file)], capture_output=True, check=False, cwd=folder)
            except OSError as error:
                problems.append(f"{place} does not run: {error}")
                continue
        if done.returncode == 0:
            return done.stdout.decode(errors="replace").replace(str(file), file.name)
        message = done.stderr.decode(errors="replace").replace(str(file), file.name).strip()[:300]
        problems.append(f"{place} refuses it ({message}): {tool.install}{also}")
    raise ToolchainError(f"the {kind} cannot be disassembled to {DISASSEMBLED[kind]}: {'; '.join(problems)}")
