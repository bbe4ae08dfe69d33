"""Raises for waits for a semaphore that never end: jax's interpreter would poll the count and the check would hang.

A check interprets one core. While it waits, nothing else runs: if the count is too low and no copy is pending that
would add to it, the wait never ends, and raises.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["endless_waits_raise", "stuck_in"]

_MODULE = "jax._src.pallas.mosaic.interpret.shared_memory"
_WAIT = "SILO: a wait that does not end at "
_NONE_LEFT = "no copy or signal is left to add to it"


@contextmanager
def endless_waits_raise(notes: list[str]) -> Generator[None]:
    """Makes waits that cannot end raise RuntimeError within the block, with a text that :func:`stuck_in` finds.

    ``notes`` gets a line if this version of jax waits in an unknown way: then an endless wait hangs.
    """
    kind: Any = getattr(import_module(_MODULE), "Semaphore", None)
    plain: Any = getattr(kind, "wait", None)
    if plain is None or not hasattr(kind, "num_cores"):
        notes.append("this jax waits for semaphores in a way that Silo does not know: a wait that never ends will hang")
        yield
        return

    def wait(self: Any, value: Any, global_core_id: Any, **options: Any) -> Any:  # noqa: ANN401
        condition: Any = self.cv
        if self.num_cores == 1:
            place = _place(options.get("logging_info"))
            # jax waits for the condition if the count is too low and no task is left.

            def stuck(timeout: float) -> None:
                del timeout
                count, mark = int(self.count_by_core[int(global_core_id)]), f"{_WAIT}{place}"
                raise RuntimeError(f"{mark}: It needs {int(value)}, the semaphore has {count}, and {_NONE_LEFT}")

            condition.wait = stuck
        try:
            return plain(self, value, global_core_id, **options)
        finally:
            if "wait" in vars(condition):  # the class has its own
                del condition.wait

    kind.wait = wait
    try:
        yield
    finally:
        kind.wait = plain


def _place(information: Any) -> str:  # noqa: ANN401  # jax's, or None
    """Returns ``file:line`` of a wait; "" if jax does not pass it."""
    if getattr(information, "source_info", None) is None:
        return ""
    file, _, rest = str(information.get_source_info_str()).partition(" (")[0].partition(".py:")
    return f"{Path(file).name}.py:{rest.partition(':')[0]}" if rest else ""


def stuck_in(text: str) -> tuple[str, str] | None:
    r"""Returns the place and the reason in the text of an endless wait's error; None for another error.

    >>> stuck_in("INTERNAL: SILO: a wait that does not end at k.py:8: It needs 8, the semaphore has 0\nTraceback")
    ('k.py:8', 'It needs 8, the semaphore has 0')
    >>> stuck_in("Out-of-bounds read")
    """
    _, mark, rest = text.partition(_WAIT)
    if not mark:
        return None
    place, _, reason = rest.splitlines()[0].partition(": ")
    return place, reason
