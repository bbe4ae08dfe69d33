"""The classes of every error that Silo raises, in one tree.

::

    SiloError
    ├── SettingsError            a SILO_* variable or an option has a value Silo cannot use
    ├── TargetError              a target that does not parse, or that this machine can neither build for nor run
    ├── PackageError             a package that only a part of Silo needs is not installed (also an ImportError)
    ├── SourceError              a kernel that cannot be read
    │   ├── ToolchainError       Triton (or another framework) is absent or of an unsupported version
    │   └── TraceError           a lambda that cannot become an expression
    ├── ExpressionError          an expression without a value (overflow, division by zero, a missing name)
    ├── SpaceError               a tuning space or constraint that is invalid
    ├── CaseError                a case or its recipe is wrong
    ├── CompileError             a variant that did not compile
    │   ├── UnsupportedError     operations the target cannot express, each with file:line and count
    │   ├── ResourceError        more memory is needed than the device has; carries kind, need and capacity
    │   ├── CompilerMissingError no usable C compiler
    │   ├── CompileTimeoutError  the worker passed its time limit and was stopped
    │   └── CompileCrashError    the worker died
    ├── TuneError                no config of a space can be used
    │   ├── AgreementError       two ranks use different configs of a kernel, or made different calls
    │   ├── FrozenError          tuning is frozen, and neither the lock nor the store holds a config
    │   └── LockError            a lock file that is missing, cannot be read or cannot be written
    ├── StoreError               the store cannot be read or written
    │   └── RemoteError          the remote store cannot be reached, denies access or sends wrong data; carries kind
    ├── SignatureError           a signing key or the signature of a file that cannot be read, used or verified
    ├── BundleError              a .silo file that cannot be used
    │   ├── BundleFormatError    not a bundle, truncated or damaged; carries field and offset
    │   ├── BundleVersionError   written by a newer Silo
    │   ├── NoVariantError       no variant in it fits the call; carries every rejection
    │   ├── RegistryError        a registry that cannot be reached, denies access, or sends other bytes than requested
    │   └── TrustError           it contains host code that is not trusted on this machine
    ├── ArgumentError            wrong count, name, type, dtype, device or value of an argument (also a TypeError)
    │   └── GridError            a grid, block or option of another project's launcher (also a ValueError)
    └── LaunchError              the driver or the device refused a launch, or the kernel failed (also a RuntimeError)
        ├── CheckError           a checked kernel broke a rule; carries the place and the kind of fault
        ├── LaunchTimeoutError   a trial run of a kernel did not end in time and was stopped
        └── DeviceError          the device is absent or cannot do what was asked
            └── BlobLostError    compiled code was removed from the store, or damaged there, before it was loaded

A message states the event, its place, the reason and the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "AgreementError",
    "ArgumentError",
    "BlobLostError",
    "BundleError",
    "BundleFormatError",
    "BundleVersionError",
    "CaseError",
    "CheckError",
    "CompileCrashError",
    "CompileError",
    "CompileTimeoutError",
    "CompilerMissingError",
    "DeviceError",
    "ExpressionError",
    "FrozenError",
    "GridError",
    "LaunchError",
    "LaunchTimeoutError",
    "LockError",
    "NoVariantError",
    "PackageError",
    "RegistryError",
    "RemoteError",
    "ResourceError",
    "SettingsError",
    "SignatureError",
    "SiloError",
    "SourceError",
    "SpaceError",
    "StoreError",
    "TargetError",
    "ToolchainError",
    "TraceError",
    "TrustError",
    "TuneError",
    "UnsupportedError",
    "error_named",
    "native_missing",
]


class SiloError(Exception):
    """Base of every error that Silo raises on purpose.

    Its text never contains unprintable characters, even if it quotes a bundle, whose author may write any text.
    """

    def __str__(self) -> str:
        """Returns the message with unprintable characters escaped."""
        from silo.sanitized_text import printable  # noqa: PLC0415  # a launch that works needs none of it

        return printable(super().__str__())


class SettingsError(SiloError):
    """A setting has a value that Silo cannot use."""


class TargetError(SiloError):
    """A target does not parse, or this machine can neither build for it nor run its code."""


class SourceError(SiloError):
    """A kernel cannot be read."""


class ToolchainError(SourceError):
    """A framework is absent or of a version Silo was not tested with."""


class PackageError(SiloError, ImportError):
    """A package that only a part of Silo needs is not installed."""


class TraceError(SourceError):
    """A lambda cannot become an expression."""


class ExpressionError(SiloError):
    """The value of an expression does not exist: 64-bit overflow, division by zero, a missing name."""


class SpaceError(SiloError):
    """A tuning space, or a constraint of a tuning space, is invalid."""


class CaseError(SiloError):
    """A case or its recipe is wrong."""


class CompileError(SiloError):
    """A variant did not compile."""


class UnsupportedError(CompileError):
    """The target cannot express operations of the kernel; the message lists each with its place and count."""


class ResourceError(CompileError):
    """A variant needs more memory of one ``kind`` (for example shared memory) than the device has.

    ``need`` and ``capacity`` are in bytes.
    """

    def __init__(self, message: str, *, kind: str = "", need: int = 0, capacity: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.need = need
        self.capacity = capacity


class CompilerMissingError(CompileError):
    """No usable C compiler was found."""


class CompileTimeoutError(CompileError):
    """The compile worker passed its time limit and was stopped."""


class CompileCrashError(CompileError):
    """The compile worker died."""


class TuneError(SiloError):
    """No config of a space can be used."""


class AgreementError(TuneError):
    """Two ranks use different configs of one kernel, or have not made the same calls."""


class FrozenError(TuneError):
    """Tuning is frozen, and neither the lock nor the store holds a config to use."""


class LockError(TuneError):
    """A lock file is not there, cannot be read or cannot be written."""


class StoreError(SiloError):
    """The store cannot be read or written."""


class RemoteError(StoreError):
    """A request to the remote store failed; ``kind`` is the sort of failure.

    ``fault``: the store cannot be reached or used; ``refused``: it denies access to this user; ``lie``: its answer
    contradicts the request; ``package``: a package that is needed to reach it is not installed.
    """

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class SignatureError(SiloError):
    """A signing key, or the cryptographic signature of a file, cannot be read, used or verified."""


class BundleError(SiloError):
    """A .silo file cannot be used."""


class BundleFormatError(BundleError):
    """The file is not a bundle, or it is truncated or damaged.

    ``field`` names the faulty part of the file, for example a member of the manifest. ``offset`` is the byte position
    in the file of that part, or of the JSON document that contains it.
    """

    def __init__(self, message: str, *, field: str, offset: int) -> None:
        super().__init__(f"{message} (field {field}, offset {offset})")
        self.field = field
        self.offset = offset


class BundleVersionError(BundleError):
    """The bundle was written by a newer Silo than this one."""


class NoVariantError(BundleError):
    """No variant fits the call; ``rejections`` lists each variant with the reason why it does not fit."""

    def __init__(self, message: str, rejections: Sequence[str] = ()) -> None:
        listing = "".join(f"\n  - {line}" for line in rejections)
        super().__init__(message + listing)
        self.rejections = tuple(rejections)


class RegistryError(BundleError):
    """A registry cannot be reached, denies access, or sends other bytes than requested."""


class TrustError(BundleError):
    """The bundle contains host code that is not trusted on this machine."""


class ArgumentError(SiloError, TypeError):
    """An argument of a kernel call is wrong: count, name, type, dtype, device or value."""


class GridError(ArgumentError, ValueError):
    """A launch through another project's launcher has an invalid grid, block or option."""


class LaunchError(SiloError, RuntimeError):
    """The driver or the device refused a launch, or the kernel failed: a ``tl.device_assert`` or a memory fault.

    Also a ``RuntimeError``, the class that Triton and torch raise for a failed launch or assertion.
    """


class CheckError(LaunchError):
    """A checked kernel breaks a rule for kernels, for example by reading out of bounds.

    ``kind`` is one of ``out of bounds``, ``read-only``, ``misaligned``, ``uninitialized``, ``race``, ``endless``,
    ``assertion``, ``assumption``, ``hint``, ``masked-off value``, ``division by zero``, ``overflow``, ``NaN``; of Metal
    kernels also ``barrier``, ``divergence``, ``address space``, ``threadgroup memory``, ``thread memory``, ``bad
    argument``. ``place`` is the ``file:line`` of the operation, or "" if the kernel's text has no source positions.
    ``program`` is the index of the program in the grid. ``index`` is the element's index in its tile, () for a scalar;
    for a Metal kernel, the thread's position in its threadgroup. ``argument`` is the name of an array or of a variable
    in the kernel's text. ``program``, ``index`` and ``argument`` are None if they do not apply.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        place: str,
        program: tuple[int, int, int] | None = None,
        index: tuple[int, ...] | None = None,
        argument: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.place = place
        self.program = program
        self.index = index
        self.argument = argument


class LaunchTimeoutError(LaunchError):
    """A trial run of a kernel did not end in time and was stopped."""


class DeviceError(LaunchError):
    """The device is absent or cannot fulfil the request."""


class BlobLostError(DeviceError):
    """Compiled code was pruned or damaged in the store before it was loaded. The caller compiles it again."""


def error_named(name: str) -> type[SiloError] | None:
    """Returns the error class of this module called ``name``, a name sent by another process; None for any other name.

    >>> error_named("TuneError").__name__
    'TuneError'
    >>> error_named("ValueError") is None
    True
    """
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, SiloError) else None


def native_missing(error: ImportError) -> DeviceError:
    """Returns the error to raise if the native module cannot be imported.

    >>> str(native_missing(ImportError("no such file")))[:61]
    "Silo's native module cannot be loaded: no such file. It reads"
    """
    return DeviceError(
        f"Silo's native module cannot be loaded: {error}. It reads bundles and launches kernels, so nothing runs "
        "without it. In a checkout build it with `python setup.py build_ext --inplace` (needs a C compiler and "
        "Python's headers); elsewhere reinstall: `pip install --force-reinstall kernel-silo`."
    )
