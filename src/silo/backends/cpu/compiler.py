"""Compiler plug-in: Triton sources to shared objects for the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from silo.backends.cpu.analysis.supported import check_supported, unsupported_operations
from silo.backends.cpu.analysis.work import program_nanoseconds
from silo.backends.cpu.build import build_kernel, compile_flags, llvm_of
from silo.backends.cpu.checking.code import compile_checked
from silo.backends.cpu.declaration import CPU
from silo.backends.cpu.emit.kernel import emit_c
from silo.backends.cpu.levels import Level, level_of
from silo.backends.cpu.operations import tt
from silo.backends.cpu.options import CpuOptions
from silo.compile.c_compiler import CCompiler, find_compiler
from silo.compile.identity import code_digest
from silo.core.code_facts import Lowered
from silo.core.compiled import Compiled, CompiledBlob
from silo.core.consent import Consent, text_sha256
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.protocols import CheckedKernel, Source
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.target import Target
from silo.core.values import JSON, digest
from silo.core.variant import CompileJob, Variant
from silo.errors import CompileError, CompilerMissingError, SourceError, TargetError, TrustError, UnsupportedError
from silo.settings import settings
from silo.sources.triton.adapter import Ttir, lower_to_ttir, triton_identity, triton_version
from silo.sources.triton.facts import TtirFacts
from silo.sources.triton.parameters import ModuleArgument, module_arguments
from silo.sources.triton.source import TritonSource
from silo.sources.triton.ssa import Module, Operation
from silo.sources.triton.ttir import parse_ttir
from silo.sources.triton.verifier import verify

__all__ = [
    "CpuCompiler",
    "EmittedJob",
    "code_identity",
    "compile_ttir",
    "compiler_identity",
    "emit_job",
    "make_job",
    "module_layout",
]

_SCRATCH_ALIGN = 64  # bytes, of the CPU kernel ABI


class CpuCompiler:
    """Compiles ``triton`` sources for ``cpu`` targets with the system's C compiler.

    ``reference`` compiles in the mode that fuses nothing, the oracle of the optimized one.
    """

    def __init__(self, *, reference: bool = False) -> None:
        self._reference = reference

    declaration = CPU

    def identity(self, target: Target) -> str:
        """Triton, Silo's own code, C compiler and flags. Asks the C compiler its version once per process.

        Raises:
            CompilerMissingError: no usable C compiler.
            ToolchainError: no usable Triton.
        """
        toolchain = find_compiler(settings().cc)
        return compiler_identity(level_of(target), toolchain)

    def artifact_target(self, target: Target) -> Target:
        """The same: code for a target is for that target."""
        return target

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Triton sources, for a CPU level, where a C compiler is."""
        if not (taken := self.declaration.takes(source_kind, target)):
            return taken
        try:
            level_of(target)
            toolchain = find_compiler(settings().cc)
        except (TargetError, CompilerMissingError) as error:
            return Rejected(str(error))
        return Accepted(f"compiled by {toolchain.version}")

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """Triton's front end; configs that differ only in options of GPUs give equal jobs.

        Raises:
            SourceError: not a Triton source, or Triton refuses it.
            CompileError: an option of the CPU that has no such value.
            UnsupportedError: every operation the CPU cannot express, with its place and count.
        """
        if not isinstance(source, TritonSource):
            raise SourceError(f"{source.name} is a {source.kind} source; the CPU compiler takes triton sources")
        bits = level_of(variant.target).vector_bits
        options = CpuOptions.of(variant.config, "reference" if self._reference else "optimized", bits)
        ttir = lower_to_ttir(
            source.function,
            variant.signature,
            variant.specialization,
            variant.config,
            variant.target,
            tuples=source.tuples,
            force=settings().force_triton,
        )

        def layout(module: Module) -> tuple[LayoutSlot, ...]:
            return _layout(variant.signature, variant.specialization, module)

        module = parse_ttir(ttir.text)
        job = make_job(variant.kernel, variant.target, ttir, module, layout, options)
        return Lowered(job, TtirFacts(ttir.text, variant.signature, variant.specialization, module))

    def compile(self, job: CompileJob) -> Compiled:
        """Parse, verify, emit C, build.

        Raises:
            CompileError: the text or the parameters make no sense, or the C compiler refused.
        """
        return compile_ttir(job, find_compiler(settings().cc))

    def code_forms(self, target: Target) -> tuple[str, ...]:
        """The module in MLIR's generic form, and the C text."""
        del target
        return ("ttir", "c")

    def code_form(self, job: CompileJob, form: str) -> str:
        """One of these, or LLVM's form of the C text (``llir``) where clang is here. Emits again, builds nothing.

        Raises:
            CompileError: see :meth:`compile`.
            ToolchainError: no clang.
        """
        if form == "ttir":
            return job.text
        emitted = emit_job(job, find_compiler(settings().cc))
        return emitted.text if form == "c" else llvm_of(emitted.text, emitted.flags)

    def check_source(self, source: Source, variant: Variant, *, nan: bool) -> CheckedKernel:
        """Code that checks itself, with the lines of the source. Assertions are kept."""
        if not isinstance(source, TritonSource):
            raise SourceError(f"{source.name} is a {source.kind} source; the CPU compiler takes triton sources")
        text = lower_to_ttir(
            source.function,
            variant.signature,
            variant.specialization,
            variant.config,
            variant.target,
            tuples=source.tuples,
            asserts=True,
            force=settings().force_triton,
        ).located
        layout = _layout(variant.signature, variant.specialization, parse_ttir(text))
        return self._checked(text, variant, layout, nan=nan)

    def check_text(
        self, text: str, variant: Variant, launch: LaunchInfo, *, nan: bool, consent: Consent
    ) -> CheckedKernel:
        """Code that checks itself, from the text of an artifact."""
        asked = (text_sha256(text), launch, variant.signature)
        if asked != (consent.code.text, consent.code.launch, consent.code.signature):
            raise TrustError(f"{variant.kernel}: consent was given to another text than the one to be checked")
        return self._checked(text, variant, launch.layout, nan=nan)

    @staticmethod
    def _checked(text: str, variant: Variant, layout: tuple[LayoutSlot, ...], *, nan: bool) -> CheckedKernel:
        level = level_of(variant.target)
        return compile_checked(
            variant.kernel,
            text,
            layout,
            level=level,
            options=CpuOptions.of(variant.config, "reference", level.vector_bits),
            nan=nan,
            toolchain=find_compiler(settings().cc),
        )


@dataclass(frozen=True, slots=True)
class EmittedJob:
    """A job as C text: how it is compiled, and how what comes out is launched. ``module`` is what it was read from.

    ``note`` is why it is compiled with less than the usual effort; "" if it is not.
    """

    text: str
    flags: tuple[str, ...]
    launch: LaunchInfo
    module: Module
    note: str


def make_job(
    kernel: str,
    target: Target,
    ttir: Ttir,
    module: Module,
    layout: Callable[[Module], tuple[LayoutSlot, ...]],
    options: CpuOptions,
) -> CompileJob:
    """The job of a lowered kernel.

    Args:
        kernel: its name.
        target: a concrete cpu target.
        ttir: what the front end made.
        module: its text, parsed.
        layout: tells the parameters of the object from the module.
        options: how it is compiled.

    Raises:
        UnsupportedError: every operation the CPU cannot express, with its place and count.
    """
    # The text of a job has no places in it, so what is unsupported is named here, from the text that has them.
    if unsupported_operations(module):
        check_supported(parse_ttir(ttir.located))
        raise CompileError(f"{kernel}: Triton {triton_version()} printed it in two ways")
    parameters: JSON = {"layout": [slot.to_json() for slot in layout(module)], "options": options.to_json()}
    if _asserts(module):
        parameters["lines"] = [*_lines(ttir.located)]
    return CompileJob(CPU.name, kernel, target, ttir.text, parameters)


def compile_ttir(job: CompileJob, toolchain: CCompiler) -> Compiled:
    """Compile one job with the given C compiler; see :meth:`CpuCompiler.compile`."""
    emitted = emit_job(job, toolchain)
    built = build_kernel(emitted.text, emitted.flags, toolchain)
    sidecars = (CompiledBlob("c", emitted.text.encode()), CompiledBlob("ttir", job.text.encode()))
    return Compiled(
        emitted.launch, CompiledBlob("so", built.data), sidecars, "\n".join(filter(None, (emitted.note, built.log)))
    )


def emit_job(job: CompileJob, toolchain: CCompiler) -> EmittedJob:
    """Parse, verify, emit C.

    Raises:
        CompileError: the text or the parameters make no sense.
    """
    options, layout, lines = _read_parameters(job)
    level = level_of(job.target)
    try:
        module = parse_ttir(job.text)
        verify(module)
    except SourceError as error:
        raise CompileError(f"the TTIR of {job.kernel} cannot be read: {error}") from error
    _check_layout(job.kernel, module, layout)
    for operation, line in zip(_asserts(module), lines, strict=False):
        operation.location = line
    entry = entry_name(job.kernel, job.key(code_identity(level, toolchain)))
    work = options.work or program_nanoseconds(module)  # before the module is rewritten
    emitted = emit_c(module, options, entry)
    launch = LaunchInfo(
        entry=emitted.entry,
        layout=layout,
        threads=1,
        cooperative=options.cooperative,
        scratch_bytes=emitted.scratch_bytes,
        scratch_align=_SCRATCH_ALIGN if emitted.scratch_bytes else 1,
        # Programs that may wait for each other are handed out one by one: nobody waits behind one that waits.
        options=(
            ("cpu_chunk", options.chunk or (1 if "wait" in emitted.uses else 0)),
            ("cpu_threads", options.threads),
            ("cpu_work", work),
        ),
    )
    flags = compile_flags(level, contract=options.fp_contract, libm="libm" in emitted.uses, effort=emitted.effort.flag)
    return EmittedJob(emitted.source, flags, launch, module, emitted.effort.reason)


def entry_name(kernel: str, key: str) -> str:
    """The exported symbol: the kernel's name and the start of the job's key, so that two variants fit in one program.

    >>> entry_name("add", "0123456789abcdef")
    'silo_add_0123456789ab'
    """
    return f"silo_{re.sub('[^A-Za-z0-9_]', '_', kernel)}_{key[:12]}"


def _asserts(module: Module) -> list[Operation]:
    return [operation for operation in module.walk() if operation.name == tt.ASSERT]


def _lines(located: str) -> Iterator[str]:
    """The file's name and the line of each assertion, in the order of the text, which itself has no places in it."""
    for operation in _asserts(parse_ttir(located)):
        yield operation.location.rpartition("/")[2]


def compiler_identity(level: Level, toolchain: CCompiler) -> str:
    """What decides the bytes that a kernel leads to, besides the kernel: Triton, whose front end makes the job, too.

    Raises:
        ToolchainError: no usable Triton.
    """
    return f"{code_identity(level, toolchain)} {triton_identity(force=settings().force_triton)}"


def code_identity(level: Level, toolchain: CCompiler) -> str:
    """What decides the bytes that a job leads to, besides the job: Silo's code with its runtime, C compiler, flags."""
    flags = digest("cpu-flags/1", [*compile_flags(level), *toolchain.command[1:]])[:16]
    return f"cpu code {code_digest(*CPU.code)} flags {flags} {toolchain.version}"


def _layout(signature: Signature, specialization: Specialization, module: Module) -> tuple[LayoutSlot, ...]:
    """What the kernel takes, in order: parameters that are left once constants are folded, descriptors in parts."""
    parameters = {parameter.name: parameter for parameter in signature.parameters}
    return tuple(
        LayoutSlot(argument.parameter, _abi_type(parameters[argument.parameter], argument), argument.part)
        for argument in module_arguments(signature, specialization, module)
    )


def _abi_type(parameter: Parameter, argument: ModuleArgument) -> AbiType:
    if argument.type.pointer:
        return AbiType.POINTER
    if parameter.kind is ParameterKind.DESCRIPTOR:
        return AbiType(argument.type.element)
    if parameter.dtype is None:
        raise SourceError(f"the parameter {parameter.name} has no type yet: specialize the signature first")
    try:
        return AbiType(parameter.dtype.short)
    except ValueError:
        raise UnsupportedError(f"{parameter.name}: no scalar arguments of type {parameter.dtype} on the CPU") from None


def _read_parameters(job: CompileJob) -> tuple[CpuOptions, tuple[LayoutSlot, ...], list[str]]:
    data = job.parameters
    if not isinstance(data, dict) or set(data) - {"lines"} != {"layout", "options"}:
        raise CompileError(f"the job of {job.kernel} is not one of the CPU compiler: {data!r}")
    try:
        options = CpuOptions.from_json(data["options"])
        layout = tuple(LayoutSlot.from_json(slot) for slot in cast("list[JSON]", data["layout"]))
    except (TypeError, ValueError) as error:
        raise CompileError(f"the job of {job.kernel} has no layout or options: {error}") from None
    return options, layout, cast("list[str]", data.get("lines", []))


# The TTIR types each ABI type may stand for; unsigned integers are signless in TTIR.
_TTIR_TYPES = {
    AbiType.I1: "i1",
    AbiType.I8: "i8",
    AbiType.I16: "i16",
    AbiType.I32: "i32",
    AbiType.I64: "i64",
    AbiType.U8: "i8",
    AbiType.U16: "i16",
    AbiType.U32: "i32",
    AbiType.U64: "i64",
    AbiType.FP16: "f16",
    AbiType.BF16: "bf16",
    AbiType.FP32: "f32",
    AbiType.FP64: "f64",
}


def module_layout(module: Module) -> tuple[LayoutSlot, ...]:
    """The parameters as a module itself has them, named by position; it knows no signs, so integers count as signed."""
    arguments = module.entry.regions[0].blocks[0].arguments
    names = {text: kind for kind, text in reversed(_TTIR_TYPES.items())}
    slots: list[LayoutSlot] = []
    for index, value in enumerate(arguments):
        kind = AbiType.POINTER if value.type.pointer else names.get(value.type.element)
        if kind is None:
            raise UnsupportedError(f"parameter {index}: no arguments of type {value.type.element} on the CPU")
        slots.append(LayoutSlot(str(index), kind))
    return tuple(slots)


def _check_layout(kernel: str, module: Module, layout: tuple[LayoutSlot, ...]) -> None:
    """A kernel whose text and layout disagree would read its arguments wrong."""
    arguments = [value.type for value in module.entry.regions[0].blocks[0].arguments]
    expected = ["pointer" if slot.type is AbiType.POINTER else _TTIR_TYPES.get(slot.type, "none") for slot in layout]
    found = ["pointer" if type_.pointer else type_.element for type_ in arguments]
    if expected != found:
        raise CompileError(f"{kernel} was lowered to the parameters {found}, its layout says {expected}")
