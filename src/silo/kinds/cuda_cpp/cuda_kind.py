"""The source plug-in ``cuda``: kernels in CUDA C++, made by ``silo.cuda``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.sources.declaration import Declaration, plain_callable
from silo.sources.kernel_source import KernelSource

if TYPE_CHECKING:
    from silo.sources.installations import Finding

__all__ = ["CudaKind"]


class CudaKind:
    """Reads the definitions made by ``silo.cuda`` (:func:`silo.kinds.cuda_cpp.cuda_definition.cuda`)."""

    advice = "make one of a text in CUDA C++ with silo.cuda(text, threads=...)"
    example_targets = ("cuda:sm_90a", "hip:gfx942")

    @property
    def define(self) -> Callable[..., object]:
        """The function that users call as ``silo.cuda``."""
        from silo.kinds.cuda_cpp.cuda_definition import cuda  # noqa: PLC0415  # few programs have CUDA C++ kernels

        return cuda

    def reads(self, value: object) -> Decision:
        """Accepts definitions made by ``silo.cuda``."""
        if isinstance(value, Declaration) and value.source.kind == "cuda":
            return Accepted("a CUDA C++ kernel")
        return Rejected("not a CUDA C++ kernel, which silo.cuda(...) makes")

    def read(self, value: object) -> Declaration:
        """Returns the definition itself."""
        assert isinstance(value, Declaration)
        return value

    def wrap(self, source: KernelSource, launcher: Callable[[], Any], members: Mapping[str, object]) -> Any:  # noqa: ANN401
        """Returns an object that only Python code can call: no other kernel calls a CUDA C++ kernel."""
        return plain_callable(source, launcher, members)

    def findings(self) -> Sequence[Finding]:
        """Returns findings on every NVRTC that is installed, and on the compiler for HIP."""
        from silo.kinds.cuda_cpp.cuda_findings import findings  # noqa: PLC0415  # for ``silo doctor`` alone

        return findings()
