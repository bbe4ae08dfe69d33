"""Compile ``native/gpu/plan_update.cu`` into ``native/core/plan_update_code.h``; needs nvcc of CUDA 13, and no GPU.

``python scripts/plan_updater.py FOLDER`` takes nvcc and nvlink from ``FOLDER/bin``: a toolkit, or where the wheels
``nvidia-cuda-nvcc``, ``nvidia-cuda-crt``, ``nvidia-nvvm``, ``nvidia-cuda-runtime`` and ``nvidia-cuda-cccl`` are
unpacked (``nvidia/cu13``). ``--check`` only compares the header with a new one.

The functions that the kernel calls (``cudaGraphKernelNodeSetParam`` and its like) are part of the driver, which links
them when it loads the code. nvlink is given libcudadevrt and takes nothing from it; NVIDIA's licence (CUDA EULA,
Attachment A) would allow it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "native" / "gpu" / "plan_update.cu"
SHARED = ROOT / "native" / "core" / "plan_block.h"
HEADER = ROOT / "native" / "core" / "plan_update_code.h"

ARCHITECTURES = (90, 100, 120)
PTX_ARCHITECTURE = 75
# Drivers of CUDA 12.4, the first that support device-updatable nodes, read this version; the kernel uses nothing newer.
PTX_VERSION = "8.0"
_ROW = 200


class Toolkit:
    """nvcc and nvlink of one folder, run in a folder of their own so that no path of the machine enters the code."""

    def __init__(self, folder: Path, work: Path) -> None:
        self._folder, self._work = folder, work
        for path in (SOURCE, SHARED):
            copy = work / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
        (work / "toolkit").symlink_to(folder)

    def run(self, tool: str, *arguments: str) -> str:
        """Run ``bin/tool``; returns its output, or raises SystemExit with what it wrote."""
        path = os.pathsep.join([f"{self._folder}/bin", f"{self._folder}/nvvm/bin", os.environ.get("PATH", "")])
        command = [str(self._folder / "bin" / tool), *arguments]
        done = subprocess.run(
            command, cwd=self._work, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def compile(self, *arguments: str, output: str) -> bytes:
        """Compile the updater with these arguments of nvcc; return the contents of ``output``."""
        common = ("-rdc=true", "-O2", "-std=c++17", "-Itoolkit/include")
        self.run("nvcc", *common, *arguments, str(SOURCE.relative_to(ROOT)), "-o", output)
        return (self._work / output).read_bytes()

    def cubin(self, architecture: int) -> bytes:
        """Return the linked code for one architecture."""
        self.compile(f"-arch=sm_{architecture}", "-cubin", output="updater.o")
        devrt = ("-Ltoolkit/lib", "-Ltoolkit/lib64", "-lcudadevrt")
        self.run("nvlink", f"-arch=sm_{architecture}", "updater.o", *devrt, "-o", "updater.cubin")
        return (self._work / "updater.cubin").read_bytes()

    def ptx(self) -> str:
        """Return the PTX for the driver's compiler, without comments; ptxas has accepted it at the older version."""
        made = self.compile(f"-arch=compute_{PTX_ARCHITECTURE}", "-ptx", output="updater.ptx").decode()
        lines = [line.strip() for line in made.splitlines() if line.strip() and not line.strip().startswith("//")]
        text = re.sub(r"^\.version .*$", f".version {PTX_VERSION}", "\n".join(lines), flags=re.MULTILINE) + "\n"
        (self._work / "updater.ptx").write_text(text)
        self.run("ptxas", "-c", f"-arch=sm_{PTX_ARCHITECTURE}", "updater.ptx", "-o", "updater.o")
        return text

    def version(self) -> str:
        """Return the version of nvcc, such as ``13.0.88``."""
        found = re.search(r"V(\d+\.\d+\.\d+)", self.run("nvcc", "--version"))
        if found is None:
            raise SystemExit("nvcc does not state its version")
        return found.group(1)


def _array(name: str, data: bytes) -> str:
    rows = [data[start : start + _ROW] for start in range(0, len(data), _ROW)]
    body = "\n".join("    " + " ".join(f"{byte:d}," for byte in row) for row in rows)
    return f"_Alignas(16) static const uint8_t {name}[] = {{ /* {len(data)} bytes */\n{body}\n}};\n"


def _text(name: str, text: str) -> str:
    lines = "\n".join('    "' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"' for line in text.splitlines())
    return f"static const char {name}[] = /* {len(text)} bytes */\n{lines};\n"


def header(toolkit: Toolkit) -> str:
    """Return the whole text of ``plan_update_code.h``."""
    codes = {number: toolkit.cubin(number) for number in ARCHITECTURES}
    rows = "\n".join(f"    {{{n // 10}, {n % 10}, updater_sm_{n}, sizeof updater_sm_{n}}}," for n in codes)
    return "\n".join(
        [
            f"/* Printed by scripts/plan_updater.py from native/gpu/plan_update.cu, by nvcc {toolkit.version()}. */",
            "/* clang-format off */",
            "#ifndef SILO_PLAN_UPDATE_CODE_H",
            "#define SILO_PLAN_UPDATE_CODE_H",
            "",
            "#include <stddef.h>",
            "#include <stdint.h>",
            "",
            "/* A driver of this version or newer loads the cubins; an older driver can load only the PTX text. */",
            "#define SILO_PLAN_CUBIN_DRIVER 13000",
            "",
            *(_array(f"updater_sm_{number}", data) for number, data in codes.items()),
            "static const struct {",
            "    int major, minor; /* runs on compute capabilities with this major and at least this minor number */",
            "    const uint8_t *code;",
            "    size_t size;",
            "} updater_cubins[] = {",
            rows,
            "};",
            "",
            _text("updater_ptx", toolkit.ptx()),
            "#endif",
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the header, or compare it; return 1 if ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("toolkit", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as work:
        text = header(Toolkit(given.toolkit.resolve(), Path(work)))
    if given.check:
        same = HEADER.read_text() == text
        print(f"{HEADER.name}: {'up to date' if same else 'differs from what the source compiles to'}")
        return 0 if same else 1
    HEADER.write_text(text)
    print(f"{HEADER.name}: {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
