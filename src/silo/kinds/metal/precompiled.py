"""Metal's library as clang reads it fastest: headers compiled beforehand, kept in the store."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from silo.compile.c_compiler import CCompiler
from silo.compile.compiler_process import run_compiler
from silo.core.notices import Notices
from silo.core.values import digest
from silo.forks import Mutex
from silo.kinds.metal.runtime import FOLDER
from silo.settings import child_environment, settings
from silo.store.atomic_files import publish
from silo.store.privacy import private_size
from silo.temporary import own_folder

__all__ = ["precompiled_header"]

# Clang knows a header that was read already by its size and its time; copies of one text, as each installation
# makes them, have other times. Without times, "#pragma once" holds in them too (clang's HeaderFileInfoTrait).
_NO_TIMES = ("-Xclang", "-fno-pch-timestamp")

_lock = Mutex()
_notices = Notices()


@cache
def _content(folder: Path) -> str:
    state = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in (".pyc", ".py"):
            state.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return state.hexdigest()


def _tell(folder: Path, reason: str) -> None:
    told = (
        f"Metal's headers cannot be kept compiled in {folder} ({reason}): every Metal kernel takes a second longer to "
        "compile for the CPU"
    )
    _notices.once(told, told)


def precompiled_header(clang: CCompiler, flags: tuple[str, ...], folders: tuple[Path, ...] = (FOLDER,)) -> Path | None:
    """``<metal_stdlib>`` compiled with these flags; made where it is not there yet.

    None where it cannot be kept, which is said once: the text itself includes the header, so it is right without.

    Args:
        clang: which compiles.
        flags: as the kernel's text is compiled, which has to be the same.
        folders: where headers come from, whose contents decide.
    """
    parts = [clang.version, [*flags], [[str(one), _content(one)] for one in folders]]
    folder = settings().store_folder / "headers"
    path = folder / f"{digest('metal-header/2', parts)}.pch"
    with _lock:
        if private_size(path) is not None:
            return path
        with own_folder("silo-pch-") as made:
            output = Path(made, "header.pch")
            command = [*clang.command, *flags, *_NO_TIMES, "-x", "c++-header", str(FOLDER / "metal_stdlib")]
            command += ["-o", str(output)]
            done = run_compiler(command, env=child_environment(LC_ALL="C", TMPDIR=made))
            if done.returncode != 0:
                _tell(folder, done.stderr.decode(errors="replace").strip()[:300])
                return None
            try:
                publish(path, output.read_bytes())
            except OSError as error:
                _tell(folder, str(error))
                return None
    if private_size(path) is None:
        _tell(folder, "others may write it")
        return None
    return path
