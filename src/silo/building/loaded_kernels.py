"""Loading of artifacts with consent, and launchers for kernels whose heuristics run in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from silo.artifacts.artifact import Artifact, BlobRef
from silo.core.plugins import option_names
from silo.core.signature import NoDefault, ParameterKind, Signature
from silo.core.values import JSON, Value
from silo.core.variant import Variant
from silo.errors import ArgumentError, BlobLostError, DeviceError
from silo.forks import Mutex
from silo.launch import native
from silo.launch.arguments import OneVariant, SeenCall, describe_call
from silo.launch.runtime import (
    Binding,
    Launcher,
    OnMiss,
    VouchedCode,
    inspect_call,
    make_bound_launcher,
    make_launcher,
)
from silo.settings import settings
from silo.sources.kernel_source import ReadsPlaces

if TYPE_CHECKING:
    from silo.building.kernel_declaration import DeclaredKernel
    from silo.core.protocols import Source
    from silo.store.store import MemoryStore, Store

__all__ = [
    "CheckedLauncher",
    "FollowsSource",
    "HeuristicLauncher",
    "bound_launcher",
    "guarded_launcher",
    "stored_blob",
    "stored_code",
]


# ---- Loading of artifacts with consent, and launchers for kernels whose heuristics run in Python ----


def guarded_launcher(kernel: DeclaredKernel, on_miss: OnMiss, *, release_gil: bool = True) -> Launcher:
    """Makes the launcher of a kernel declared in this process, with the guard that the declaration requires."""
    follows = FollowsSource(kernel.source, on_miss)
    launcher = make_launcher(
        kernel.name,
        kernel.source.signature,
        on_miss=follows,
        key=kernel.key,
        exact=kernel.exact_names,
        config_names=kernel.launcher_names,
        open_key=kernel.open_key,
        counted=kernel.open_blocks,
        options=option_names(),
        release_gil=release_gil,
        extents=kernel.extents,
        contiguous=kernel.contiguous,
        on_unread=partial(_serve_unread, kernel),
    )
    return follows.follow(launcher)


def _serve_unread(
    kernel: DeclaredKernel, arguments: tuple[object, ...], options: dict[str, object], grid: object
) -> bool:
    """Serves a call with tuples or traced arrays, which the native launcher cannot read; returns whether it did."""
    from silo.launch.arrays_without_memory import serve_traced  # noqa: PLC0415  # few calls pass traced arrays

    if any(isinstance(argument, tuple) for argument in arguments):
        from silo.building.prepared_calls import serve_tuples  # noqa: PLC0415  # few kernels take tuples

        names = kernel.source.signature.names
        call_values = {
            name: argument for name, argument in zip(names, arguments, strict=True) if argument is not native.ABSENT
        }
        if serve_tuples(kernel, call_values, options, grid):
            return True
    return serve_traced(kernel, arguments, options, grid)


def stored_blob(store: Store | MemoryStore, artifact: Artifact, ref: BlobRef | None = None) -> bytes:
    """Returns an artifact's verified blob, or its sidecar ``ref``.

    Raises BlobLostError if the store no longer has it.
    """
    blob = store.blobs.get((ref or artifact.blob).sha256)
    if blob is None:
        label = "compiled code" if ref is None else ref.kind
        raise BlobLostError(
            f"{artifact.variant.kernel}: its {label} left the store while it was being loaded; call it again"
        )
    return blob


def stored_code(store: Store | MemoryStore, artifact: Artifact, packed: JSON = None) -> VouchedCode:
    """Returns an artifact of the store with its bytes and consent, ready to be loaded.

    If the artifact is from a bundle, ``packed`` is the bundle's data about calls of the kernel; consent covers this
    data.

    Raises:
        BlobLostError: the store no longer has its blob.
        TrustError: its native code lacks consent.
    """
    consent = None
    if artifact.runs_on_host:
        origin = f"the store's code of {artifact.variant.kernel}"
        consent = store.trust.vouch(
            artifact.host_code(packed), origin=origin if packed is None else f"{origin}, which is from a bundle,"
        )
    return VouchedCode(artifact, stored_blob(store, artifact), consent)


class HeuristicLauncher:
    """Wraps the native launcher; at every call it runs the heuristics that cannot be traced, as Triton does."""

    def __init__(self, launcher: Launcher, kernel: DeclaredKernel) -> None:
        from silo.building.derived_constexprs import call_opaque  # noqa: PLC0415  # few kernels have heuristics that run in Python

        signature = kernel.source.signature
        defaults = {p.name: p.default for p in signature.parameters if not isinstance(p.default, NoDefault)}
        self._launcher = launcher
        self._kernel = kernel
        self._call_opaque = call_opaque
        self._names = signature.names
        self._known_values = {**defaults, **kernel.agreed_values}

    @property
    def native(self) -> Launcher:
        """The wrapped native launcher."""
        return self._launcher

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Launches with the declared grid."""
        self._launcher(*args, **self.complete(args, kwargs))

    def __getitem__(self, grid: object) -> Any:  # noqa: ANN401  # a callable
        def launch(*args: object, **kwargs: object) -> None:
            self._launcher[grid](*args, **self.complete(args, kwargs))

        return launch

    def complete(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Returns the keyword arguments with the heuristics' values; a value that the caller gave takes precedence."""
        kernel = self._kernel
        call_values = {**self._known_values, **dict(zip(self._names, args, strict=False)), **kwargs}
        return {**kwargs, **self._call_opaque(kernel.name, kernel.derived, call_values, kernel.config_names)}


class CheckedLauncher:
    """Wraps a bound launcher if ``SILO_DEBUG`` is 1; checks that calls keep the assumptions of ``bind``."""

    def __init__(
        self,
        bound: Launcher,
        guarded: Launcher,
        signature: Signature,
        variant: Variant,
        constant: Callable[[object], Value],
    ) -> None:
        self._bound = bound
        self._guarded = guarded
        self._signature = signature
        self._variant = OneVariant(variant)
        self._has_grid = variant.specialization.grid is not None
        self._constant = constant

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Checks, then launches. Raises ArgumentError if an assumption of the code does not hold."""
        self._check(args, kwargs)
        self._bound(*args, **kwargs)

    def __getitem__(self, grid: object) -> Callable[..., None]:
        def launch(*args: object, **kwargs: object) -> None:
            of_grid = {"grid": grid} if self._has_grid else {}
            self._check(args, {**kwargs, **of_grid})
            self._bound[grid](*args, **kwargs)

        return launch

    def _check(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        call = inspect_call(self._guarded, self._signature, *args, **kwargs)
        decision = self._variant.decision(call, self._constant)
        if not decision:
            raise ArgumentError(
                f"{describe_call(call)}: what was promised to bind() does not hold: {decision.reason}. "
                "Call the kernel itself, or bind it again with such arguments"
            )


def bound_launcher(
    guarded: Launcher,
    signature: Signature,
    binding: Binding,
    variant: Variant,
    *,
    grid: object,
    release_gil: bool,
    constant: Callable[[object], Value] = lambda value: cast("Value", value),
) -> Launcher | CheckedLauncher:
    """Makes the launcher that ``bind`` returns: without a guard, or with a check of each call if ``SILO_DEBUG`` is 1.

    Args:
        guarded: the kernel's launcher.
        signature: the kernel's parameters as written.
        binding: the binding of the example arguments.
        variant: the variant of the binding.
        grid: the grid given with the example arguments; None: the declared grid.
        release_gil: as in :func:`silo.launch.runtime.make_launcher`.
        constant: turns a constexpr object into a value.

    Raises:
        DeviceError: the variant's signature and its code disagree on a parameter.
    """
    constexprs = [
        parameter.name for parameter in variant.signature.parameters if parameter.kind is ParameterKind.CONSTEXPR
    ]
    try:
        bound = make_bound_launcher(
            guarded.name,
            binding,
            variant.signature,
            config_names=constexprs,
            grid=grid,
            release_gil=release_gil,
            extents=variant.specialization.passed,
        )
    # Launchers with a guard do not use the signature, so a mismatch of signature and code is first found here.
    except ValueError as error:
        raise DeviceError(f"the variant's signature and its code do not agree: {error}") from error
    if not settings().debug:
        return bound
    return CheckedLauncher(bound, guarded, signature, variant, constant)


# ---- Launchers that notice when the source of their kernel changes while the process runs ----


class FollowsSource:
    """Handles the misses of one launcher: the calls for which it has no code yet.

    If the source of the kernel has changed, it first removes all code from the launcher.

    The source is read at the first miss. From then on, each call compares the values of all places that the source was
    read from (globals, cells of closures, attributes) with the values at that time; a launcher whose source reads no
    such place compares nothing. Code for the old source stays in the store, under its own fingerprint.
    """

    def __init__(self, source: Source, on_miss: OnMiss) -> None:
        self._source = source
        self._on_miss = on_miss
        self._launcher: Launcher | None = None
        self._fingerprint = ""  # the fingerprint of the source that the launcher serves; "" before the first miss
        self._lock = Mutex()

    def follow(self, launcher: Launcher) -> Launcher:
        """Registers the launcher whose misses (calls without code) this object handles, and returns it."""
        self._launcher = launcher
        return launcher

    def __call__(self, call: SeenCall) -> Binding:
        """Returns the binding for a call that the launcher cannot serve yet."""
        if not self._fingerprint and isinstance(self._source, ReadsPlaces):
            self._read(self._source)
        return self._on_miss(call)

    def _read(self, source: ReadsPlaces) -> None:
        with self._lock:
            source.read_again()
            launcher, before = self._launcher, self._fingerprint
            self._fingerprint = source.fingerprint
            if launcher is None:
                return
            launcher.watch(source.places, self._changed)
            source.when_replaced(self._changed)
            if before not in ("", self._fingerprint):
                launcher.forget()

    def _changed(self) -> None:
        """Reads the source again after a change of a value that it depends on (a global, ...) or of a function's text.

        Raises SourceError if the source cannot be read.
        """
        if isinstance(self._source, ReadsPlaces):
            self._read(self._source)
