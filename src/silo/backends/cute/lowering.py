"""The DSL's front end: from a wrapper to the bytes of a precompiled artifact, the same in every folder."""

from __future__ import annotations

import io
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Any

from silo.backends.cute.toolchain import Bindings, bindings, diagnosis
from silo.errors import CompileError, SiloError
from silo.garbage import seldom_collected
from silo.sources.cute.installation import dsl_module, dsl_version
from silo.sources.cute.wrapper import Wrapper

__all__ = ["Traced", "trace"]

# The DSL asks itself for the arch in these functions of its own, whatever the kernel does.
_ASKS_ANYWAY = frozenset({"generate_launch_op", "_is_supported_arch"})


@dataclass(frozen=True, slots=True)
class Traced:
    """What the front end made: the artifact's bytes, and whether the kernel asked what arch it is for."""

    artifact: bytes
    asked_for_arch: bool


def trace(wrapper: Wrapper, arch: str, name: str) -> Traced:
    """Run the front end; ``name`` is the kernel's, for messages. The caller holds the front end's lock.

    Raises:
        CompileError: the front end refused the kernel; has its diagnosis.
        ToolchainError: no usable DSL.
    """
    modules = bindings()
    cute = dsl_module("cutlass.cute")
    with _questions() as asked, seldom_collected():  # tracing makes little else than what lives to its end
        try:
            artifact = cute.compile.to_precompiled_mlir(
                wrapper.function, *wrapper.arguments, options=f"--gpu-arch {arch}"
            )
        except SiloError:
            raise
        except Exception as error:  # the kernel's own Python runs here, and may raise anything
            if isinstance(error, KeyError) and error.args == (arch,):  # the DSL's own enumeration
                raise CompileError(
                    f"{name}: CuTe DSL {dsl_version()} knows no {arch}; name an arch such as sm_80, sm_90a, sm_100a or "
                    "sm_120a"
                ) from error
            raise CompileError(f"{name} for {arch}: {diagnosis(error)}{_place(error)}") from error
    return Traced(_normalised(artifact, modules), bool(asked))


def _place(error: BaseException) -> str:
    """Where in the author's own code it was raised, for the end of a message; "" where the DSL says it itself."""
    folder = str(Path(dsl_module("cutlass").__file__).parent)
    frames = [(one.f_code.co_filename, line) for one, line in walk_tb(error.__traceback__)]
    own = [(name, line) for name, line in frames if not name.startswith((folder, "<")) and name != __file__]
    if not own or own[0][0] in str(error):
        return ""
    file = own[0][0]  # that of the kernel; what follows may be a library that the DSL calls
    return f" ({file}:{[line for name, line in own if name == file][-1]})"


@contextmanager
def _questions() -> Generator[list[str]]:
    """Who asks the DSL for the arch within the block, besides the DSL's own front end."""
    dsl = dsl_module("cutlass.cutlass_dsl").CuTeDSL._get_dsl()  # noqa: SLF001  # kernels get it so, too
    answer = dsl.get_arch_enum
    asked: list[str] = []

    def get_arch_enum() -> Any:  # noqa: ANN401
        caller = sys._getframe(1).f_code.co_name  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        if caller not in _ASKS_ANYWAY:
            asked.append(caller)
        return answer()

    dsl.get_arch_enum = get_arch_enum
    try:
        yield asked
    finally:
        del dsl.get_arch_enum


def _normalised(artifact: Any, modules: Bindings) -> bytes:  # noqa: ANN401
    """The artifact's bytes without locations in the source, and without host code that only prints.

    Before each launch the front end adds a print, which says that the shared memory is more than the arch has; its
    number and its words would make the bytes differ by the arch. Silo checks that itself.
    """
    ir = modules.ir
    with ir.Context() as context:
        context.enable_multithreading(False)  # noqa: FBT003  # the bindings' way
        module = ir.Module.parse(artifact.get_bitcode())
        for operation in module.body.operations:
            if operation.operation.name == "func.func":
                for block in operation.regions[0].blocks:
                    _drop_prints(block)
        modules.passes.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
        buffer = io.BytesIO()
        module.operation.write_bytecode(buffer)
    made = modules.compiler.PreCompiledMlirArtifact.from_bitcode(buffer.getvalue())
    for one in artifact.metadata:
        made.metadata.append(one)
    return modules.compiler.serialize_compilation_artifact(made)


def _drop_prints(block: Any) -> None:  # noqa: ANN401
    for view in list(block.operations):
        operation = view.operation
        if operation.name == "scf.if" and not len(operation.results) and _only_prints(operation):
            conditions = [operand.owner for operand in operation.operands]
            operation.erase()
            _drop_unused(conditions)


def _only_prints(operation: Any) -> bool:  # noqa: ANN401
    inside = [one.operation.name for region in operation.regions for block in region.blocks for one in block.operations]
    return "cute.print" in inside and set(inside) <= {"cute.print", "scf.yield"}


def _drop_unused(owners: list[Any]) -> None:
    """Comparisons and constants that nothing uses any more."""
    while owners:
        owner = owners.pop()
        if getattr(owner, "name", "") not in ("arith.cmpi", "arith.constant"):
            continue
        if any(list(result.uses) for result in owner.results):
            continue
        owners += [operand.owner for operand in owner.operands]
        owner.erase()
