"""Describes the CPU to Triton's front end: target, options, libraries, conversions, and the passes that come after."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from silo.core.device import Target
from silo.errors import CompileError, TargetError
from silo.kinds.triton.front.adapter.triton_toolchain import module

__all__ = ["CpuFrontEnd", "CpuFrontEndOptions", "convert_fp8e4b15", "cpu_target", "run_cpu_passes", "run_passes"]

# ---- Conversions of ``fp8e4b15``, which Triton leaves to its backends; NVIDIA's backend uses inline assembly ----

_LARGEST = 0x3F00  # the bits of 1.75 in float16; larger numbers become 1.75, the largest number of fp8e4b15


def convert_fp8e4b15(argument: Any, target: Any, rounding: Any = None, _semantic: Any = None) -> Any:  # noqa: ANN401
    """Triton's ``convert_custom_types``: converts to or from fp8e4b15, through float16. The rounding mode is fixed."""
    del rounding
    if argument.type.scalar.is_fp8e4b15():
        return _semantic.cast(_widened(argument, _semantic), target)
    if argument.type.scalar.is_bf16():
        argument = _semantic.cast(argument, module("triton.language").float32)
    if not argument.type.scalar.is_fp16():
        argument = _semantic.cast(argument, module("triton.language").float16, "rtz")
    return _semantic.bitcast(_narrowed(argument, _semantic), target)


def _widened(argument: Any, semantic: Any) -> Any:  # noqa: ANN401
    language = module("triton.language")
    byte = semantic.cast(semantic.bitcast(argument, language.uint8), language.int32)
    sign = semantic.shl(semantic.and_(byte, 0x80), 8)
    size = semantic.shl(semantic.and_(byte, 0x7F), 7)
    return semantic.bitcast(semantic.cast(semantic.or_(sign, size), language.uint16), language.float16)


def _narrowed(half: Any, semantic: Any) -> Any:  # noqa: ANN401
    language = module("triton.language")
    bits = semantic.cast(semantic.bitcast(half, language.uint16), language.int32)
    size = semantic.minimum(semantic.and_(bits, 0x7FFF), semantic.to_tensor(_LARGEST), language.PropagateNan.NONE)
    rounded = semantic.lshr(semantic.add(semantic.shl(size, 1), 0x80, sanitize_overflow=False), 8)
    sign = semantic.and_(semantic.lshr(bits, 8), 0x80)
    return semantic.cast(semantic.or_(rounded, sign), language.uint8)


# ---- The CPU as a backend of Triton's front end: target, options, libraries, and the passes after the front end ----

_LIBDEVICE = "triton.language.extra.libdevice"

# Passes that simplify TTIR, in order. Some exist only in some versions of Triton.
_PASSES = (
    "common.inliner",
    "ttir.rewrite_tensor_pointer",
    "ttir.rewrite_tensor_descriptor_to_pointer",
    "common.canonicalizer",
    "ttir.combine",
    "ttir.reorder_broadcast",
    "common.cse",
    "common.symbol_dce",
    "ttir.loop_unroll",
    "common.canonicalizer",
    "common.cse",
    "ttir.triton_licm",
    "common.symbol_dce",
)


@dataclass(frozen=True)  # no slots: Triton reads and checks options through ``__dict__``
class CpuFrontEndOptions:
    """All compile options that Triton's own backends know, so that a config for a GPU is accepted unchanged.

    The CPU uses ``debug``, ``sanitize_overflow``, ``enable_fp_fusion`` and the language's options of dots and fp8; the
    other options change nothing.
    """

    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 3
    warp_size: int = 1
    enable_fp_fusion: bool = True
    debug: bool = False
    sanitize_overflow: bool = True
    # A CPU converts every fp8 format in software.
    supported_fp8_dtypes: tuple[str, ...] = ("fp8e4b15", "fp8e4b8", "fp8e4nv", "fp8e5", "fp8e5b16")
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    default_dot_input_precision: str = "tf32"
    allowed_dot_input_precisions: tuple[str, ...] = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")
    max_num_imprecise_acc_default: int = 0
    backend_name: str = "cpu"
    arch: str = ""
    instrumentation_mode: str = ""
    ir_override: str | None = None
    launch_cooperative_grid: bool = False
    # a promise to Silo: no element of a block reads memory that another element of the launch writes, and no two write
    # one address (except atomics)
    cpu_elements_apart: bool = False
    # a promise to Silo: while a launch runs, only its own programs use the memory that its atomics access
    cpu_launch_atomics: bool = False
    # Options that only GPUs use, with their defaults.
    launch_pdl: bool = False
    extern_libs: tuple[tuple[str, str], ...] = ()
    maxnreg: int | None = None
    min_shared_mem: int | None = None
    ptx_version: int | None = None
    ptx_options: str | None = None
    clc: bool = False
    sched4reg: bool = False
    enable_reflect_ftz: bool = True
    fpsan_homomorphic_casts: bool = False
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 0
    kpack: int = 1
    allow_flush_denorm: bool = False
    schedule_hint: str = ""
    llvm_fn_attrs: str = ""
    wgp_cu_mode: str = "wgp"

    @property
    def enable_iisan(self) -> bool:
        """Whether Triton's own integer sanitizer is compiled in; it exists only for GPUs."""
        return False

    def hash(self) -> str:
        """A text by which Triton's cache distinguishes options."""
        text = "_".join(f"{name}-{value}" for name, value in sorted(vars(self).items()))
        return hashlib.sha256(text.encode()).hexdigest()


def cpu_target(target: Target) -> Any:  # noqa: ANN401
    """Triton's target object for a concrete cpu target.

    Raises:
        TargetError: any other target.
    """
    if target.kind != "cpu" or not target.arch:
        raise TargetError(f"this is for concrete cpu targets, not {target}")
    return module("triton.backends.compiler").GPUTarget("cpu", target.arch, 1)


class _OptionError(CompileError, AssertionError):
    """An invalid option. Triton's own backends refuse it by an assertion, so programs may catch AssertionError."""


class CpuFrontEnd:
    """The part of a compiler backend that Triton's front end uses; the members have Triton's names."""

    def __init__(self, target: Any) -> None:  # noqa: ANN401  # Triton's GPUTarget
        self.target = target

    def parse_options(self, keywords: Mapping[str, Any]) -> CpuFrontEndOptions:
        """Reads options from keywords. Keywords that are None, or that no backend knows, are ignored.

        Raises:
            CompileError: an option has an invalid value.
        """
        options = {name: keywords[name] for name in vars(CpuFrontEndOptions()) if keywords.get(name) is not None}
        language = module("triton.knobs").language
        fused = options.get("enable_fp_fusion", language.default_fp_fusion)
        options["enable_fp_fusion"] = bool(fused) and not getattr(language, "force_disable_fp_fusion", False)
        options["extern_libs"] = tuple(dict(options.get("extern_libs", ())).items())
        options["arch"] = self.target.arch
        warps = options.get("num_warps", 1)
        if not isinstance(warps, int) or warps < 1 or warps & (warps - 1):
            raise _OptionError(f"num_warps must be a power of 2, not {warps!r}")
        return CpuFrontEndOptions(**options)

    def load_dialects(self, _context: object) -> None:
        """Does nothing: the CPU needs no dialects beyond Triton's own."""

    def get_codegen_implementation(self, _options: object) -> dict[str, Any]:
        """Returns the backend's functions by name: one that allows dots of any size, and the conversion of fp8e4b15."""
        return {"min_dot_size": _any_size, "convert_custom_types": convert_fp8e4b15}

    def get_module_map(self) -> dict[str, Any]:
        """Maps Triton's libdevice module to NVIDIA's, whose functions (``__nv_sinf``) the CPU compiler knows."""
        return {_LIBDEVICE: module("triton.language.extra.cuda.libdevice")}


def _any_size(_lhs: object, _rhs: object) -> tuple[int, int, int]:
    return (1, 1, 1)


def run_cpu_passes(module: Any) -> None:  # noqa: ANN401
    """Inlines helpers, rewrites block pointers and descriptors to pointers, and unrolls marked loops.

    Raises:
        CompileError: Triton's passes refuse the module.
    """
    run_passes(module, _PASSES)


def run_passes(ir_module: Any, names: tuple[str, ...]) -> None:  # noqa: ANN401
    """Runs the passes among ``names`` that this version of Triton has, in order.

    Raises:
        CompileError: Triton's passes refuse the module.
    """
    triton = module("triton._C.libtriton")
    manager = triton.ir.pass_manager(ir_module.context)
    for name in names:
        group, _, pass_name = name.partition(".")
        add = getattr(getattr(triton.passes, group), f"add_{pass_name}", None)
        if add is not None:
            add(manager)
    try:
        manager.run(ir_module, "silo")
    except RuntimeError as error:
        raise CompileError(f"Triton's own passes refuse the module: {error}") from error
