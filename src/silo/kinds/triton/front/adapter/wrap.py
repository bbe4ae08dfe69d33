"""Kernels that launch through Silo outside of kernels and stay ordinary Triton functions inside them."""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from silo.kinds.triton.front.adapter.decorators import is_interpreted
from silo.kinds.triton.front.adapter.triton_keys import UPDATE
from silo.kinds.triton.front.adapter.triton_objects import give_caches, reference_to

__all__ = ["wrap"]


def wrap(
    function: Any,  # noqa: ANN401
    launcher_factory: Callable[[Any], Any],
    attributes: Mapping[str, object] | None = None,
) -> Any:  # noqa: ANN401
    """A copy of ``function`` whose calls and subscripts outside of kernels go to a launcher.

    Copying the copy returns the object itself, and a pickle holds its name, as with functions.

    The copy is an instance of a subclass of the function's own class, so another ``@triton.jit`` function can call it:
    Triton compiles it inline and never calls the object. ``copy(...)`` and ``copy[grid]`` reach the launcher with no
    Python frame between, because the class holds the launcher itself in the place of a method.

    Under ``TRITON_INTERPRET=1`` subscripts go to Triton's interpreter as usual, a call inside an interpreted kernel is
    the plain function, and a call outside goes to the launcher.

    Args:
        function: the innermost ``JITFunction`` or ``InterpretedFunction``, without other decorators.
        launcher_factory: gets the twin; gives an object with ``__call__`` and ``__getitem__``.
        attributes: set on the twin, such as ``explain``, ``cases``, ``warmup`` and ``tune``; they win over Triton's.
    """
    base: Any = function.__class__
    members: dict[str, Any] = {
        "__module__": __name__,
        "__repr__": _described,
        "__reduce_ex__": _reduced,
        "__copy__": _itself,
        "__deepcopy__": _itself,
    }
    if hasattr(base, UPDATE):  # the kernel's source is the function's text; callers inline the copy's
        members[UPDATE] = _replaced_in_both(base, function)
    kind: Any = type(f"Silo{base.__name__}", (base,), members)
    twin = object.__new__(kind)
    twin.__dict__.update(function.__dict__)
    twin.__dict__.pop(UPDATE, None)
    twin.__dict__["__signature__"] = inspect.signature(function.fn)
    if hasattr(base, "create_binder"):  # compiled kernels are kept per function object, by a method of it
        give_caches(twin, defaultdict(twin.create_binder))
    launcher = launcher_factory(twin)
    if is_interpreted(function):
        kind.__call__ = _interpreted_call(base, launcher)
    else:
        # A type slot looks its method up on the class and binds it if it is a descriptor. The launcher is not one, so
        # the interpreter calls it directly and passes no `self`.
        kind.__call__ = _unbound(launcher)
        kind.__getitem__ = _unbound(launcher.__getitem__)
        kind.run = _run_through(launcher, base)
    twin.__dict__.update(attributes or {})
    return twin


def _described(self: Any) -> str:  # noqa: ANN401
    return f"<silo kernel {self.fn.__module__}.{self.fn.__qualname__}>"


def _reduced(self: Any, _protocol: int) -> tuple[Any, tuple[str, str]]:  # noqa: ANN401
    return reference_to(self)


def _itself(self: Any, _memo: object = None) -> Any:  # noqa: ANN401
    return self


def _unbound(candidate: Any) -> Any:  # noqa: ANN401
    return staticmethod(candidate) if hasattr(candidate.__class__, "__get__") else candidate


def _run_through(launcher: Any, base: Any) -> Any:  # noqa: ANN401
    def run(self: Any, *args: object, grid: Any, warmup: bool = False, **options: object) -> Any:  # noqa: ANN401
        """Triton's own entry: launch, or only compile if ``warmup`` is set."""
        if warmup:
            own = self.__dict__.get("warmup")
            return base.run(self, *args, grid=grid, warmup=True, **options) if own is None else own(*args, **options)
        return launcher[grid](*args, **options)

    return run


def _replaced_in_both(base: Any, function: Any) -> Any:  # noqa: ANN401
    def replace(self: Any, text: str) -> None:  # noqa: ANN401
        getattr(base, UPDATE)(self, text)
        getattr(function, UPDATE)(text)

    return replace


def _interpreted_call(base: Any, launcher: Any) -> Any:  # noqa: ANN401
    inside: Any = base.__call__

    def call(self: Any, *args: object, **options: object) -> Any:  # noqa: ANN401
        return inside(self, *args, **options) if _interpreting() else launcher(*args, **options)

    return call


def _interpreting() -> bool:
    """Whether Triton's interpreter is running a kernel now: it has then replaced the language's functions."""
    language = sys.modules["triton.language"]
    return any(
        getattr(getattr(place, "load", None), "__module__", "") == "triton.runtime.interpreter"
        for place in (language, getattr(language, "core", None))
    )
