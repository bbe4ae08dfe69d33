"""Adds facts to Triton's keys of kernels, reports replaced source texts, and adapts remote caches."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from silo.kinds.triton.front.adapter.triton_toolchain import module

__all__ = ["UPDATE", "KeepsFiles", "complete_keys", "remote_cache", "when_text_is_replaced"]

# ---- Triton's key of a kernel in its file cache, extended by facts that Triton leaves out ----


def complete_keys(besides: Callable[[Any], str]) -> None:
    """Adds the text ``besides(function)`` to Triton's hash of a function's source; "" leaves the hash as it is.

    Only the first call in a process has an effect.
    """
    kind = module("triton.compiler.compiler").ASTSource
    own_hash: Any = kind.hash
    if getattr(own_hash, "silo_completes", False):
        return

    def completed(self: Any) -> str:  # noqa: ANN401
        own_key, more = own_hash(self), besides(self.fn)
        return hashlib.sha256(f"{own_key}-{more}".encode()).hexdigest() if more else own_key

    completed.silo_completes = True  # pyright: ignore[reportFunctionMemberAccess]  # how it is known again
    kind.hash = completed


# ---- Functions whose text is replaced in place (``_unsafe_update_src``): readers of the text are notified ----

UPDATE = "_unsafe_update_src"


class _Update:
    """Replaces ``_unsafe_update_src`` of one function object: calls Triton's method, then all living listeners."""

    def __init__(self, function: Any) -> None:  # noqa: ANN401  # Triton's JITCallable
        self._function = function
        self._listeners: dict[int, weakref.WeakMethod[Callable[[], None]]] = {}

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners[id(cast("Any", changed).__self__)] = weakref.WeakMethod(changed)

    def __call__(self, text: str) -> None:
        kind: Any = self._function.__class__
        getattr(kind, UPDATE)(self._function, text)
        for method in list(self._listeners.values()):
            changed = method()
            if changed is not None:
                changed()

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        return _Update, (self._function,)  # a pickle leaves out the listeners, which exist in this process only


def when_text_is_replaced(function: Any, changed: Callable[[], None]) -> None:  # noqa: ANN401  # as above
    """Calls ``changed``, a bound method, after each replacement of the function's text.

    The object of the method ``changed`` is held weakly. A text is replaced only by Triton's method
    ``_unsafe_update_src``, which is overridden in this one function object, so that other functions and launches take
    no longer.
    """
    members: dict[str, Any] | None = getattr(function, "__dict__", None)
    kind: Any = function.__class__
    if members is None or not hasattr(kind, UPDATE):
        return  # a plain function, or a version of Triton without the method
    update = members.get(UPDATE)
    if not isinstance(update, _Update):
        update = members[UPDATE] = _Update(function)
    update.listen(changed)


class KeepsFiles(Protocol):
    """A store of files, addressed by Triton's key and file name."""

    def get(self, key: str, names: Sequence[str]) -> Mapping[str, bytes]:
        """Returns the contents of the named files that are stored, by name."""
        ...

    def put(self, key: str, name: str, data: bytes) -> None:
        """Stores a file."""
        ...


def remote_cache(keeper: KeepsFiles) -> type[Any]:
    """The class to name in ``TRITON_REMOTE_CACHE_BACKEND``; Triton creates an instance of it for each key."""
    base: Any = module("triton.runtime.cache").RemoteCacheBackend

    class Backend(base):
        """The remote cache of the files that Triton stores under one key; passes requests on to ``keeper``."""

        def __init__(self, key: str) -> None:
            base.__init__(self, key)
            self._key = key

        def get(self, filenames: Sequence[str]) -> dict[str, bytes]:
            """The contents of the named files that are stored."""
            return dict(keeper.get(self._key, list(filenames)))

        def put(self, filename: str, data: bytes | str) -> None:
            """Stores one file."""
            keeper.put(self._key, filename, data.encode() if isinstance(data, str) else bytes(data))

    return Backend
