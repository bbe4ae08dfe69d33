"""The operators of this process by name. Reserves the names of new operators, and finds the operator of a pickle."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from silo.errors import ArgumentError, SourceError
from silo.forks import Mutex

if TYPE_CHECKING:
    from silo.kernels.kernel import Kernel

__all__ = ["DefinedOperator", "defining", "operator_named", "operators"]


class DefinedOperator(Protocol):
    """The members of an operator that the registry uses; see :class:`silo.integrations.torch.TorchOp`."""

    name: str
    kernel: Kernel
    library: Any


# The names that notebooks (ipykernel) and prompts (IPython, Python) give to the text of a cell.
_CELL = re.compile(r"[/\\]ipykernel_\d+[/\\][^/\\]+$|^<(?:ipython-input|python-input|stdin)\b[^>]*>$")

_operators: dict[str, DefinedOperator] = {}
_lock = Mutex()


@contextmanager
def defining(torch: Any, name: str, kernel: Kernel) -> Generator[Callable[[DefinedOperator], None]]:  # noqa: ANN401
    """Reserves a name while an operator is defined under it; yields the function that registers the defined operator.

    A definition that runs again (a reloaded module, or a cell of a notebook, edited or not) replaces the earlier
    operator.

    Raises:
        ArgumentError: the name is taken by another operator.
    """
    with _lock:
        before = _operators.get(name)
        if before is not None and (before.kernel.name, _file(before.kernel)) == (kernel.name, _file(kernel)):
            before.library._destroy()  # noqa: SLF001  # as torch's own custom_op does with a second definition
            del _operators[name]
        elif torch._C._jit_get_schemas_for_operator(name):  # noqa: SLF001  # the public function raises if missing
            owner = (
                "torch, or another library" if before is None else f"{before.kernel.name} ({before.kernel.location})"
            )
            raise ArgumentError(
                f"the operator {name} is defined already, by {owner}: give silo.torch_op another name, in a namespace "
                "of your own"
            )
        defined: list[DefinedOperator] = []
        yield defined.append
        _operators.update((operator.name, operator) for operator in defined)


def _file(kernel: Kernel) -> str:
    """Returns the file that defines a kernel; "a cell" for a kernel that a notebook or a prompt defines.

    The name of a cell changes with its text, so the name is not used.
    """
    file = kernel.location.rpartition(":")[0]
    return "a cell" if _CELL.search(file) else file


def operators() -> tuple[DefinedOperator, ...]:
    """Returns every operator that Silo defined in this process."""
    return tuple(_operators.values())


def operator_named(name: str, module: str) -> DefinedOperator:
    """Returns the operator with a name, for unpickling, after importing ``module`` if necessary.

    Raises SourceError if the module does not define the operator.
    """
    if name not in _operators:
        try:
            import_module(module)
        except ImportError as error:
            raise SourceError(
                f"a pickled operator is {name}, which {module} defines, and that cannot be imported here: {error}; put "
                "its file where this process imports from"
            ) from error
    if name not in _operators:
        raise SourceError(
            f"a pickled operator is {name}, and {module} does not define it here: call silo.torch_op at its top"
        )
    return _operators[name]
