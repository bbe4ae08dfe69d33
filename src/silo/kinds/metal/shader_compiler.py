"""Metal kernels for Metal devices: the artifact is the text, with a description of each buffer for the loader."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import cast

from silo.compile.identity import code_digest
from silo.core.code_facts import CodeFacts, Lowered
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import CPU_LEVELS, Target
from silo.core.json_reader import read_dtype, read_integers, read_list, read_natural, read_object, read_text
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.protocols import Source
from silo.core.signature import Effect, ParameterKind, Signature
from silo.core.values import JSON, MAX_PARAMETERS, DType, canonical_json, malformed, parse_json
from silo.core.variant import Compiled, CompiledBlob, CompileJob, Variant
from silo.drivers.metal.metal_device import TARGETS
from silo.emulation.clang import find_clang
from silo.errors import CompileError, CompilerMissingError, SourceError
from silo.frozen import frozen, names_of
from silo.kinds.metal.checking.address_spaces import mixed_spaces
from silo.kinds.metal.front.metal_source import MetalSource
from silo.kinds.metal.metal_declaration import METAL
from silo.kinds.metal.metal_job import rewritten

__all__ = ["MOST_BUFFERS", "ShaderBuffer", "ShaderCompiler", "ShaderLayout"]

# ---- How a library launches a shader: the argument for each buffer. Stored as text in launch info, for the loader ----

MOST_BUFFERS = 31
_VERSION = 1


@frozen
class ShaderBuffer:
    """One buffer of the kernel: its ``index``, the index of its ``parameter``, and its ``dtype`` if it is a number."""

    index: int
    parameter: int
    dtype: DType | None = None

    def to_json(self) -> JSON:
        """Returns the canonical form: ``[index, parameter]``, or ``[index, parameter, dtype]``."""
        return [self.index, self.parameter, *(() if self.dtype is None else (self.dtype.name,))]


@frozen
class ShaderLayout:
    """The facts with which a library launches a shader.

    ``function`` is the kernel's name in the library, ``group`` the shape of a threadgroup. ``read`` and ``written`` are
    indices of arrays that are only read, or only written; other arrays are read and written.
    """

    function: str
    group: tuple[int, ...]
    buffers: tuple[ShaderBuffer, ...]
    read: tuple[int, ...] = ()
    written: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The canonical form as text, for launch info."""
        data: JSON = {
            "version": _VERSION,
            "function": self.function,
            "group": list(self.group),
            "buffers": [buffer.to_json() for buffer in self.buffers],
            "read": list(self.read),
            "written": list(self.written),
        }
        return canonical_json(data).decode()

    @classmethod
    def from_text(cls, text: str) -> ShaderLayout:
        """Parses the :attr:`text` of a layout; raises ``ValueError`` for any other text."""
        data = parse_json(text.encode())
        members = read_object(data, ("version", *names_of(cls)), "the plan of a shader")
        if members["version"] != _VERSION:
            raise malformed("a plan of a shader that this Silo knows", data)
        group = read_integers(members["group"], "a threadgroup")
        buffers = tuple(_buffer(item) for item in read_list(members["buffers"], "buffers", MOST_BUFFERS))
        indices = [buffer.index for buffer in buffers]
        if len(group) != 3 or min(group) < 1 or indices != sorted(set(indices)):  # group has one size for each axis
            raise malformed("the plan of a shader", data)
        read, written = (_indices(members[name]) for name in ("read", "written"))
        if not {*read, *written} <= set(indices) or set(read) & set(written):
            raise malformed("the effects of a shader", data)
        return cls(read_text(members["function"], "a function"), group, buffers, read, written)


def _indices(data: JSON) -> tuple[int, ...]:
    return tuple(read_natural(item, "the index of a buffer") for item in read_list(data, "indices", MOST_BUFFERS))


def _buffer(data: JSON) -> ShaderBuffer:
    items = read_list(data, "a buffer", 3)
    if len(items) < 2:
        raise malformed("a buffer", data)
    index, parameter = (read_natural(item, "a buffer") for item in items[:2])
    if index >= MOST_BUFFERS or parameter >= MAX_PARAMETERS:
        raise malformed("a buffer", data)
    return ShaderBuffer(index, parameter, read_dtype(items[2], "a number") if items[2:] else None)


# ---- The compiler plug-in ----


class _Facts(CodeFacts):
    def __init__(self, signature: Signature) -> None:
        self._effects = {
            parameter.name: parameter.effect
            for parameter in signature.parameters
            if parameter.kind is ParameterKind.POINTER
        }

    @property
    def effects(self) -> Mapping[str, Effect]:
        """The effect through each array parameter, from the source's signature."""
        return self._effects


class ShaderCompiler:
    """The plug-in ``metal``: source kind ``metal``, targets ``metal:*``. Needs no Mac; checks the text only partly."""

    declaration = METAL

    def identity(self, target: Target) -> str:
        """Returns the digest of Silo's code."""
        del target
        return f"metal text code {code_digest(*self.declaration.code)}"

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Accepts Metal sources for a version of the language."""
        if not (decision := self.declaration.takes(source_kind, target)):
            return decision
        if target.arch not in TARGETS:
            return Rejected(f"{target} names no version that is known here; write metal:{', metal:'.join(TARGETS)}")
        return Accepted("its text, which Metal compiles where it is loaded")

    def artifact_target(self, target: Target) -> Target:
        """Returns ``target`` unchanged."""
        return target

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """Returns a job with the text and the variant's constants.

        Raises:
            SourceError: not a Metal source.
            CompileError: a constant without a value, or an invalid threadgroup.
        """
        if not isinstance(source, MetalSource):
            raise SourceError(f"{source.name} is a {source.kind} source; Metal's compiler takes metal sources")
        constants = source.constants(variant)
        places = {name: index for index, name in enumerate(source.signature.names)}
        buffers = [
            ShaderBuffer(
                buffer.index,
                places[buffer.name],
                None if (parameter := source.signature[buffer.name]).kind is ParameterKind.POINTER else parameter.dtype,
            )
            for buffer in source.kernel.buffers
        ]
        effects = {buffer.index: source.signature[buffer.name].effect for buffer in source.kernel.buffers}
        plan = ShaderLayout(
            source.kernel.name,
            source.group_size(constants),
            tuple(buffers),
            read=tuple(
                buffer.index for buffer in buffers if buffer.dtype is None and effects[buffer.index] is Effect.READ
            ),
            written=tuple(
                buffer.index for buffer in buffers if buffer.dtype is None and effects[buffer.index] is Effect.WRITE
            ),
        )
        parameters: dict[str, JSON] = {
            "plan": plan.text,
            "layout": [slot.to_json() for slot in _layout(variant.signature)],
            "group": list(plan.group),
        }
        job = CompileJob(METAL.name, variant.kernel, variant.target, source.metal(constants), parameters)
        return Lowered(job, _Facts(source.signature))

    def compile(self, job: CompileJob) -> Compiled:
        """Returns the text with its layout; if clang is installed, it checks the text's address spaces first.

        Raises:
            CompileError: the job is damaged, or a pointer of one address space is used as another's.
        """
        try:
            data = read_object(job.parameters, ("plan", "layout", "group"), "the parameters of the job")
            layout = tuple(LayoutSlot.from_json(slot) for slot in read_list(data["layout"], "the layout of a job"))
            x, y, z = cast("tuple[int, int, int]", read_integers(data["group"], "a threadgroup"))
            plan = read_text(data["plan"], "the plan of a job")
        except (TypeError, ValueError) as error:
            raise CompileError(f"{job.kernel}: the job is no job for Metal: {error}") from error
        _check_spaces(job)
        launch = LaunchInfo(
            job.kernel, layout, threads=x * y * z, block=(x, y, z), num_warps=-(-x * y * z // 32), loader=plan
        )
        return Compiled(launch, CompiledBlob("msl", job.text.encode()))


def _check_spaces(job: CompileJob) -> None:
    """Raises CompileError for clang's errors about pointers.

    Without clang, only Metal itself checks the text, on a Mac.
    """
    machine = "aarch64" if platform.machine() in ("aarch64", "arm64") else "x86-64"
    try:
        clang = find_clang()
    except CompilerMissingError:
        return
    any_level = Target("cpu", CPU_LEVELS[machine][0])
    mismatches = mixed_spaces(rewritten(job.text), f"{job.kernel}.metal", any_level, clang)
    if mismatches is not None:
        raise CompileError(f"{mismatches.place}: {mismatches.what}, which Metal refuses")


def _layout(signature: Signature) -> tuple[LayoutSlot, ...]:
    """Returns the slots of a launch: the buffers by rising index."""
    return tuple(
        LayoutSlot(parameter.name, AbiType.POINTER)
        if parameter.kind is ParameterKind.POINTER or parameter.dtype is None
        else LayoutSlot(parameter.name, AbiType(parameter.dtype.short))
        for parameter in signature.parameters
        if parameter.kind is not ParameterKind.CONSTEXPR
    )
