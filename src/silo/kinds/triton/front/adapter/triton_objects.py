"""Recognises Triton's objects by class name, without importing Triton; pickles kernels by name.

Also accesses the caches of compiled code that functions hold.
"""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, cast

from silo.errors import ArgumentError, SourceError

__all__ = [
    "caches_of",
    "code_of_functions",
    "dtype_name",
    "give_caches",
    "is_constexpr",
    "is_function",
    "is_gluon",
    "is_settled",
    "kernel_named",
    "own_benchmark",
    "reference_to",
]

# ---- Recognising Triton's objects by the names of their classes, without importing Triton ----

_DTYPE = "triton.language.core.dtype"
_MOCK_TENSOR = "triton.runtime.jit.MockTensor"


def is_function(candidate: object) -> bool:
    """Whether this is a Triton function (``@triton.jit`` or ``constexpr_function``)."""
    return any(
        base.__module__ in ("triton.runtime.jit", "triton.runtime.interpreter")
        and base.__name__ in ("JITCallable", "JITFunction", "InterpretedFunction")
        for base in type(candidate).__mro__
    )


def is_gluon(function: Any) -> bool:  # noqa: ANN401  # Triton's function
    """Whether a function is written in Gluon."""
    return bool(getattr(function, "is_gluon", bool)())


def own_benchmark(tuner: Any, missing: object = None) -> Any:  # noqa: ANN401
    """The benchmark that the program gave to a tuner, or None; ``missing`` if the tuner lacks the attribute."""
    return getattr(tuner, "_do_bench", missing)


def is_constexpr(candidate: object) -> bool:
    """Whether this is a ``tl.constexpr``."""
    kind = candidate.__class__
    return kind.__module__.startswith("triton.") and kind.__name__ == "constexpr"


def is_settled(candidate: object) -> bool:
    """Whether this is an object of the language that never changes: a dtype, or a function."""
    kind = type(candidate)
    return f"{kind.__module__}.{kind.__qualname__}" == _DTYPE or is_function(candidate)


def code_of_functions(
    value: object, reached: Callable[[Any], Iterable[object]]
) -> dict[tuple[str, int], tuple[object, dict[str, Any]]]:
    """The members of the functions in a constexpr's value that decide the functions' code: source text and hash.

    The result has the form of Triton's record of globals: (member's name, id of the function's ``__dict__``) to (value,
    ``__dict__``). If a source is replaced in place (``_unsafe_update_src``), Triton treats the function as a different
    one and clears the hashes of all its callers. If the hash is cleared already, a further replacement in a callee
    leaves it unchanged and would be missed. So for a function with a cleared hash the result also has the sources of
    all functions that ``reached`` returns for it.
    """
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        return {location: code for item in items for location, code in code_of_functions(item, reached).items()}
    if is_constexpr(value):
        return code_of_functions(getattr(value, "value", None), reached)
    if not is_function(value):
        return {}
    code = _code_of(value, ("_src", "src", "hash"))
    if vars(value).get("hash") is None:
        for function in reached(value):
            code.update(_code_of(function, ("_src", "src")) if is_function(function) else {})
    return code


def _code_of(function: object, names: tuple[str, ...]) -> dict[tuple[str, int], tuple[object, dict[str, Any]]]:
    members = vars(function)
    return {(name, id(members)): (members[name], members) for name in names if name in members}


def dtype_name(value: object) -> str | None:
    """The name of a dtype such as ``tl.float32``, or of the dtype of the mock tensor that ``warmup`` accepts.

    None for any other object.
    """
    kind = type(value)
    qualified_name = f"{kind.__module__}.{kind.__qualname__}"
    if qualified_name == _MOCK_TENSOR:
        value = getattr(value, "dtype", None)
    elif qualified_name != _DTYPE:
        return None
    return str(value).rpartition(".")[2]


# ---- Pickling of kernels by module and name, as Python pickles functions ----


def reference_to(kernel: Any) -> tuple[Any, tuple[str, str]]:  # noqa: ANN401  # a twin made by `wrap`
    """The result of ``__reduce_ex__`` for a kernel: a function that finds it again, and its arguments (module, name).

    ``name`` is the kernel's qualified name if that leads to the kernel. Otherwise it is the name of a module's variable
    that holds the kernel: the result of ``fast = silo.kernel(existing)`` has the qualified name of the function inside,
    which leads elsewhere.

    Raises:
        ArgumentError: no module holds the kernel. It is a TypeError, like Python's error for objects that
            cannot be pickled.
    """
    function = kernel.fn
    module, name = str(function.__module__), str(function.__qualname__)
    if _member_of(module, name) is kernel:
        return kernel_named, (module, name)
    own = [module] if module in sys.modules else []
    for module_name in (*own, *(module_name for module_name in tuple(sys.modules) if module_name != module)):
        for variable, value in tuple(getattr(sys.modules.get(module_name), "__dict__", {}).items()):
            if value is kernel:
                return kernel_named, (module_name, variable)
    where = "inside a function" if "<locals>" in name else "in no module's variable"
    raise ArgumentError(
        f"the kernel {module}.{name} is {where}, and pickles hold kernels by name, as they do functions: define it at "
        "the top of a module, or assign what silo.kernel gives to a variable there"
    )


def kernel_named(module: str, name: str) -> Any:  # noqa: ANN401
    """Finds a kernel that :func:`reference_to` named, in the process that reads a pickle.

    Raises:
        SourceError: the module cannot be imported there, or lacks the kernel.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise SourceError(
            f"a pickled kernel is {module}.{name}, and {module} cannot be imported here: {error}; put its file where "
            "this process imports from"
        ) from error
    kernel = _member_of(module, name)
    if kernel is None:
        advice = "; put the kernel into a module that both processes import" if module == "__main__" else ""
        raise SourceError(f"a pickled kernel is {module}.{name}, and this process has no {name} in {module}{advice}")
    return kernel


def _member_of(module: str, name: str) -> Any:  # noqa: ANN401  # None: nothing
    try:
        return reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return None


# ---- Triton's caches of a function's code, by device ----

_CACHES = "device_caches"  # the name of an attribute of every function


def caches_of(function: Any) -> defaultdict[Any, Any]:  # noqa: ANN401
    """The caches of a function by device; looking up a device creates its cache."""
    return cast("defaultdict[Any, Any]", getattr(function, _CACHES))


def give_caches(function: Any, caches: defaultdict[Any, Any]) -> None:  # noqa: ANN401
    """Sets the caches that a function uses."""
    function.__dict__[_CACHES] = caches
