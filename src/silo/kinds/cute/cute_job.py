"""A compile job of the CuTe DSL: the bytes of its precompiled artifact, and facts that are not in the artifact."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from enum import Enum

from silo.core.device import Target
from silo.core.json_reader import (
    TEXT,
    Form,
    PersistedRow,
    enumerated,
    listed,
    read_integers,
    read_list,
    read_natural,
    read_object,
    read_text,
)
from silo.core.launch_info import AbiType
from silo.core.values import JSON, malformed
from silo.core.variant import CompileJob
from silo.errors import CompileError
from silo.frozen import field, frozen, names_of
from silo.kinds.cute.cute_declaration import CUTE
from silo.kinds.cute.front.wrapping import Wrapper
from silo.kinds.cute.tensor_maps import HostMaps

__all__ = ["AXES", "CuteArgumentRole", "CuteJob", "HostArgument", "host_arguments"]

AXES = ("x", "y", "z")


class CuteArgumentRole(Enum):
    """The kind of value that a launch passes for an argument of the host function."""

    POINTER = "pointer"  # an array: its address
    # an array with a dynamic layout: its address, and those extents and strides that each call passes
    TENSOR = "tensor"
    SCALAR = "scalar"  # a number
    GRID = "grid"  # the size of the grid along one axis; ``name`` is x, y or z
    STREAM = "stream"  # the launch's stream; ``name`` is ""


_ABI_TYPE = enumerated(AbiType)


def _read_leaf(data: JSON, label: str) -> tuple[AbiType, str]:
    match data:
        case [kind, str() as part]:
            return _ABI_TYPE.read(kind, label), part
        case _:
            raise malformed(label, data)


@frozen
class HostArgument(PersistedRow):
    """One argument of the traced host function, and the value that the launch passes for it.

    ``name`` is the kernel parameter's name. ``leaves`` are the scalars that make up the argument. Each is an ABI type
    and a part ("" for an address or a number, ``shape.0`` for the extent of axis 0), as in
    :class:`silo.core.launch_info.LayoutSlot`.
    """

    title = "an argument of the host function"

    role: CuteArgumentRole = field(form=enumerated(CuteArgumentRole))
    name: str = field(default="", form=TEXT)
    leaves: tuple[tuple[AbiType, str], ...] = field(
        default=(), form=listed(Form(_read_leaf, lambda leaf: [leaf[0].value, leaf[1]]))
    )


def host_arguments(wrapper: Wrapper) -> tuple[HostArgument, ...]:
    """Returns the arguments with which a wrapper is traced, in the wrapper's order."""
    arguments: list[HostArgument] = []
    for parameter in wrapper.parameters:
        role = CuteArgumentRole(parameter.form.value)
        leaves: Iterable[tuple[AbiType, str]] = parameter.leaves
        if role is CuteArgumentRole.POINTER:
            leaves = [(AbiType.POINTER, "")]
        elif role is CuteArgumentRole.SCALAR:
            # Kernels of the DSL take a bool as one byte.
            leaves = [(AbiType.U8 if parameter.dtype.short == "i1" else AbiType(parameter.dtype.short), "")]
        arguments.append(HostArgument(role, parameter.name, tuple(leaves)))
    if wrapper.written:
        arguments += [HostArgument(CuteArgumentRole.GRID, axis, ((AbiType.I32, ""),)) for axis in AXES]
    if wrapper.stream:
        arguments.append(HostArgument(CuteArgumentRole.STREAM))
    return tuple(arguments)


@frozen
class CuteJob:
    """The inputs from which a worker makes a cubin and its launch info.

    ``artifact`` is the result of ``cute.compile.to_precompiled_mlir``, serialized, without source locations; it is the
    job's text, in base64. The other fields are the job's parameters. ``dsl`` and ``toolkit`` are the versions of the
    DSL that made the artifact and of its CUDA toolkit; the worker must have the same versions. ``arguments`` describe
    the host function's arguments. ``block``, ``cluster`` and ``smem`` (bytes of dynamic shared memory) are the author's
    values, None if the artifact decides: a constant in the artifact must equal the author's value, and the author's
    value replaces a dynamic value. ``grid`` is the grid that the variant is for, None for any grid; ``maps`` are the
    tensor maps that the host function makes. ``host`` is ``silo``, or ``dsl`` if the DSL's own host function launches.
    Only then two further fields are set: ``parameters``, the names of all kernel parameters, and ``linker``, the
    linker's version.
    """

    artifact: bytes
    dsl: str
    toolkit: str
    arguments: tuple[HostArgument, ...]
    block: tuple[int, ...] | None = None
    cluster: tuple[int, ...] | None = None
    smem: int | None = None
    grid: tuple[int, ...] | None = None
    maps: HostMaps = HostMaps()
    host: str = "silo"
    parameters: tuple[str, ...] = ()
    linker: str = ""

    def to_job(self, kernel: str, target: Target) -> CompileJob:
        """Returns the job for a worker."""

        def sizes(numbers: tuple[int, ...] | None) -> JSON:
            return None if numbers is None else list(numbers)

        parameters: dict[str, JSON] = {
            "dsl": self.dsl,
            "toolkit": self.toolkit,
            "arguments": [argument.to_json() for argument in self.arguments],
            "block": sizes(self.block),
            "cluster": sizes(self.cluster),
            "smem": self.smem,
            "grid": sizes(self.grid),
            "maps": self.maps.to_json(),
            "host": self.host,
            "parameters": list(self.parameters),
            "linker": self.linker,
        }
        return CompileJob(CUTE.name, kernel, target, base64.b64encode(self.artifact).decode("ascii"), parameters)

    @classmethod
    def from_job(cls, job: CompileJob) -> CuteJob:
        """Returns the :class:`CuteJob` in a job. Raises CompileError if the job is another compiler's, or damaged."""

        def sizes(name: str) -> tuple[int, ...] | None:
            return None if data[name] is None else read_integers(data[name], f"the {name} of a job")

        try:
            names = tuple(name for name in names_of(cls) if name != "artifact")
            data = read_object(job.parameters, names, "the parameters of the job")
            arguments = read_list(data["arguments"], "the arguments of the host function")
            return cls(
                artifact=base64.b64decode(job.text, validate=True),
                dsl=read_text(data["dsl"], "a version"),
                toolkit=read_text(data["toolkit"], "a version"),
                arguments=tuple(HostArgument.from_json(argument) for argument in arguments),
                block=sizes("block"),
                cluster=sizes("cluster"),
                smem=None if data["smem"] is None else read_natural(data["smem"], "the smem of a job"),
                grid=sizes("grid"),
                maps=HostMaps.from_json(data["maps"]),
                host=read_text(data["host"], "the host of a job"),
                parameters=tuple(
                    read_text(item, "a parameter")
                    for item in read_list(data["parameters"], "the parameters of a kernel")
                ),
                linker=read_text(data["linker"], "the linker of a job"),
            )
        except (TypeError, KeyError, ValueError, binascii.Error) as error:
            raise CompileError(f"{job.kernel}: the job is no CuTe job: {error}") from error
