"""What decides launches besides their arguments, as the native module compares it at each launch."""

from __future__ import annotations

from collections import Counter

from silo.forks import Mutex
from silo.kinds.triton.front import adapter
from silo.kinds.triton.front.allocation import allocate_scratch
from silo.launch import native
from silo.launch.native import connect_loaded

__all__ = ["Situations"]

_MOST_EPOCHS = 1 << 16  # the guard's word for it has 16 bits
# Blocked, and watches nothing.
_NOWHERE = native.TritonSituation((), (), None, None, 0, 0, True, False, False, None, None, None)  # noqa: FBT003


class Situations:
    """Makes the situation of now when the one before does not hold any more. Equal ones have one epoch."""

    def __init__(self) -> None:
        self._epochs: dict[tuple[object, ...], int] = {}
        self._drivers: list[object] = []  # held, so that no other gets the id of one
        self._lock = Mutex()
        self._current: native.TritonSituation | None = None
        self.blocked = ""
        self._passed: Counter[str] = Counter()

    def notice(self) -> native.TritonSituation:
        """What the native module calls; the new situation, which holds from now on."""
        connect_loaded()
        seen = adapter.watch()
        with self._lock:
            if not any(seen.driver is one for one in self._drivers):
                self._drivers.append(seen.driver)
            key = (id(seen.driver), seen.memory_type, *seen.key)
            epoch = self._epochs.setdefault(key, len(self._epochs))
            self._fold()
            full = epoch >= _MOST_EPOCHS
            self.blocked = "more settings of Triton's knobs than the guard has room for" if full else seen.blocked
            made = native.TritonSituation(
                seen.watched,
                seen.sizes,
                seen.get_device,
                seen.get_stream,
                seen.memory_type,
                0 if full else epoch,
                bool(self.blocked),
                seen.torch_stream,
                seen.torch_device,
                *seen.hooks,
                allocate_scratch,
            )
            native.triton_situation(made)
            self._current = made
        return made

    def _fold(self) -> None:
        if self._current is not None and self._current.passed:
            self._passed[self.blocked] += self._current.passed
        self._current = None

    @property
    def passed(self) -> Counter[str]:
        """Launches that went Triton's own way whatever their kernel, by the reason."""
        with self._lock:
            now = self._current
            return self._passed + Counter({self.blocked: now.passed} if now is not None and now.passed else {})

    @staticmethod
    def leave() -> None:
        """From now on every launch goes Triton's own way, also through methods that somebody kept."""
        native.triton_situation(_NOWHERE)

    @staticmethod
    def forget() -> None:
        """Look again at the next launch."""
        native.triton_situation(None)
