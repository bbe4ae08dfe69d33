"""From artifacts to loaded kernels, and launchers for kernels whose heuristics run in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from silo.api.derived import Derived
from silo.artifacts.artifact import Artifact
from silo.core.protocols import Device, LoadedKernel
from silo.errors import DeviceError
from silo.store.store import MemoryStore, Store

if TYPE_CHECKING:
    from silo.launch.native import Launcher

__all__ = ["HeuristicLauncher", "load_artifact"]


def load_artifact(store: Store | MemoryStore, device: Device, artifact: Artifact) -> LoadedKernel:
    """Hand an artifact's verified blob to the device. ``DeviceError`` when the store lost it meanwhile."""
    blob = store.blobs.get(artifact.blob.sha256)
    if blob is None:
        raise DeviceError(
            f"{artifact.variant.kernel}: its compiled code left the store while it was being loaded; call it again"
        )
    return device.load(artifact.launch, blob, artifact.blob.kind, artifact.variant.kernel)


class HeuristicLauncher:
    """Stands before the native launcher and runs untraceable heuristics in Python at every call, as Triton does."""

    def __init__(
        self, launcher: Launcher, names: tuple[str, ...], defaults: Mapping[str, object], derived: Derived
    ) -> None:
        self._launcher = launcher
        self._names = names
        self._defaults = dict(defaults)
        self._derived = derived

    @property
    def native(self) -> Launcher:
        """The native launcher behind."""
        return self._launcher

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Launch with the declared grid."""
        self._launcher(*args, **self.complete(args, kwargs))

    def __getitem__(self, grid: object) -> Any:  # noqa: ANN401  # something to call
        def launch(*args: object, **kwargs: object) -> None:
            self._launcher[grid](*args, **self.complete(args, kwargs))

        return launch

    def complete(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The keyword arguments with what the heuristics say; a value given by the caller wins."""
        given = {**self._defaults, **dict(zip(self._names, args, strict=False)), **kwargs}
        found = dict(kwargs)
        for name, function, _ in self._derived.opaque:
            if name not in found:
                found[name] = given[name] = function(given)
        return found
