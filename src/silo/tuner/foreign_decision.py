"""A decision of another framework's tuner, as a value that recordings store and locks hold."""

from __future__ import annotations

from types import MappingProxyType

from silo.core.config import Config
from silo.core.device import TARGET, Target
from silo.core.json_reader import TEXT, VALUE, Persisted, listed, value_of
from silo.core.values import Value, canonical_json, identity_of, value_to_json
from silo.frozen import field, frozen

__all__ = ["ForeignWinner"]


@frozen
class ForeignWinner(Persisted):
    """The decision of another tuner, such as Triton's, for one of its keys on one kind of device.

    ``source`` is the kernel's fingerprint. ``key`` is the key of Triton's tuner: the values of the arguments that
    ``names`` lists, followed by dtypes. ``config`` holds every value that the chosen ``triton.Config`` sets.
    """

    title = "a winner"
    tags = MappingProxyType({"kind": "winner"})

    kernel: str = field(form=TEXT)
    source: str = field(form=TEXT)
    target: Target = field(form=TARGET)
    names: tuple[str, ...] = field(form=listed(TEXT))
    key: tuple[Value, ...] = field(identity=identity_of, form=listed(VALUE))
    config: Config = field(form=value_of(Config))

    @property
    def slot(self) -> tuple[str, str, str]:
        """The source, the target and the key: a lock holds at most one decision for them."""
        return self.source, str(self.target), canonical_json([value_to_json(value) for value in self.key]).decode()

    @property
    def identity(self) -> str:
        """The name of the decision in a recording. Of several decisions with one name, the first counts."""
        return "winner " + " ".join(self.slot)
