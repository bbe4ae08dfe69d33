"""The compiler backend that Triton finds: each step is done by :mod:`.stages`, imported when first needed."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

# Triton is untyped, and its discovery needs one concrete subclass of this in the module.
_Base: Any = import_module("triton.backends.compiler").BaseBackend

# The target that this thread last compiled for, with any backend: Triton's tools for C ask the active driver for the
# types of parameters and do not say for which target, but Triton asks every backend before it chooses one for a target.
last_target = threading.local()


class CpuBackend(_Base):
    """Compiles Triton kernels to shared objects for ``GPUTarget("cpu", LEVEL, 1)``.

    A level is ``x86-64-v3``, for example.
    """

    binary_ext = "so"

    def __init__(self, target: Any) -> None:  # noqa: ANN401  # Triton's GPUTarget
        _Base.__init__(self, target)
        self._light: Any = import_module("silo.kinds.triton.programs.backend.stages")
        self._front_end: Any = self._light.front_end(target)
        self._made: Any = None

    @property
    def _stages(self) -> Any:  # noqa: ANN401
        """The compiler, which kernels that are kept do without."""
        if self._made is None:
            self._made = import_module("silo.kinds.triton.programs.backend.stages").CpuStages(self.target)
        return self._made

    @staticmethod
    def supports_target(target: Any) -> bool:  # noqa: ANN401
        """Whether this is a CPU. Triton calls this with targets of every kind."""
        last_target.kind = target.backend
        return target.backend == "cpu"

    def hash(self) -> str:
        """The facts that decide the bytes besides the kernel and its options: levels, compilers, Silo's own code."""
        return self._stages.identity()

    def parse_options(self, options: dict[str, Any]) -> Any:  # noqa: ANN401
        """Options of every backend are taken; most change nothing."""
        return self._light.parse_options(self._front_end, options)

    def pack_metadata(self, metadata: Any) -> tuple[int, int, int]:  # noqa: ANN401
        """What launch hooks of Triton's tools read: warps, blocks of a cluster, shared memory."""
        return (metadata.num_warps, metadata.num_ctas, metadata.shared)

    def get_codegen_implementation(self, options: Any) -> dict[str, Any]:  # noqa: ANN401
        """The few functions that a target gives the language."""
        return self._front_end.get_codegen_implementation(options)

    def get_module_map(self) -> dict[str, Any]:
        """The library behind ``triton.language.extra.libdevice``."""
        return self._front_end.get_module_map()

    def load_dialects(self, context: Any) -> None:  # noqa: ANN401
        """No dialects beyond Triton's own."""
        self._front_end.load_dialects(context)

    def add_stages(self, stages: dict[str, Any], options: Any, language: Any = None) -> None:  # noqa: ANN401
        """From the front end's module to TTIR, to C text, to a shared object."""
        self._stages.add(stages, options, language)


# A later Triton may require more methods: a class that Triton cannot make an instance of would fail `import triton`.
CpuBackend.__abstractmethods__ = frozenset()
