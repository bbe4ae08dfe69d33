"""The stages of Triton's compile pipeline on the CPU: TTIR, C text, shared object.

Importing this module loads no compiler, because kernels whose code is stored need none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from silo.checking.kernel import NativeKernel
from silo.compile.c_compiler import CCompiler, find_compiler
from silo.core.device import Target
from silo.core.launch_info import LayoutSlot
from silo.drivers.cpu.levels import host_target, level_of
from silo.errors import CompileError, SourceError
from silo.kinds.triton.cpu.checking.checked_code import compile_checked
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.cpu_identity import compiler_identity
from silo.kinds.triton.cpu.cpu_jobs import EmittedJob, emit_job, make_job, module_layout
from silo.kinds.triton.cpu.object_build import build_kernel
from silo.kinds.triton.front.adapter import CpuFrontEnd, cpu_target, read_off, run_cpu_passes
from silo.kinds.triton.front.adapter.triton_toolchain import module
from silo.kinds.triton.front.ssa_facts import argument_effects
from silo.kinds.triton.front.ttir import parse_ttir
from silo.kinds.triton.programs.backend.launch_metadata import CHECKED, EFFECTS, LAUNCH, METADATA
from silo.settings import settings
from silo.status_line import SLOW_S, announce, working

__all__ = ["CpuStages", "compile_check", "concrete_target", "front_end", "parse_options"]


# ---- The members of a backend that Triton reads before it compiles anything ----


def concrete_target(target: Any) -> Target:  # noqa: ANN401  # Triton's
    """Converts one of Triton's target objects to Silo's target.

    If Triton's object has no arch, as when torch makes it, the result is this machine's level.
    """
    return Target("cpu", target.arch) if target.arch else host_target()


def front_end(target: Any) -> CpuFrontEnd:  # noqa: ANN401  # Triton's
    """The front end for one of Triton's targets. Raises ``TargetError`` if the target names no CPU level."""
    concrete = concrete_target(target)
    level_of(concrete)
    return CpuFrontEnd(cpu_target(concrete))


def parse_options(front: CpuFrontEnd, options: Mapping[str, Any]) -> Any:  # noqa: ANN401  # the front end's
    """Parses options as the front end does.

    With ``SILO_CHECK=1``, assertions stay and Triton's overflow checks are left out.
    """
    checked = {"debug": True, "sanitize_overflow": False} if settings().check else {}
    return front.parse_options({**options, **checked})


# ---- The stages of Triton's compile pipeline on the CPU ----


class CpuStages:
    """Compiles for one target; it has the methods of Triton's backends without their base class."""

    def __init__(self, target: Any) -> None:  # noqa: ANN401  # Triton's GPUTarget
        self.target = concrete_target(target)
        self._level = level_of(self.target)

    def identity(self) -> str:
        """This compiler's part of the key in Triton's cache.

        Raises:
            CompilerMissingError: no usable C compiler.
        """
        checked = " checked" if settings().check else ""
        return f"silo {self.target} {compiler_identity(self._level, _toolchain())}{checked}"

    def add(self, stages: dict[str, Any], options: Any, language: Any) -> None:  # noqa: ANN401
        """Adds the stages to ``stages`` in order, by the endings of the files that Triton keeps.

        Raises:
            SourceError: the kernel is a Gluon kernel, or Triton is set to keep only binaries of GPUs.
        """
        if getattr(language, "name", "TRITON") != "TRITON":
            raise SourceError("this is a Gluon kernel, which is written for one GPU; the CPU takes the Triton language")
        if module("triton.knobs").compilation.store_binary_only:
            raise SourceError("TRITON_STORE_BINARY_ONLY keeps only binaries of GPUs: unset it to run on the CPU")
        emitted: list[EmittedJob] = []
        names: list[str] = []
        begin = time.monotonic()  # the time at which the front end begins: Triton runs it after this method

        def ttir(module: Any, metadata: dict[str, Any]) -> Any:  # noqa: ANN401
            metadata.update(METADATA)
            run_cpu_passes(module)
            return module

        def c_text(module: Any, metadata: dict[str, Any]) -> str:  # noqa: ANN401
            name = str(module.get_entry_func_name())
            chosen = CpuOptions(
                vector_bits=self._level.vector_bits,
                fp_contract=options.enable_fp_fusion,
                cooperative=bool(options.launch_cooperative_grid),
                launch_atomics=bool(options.cpu_launch_atomics),
                elements_apart=bool(options.cpu_elements_apart),
            )
            text = read_off(module)
            job = make_job(name, self.target, text, parse_ttir(text.text), module_layout, chosen)
            names.append(name)
            with working(f"compiling {name} for {self.target}"):
                emitted.append(emit_job(job, _toolchain()))
            metadata.update(METADATA)
            metadata["name"] = name
            metadata[LAUNCH] = emitted[0].launch.to_json()
            metadata[EFFECTS] = [effect.value for effect in argument_effects(emitted[0].module)]
            if settings().check:
                metadata[CHECKED] = text.located
            return emitted[0].text

        def shared_object(text: Any, _metadata: dict[str, Any]) -> bytes:  # noqa: ANN401
            if not emitted:
                raise CompileError("the CPU backend starts from TTIR: C text alone does not say how it is launched")
            with working(f"compiling {names[0]} for {self.target}"):
                shared = _built(str(text), emitted[0].flags, _toolchain())
            seconds = time.monotonic() - begin
            if seconds >= SLOW_S:
                announce(f"compiled {names[0]} for {self.target} in {seconds:.1f} s; kept in Triton's cache")
            if emitted[0].note:
                announce(f"{names[0]}: {emitted[0].note}")
            return shared

        stages.update({"ttir": ttir, "c": c_text, "so": shared_object})


def compile_check(kernel: str, metadata: Any, layout: tuple[LayoutSlot, ...]) -> NativeKernel:  # noqa: ANN401
    """Returns code that checks its memory accesses, for a kernel that was compiled with checks on."""
    text: str = getattr(metadata, CHECKED)
    level = level_of(concrete_target(metadata.target))
    options = CpuOptions(mode="reference", vector_bits=level.vector_bits, fp_contract=metadata.enable_fp_fusion)
    return compile_checked(kernel, text, layout, level=level, options=options, nan=False, toolchain=_toolchain())


def _toolchain() -> CCompiler:
    return find_compiler(settings().cc)


@lru_cache(maxsize=32)
def _built(text: str, flags: tuple[str, ...], toolchain: CCompiler) -> bytes:
    """Builds the object for a C text.

    The result is cached, because configs that differ only in options of GPUs give the same text one after the other.
    """
    return build_kernel(text, flags, toolchain).data
