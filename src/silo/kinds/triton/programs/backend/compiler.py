"""The compiler backend that Triton discovers; :mod:`.stages` does the work, and is imported when first needed."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

# Triton has no types, and its discovery requires exactly one concrete subclass of this class in the module.
_Base: Any = import_module("triton.backends.compiler").BaseBackend

# The target that this thread last compiled for, with any backend. Triton's C tools ask the active driver for the types
# of parameters without naming the target, but Triton calls every backend with the target before it chooses one.
last_target = threading.local()


class CpuBackend(_Base):
    """Compiles Triton kernels to shared objects for ``GPUTarget("cpu", LEVEL, 1)``.

    LEVEL is, for example, ``x86-64-v3``.
    """

    binary_ext = "so"

    def __init__(self, target: Any) -> None:  # noqa: ANN401  # Triton's GPUTarget
        _Base.__init__(self, target)
        self._light: Any = import_module("silo.kinds.triton.programs.backend.stages")
        self._front_end: Any = self._light.front_end(target)
        self._backend: Any = None

    @property
    def _stages(self) -> Any:  # noqa: ANN401
        """The compile stages; not needed for kernels whose code is stored."""
        if self._backend is None:
            self._backend = import_module("silo.kinds.triton.programs.backend.stages").CpuStages(self.target)
        return self._backend

    @staticmethod
    def supports_target(target: Any) -> bool:  # noqa: ANN401
        """Whether ``target`` is a CPU. Triton calls this with targets of every kind."""
        last_target.kind = target.backend
        return target.backend == "cpu"

    def hash(self) -> str:
        """A text of all that decides the compiled code besides kernel and options: levels, compilers, Silo itself."""
        return self._stages.identity()

    def parse_options(self, options: dict[str, Any]) -> Any:  # noqa: ANN401
        """Accepts the options of every backend; most of them change nothing."""
        return self._light.parse_options(self._front_end, options)

    def pack_metadata(self, metadata: Any) -> tuple[int, int, int]:  # noqa: ANN401
        """The numbers that launch hooks of Triton's tools read: warps, blocks of a cluster, shared memory."""
        return (metadata.num_warps, metadata.num_ctas, metadata.shared)

    def get_codegen_implementation(self, options: Any) -> dict[str, Any]:  # noqa: ANN401
        """The functions with which a target implements parts of the language."""
        return self._front_end.get_codegen_implementation(options)

    def get_module_map(self) -> dict[str, Any]:
        """The library that implements ``triton.language.extra.libdevice``."""
        return self._front_end.get_module_map()

    def load_dialects(self, context: Any) -> None:  # noqa: ANN401
        """Loads no dialects beyond Triton's own."""
        self._front_end.load_dialects(context)

    def add_stages(self, stages: dict[str, Any], options: Any, language: Any = None) -> None:  # noqa: ANN401
        """Adds the stages from the front end's module to TTIR, to C text, to a shared object."""
        self._stages.add(stages, options, language)


# A later version of Triton may add abstract methods, and a class that cannot be instantiated would make `import triton`
# fail.
CpuBackend.__abstractmethods__ = frozenset()
