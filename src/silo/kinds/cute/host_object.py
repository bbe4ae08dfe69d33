"""Compiles host code of the DSL to an object with tvm-ffi's calling convention, and links it to a shared object."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from silo.artifacts.binary_inspection import inspect_binary
from silo.compile.c_compiler import CCompiler, find_compiler
from silo.compile.compiler_process import memory_note, run_compiler
from silo.core.decisions import Rejected
from silo.core.device import Target
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.variant import Compiled, CompiledBlob
from silo.errors import CompileError, CompilerMissingError, ToolchainError
from silo.kinds.cute.cute_job import AXES, CuteArgumentRole, CuteJob, HostArgument
from silo.kinds.cute.cute_toolchain import DslBindings, device_codes, diagnosis
from silo.kinds.cute.front.cute_installation import runtime_library, tvm_ffi_library
from silo.kinds.cute.host_loader import CUTEOBJ, HostObject, HostValue, Passing
from silo.settings import child_environment, settings
from silo.temporary import own_folder

__all__ = ["host_code_missing", "host_object", "link", "linker"]

# ---- Linking an object file to a shared object that names the libraries it needs ----

_NEED = 'host="dsl" needs, for linking,'
_FLAGS = (
    "-shared",
    "-nostdlib",
    "-Wl,-s",
    "-Wl,-Bsymbolic",
    "-Wl,--build-id=none",
    "-Wl,--hash-style=gnu",
    "-Wl,-z,noexecstack",
    "-Wl,-z,defs",  # a name that no library has is an error here, not when the object is loaded
)


def linker() -> CCompiler:
    """Returns the C compiler, used as the linker. Raises CompilerMissingError."""
    return find_compiler(settings().cc, _NEED)


def host_code_missing() -> str:
    """Returns the reason why host code of the DSL cannot be linked here; "" if it can be."""
    try:
        linker()
    except CompilerMissingError as error:
        return str(error)
    return next(
        (decision.reason for decision in (runtime_library(), tvm_ffi_library()) if isinstance(decision, Rejected)), ""
    )


def link(made: bytes, version: str) -> tuple[bytes, str]:
    """Links an object file; returns the shared object and the linker's output.

    ``version`` is the version of the linker for which the job was made.

    Raises:
        ToolchainError: a library that the object needs is not installed, or the linker has another version.
        CompileError: the linker refused.
    """
    command = linker()
    if command.version != version:
        raise ToolchainError(f"the job is for the linker {version}, and this worker has {command.version}")
    libraries: list[str] = []
    for library in (runtime_library(), tvm_ffi_library()):
        if isinstance(library, Rejected):
            raise ToolchainError(f'host="dsl" cannot be compiled: {library.reason}')
        libraries.append(str(library))
    with own_folder("silo-cute-") as folder:
        Path(folder, "kernel.o").write_bytes(made)
        try:
            done = run_compiler(
                [*command.command, *_FLAGS, "-o", "kernel.so", "kernel.o", *libraries],
                cwd=folder,
                env=child_environment(LC_ALL="C", TMPDIR=folder),
            )
        except FileNotFoundError as error:
            raise CompilerMissingError(f"the C compiler {command.command[0]} is not there any more: {error}") from error
        except OSError as error:
            raise CompileError(f"the C compiler {command.command[0]} could not be run: {error}") from error
        log = done.stderr.decode(errors="replace")
        if done.returncode != 0:
            raise CompileError(f"{command.version} cannot link the DSL's host code: {log.strip()}{memory_note(log)}")
        try:
            return Path(folder, "kernel.so").read_bytes(), log
        except OSError as error:
            raise CompileError(f"{command.version} left no object: {error}") from error


# ---- Compiling the DSL's own host code to an object file ----

_PREFIX = "silo"  # prefix of the object's symbols
_WARP = 32
_TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}


def host_object(job: CuteJob, target: Target, modules: DslBindings) -> Compiled:
    """Compiles and links the artifact of a job with ``host="dsl"``.

    Raises:
        CompileError: the DSL refused it, or its host function cannot be called for a launch.
        ToolchainError: the linker or a library is missing.
    """
    dsl = modules.compiler
    try:
        artifact = dsl.deserialize_compilation_artifact(job.artifact)
        if len(artifact.metadata) != 1:
            raise CompileError(f"the DSL made {len(artifact.metadata)} host functions, and Silo calls one")
        passed = _matched(artifact.metadata[0], job, dsl)
        compiler = dsl.CuteCompiler()
        compiler.set_device_target(target.arch)
        compiler.set_host_target(_TRIPLES.get(platform.machine(), ""))
        compiler.set_abi(dsl.Abi.TvmFfi)
        compiler.add_compile_option("symbol-prefix", _PREFIX)
        compiled = compiler.compile_to(artifact, dsl.ArtifactType.CompiledMlir)
        cubins = device_codes(compiled, modules)
        object_file = compiler.compile_to(compiled, dsl.ArtifactType.Object)
    except (RuntimeError, ValueError, TypeError, MemoryError) as error:
        raise CompileError(diagnosis(error)) from error
    code, log = link(object_file.get_data(), job.linker)
    function = str(object_file.metadata[0].symbol_name)
    blob = HostObject(
        function=function,
        initialize=f"{_PREFIX}_cuda_init",
        prepare=f"{_PREFIX}_cuda_load_to_device",
        arguments=tuple(_value(item, passing, job) for item, passing in passed),
        parameters=len(job.parameters),
        dsl=job.dsl,
        toolkit=job.toolkit,
        code=code,
    )
    kernels = [item for cubin in cubins for item in inspect_binary(cubin, "cubin")]
    # The host code itself sets the launch; these values are only for display.
    block = kernels[0].required_block if len(kernels) == 1 and kernels[0].required_block else (1, 1, 1)
    threads = block[0] * block[1] * block[2]
    launch = LaunchInfo(
        entry=function,
        layout=tuple(
            _slot(item) for item, _ in passed if item.role not in (CuteArgumentRole.GRID, CuteArgumentRole.STREAM)
        ),
        num_warps=-(-threads // _WARP),
        threads=threads,
        block=block,
        registers=max((kernel.registers for kernel in kernels), default=None),
        spills=max((kernel.spills for kernel in kernels), default=None),
    )
    return Compiled(launch, CompiledBlob(CUTEOBJ, blob.to_bytes()), log=log)


def _matched(function: Any, job: CuteJob, dsl: Any) -> Sequence[tuple[HostArgument, Passing]]:  # noqa: ANN401
    """Returns each argument of the compiled host function, and how it is passed, in the function's order.

    Changes the description of the host function in ``function``: its return type becomes an integer (an error code),
    and its stream becomes an argument that the caller passes.
    """
    arguments = iter([argument for argument in job.arguments if argument.role is not CuteArgumentRole.STREAM])
    placed: list[tuple[Any, HostArgument, Passing]] = []
    streams: list[int] = []
    parameters: Sequence[Any] = list(function.params)
    for index, one in enumerate(parameters):
        if one.abi_arg_index is None and one.ir_arg_index is None:
            continue  # constants are not arguments of the compiled host function
        if isinstance(one, dsl.Stream | dsl.EnvStream):
            streams.append(index)
            continue
        argument = next(arguments, None)
        passing = None if argument is None else _passing(argument, one, dsl)
        if argument is None or passing is None:
            what = "nothing" if argument is None else f"the {argument.role.value} {argument.name}"
            raise CompileError(
                f"the host function takes {type(one).__name__} {one.name}, for which a launch has {what}; pass arrays, "
                "numbers and bools"
            )
        placed.append((one.abi_arg_index, argument, passing))
    if (surplus := next(arguments, None)) is not None:
        raise CompileError(f"the host function takes no argument for {surplus.name}")
    if len(streams) != 1:
        raise CompileError(
            'with host="dsl" the host function needs one parameter for the stream of a call, which it gives to '
            f"launch(stream=...); it has {len(streams)}"
        )
    old = parameters[streams[0]]
    stream = dsl.Stream(old.name)
    position: Any = len(placed) if old.abi_arg_index is None else old.abi_arg_index
    stream.ir_arg_index, stream.abi_arg_index = old.ir_arg_index, position
    function.params[streams[0]] = stream
    function.ret = dsl.Var("code", dsl.DType(dsl.DTypeCode.Int, 32, 1))
    placed.append((position, HostArgument(CuteArgumentRole.STREAM), Passing.STREAM))
    placed.sort(key=lambda one: one[0])
    if [index for index, _, _ in placed] != list(range(len(placed))):
        raise CompileError("the DSL numbers the arguments of the host function in a way that is not known here")
    return [(argument, passing) for _, argument, passing in placed]


def _passing(argument: HostArgument, entry_type: Any, dsl: Any) -> Passing | None:  # noqa: ANN401
    """Returns how the compiled host function takes the argument; None if ``entry_type`` does not fit it."""
    if argument.role in (CuteArgumentRole.POINTER, CuteArgumentRole.TENSOR):
        if isinstance(entry_type, dsl.Pointer):
            return Passing.ADDRESS
        return Passing.TENSOR if isinstance(entry_type, dsl.Tensor) else None
    if not isinstance(entry_type, dsl.Var):
        return None
    code, codes = entry_type.dtype.code, dsl.DTypeCode
    if argument.role is CuteArgumentRole.GRID:
        return Passing.GRID if code == codes.Int else None
    return {codes.Int: Passing.INTEGER, codes.UInt: Passing.INTEGER, codes.Bool: Passing.BOOL}.get(
        code, Passing.FLOAT if code == codes.Float else None
    )


def _value(argument: HostArgument, passing: Passing, job: CuteJob) -> HostValue:
    if passing is Passing.STREAM:
        return HostValue(passing)
    if passing is Passing.GRID:
        return HostValue(passing, AXES.index(argument.name))
    return HostValue(passing, job.parameters.index(argument.name))


def _slot(argument: HostArgument) -> LayoutSlot:
    kind = AbiType.POINTER if argument.role is not CuteArgumentRole.SCALAR else argument.leaves[0][0]
    return LayoutSlot(argument.name, kind)
