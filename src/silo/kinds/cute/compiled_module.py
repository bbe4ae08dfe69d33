"""The DSL's back end and its result: a module with the host function and the device code."""

from __future__ import annotations

import struct
from typing import Any

from silo.errors import CompileError
from silo.kinds.cute.cute_toolchain import DslBindings, diagnosis
from silo.kinds.cute.host_function import read_launch
from silo.kinds.cute.launch_call import LaunchCall

__all__ = ["back_end", "device_code", "device_codes", "read_artifact", "read_module"]

_HOST = "func.func"
_CONTAINER_MAGIC = 0xBA55ED50
_KIND_ELF = 2
_FLAG_COMPRESSED = 0x2000


def read_artifact(data: bytes, modules: DslBindings) -> Any:  # noqa: ANN401  # the DSL's precompiled artifact
    """Returns the front end's artifact from its bytes. Raises CompileError if they are damaged."""
    try:
        return modules.compiler.deserialize_compilation_artifact(data)
    except (RuntimeError, ValueError, TypeError, MemoryError) as error:
        raise CompileError(diagnosis(error)) from error


def back_end(artifact: Any, arch: str, modules: DslBindings) -> Any:  # noqa: ANN401  # artifacts of the DSL
    """Compile an artifact for an arch. Raises CompileError with the DSL's diagnosis."""
    compiler = modules.compiler.CuteCompiler()
    try:
        compiler.set_device_target(arch)
    except (RuntimeError, ValueError, TypeError) as error:
        raise CompileError(f"{diagnosis(error)}; name an arch such as sm_80, sm_90a, sm_100a or sm_120a") from error
    try:
        return compiler.compile_to(artifact, modules.compiler.ArtifactType.CompiledMlir)
    except (RuntimeError, ValueError, TypeError, MemoryError) as error:
        raise CompileError(diagnosis(error)) from error


def read_module(compiled: Any, modules: DslBindings) -> tuple[LaunchCall, bytes]:  # noqa: ANN401
    """Returns the launch that the module's host function makes, and the cubin.

    Raises:
        UnsupportedError: the host function does not make exactly one launch of one kernel.
        CompileError: the module has an unknown form.
    """
    ir = modules.ir
    with modules.context():
        module = ir.Module.parse(compiled.get_bitcode())
        functions = {
            view.attributes["sym_name"].value: view
            for view in module.body.operations
            if view.operation.name == "llvm.func" and len(view.regions[0].blocks)
        }
        binaries = _containers(module, ir)
        launch = read_launch(functions[_host_function(functions)], functions, ir, modules.llvm)
    if len(binaries) != 1:
        raise CompileError(f"the DSL made {len(binaries)} pieces of device code, and Silo takes one")
    return launch, device_code(binaries[0])


def device_codes(compiled: Any, modules: DslBindings) -> tuple[bytes, ...]:  # noqa: ANN401
    """Returns the cubins of a module without reading its host function. Raises CompileError."""
    with modules.context():
        module = modules.ir.Module.parse(compiled.get_bitcode())
        return tuple(device_code(one) for one in _containers(module, modules.ir))


def _containers(module: Any, ir: Any) -> list[bytes]:  # noqa: ANN401
    values = [
        view.attributes["value"]
        for view in module.body.operations
        if view.operation.name == "llvm.mlir.global" and "value" in view.attributes
    ]
    return [one.value_bytes for one in values if isinstance(one, ir.StringAttr) and _is_container(one.value_bytes)]


def _host_function(functions: dict[str, Any]) -> str:
    """Returns the function with a C interface: another function calls it, named with a prefix."""
    found = [name for name in functions if f"_mlir_ciface_{name}" in functions]
    if len(found) != 1:
        raise CompileError(f"the DSL made {len(found)} host functions, and Silo takes one")
    return found[0]


def _is_container(data: bytes) -> bool:
    return len(data) >= 16 and struct.unpack_from("<I", data)[0] == _CONTAINER_MAGIC


def device_code(container: bytes) -> bytes:
    """Returns the one cubin in a fat binary. Raises CompileError.

    A header of 16 bytes (magic, version, its size, the size of all that follows), then for each cubin or PTX a header
    (kind, version, its size, the size of the code, flags at byte 40) and the code.
    """
    try:
        _, _, start, _ = struct.unpack_from("<IHHQ", container)
        kind, _, header, size = struct.unpack_from("<HHIQ", container, start)
        (flags,) = struct.unpack_from("<Q", container, start + 40)
    except struct.error as error:
        raise CompileError(f"the device code that the DSL made is truncated: {error}") from error
    code = container[start + header : start + header + size]
    whole = start + header + size
    if kind != _KIND_ELF or flags & _FLAG_COMPRESSED or len(code) != size or container[whole:].strip(b"\0"):
        raise CompileError("the device code that the DSL made is not one cubin as it is")
    return code
