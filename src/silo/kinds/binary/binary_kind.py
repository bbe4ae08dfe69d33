"""The source plug-in ``binary``: kernels compiled by other tools, made by ``silo.binary``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.sources.callables import plain_callable
from silo.sources.declaration import Declaration
from silo.sources.kernel_source import KernelSource

__all__ = ["BinaryKind"]


class BinaryKind:
    """Reads what :func:`silo.kinds.binary.binary_definition.binary` makes, and takes it from ``silo.binary``."""

    advice = "make one of a compiled kernel with silo.binary(...)"
    unnamed_in_bundles = True

    @property
    def define(self) -> Callable[..., object]:
        """What ``silo.binary`` calls."""
        from silo.kinds.binary.binary_definition import binary  # noqa: PLC0415  # most programs have no compiled kernels

        return binary

    def reads(self, value: object) -> Decision:
        """A definition of a compiled kernel."""
        if isinstance(value, Declaration) and value.source.kind == "binary":
            return Accepted("a compiled kernel")
        return Rejected("not a compiled kernel: silo.binary(...) makes one of a file, of bytes or of PTX text")

    def read(self, value: object) -> Declaration:
        """The definition itself."""
        assert isinstance(value, Declaration)
        return value

    def wrap(self, source: KernelSource, launcher: Callable[[], Any], members: Mapping[str, object]) -> Any:  # noqa: ANN401
        """Nothing but Python calls it."""
        return plain_callable(source, launcher, members)
