"""Connects Silo to ``torch.compile`` when a program loads it. Never imports torch, which would take seconds.

``silo.kernel`` calls :func:`watch` at its first use. Kernels are often defined before torch is imported.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from silo.launch.arrays_without_memory import set_tracer
from silo.settings import checks_wanted

__all__ = ["watch", "watch_extensions", "watch_inductor", "watch_memory"]

_HERE = __name__.rpartition(".")[0]
# For each module of torch, the module here that connects it. In this order, the modules of torch trace calls of Triton
# kernels into a graph, store compiled kernels for a package, remove copies from a graph, and make a graph's cache key.
_SEAMS = {
    "torch._higher_order_ops.triton_kernel_wrap": f"{_HERE}.dynamo",
    "torch._inductor.runtime.triton_heuristics": f"{_HERE}.aoti",
    "torch._inductor.fx_passes.post_grad": f"{_HERE}.kept_copies",
    "torch._inductor.codecache": f"{_HERE}.graph_keys",
}
# The module with torch's allocator of CPU memory, which is connected only if SILO_CHECK is set.
_MEMORY = {"torch": f"{_HERE}.unset_memory"}
# The module that builds CUDA extensions, which is connected if the CPU serves cuda.
_EXTENSIONS = {"torch.utils.cpp_extension": "silo.integrations.cuda_on_cpu.placement"}
# Connects the tuner and the caches of Inductor's GPU kernels, if Silo accelerates the program.
_GPU = "silo.integrations.inductor.gpu_patching"
_INDUCTOR = {
    "torch._inductor.runtime.triton_heuristics": _GPU,
    "torch._inductor.codecache": _GPU,
    "torch._inductor.async_compile": _GPU,
    "torch._inductor.codegen.triton": _GPU,
}


def watch() -> None:
    """Connects Silo to each module of torch's compiler: at once if it is loaded, else when torch loads it."""
    set_tracer(_serve)
    _await(_SEAMS)
    watch_memory()


def watch_memory() -> None:
    """If ``SILO_CHECK=1``, makes torch fill new memory with a pattern: at once, or when torch is loaded."""
    if checks_wanted():
        _await(_MEMORY)


def watch_extensions() -> None:
    """Makes torch refuse CUDA extensions: at once, or when torch loads the module that builds them."""
    _await(_EXTENSIONS)


def watch_inductor() -> None:
    """Lets Silo take part in Inductor's GPU kernels: at once, or when torch loads its compiler."""
    _await(_INDUCTOR)


# For each module of torch that is not loaded yet, the modules here that will connect it, in order of registration.
_connectors: dict[str, list[str]] = {}


def _await(connectors: Mapping[str, str]) -> None:
    """Connects Silo to modules of torch: to each at once if it is loaded, else when torch loads it."""
    waiting: set[str] = set()
    for name, connector in connectors.items():
        loaded = sys.modules.get(name)
        if loaded is not None:
            _connect(loaded, connector)
        else:
            modules = _connectors.setdefault(name, [])
            if connector not in modules:
                modules.append(connector)
            waiting.add(name)
    finder = next((entry for entry in sys.meta_path if isinstance(entry, _Finder)), None)
    if finder is not None:
        finder.add(waiting)
    elif waiting:
        sys.meta_path.insert(0, _Finder(waiting))


def _connect(module: ModuleType, connector: str) -> None:
    """Calls ``connect(module)`` of the module named ``connector``.

    An error is only logged, because torch must load anyway.
    """
    try:
        import_module(connector).connect(module)
    except Exception as error:  # noqa: BLE001  # torch must load
        logging.getLogger("silo").warning(
            "%s is not connected, so torch takes kernels of Silo there as any others: %s: %s",
            module.__name__,
            type(error).__name__,
            error,
        )


def _serve(kernel: Any, arguments: tuple[object, ...], options: dict[str, object], grid: object) -> bool:  # noqa: ANN401
    if "torch" not in sys.modules:
        return False
    return bool(import_module(f"{_HERE}.torch_traced_calls").serve(kernel, arguments, options, grid))


class _Finder(MetaPathFinder):
    """An import hook: finds the awaited modules with the other finders, and connects each after it is loaded."""

    def __init__(self, waiting: set[str]) -> None:
        self._waiting = waiting

    def add(self, names: set[str]) -> None:
        """Adds modules to wait for."""
        self._waiting |= names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname not in self._waiting:
            return None
        self._waiting.discard(fullname)  # the find_spec() below must not ask this finder again
        if not self._waiting:
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Loads a module with another loader, which it wraps, and then connects the module."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # other attributes of a file loader
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Lets the wrapped loader create the module."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Loads the module with the wrapped loader, makes that the module's loader again, and connects the module."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        for connector in _connectors.pop(module.__name__, ()):
            _connect(module, connector)
