"""The source plug-in ``binary``: kernels compiled by other tools, made by ``silo.binary``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.sources.declaration import Declaration, plain_callable
from silo.sources.kernel_source import KernelSource

__all__ = ["BinaryKind"]


class BinaryKind:
    """Reads the definitions made by ``silo.binary`` (:func:`silo.kinds.binary.binary_definition.binary`)."""

    advice = "make one of a compiled kernel with silo.binary(...)"
    unnamed_in_bundles = True

    @property
    def define(self) -> Callable[..., object]:
        """The function that users call as ``silo.binary``."""
        from silo.kinds.binary.binary_definition import binary  # noqa: PLC0415  # few programs have compiled kernels

        return binary

    def reads(self, value: object) -> Decision:
        """Accepts definitions made by ``silo.binary``."""
        if isinstance(value, Declaration) and value.source.kind == "binary":
            return Accepted("a compiled kernel")
        return Rejected("not a compiled kernel: silo.binary(...) makes one of a file, of bytes or of PTX text")

    def read(self, value: object) -> Declaration:
        """Returns the definition itself."""
        assert isinstance(value, Declaration)
        return value

    def wrap(self, source: KernelSource, launcher: Callable[[], Any], members: Mapping[str, object]) -> Any:  # noqa: ANN401
        """Returns an object that only Python code can call: no other kernel calls a compiled kernel."""
        return plain_callable(source, launcher, members)
