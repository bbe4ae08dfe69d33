"""What a tuner of another framework decided, as a value: recordings keep it, and locks say it."""

from __future__ import annotations

from silo.core.config import Config
from silo.core.json_reader import read_list, read_object, read_text
from silo.core.target import Target, read_target
from silo.core.values import JSON, Value, canonical_json, identity_of, value_from_json, value_to_json
from silo.frozen import field, frozen

__all__ = ["ForeignWinner"]


@frozen
class ForeignWinner:
    """What a tuner decided for one of its keys on one kind of device.

    ``source`` is the kernel's fingerprint, ``key`` Triton's own key: values of arguments, of which ``names`` names the
    first, then dtypes. ``config`` is everything that the config sets.
    """

    kernel: str
    source: str
    target: Target
    names: tuple[str, ...]
    key: tuple[Value, ...] = field(identity=identity_of)
    config: Config

    @property
    def slot(self) -> tuple[str, str, str]:
        """What it is a decision about."""
        return self.source, str(self.target), canonical_json([value_to_json(value) for value in self.key]).decode()

    @property
    def identity(self) -> str:
        """Which decision it is: the first one for a slot holds."""
        return "winner " + " ".join(self.slot)

    def to_json(self) -> JSON:
        """The canonical form."""
        return {
            "kind": "winner",
            "kernel": self.kernel,
            "source": self.source,
            "target": str(self.target),
            "names": list(self.names),
            "key": [value_to_json(value) for value in self.key],
            "config": self.config.to_json(),
        }

    @classmethod
    def from_json(cls, data: JSON) -> ForeignWinner:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        names = ("kind", "kernel", "source", "target", "names", "key", "config")
        members = read_object(data, names, "a winner")
        return cls(
            kernel=read_text(members["kernel"], "the kernel of a winner"),
            source=read_text(members["source"], "the source of a winner"),
            target=read_target(members["target"], "the target of a winner"),
            names=tuple(read_text(name, "a name") for name in read_list(members["names"], "the names of a winner")),
            key=tuple(value_from_json(value) for value in read_list(members["key"], "the key of a winner")),
            config=Config.from_json(members["config"]),
        )
