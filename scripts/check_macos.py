"""Checks that libsilo and the Python module compile and link for macOS. Zig has Apple's headers.

``python -m ziglang`` is the compiler (``ensure_zig`` of ``environment.sh`` installs it). Nothing is run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NATIVE = Path(__file__).resolve().parent.parent / "native"
ZIG = (sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-macos")
# The flags of setup.py, without those that only affect the generated code.
FLAGS = ("-std=c11", "-O0", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE=1", "-DPy_LIMITED_API=0x030b0000")


def run(*words: str | Path) -> str:
    """Run the compiler; return its messages if it fails, else ""."""
    done = subprocess.run([*ZIG, *map(str, words)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def compile_part(part: str, made: Path) -> tuple[list[Path], list[str]]:
    """Compile the files of a folder; return the object files and the messages of files that fail."""
    include = f"-I{sysconfig.get_paths()['include']}"
    sources = sorted((NATIVE / part).glob("*.c"))
    objects = [made / f"{part}_{source.stem}.o" for source in sources]

    def one(source: Path, target: Path) -> str:
        return run(*FLAGS, f"-I{NATIVE / 'core'}", include, "-c", source, "-o", target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return objects, [message for message in pool.map(one, sources, objects) if message]


def main() -> int:
    """Compile and link; return 1 if anything fails."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        core, messages = compile_part("core", made)
        module, more = compile_part("python", made)
        messages += more
        if not messages:
            messages = [
                run("-shared", *core, "-o", made / "libsilo.dylib"),
                run("-shared", *core, *module, "-undefined", "dynamic_lookup", "-o", made / "_native.so"),
            ]
    text = "\n".join(filter(None, messages))
    print(text, end="", file=sys.stderr)
    return int(bool(text))


if __name__ == "__main__":
    raise SystemExit(main())
