"""A compile job of Pallas: the bytes of the exported program, without paths, and the other inputs of a worker."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any

from silo.core.device import Target
from silo.core.json_reader import read_list, read_natural, read_object, read_text
from silo.core.values import JSON
from silo.core.variant import CompileJob
from silo.errors import CompileError, SiloError
from silo.frozen import frozen, names_of
from silo.kinds.pallas.chips import INTERPRETED_CHIP, chip_named
from silo.kinds.pallas.front.pallas_installation import FRONT_END, jax_module, jax_version
from silo.kinds.pallas.gpu_program import on_gpu
from silo.kinds.pallas.memory_estimate import MemoryReport
from silo.kinds.pallas.pallas_declaration import PALLAS
from silo.kinds.pallas.pallas_program import PallasProgram

__all__ = ["PallasJob", "export_program", "held_settings", "on_chip"]

# ---- The job ----


@frozen
class PallasJob:
    """The inputs of a worker. The worker needs no source of the author: the program is exported when the job is made.

    ``program`` is the result of ``jax.export``, serialized; it is the job's text, in base64. ``jax`` is the version of
    jax that made it and ``calling_convention`` the version of its calling convention. ``plan`` is the canonical form of
    a :class:`silo.kinds.pallas.call_plan.CallLayout`. ``memory`` is the canonical form of the estimate for the target's
    chip, None for other targets. ``parameters`` are the names of the kernel's parameters, constants included.
    """

    program: bytes
    jax: str
    calling_convention: int
    plan: JSON
    memory: JSON = None
    parameters: tuple[str, ...] = ()

    @property
    def memory_table(self) -> str:
        """The estimated memory of each argument, as a table; "" without an estimate."""
        return "" if self.memory is None else MemoryReport.from_json(self.memory).table()

    def to_job(self, kernel: str, target: Target) -> CompileJob:
        """Returns the job for a worker."""
        parameters: dict[str, JSON] = {
            "jax": self.jax,
            "calling_convention": self.calling_convention,
            "plan": self.plan,
            "memory": self.memory,
            "parameters": list(self.parameters),
        }
        return CompileJob(PALLAS.name, kernel, target, base64.b64encode(self.program).decode("ascii"), parameters)

    @classmethod
    def from_job(cls, job: CompileJob) -> PallasJob:
        """Returns the :class:`PallasJob` in a job. Raises CompileError if the job is another compiler's, or damaged."""
        try:
            names = tuple(name for name in names_of(cls) if name != "program")
            data = read_object(job.parameters, names, "the parameters of the job")
            return cls(
                program=base64.b64decode(job.text, validate=True),
                jax=read_text(data["jax"], "a version"),
                calling_convention=read_natural(data["calling_convention"], "a calling convention"),
                plan=data["plan"],
                memory=data["memory"],
                parameters=tuple(
                    read_text(item, "a parameter")
                    for item in read_list(data["parameters"], "the parameters of a kernel")
                ),
            )
        except (TypeError, KeyError, ValueError, binascii.Error) as error:
            raise CompileError(f"{job.kernel}: the job is no Pallas job: {error}") from error


# ---- Exporting a program of jax: bytes without paths, equal on every machine ----


def export_program(
    program: PallasProgram, target: Target, kernel: str, check: Callable[[Any], None] | None = None
) -> tuple[bytes, int]:
    """Returns the program for one target, serialized, and the version of its calling convention.

    Traces the author's body. ``check`` gets the traced jaxpr before it is lowered, and may raise an error of Silo to
    refuse it. Raises CompileError if jax refuses the kernel; ToolchainError if jax is missing or of an unsupported
    version.
    """
    jax, export = jax_module(), jax_module("jax.export")
    chip = target.arch if target.kind == "tpu" else INTERPRETED_CHIP
    checks = [export.DisabledSafetyCheck.custom_call(program.custom_call)] if program.custom_call else []
    with held_settings(), on_gpu() if target.kind == "cuda" else on_chip(chip):
        try:
            function = jax.jit(program.function)
            if check is not None:
                check(function.trace(*program.operands).jaxpr)  # not traced twice: jax reuses the trace for the export
            exported = export.export(function, platforms=[target.kind], disabled_checks=checks)(*program.operands)
            return bytes(exported.serialize()), int(exported.calling_convention_version)
        except SiloError:
            raise
        except Exception as error:  # the author's own Python runs here, and may raise anything
            raise CompileError(f"{kernel} for {target}: {diagnosis(error)}{_author_line(error)}") from error


@contextmanager
def on_chip(chip: str) -> Generator[None]:
    """Returns a context in which jax traces for one TPU chip, without needing a TPU."""
    jax = jax_module()
    sharding = jax.sharding
    device = {"device_kind": chip_named(chip).device_kind, "num_cores": 1}
    if "platform" in sharding.AbstractDevice.__init__.__code__.co_varnames:
        device["platform"] = "tpu"
    mesh = sharding.AbstractMesh(
        (1,), ("_",), (sharding.AxisType.Auto,), abstract_device=sharding.AbstractDevice(**device)
    )
    with sharding.use_abstract_mesh(mesh):
        yield


@contextmanager
def held_settings() -> Generator[None]:
    """Returns a context for a trace, with fixed settings of jax, that holds the front end's lock.

    Settings that affect the traced program are the same everywhere, whatever the process has set. Locations are off,
    because they contain paths of files.
    """
    jax = jax_module()
    with FRONT_END, ExitStack() as settings_stack:
        settings_stack.enter_context(jax.enable_x64(False))  # noqa: FBT003  # jax's signature
        settings_stack.enter_context(jax.default_matmul_precision(None))
        settings_stack.enter_context(jax.disable_jit(False))  # noqa: FBT003
        settings_stack.enter_context(jax.debug_nans(False))  # noqa: FBT003
        settings_stack.enter_context(jax.debug_infs(False))  # noqa: FBT003
        settings_stack.enter_context(jax.numpy_dtype_promotion("standard"))
        settings_stack.enter_context(jax.numpy_rank_promotion("allow"))
        settings_stack.enter_context(jax.threefry_partitionable(True))  # noqa: FBT003
        settings_stack.enter_context(jax.default_prng_impl("threefry2x32"))
        # Mosaic GPU adds a line of the author's file even without locations; the regular expression removes the file's
        # name.
        for name, value in (
            ("jax_traceback_in_locations_limit", 0),
            ("jax_hlo_source_file_canonicalization_regex", ".*"),
        ):
            settings_stack.callback(jax.config.update, name, getattr(jax.config, name))
            jax.config.update(name, value)
        yield


def diagnosis(error: BaseException) -> str:
    r"""Returns jax's error message, without its notes about its own traceback.

    >>> diagnosis(ValueError("no such block\n\n\nFor simplicity, JAX has removed its internal frames."))
    'ValueError: no such block'
    """
    lines = [line.rstrip() for line in str(error).splitlines()]
    useful = [line for line in lines if line and not line.startswith(("--------------------", "For simplicity, JAX"))]
    return f"{type(error).__name__}: {chr(10).join(useful)}" if useful else type(error).__name__


def _author_line(error: BaseException) -> str:
    """Returns the author's line at which ``error`` was raised; "" if it is unknown or already in the message."""
    folders = tuple(str(Path(name).parent) for name in (jax_module().__file__, __file__))
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    own = [(name, line) for name, line in frames if not name.startswith((*folders, "<")) and "/jaxlib/" not in name]
    if not own or own[-1][0] in str(error):
        return ""
    file, line = own[-1]
    return f" ({file}:{line}, jax {jax_version()})"
