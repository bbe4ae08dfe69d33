"""Variants, compile jobs and their keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from silo.core.config import Config
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.target import Target
from silo.core.values import JSON, digest

__all__ = ["CompileJob", "Variant"]


@dataclass(frozen=True, slots=True)
class Variant:
    """Source + signature + specialization + config + target.

    ``source`` is the source's fingerprint; ``signature`` is typed. Constexpr parameters get their value from the
    specialization where the caller gave it, from the config otherwise.
    """

    kernel: str
    source: str
    signature: Signature
    specialization: Specialization
    config: Config
    target: Target

    def to_json(self) -> JSON:
        """The canonical form."""
        return {
            "kernel": self.kernel,
            "source": self.source,
            "signature": self.signature.to_json(),
            "specialization": self.specialization.to_json(),
            "config": self.config.to_json(),
            "target": str(self.target),
        }

    @classmethod
    def from_json(cls, data: JSON) -> Variant:
        """The inverse of :meth:`to_json`."""
        if not isinstance(data, dict) or set(data) != {
            "kernel",
            "source",
            "signature",
            "specialization",
            "config",
            "target",
        }:
            raise ValueError(f"not a variant: {data!r}")
        return cls(
            kernel=cast("str", data["kernel"]),
            source=cast("str", data["source"]),
            signature=Signature.from_json(data["signature"]),
            specialization=Specialization.from_json(data["specialization"]),
            config=Config.from_json(data["config"]),
            target=Target.parse(cast("str", data["target"])),
        )

    def artifact_key(self, compiler_identity: str) -> str:
        """The key its artifact is stored under (schema ``artifact-key/1``)."""
        return digest("artifact-key/1", [self.to_json(), compiler_identity])


@dataclass(frozen=True, slots=True)
class CompileJob:
    """What a compile worker gets: text and plain values only, no Python objects.

    ``compiler`` names the plug-in, ``text`` is the front end's output (TTIR), ``parameters`` whatever that plug-in
    needs besides. Two configs that lead to equal jobs (a CPU ignores num_warps) are compiled once.
    """

    compiler: str
    kernel: str
    target: Target
    text: str
    parameters: JSON

    def to_json(self) -> JSON:
        """The canonical form, also what travels to a worker."""
        return {
            "compiler": self.compiler,
            "kernel": self.kernel,
            "target": str(self.target),
            "text": self.text,
            "parameters": self.parameters,
        }

    @classmethod
    def from_json(cls, data: JSON) -> CompileJob:
        """The inverse of :meth:`to_json`."""
        if not isinstance(data, dict) or set(data) != {"compiler", "kernel", "target", "text", "parameters"}:
            raise ValueError("not a compile job")
        return cls(
            compiler=cast("str", data["compiler"]),
            kernel=cast("str", data["kernel"]),
            target=Target.parse(cast("str", data["target"])),
            text=cast("str", data["text"]),
            parameters=data["parameters"],
        )

    def key(self, compiler_identity: str) -> str:
        """The key its outcome is stored under (schema ``job-key/1``)."""
        return digest("job-key/1", [self.to_json(), compiler_identity])
