"""Compile jobs of the CPU compiler: made from a lowered kernel, emitted as C text, and compiled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from silo.compile.c_compiler import CCompiler
from silo.core.code_facts import Lowered
from silo.core.device import Target
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import JSON
from silo.core.variant import Compiled, CompiledBlob, CompileJob, Variant
from silo.drivers.cpu.levels import level_of
from silo.errors import CompileError, SourceError, UnsupportedError
from silo.kinds.triton.cpu.analysis.costs import program_nanoseconds
from silo.kinds.triton.cpu.analysis.supported import check_supported, unsupported_operations
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.cpu_declaration import CPU
from silo.kinds.triton.cpu.cpu_identity import code_identity
from silo.kinds.triton.cpu.emit.kernel_text import emit_c
from silo.kinds.triton.cpu.object_build import build_kernel, compile_flags
from silo.kinds.triton.front.adapter import Ttir, lower_to_ttir, triton_version
from silo.kinds.triton.front.facts import TtirFacts
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.ssa import Module, Operation
from silo.kinds.triton.front.triton_source import TritonSource
from silo.kinds.triton.front.triton_specialize import ModuleArgument, module_arguments
from silo.kinds.triton.front.ttir import parse_ttir
from silo.kinds.triton.front.verifier import verify
from silo.settings import settings

__all__ = [
    "EmittedJob",
    "check_layout",
    "compile_ttir",
    "emit_job",
    "entry_name",
    "job_layout",
    "located_text",
    "lowered",
    "make_job",
    "module_layout",
]

_SCRATCH_ALIGN = 64  # bytes, as the ABI of CPU kernels requires


@dataclass(frozen=True, slots=True)
class EmittedJob:
    """A job emitted as C text, with the facts needed to compile the text and to launch the result.

    ``module`` is the parsed module from which the C text was emitted.

    ``note`` is the reason if the text is compiled with less than the usual effort, and "" otherwise.
    """

    text: str
    flags: tuple[str, ...]
    launch: LaunchInfo
    module: Module
    note: str


def lowered(source: TritonSource, variant: Variant, options: CpuOptions) -> Lowered:
    """Runs a kernel through Triton's front end; returns its job and the facts of its code.

    Raises:
        SourceError: Triton refuses the source.
        UnsupportedError: the CPU cannot express an operation; the message lists each with its place and count.
    """
    ttir = _ttir(source, variant)

    def layout(module: Module) -> tuple[LayoutSlot, ...]:
        return job_layout(variant.signature, variant.specialization, module)

    module = parse_ttir(ttir.text)
    job = make_job(variant.kernel, variant.target, ttir, module, layout, options)
    return Lowered(job, TtirFacts(ttir.text, variant.signature, variant.specialization, module))


def located_text(source: TritonSource, variant: Variant) -> tuple[str, tuple[LayoutSlot, ...]]:
    """The TTIR of a kernel with its assertions and source lines, as a check needs it, and the kernel's parameters.

    Raises:
        SourceError: Triton refuses the source.
    """
    text = _ttir(source, variant, asserts=True).located
    return text, job_layout(variant.signature, variant.specialization, parse_ttir(text))


def _ttir(source: TritonSource, variant: Variant, *, asserts: bool = False) -> Ttir:
    return lower_to_ttir(
        source.function,
        variant.signature,
        variant.specialization,
        variant.config,
        variant.target,
        tuples=source.tuples,
        asserts=asserts,
        force=settings().force_triton,
    )


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
        ttir: the front end's output.
        module: the parsed text of ``ttir``.
        layout: computes the parameters of the object from the module.
        options: how it is compiled.

    Raises:
        UnsupportedError: the CPU cannot express an operation; the message lists each with its place and count.
    """
    # The text of a job lacks source locations, so the error is raised here, from the text that still has them.
    if unsupported_operations(module):
        check_supported(parse_ttir(ttir.located))
        raise CompileError(f"{kernel}: Triton {triton_version()} printed it in two ways")
    parameters: JSON = {"layout": [slot.to_json() for slot in layout(module)], "options": options.to_json()}
    if _asserts(module):
        parameters["lines"] = [*_lines(ttir.located)]
    return CompileJob(CPU.name, kernel, target, ttir.text, parameters)


def compile_ttir(job: CompileJob, toolchain: CCompiler) -> Compiled:
    """Compiles one job with the given C compiler: parses and verifies its text, emits C, and builds."""
    emitted = emit_job(job, toolchain)
    built = build_kernel(emitted.text, emitted.flags, toolchain)
    sidecars = (CompiledBlob("c", emitted.text.encode()), CompiledBlob("ttir", job.text.encode()))
    return Compiled(
        emitted.launch, CompiledBlob("so", built.data), sidecars, "\n".join(filter(None, (emitted.note, built.log)))
    )


def emit_job(job: CompileJob, toolchain: CCompiler) -> EmittedJob:
    """Parses and verifies a job's text, and emits C.

    Raises:
        CompileError: the text or the parameters are invalid.
    """
    options, layout, lines = _read_parameters(job)
    level = level_of(job.target)
    try:
        module = parse_ttir(job.text)
        verify(module)
    except SourceError as error:
        raise CompileError(f"the TTIR of {job.kernel} cannot be read: {error}") from error
    check_layout(job.kernel, module, layout)
    for operation, line in zip(_asserts(module), lines, strict=False):
        operation.location = line
    entry = entry_name(job.kernel, job.key(code_identity(level, toolchain)))
    work = options.work or program_nanoseconds(module)  # computed first, because emitting C rewrites the module
    emitted = emit_c(module, options, entry)
    launch = LaunchInfo(
        entry=emitted.entry,
        layout=layout,
        threads=1,
        cooperative=options.cooperative,
        scratch_bytes=emitted.scratch_bytes,
        scratch_align=_SCRATCH_ALIGN if emitted.scratch_bytes else 1,
        # Programs that may wait for each other are handed out one by one: in a batch, the program that is waited for
        # could be queued behind the waiting one.
        options=(
            ("cpu_chunk", options.chunk or (1 if "wait" in emitted.uses else 0)),
            ("cpu_threads", options.threads),
            ("cpu_work", work),
        ),
    )
    flags = compile_flags(level, contract=options.fp_contract, libm="libm" in emitted.uses, effort=emitted.effort.flag)
    return EmittedJob(emitted.source, flags, launch, module, emitted.effort.reason)


def entry_name(kernel: str, key: str) -> str:
    """The exported symbol: the kernel's name and the start of the job's key, so that two variants can be linked.

    >>> entry_name("add", "0123456789abcdef")
    'silo_add_0123456789ab'
    """
    return f"silo_{re.sub('[^A-Za-z0-9_]', '_', kernel)}_{key[:12]}"


def _asserts(module: Module) -> list[Operation]:
    return [operation for operation in module.walk() if operation.name == tt.ASSERT]


def _lines(located: str) -> Iterator[str]:
    """The file name and line of each assertion, in the order of the text. The text of a job lacks locations itself."""
    for operation in _asserts(parse_ttir(located)):
        yield operation.location.rpartition("/")[2]


def job_layout(signature: Signature, specialization: Specialization, module: Module) -> tuple[LayoutSlot, ...]:
    """The kernel's parameters in order, without those that were folded as constants.

    A descriptor is split into its members, such as its address and its shape.
    """
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


# The TTIR types of each ABI type; unsigned integers are signless in TTIR.
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
    """The parameters as the module declares them, named by position. TTIR integers have no sign and count as signed."""
    arguments = module.entry.regions[0].blocks[0].arguments
    names = {text: kind for kind, text in reversed(_TTIR_TYPES.items())}
    slots: list[LayoutSlot] = []
    for index, value in enumerate(arguments):
        kind = AbiType.POINTER if value.type.pointer else names.get(value.type.element)
        if kind is None:
            raise UnsupportedError(f"parameter {index}: no arguments of type {value.type.element} on the CPU")
        slots.append(LayoutSlot(str(index), kind))
    return tuple(slots)


def check_layout(kernel: str, module: Module, layout: tuple[LayoutSlot, ...]) -> None:
    """Raises CompileError if the parameters of ``module`` and ``layout`` differ.

    If they differed, the kernel would misread its arguments.
    """
    arguments = [value.type for value in module.entry.regions[0].blocks[0].arguments]
    expected = ["pointer" if slot.type is AbiType.POINTER else _TTIR_TYPES.get(slot.type, "none") for slot in layout]
    type_names = ["pointer" if type_.pointer else type_.element for type_ in arguments]
    if expected != type_names:
        raise CompileError(f"{kernel} was lowered to the parameters {type_names}, its layout says {expected}")
