"""Converts machine code to text by a disassembler: one on PATH, in a usual folder, or in an installed package."""

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
    """An installed package with disassemblers.

    ``kinds`` are the kinds of blobs that the disassemblers read, ``folders`` the folders that hold the disassemblers,
    and ``package`` is the package's name.
    """

    kinds: tuple[str, ...]
    folders: tuple[str, ...]
    package: str


@dataclass(frozen=True, slots=True)
class _Tool:
    """A disassembler: its command without the file, how to install it, and folders to look in besides PATH."""

    name: str
    arguments: tuple[str, ...]
    install: str
    folders: tuple[str, ...] = ()

    def find(self, further_folders: Sequence[str]) -> str | None:
        """Returns the path of the program, or None; ``further_folders`` are further folders to look in."""
        return shutil.which(self.name) or shutil.which(
            self.name, path=os.pathsep.join((*self.folders, *further_folders))
        )


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

# The name of the assembly language that each kind of blob is disassembled to.
DISASSEMBLED = {"cubin": "sass", "hsaco": "amdgcn", "so": "asm"}


def disassemble(data: bytes, kind: str, own_tools: Sequence[BroughtTools] = ()) -> str:
    """Returns the instructions of a blob of kind ``cubin``, ``hsaco`` or ``so``.

    ``own_tools`` are further packages in which disassemblers are looked for.

    Raises:
        ToolchainError: no disassembler was found, or all failed. The message names the package to install.
    """
    problems: list[str] = []
    fitting = [tools for tools in own_tools if kind in tools.kinds]
    folders = [folder for tools in fitting for folder in tools.folders]
    also = "".join(f" and in {tools.package}" for tools in fitting)
    for tool in _TOOLS[kind]:
        program = tool.find(folders)
        if program is None:
            problems.append(f"{tool.name} is not on PATH: {tool.install}{also}")
            continue
        with tempfile.TemporaryDirectory(prefix="silo-") as folder:
            file = Path(folder, f"kernel.{kind}")
            file.write_bytes(data)
            try:
                done = subprocess.run(
                    [program, *tool.arguments, str(file)], capture_output=True, check=False, cwd=folder
                )
            except OSError as error:
                problems.append(f"{program} does not run: {error}")
                continue
        if done.returncode == 0:
            return done.stdout.decode(errors="replace").replace(str(file), file.name)
        message = done.stderr.decode(errors="replace").replace(str(file), file.name).strip()[:300]
        problems.append(f"{program} refuses it ({message}): {tool.install}{also}")
    raise ToolchainError(f"the {kind} cannot be disassembled to {DISASSEMBLED[kind]}: {'; '.join(problems)}")
