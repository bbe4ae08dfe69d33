"""The installed DSL as a toolchain: its identity, its modules, running the back end, and diagnoses of its errors."""

from __future__ import annotations

import hashlib
import re
import struct
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.values import canonical_json
from silo.errors import CompileError, DeviceError, ToolchainError
from silo.kinds.cute.front.cute_installation import INSTALL, PACKAGE, dsl_module, dsl_version, folders_of
from silo.kinds.cute.host_function import read_launch
from silo.kinds.cute.launch_call import LaunchCall
from silo.launch.native import gpu_attributes, open_driver
from silo.settings import child_environment
from silo.sources.installations import parsed_version

__all__ = [
    "OLDEST",
    "DslBindings",
    "back_end",
    "bindings",
    "device_code",
    "device_codes",
    "diagnosis",
    "dsl_identity",
    "read_artifact",
    "read_module",
    "require_dsl",
    "toolkit_version",
    "usable",
]

OLDEST = (4, 6, 3)
"""The first release that compiles in two steps (``cute.compile.to_precompiled_mlir``, ``cutlass.compiler``)."""

_LIBRARIES = "cutlass._mlir._mlir_libs"
_FLAVOUR = re.compile(r"_cutlass_ir\.cu([0-9]+)\.")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = "CUTE_DSL_"
# The DSL's environment variables that do not affect the code it makes: the beginnings of their names after the prefix.
_WITHOUT_EFFECT = ("LOG", "PRINT", "CACHE", "NO_CACHE", "DUMP", "KEEP", "ARCH", "JIT_TIME", "DISABLE_FILE", "DRYRUN")


def usable() -> Decision:
    """Whether the installed DSL can compile here; does not import it."""
    version = dsl_version()
    if version is None:
        return Rejected(f"{PACKAGE} is not installed; {INSTALL}")
    if parsed_version(version) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return Rejected(f"{PACKAGE} {version} cannot compile in two steps, {oldest} and later can; {INSTALL}")
    return Accepted(f"CuTe DSL {version}")


def require_dsl() -> str:
    """Returns the version of the installed DSL, if Silo can use it. Raises ToolchainError."""
    decision = usable()
    if isinstance(decision, Rejected):
        raise ToolchainError(decision.reason)
    return str(dsl_version())


def dsl_identity() -> str:
    """Returns a line that changes when the DSL would make other code: version, flavour, digest of its files.

    The flavour is the CUDA major version of the toolkit that is built into the DSL (``cu13``). If several flavours are
    installed, the DSL itself uses the newest that the driver supports, and without a driver the newest of all. Raises
    ToolchainError.
    """
    version = require_dsl()
    line = f"cute-dsl {version} {_flavour()} files {_installed_files()}"
    environment = {
        name: value
        for name, value in child_environment().items()
        if name.startswith(_PREFIX) and not name.removeprefix(_PREFIX).startswith(_WITHOUT_EFFECT)
    }
    return f"{line} env {hashlib.sha256(canonical_json(environment)).hexdigest()[:16]}" if environment else line


def toolkit_version() -> str:
    """Returns the version of the DSL's CUDA toolkit, for example ``13.4``. Imports the DSL. Raises ToolchainError."""
    version = dsl_module("cutlass").CUDA_VERSION
    return f"{version.major}.{version.minor}"


class DslBindings(NamedTuple):
    """Modules of the DSL that compile an artifact and read the result."""

    compiler: Any
    ir: Any
    passes: Any
    llvm: Any

    def context(self) -> Any:  # noqa: ANN401  # a context of MLIR
        """Returns a new MLIR context without threads: the modules that are read in it are too small to need any."""
        context = self.ir.Context()
        context.enable_multithreading(False)  # noqa: FBT003  # the bindings' signature
        return context


def bindings() -> DslBindings:
    """Returns the DSL's modules; the first call imports them, which takes 1 to 2 s. Raises ToolchainError."""
    require_dsl()
    return DslBindings(
        dsl_module("cutlass.compiler"),
        dsl_module("cutlass._mlir.ir"),
        dsl_module("cutlass._mlir.passmanager"),
        dsl_module("cutlass._mlir.dialects.llvm"),
    )


# Put before the DSL's own message if a runtime value, which each call passes, was given for a Constexpr: the DSL's
# message describes only a later error that this mistake causes.
_OUTSIDE = (
    "a kernel is given a value of each call where it declares a Constexpr: pass it a constant, or declare the "
    "parameter with the DSL's type of a number"
)


def diagnosis(error: BaseException) -> str:
    r"""Returns the DSL's error message without colours and empty lines.

    >>> diagnosis(RuntimeError("\x1b[31merror\x1b[0m: no such op\n\n"))
    'error: no such op'
    """
    lines = [line.rstrip() for line in _COLOURS.sub("", str(error)).splitlines()]
    message = "\n".join(line for line in lines if line) or type(error).__name__
    return f"{_OUTSIDE}\n{message}" if "value defined outside" in message else message


@cache
def _flavour() -> str:
    loaded = sys.modules.get(f"{_LIBRARIES}._cutlass_ir")
    if loaded is not None and (match := _FLAVOUR.search(str(loaded.__file__))):
        return f"cu{match.group(1)}"
    installed = sorted(
        {int(match.group(1)) for path in _library_folder().iterdir() if (match := _FLAVOUR.match(path.name))}
    )
    if not installed:
        raise ToolchainError(f"{PACKAGE} {dsl_version()} is installed without a CUDA flavour; {INSTALL}")
    driver = _driver_major() if len(installed) > 1 else None
    fitting = [major for major in installed if driver is None or major <= driver]
    return f"cu{(fitting or installed)[-1]}"


def _library_folder() -> Path:
    for folder in folders_of("nvidia_cutlass_dsl"):
        path = folder / "dsl_packages" / "cutlass" / "_mlir" / "_mlir_libs"
        if path.is_dir():
            return path
    raise ToolchainError(f"{PACKAGE} {dsl_version()} is installed, and its files are not where they were up to 4.8")


def _driver_major() -> int | None:
    """Returns the CUDA major version that the driver supports; None without a driver or a device."""
    try:
        if open_driver("cuda") == 0:
            return None
        return int(gpu_attributes("cuda", 0)["driver_version"]) // 1000
    except DeviceError:
        return None


@cache
def _installed_files() -> str:
    """Returns a digest of the file digests that the installer recorded for each of the DSL's distributions."""
    state = hashlib.sha256()
    distributions = {
        str(distribution.metadata["Name"]).lower(): distribution
        for distribution in metadata.distributions(name=None)
        if _is_part(distribution)
    }
    for name in sorted(distributions):
        record = distributions[name].read_text("RECORD") or ""
        recorded = sorted(line for line in record.splitlines() if ",sha256=" in line and "__pycache__" not in line)
        state.update("\n".join([name, distributions[name].version, *recorded, ""]).encode())
    return state.hexdigest()[:16]


def _is_part(distribution: metadata.Distribution) -> bool:
    return str(distribution.metadata["Name"]).lower().replace("_", "-").startswith(PACKAGE)


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
    """Compiles an artifact for an arch. Raises CompileError with the DSL's diagnosis."""
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
        return tuple(device_code(container) for container in _containers(module, modules.ir))


def _containers(module: Any, ir: Any) -> list[bytes]:  # noqa: ANN401
    values = [
        view.attributes["value"]
        for view in module.body.operations
        if view.operation.name == "llvm.mlir.global" and "value" in view.attributes
    ]
    return [
        value.value_bytes for value in values if isinstance(value, ir.StringAttr) and _is_container(value.value_bytes)
    ]


def _host_function(functions: dict[str, Any]) -> str:
    """Returns the name of the host function: the only function ``f`` that has a C wrapper ``_mlir_ciface_f``."""
    names = [name for name in functions if f"_mlir_ciface_{name}" in functions]
    if len(names) != 1:
        raise CompileError(f"the DSL made {len(names)} host functions, and Silo takes one")
    return names[0]


def _is_container(data: bytes) -> bool:
    return len(data) >= 16 and struct.unpack_from("<I", data)[0] == _CONTAINER_MAGIC


def device_code(container: bytes) -> bytes:
    """Returns the only cubin in a fat binary. Raises CompileError if it does not hold exactly one.

    A fat binary has a header of 16 bytes (magic, version, its size, the size of all that follows), then for each cubin
    or PTX a header (kind, version, its size, the size of the code, flags at byte 40) and the code.
    """
    try:
        _, _, start, _ = struct.unpack_from("<IHHQ", container)
        kind, _, header, size = struct.unpack_from("<HHIQ", container, start)
        (flags,) = struct.unpack_from("<Q", container, start + 40)
    except struct.error as error:
        raise CompileError(f"the device code that the DSL made is truncated: {error}") from error
    code = container[start + header : start + header + size]
    end = start + header + size
    if kind != _KIND_ELF or flags & _FLAG_COMPRESSED or len(code) != size or container[end:].strip(b"\0"):
        raise CompileError("the device code that the DSL made is not one cubin as it is")
    return code
