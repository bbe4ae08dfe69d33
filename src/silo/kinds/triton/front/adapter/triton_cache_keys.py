"""Triton's key of a kernel in its cache of files, extended by facts left out; and its remote cache over any storage.

And texts replaced in place.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from silo.kinds.triton.front.adapter.triton_toolchain import module

__all__ = ["UPDATE", "KeepsFiles", "complete_keys", "remote_cache", "when_text_is_replaced"]

# ---- Triton's key of a kernel in its cache of files, extended by facts that Triton leaves out ----


def complete_keys(besides: Callable[[Any], str]) -> None:
    """Add what ``besides`` returns of a function to Triton's hash of its source; "" leaves the hash as it is.

    Once a process: a second call changes nothing.
    """
    kind = module("triton.compiler.compiler").ASTSource
    own: Any = kind.hash
    if getattr(own, "silo_completes", False):
        return

    def completed(self: Any) -> str:  # noqa: ANN401
        found, more = own(self), besides(self.fn)
        return hashlib.sha256(f"{found}-{more}".encode()).hexdigest() if more else found

    completed.silo_completes = True  # pyright: ignore[reportFunctionMemberAccess]  # how it is known again
    kind.hash = completed


# ---- Functions whose text is replaced in place (``_unsafe_update_src``): readers of the text are notified ----

UPDATE = "_unsafe_update_src"


class _Update:
    """Stands in front of Triton's method in one function, and calls the listeners that are alive afterwards."""

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
        return _Update, (self._function,)  # listeners belong to this process


def when_text_is_replaced(function: Any, changed: Callable[[], None]) -> None:  # noqa: ANN401  # as above
    """Call ``changed``, a bound method whose object is held weakly, each time the function's text was replaced.

    Triton provides no other way to replace a text, so the method is put in front of Triton's in this one object: other
    functions, and launches, cost nothing more.
    """
    members: dict[str, Any] | None = getattr(function, "__dict__", None)
    kind: Any = function.__class__
    if members is None or not hasattr(kind, UPDATE):
        return  # a plain function, or of a Triton without the method
    update = members.get(UPDATE)
    if not isinstance(update, _Update):
        update = members[UPDATE] = _Update(function)
    update.listen(changed)


class KeepsFiles(Protocol):
    """A storage of files by the key and name that Triton gives them."""

    def get(self, key: str, names: Sequence[str]) -> Mapping[str, bytes]:
        """Returns the contents of the named files that are kept, by name."""
        ...

    def put(self, key: str, name: str, data: bytes) -> None:
        """Keep a file."""
        ...


def remote_cache(keeper: KeepsFiles) -> type[Any]:
    """The class to name in ``TRITON_REMOTE_CACHE_BACKEND``: Triton makes an object of it for each key."""
    base: Any = module("triton.runtime.cache").RemoteCacheBackend

    class Backend(base):
        """One key of Triton's cache."""

        def __init__(self, key: str) -> None:
            base.__init__(self, key)
            self._key = key

        def get(self, filenames: Sequence[str]) -> dict[str, bytes]:
            """The files of these names that are kept."""
            return dict(keeper.get(self._key, list(filenames)))

        def put(self, filename: str, data: bytes | str) -> None:
            """Keep one file."""
            keeper.put(self._key, filename, data.encode() if isinstance(data, str) else bytes(data))

    return Backend
