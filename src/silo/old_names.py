"""Former names of Silo's modules. For one release, importing a former name works and warns with the new name.

The import finder is last in ``sys.meta_path``, so it takes no time unless an import would fail otherwise.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType
from typing import Final

__all__ = ["GONE_WITH", "OLD_MEMBERS", "OLD_NAMES", "spec_of"]

GONE_WITH: Final = "0.2"

# Former names that pages, examples and plug-ins import. An entry for a package covers the modules within it too.
OLD_NAMES: Final = MappingProxyType(
    {
        "silo.api.agents": "silo.tuning.agents",
        "silo.api.commands.build": "silo.commands.build_bundle",
        "silo.api.commands.tune": "silo.commands.tune_cases",
        "silo.api.kernels.bundle": "silo.kernels.bundle_kernels",
        "silo.api.tuning.explanation": "silo.tuning.explanation",
        "silo.backends.cpu.page": "silo.kinds.triton.cpu.operations_page",
        "silo.backends.cpu.triton_plugin": "silo.kinds.triton.programs.backend",
        "silo.core.compiled": "silo.core.variant",
        "silo.core.descriptors": "silo.core.compound_arguments",
        "silo.core.dtypes": "silo.core.values",
        "silo.core.target": "silo.core.device",
        "silo.sources.callables": "silo.sources.declaration",
        "silo.integrations.triton_cache": "silo.kinds.triton.programs.triton_cache",
        "silo.integrations.triton_records.switch": "silo.kinds.triton.programs.records.capture_activation",
        "silo.sources.triton": "silo.kinds.triton.front",
        "silo.tune": "silo.tuner",
        "silo.tune.faults": "silo.tuner.failures",
        "silo.tune.heuristics": "silo.heuristics",
        "silo.tune.heuristics.space": "silo.heuristics.heuristic_space",
        "silo.tune.search.registry": "silo.tuner.search.searchers",
    }
)

# For each module, its renamed members: the former name and the present name.
OLD_MEMBERS: Final = MappingProxyType({"silo.heuristics": MappingProxyType({"Effort": "TuningEffort"})})


def new_name(name: str) -> str | None:
    """Returns the present name of a module; "" for a former package that held only modules; None for other names.

    >>> new_name("silo.tune.heuristics.space"), new_name("silo.tune.lock"), new_name("silo.api"), new_name("silo.x")
    ('silo.heuristics.heuristic_space', 'silo.tuner.lock', '', None)
    """
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        found = OLD_NAMES.get(".".join(parts[:length]))
        if found is not None:
            return ".".join([found, *parts[length:]])
    return "" if any(old.startswith(f"{name}.") for old in OLD_NAMES) else None


class _CallableModule(ModuleType):
    """The module ``silo.tune``, which can be called like the function ``silo.tune``.

    Importing the module stores it in the package under the function's name, so calls of ``silo.tune`` reach the module,
    which passes them on to the function.
    """

    def __call__(self, *arguments: object, **options: object) -> object:
        return import_module("silo.commands.python_commands").tune(*arguments, **options)


class _Loader(Loader):
    """Makes a module that has the attributes of the module called ``new``."""

    def __init__(self, new: str) -> None:
        self._new = new

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return _CallableModule(spec.name) if spec.name == "silo.tune" else None

    def exec_module(self, module: ModuleType) -> None:
        # ``__path__`` makes the alias a package, so that Python asks this finder for the alias's submodules too
        module.__path__ = []
        if not self._new:
            return
        module.__doc__ = f"The old name of :mod:`{self._new}`."
        home = import_module(self._new)
        message = f"{module.__name__} is now {self._new}; the old name goes with Silo {GONE_WITH}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        renamed: Mapping[str, str] = OLD_MEMBERS.get(self._new, MappingProxyType({}))

        def member(name: str) -> object:
            return getattr(home, renamed.get(name, name))

        module.__dict__["__getattr__"] = member  # the module's own attribute look-up (PEP 562)
        module.__dict__["__dir__"] = lambda: dir(home)
        module.__dict__["__all__"] = getattr(home, "__all__", [one for one in vars(home) if not one.startswith("_")])


def spec_of(name: str, path: Sequence[str] | None = None) -> ModuleSpec | None:  # noqa: ARG001  # as finders are called
    """Returns the import specification of a former module name, or None for any other name."""
    new = new_name(name)
    return None if new is None else ModuleSpec(name, _Loader(new), is_package=True)
