"""A compile job of Pallas: the bytes of the exported program, and what its worker and its loader need besides."""

from __future__ import annotations

import base64
import binascii

from silo.core.json_reader import read_list, read_natural, read_object, read_text
from silo.core.target import Target
from silo.core.values import JSON
from silo.core.variant import CompileJob
from silo.errors import CompileError
from silo.frozen import frozen, names_of
from silo.kinds.pallas.memory_estimate import MemoryReport
from silo.kinds.pallas.pallas_declaration import PALLAS

__all__ = ["PallasJob"]


@frozen
class PallasJob:
    """What a worker needs. No source of the author's, for the program is traced and exported when the job is made.

    ``program`` is what ``jax.export`` gave, serialized; the job's text, in base64. ``jax`` is the version that made it
    and ``calling_convention`` that of the bytes. ``plan`` is the canonical form of a
    :class:`silo.kinds.pallas.call_plan.CallLayout`. ``memory`` is the canonical form of the estimate for the target's
    chip, None where it has none. ``parameters`` are the names of the kernel's parameters, constants too.
    """

    program: bytes
    jax: str
    calling_convention: int
    plan: JSON
    memory: JSON = None
    parameters: tuple[str, ...] = ()

    @property
    def memory_table(self) -> str:
        """What the estimate says of each argument; "" where there is none."""
        return "" if self.memory is None else MemoryReport.from_json(self.memory).table()

    def to_job(self, kernel: str, target: Target) -> CompileJob:
        """What travels to a worker."""
        parameters: dict[str, JSON] = {
            "jax": self.jax,
            "calling_convention": self.calling_convention,
            "plan": self.plan,
            "memory": self.memory,
            "parameters": list(self.parameters),
        }
        return CompileJob(PALLAS.name, kernel, target, base64.b64encode(self.program).decode("ascii"), parameters)

    @classmethod
    def from_job(cls, job: CompileJob) -> PallasJob:
        """The inverse of :meth:`to_job`. Raises CompileError: the job is another compiler's, or damaged."""
        try:
            names = tuple(name for name in names_of(cls) if name != "program")
            data = read_object(job.parameters, names, "the parameters of the job")
            return cls(
                program=base64.b64decode(job.text, validate=True),
                jax=read_text(data["jax"], "a version"),
                calling_convention=read_natural(data["calling_convention"], "a calling convention"),
                plan=data["plan"],
                memory=data["memory"],
                parameters=tuple(
                    read_text(one, "a parameter") for one in read_list(data["parameters"], "the parameters of a kernel")
                ),
            )
        except (TypeError, KeyError, ValueError, binascii.Error) as error:
            raise CompileError(f"{job.kernel}: the job is no Pallas job: {error}") from error
