"""The kernels of one Metal file, and the code of one kernel for the CPU with values that stand for a program's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from silo.core.config import Config
from silo.core.device import Target
from silo.core.signature import ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.drivers.cpu.levels import host_target
from silo.emulation.clang import find_clang
from silo.errors import SiloError
from silo.frozen import replace
from silo.kinds.metal.compile_job import compile_job, emulator_identity
from silo.kinds.metal.front.metal_source import MetalSource, metal
from silo.kinds.metal.front.parser import MslText, parse_metal
from silo.kinds.metal.front.preprocessor import makes_kernels, preprocess
from silo.kinds.metal.metal_declaration import EMULATOR
from silo.kinds.metal.metal_job import lowered_job

__all__ = ["ReadFile", "chosen_kernels", "compiled", "constants_of", "read"]

GROUP = 32
GROUP_MEMORY = 8192


@dataclass(frozen=True)
class ReadFile:
    """One file. ``text`` is None if it was refused, with ``reason``."""

    path: Path
    include: tuple[Path, ...]
    text: MslText | None
    reason: str = ""


def read(path: Path, include: tuple[Path, ...]) -> ReadFile:
    """Reads a file as ``silo.metal`` does."""
    try:
        text = path.read_text()
        if include or makes_kernels(text):
            text = preprocess(text, path.name, [path.parent, *include])
        return ReadFile(path, include, parse_metal(text, path.name))
    except SiloError as error:
        return ReadFile(path, include, None, str(error))


def chosen_kernels(text: MslText, most: int) -> list[str]:
    """Returns the first kernel of each function and of each template, then others, evenly spread: ``most`` at most."""
    first: dict[str, str] = {}
    for one in text.kernels:
        first.setdefault(one.function.partition("<")[0], one.name)
    names = list(first.values())
    step = max(1, len(names) // max(1, most))
    return names[::step][:most]


def constants_of(text: MslText, given: Mapping[str, int | float | bool] = {}) -> dict[str, int | float | bool]:
    """Returns a value for each function constant: the given one, else false or 1."""
    return {one.name: given.get(one.name, False if one.type == "bool" else 1) for one in text.constants}


def compiled(file: ReadFile, kernel: str) -> str:
    """Compiles one kernel for this CPU. Returns "" or the reason of the refusal."""
    assert file.text is not None
    chosen = next(one for one in file.text.kernels if one.name == kernel)
    memory = {one.name: GROUP_MEMORY // 2 for one in chosen.parameters if one.attribute == "threadgroup"}
    try:
        made = metal(
            file.path,
            kernel=kernel,
            include=list(file.include),
            constants=constants_of(file.text),
            group_size=chosen.group or GROUP,
            threadgroup_bytes=memory or None,
        )
        job = lowered_job(made.source, _variant(made.source)).to_job(kernel, host_target())
        clang = find_clang()
        compile_job(job, clang, emulator_identity(job.target, clang, EMULATOR.code))
    except SiloError as error:
        return str(error)
    return ""


def _variant(source: MetalSource) -> Variant:
    """A variant whose arrays have the dtypes of the text, or bytes if the text has a struct."""
    parameters = [
        replace(one, dtype=dtype("uint8")) if one.kind is ParameterKind.POINTER else one
        for one in source.signature.parameters
    ]
    target: Target = host_target()
    return Variant(
        kernel="file",
        source="",
        signature=Signature(tuple(parameters)),
        specialization=Specialization((), ()),
        config=Config((), ()),
        target=target,
    )
