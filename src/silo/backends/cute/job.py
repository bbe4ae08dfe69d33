"""A compile job of the CuTe DSL: the bytes of its precompiled artifact, and what those do not say."""

from __future__ import annotations

import base64
import binascii
from enum import Enum

from silo.core.reading import read_integers, read_list, read_object, read_text
from silo.core.target import Target
from silo.core.values import JSON, malformed
from silo.core.variant import CompileJob
from silo.errors import CompileError
from silo.frozen import frozen, names_of

__all__ = ["CuteJob", "HostArgument", "Role"]

NAME = "cute"


class Role(Enum):
    """What one argument of the host function is to a launch."""

    ARRAY = "array"  # a pointer or a tensor: the kernel parameter of that name is an array
    SCALAR = "scalar"  # a number: the kernel parameter of that name
    GRID = "grid"  # an axis of the grid, which the launch gives: the name is x, y or z
    STREAM = "stream"  # the launch gives it; no name


@frozen
class HostArgument:
    """One argument of the host function that was traced, in its order: whose value the launch puts there."""

    role: Role
    name: str = ""

    def to_json(self) -> JSON:
        """The canonical form: ``[role, name]``."""
        return [self.role.value, self.name]

    @classmethod
    def from_json(cls, data: JSON) -> HostArgument:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        match read_list(data, "an argument of the host function"):
            case [role, name]:
                return cls(Role(role), read_text(name, "the name of an argument"))
            case _:
                raise malformed("an argument of the host function", data)


@frozen
class CuteJob:
    """What a worker needs to make a cubin and its launch info.

    ``artifact`` is what ``cute.compile.to_precompiled_mlir`` gave, serialized, without source locations; it is the
    job's text, in base64. All else is in the job's parameters: ``dsl`` and ``toolkit`` are the versions of the DSL that
    made it and of its CUDA toolkit, which have to be the worker's; ``arguments`` say what the host function's arguments
    are; ``block``, ``cluster`` and ``smem`` (bytes of dynamic shared memory) are what the author said, None where the
    artifact decides: one that is a constant there has to agree, and one that is none there is taken from here.
    ``host`` is who launches: ``silo``, or ``dsl`` for the DSL's own host function.
    """

    artifact: bytes
    dsl: str
    toolkit: str
    arguments: tuple[HostArgument, ...]
    block: tuple[int, ...] | None = None
    cluster: tuple[int, ...] | None = None
    smem: int | None = None
    host: str = "silo"

    def to_job(self, kernel: str, target: Target) -> CompileJob:
        """What travels to a worker."""
        parameters: dict[str, JSON] = {
            "dsl": self.dsl,
            "toolkit": self.toolkit,
            "arguments": [one.to_json() for one in self.arguments],
            "block": None if self.block is None else list(self.block),
            "cluster": None if self.cluster is None else list(self.cluster),
            "smem": self.smem,
            "host": self.host,
        }
        return CompileJob(NAME, kernel, target, base64.b64encode(self.artifact).decode("ascii"), parameters)

    @classmethod
    def from_job(cls, job: CompileJob) -> CuteJob:
        """The inverse of :meth:`to_job`. Raises CompileError: the job is another compiler's, or damaged."""
        try:
            names = tuple(name for name in names_of(cls) if name != "artifact")
            data = read_object(job.parameters, names, "the parameters of the job")
            arguments = read_list(data["arguments"], "the arguments of the host function")
            return cls(
                artifact=base64.b64decode(job.text, validate=True),
                dsl=read_text(data["dsl"], "a version"),
                toolkit=read_text(data["toolkit"], "a version"),
                arguments=tuple(HostArgument.from_json(one) for one in arguments),
                block=None if data["block"] is None else read_integers(data["block"], "a block"),
                cluster=None if data["cluster"] is None else read_integers(data["cluster"], "a cluster"),
                smem=None if data["smem"] is None else read_integers([data["smem"]], "shared memory")[0],
                host=read_text(data["host"], "a host"),
            )
        except (TypeError, KeyError, ValueError, binascii.Error) as error:
            raise CompileError(f"{job.kernel}: the job is no CuTe job: {error}") from error
