"""Protocols: the services that a layer needs from a layer to its right, passed in by the composition root."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from silo.core.config import Config
from silo.core.consent import Consent
from silo.core.decisions import Decision, Rejected
from silo.core.declaration import CompilerDeclaration
from silo.core.device import DeviceModel, Measuring, Memory, Target
from silo.core.launch_info import LaunchInfo, LayoutSlot
from silo.core.signature import Effect, Signature
from silo.core.values import JSON
from silo.core.variant import CacheFiles, Compiled, CompileJob, Variant
from silo.frozen import frozen

if TYPE_CHECKING:
    from silo.core.code_facts import Lowered

__all__ = [
    "MOST_STEPS",
    "AdoptsModules",
    "CatchesUp",
    "CheckLimits",
    "CheckedKernel",
    "ChecksKernels",
    "Compiler",
    "CompilesText",
    "DescribesText",
    "Device",
    "EnergyMeter",
    "GivesCheckedText",
    "LibraryCall",
    "ListedRecords",
    "LoadedKernel",
    "Loader",
    "MakesCacheFiles",
    "MetersEnergy",
    "ReadsBinaries",
    "RecordStore",
    "Searcher",
    "ShowsCode",
    "Source",
    "Timer",
    "WarmsUp",
    "WatchfulTimer",
]


@runtime_checkable
class Source(Protocol):
    """A kernel before compilation, whatever language it is written in."""

    @property
    def kind(self) -> str:
        """``triton``, ``binary``, ..."""
        ...

    @property
    def name(self) -> str:
        """The kernel's name."""
        ...

    @property
    def fingerprint(self) -> str:
        """sha256 over the kernel, the functions it calls and the globals it reads; free of paths."""
        ...

    @property
    def signature(self) -> Signature:
        """Parameters, not yet typed."""
        ...


class Compiler(Protocol):
    """Plug-in: from (source kind, target) to artifacts. An entry point of ``silo.compilers`` names its declaration."""

    @property
    def declaration(self) -> CompilerDeclaration:
        """The compiler's name, options, kinds of blobs: the object that the entry point names."""
        ...

    def identity(self, target: Target) -> str:
        """Versions and flags that decide the bytes; cheap: no hashing of whole installations."""
        ...

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Whether this plug-in compiles a source of this kind for ``target`` here, and why not.

        Called only if the declaration accepts both. The answer may depend on the arch and on installed packages.
        """
        ...

    def artifact_target(self, target: Target) -> Target:
        """The target of code made for ``target``: the same, or a narrower target (Triton makes sm_90a for sm_90)."""
        ...

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """The front end, run in the caller's process: from source to text, and the facts about that code.

        Raises SourceError, CompileError.
        """
        ...

    def compile(self, job: CompileJob) -> Compiled:
        """The back end, run in a worker process. Raises CompileError."""
        ...


@runtime_checkable
class ReadsBinaries(Protocol):
    """A compiler that returns the launch info of a binary which the framework itself compiled."""

    def read_binary(self, variant: Variant, binary: bytes, kind: str, metadata: Mapping[str, object]) -> LaunchInfo:
        """Launch info from the binary and the framework's metadata. Raises CompileError, SourceError."""
        ...


@runtime_checkable
class MakesCacheFiles(Protocol):
    """A compiler that compiles for its framework: a program finds the result in the framework's cache.

    The job's text and parameters are the framework's own, so that the files are the same bytes.
    """

    def cache_files(self, job: CompileJob) -> CacheFiles:
        """Compile, in a worker process. Raises CompileError: the framework's compiler refused the text."""
        ...


@runtime_checkable
class WarmsUp(Protocol):
    """A compiler whose first ``compile`` in a process takes longer because it loads modules."""

    def warm_up(self) -> None:
        """Load that. Raises SiloError as ``compile`` would."""
        ...


@runtime_checkable
class ShowsCode(Protocol):
    """A compiler that shows the texts of a job's stages."""

    def code_forms(self, target: Target) -> tuple[str, ...]:
        """The names of the stages' texts for a target, in order: ``ttir``, ``ttgir``, ``llir``, ``ptx``, ..."""
        ...

    def code_form(self, job: CompileJob, form: str) -> str:
        """One of them, or ``llir`` if a tool makes it. Raises CompileError, ToolchainError."""
        ...


class CheckedKernel(Protocol):
    """A kernel compiled to check itself while it runs. ``loaded`` is launched like any other, within :meth:`over`."""

    @property
    def launch(self) -> LaunchInfo:
        """The kernel's launch info."""
        ...

    @property
    def loaded(self) -> LoadedKernel:
        """The arguments of a binding."""
        ...

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The kernel's effect through each parameter of the layout."""
        ...

    def over(self, arguments: Mapping[str, object], limits: CheckLimits) -> AbstractContextManager[list[str]]:
        """Launches within the block are over ``arguments``; yields notes on accesses that were not checked.

        Raises CheckError.
        """
        ...


@runtime_checkable
class ChecksKernels(Protocol):
    """A compiler whose code can check itself."""

    def check_source(self, source: Source, variant: Variant, *, nan: bool) -> CheckedKernel:
        """Compiles a checked kernel from its source. Raises SourceError, CompileError."""
        ...

    def check_text(
        self, text: str, variant: Variant, launch: LaunchInfo, *, nan: bool, consent: Consent
    ) -> CheckedKernel:
        """Compiles a checked kernel from the text beside an artifact, which lacks line numbers. Raises CompileError.

        Raises TrustError if the consent is not for this text and these calls, because code made from it runs here.
        """
        ...


@runtime_checkable
class GivesCheckedText(ChecksKernels, Protocol):
    """A compiler whose :meth:`check_text` compiles text that holds no code of its author's besides the kernel itself.

    The objects made of it run nothing when they are loaded, so a stranger's text can be compiled and loaded by a
    confined process.
    """

    def text_to_check(self, source: Source, variant: Variant) -> tuple[str, tuple[LayoutSlot, ...]]:
        """The text with the lines of the source, and the parameters of the kernel. Raises SourceError."""
        ...


@runtime_checkable
class DescribesText(ChecksKernels, Protocol):
    """A compiler that knows which arguments decide the accesses of a text that its :meth:`check_text` compiles."""

    def describe_text(self, text: str, launch: LaunchInfo, config: Config) -> Mapping[str, JSON]:
        """The members that describe the text in a report of a crash. ``launch`` has its parameters.

        Raises:
            UnsupportedError: the recorder does not keep the parameters that it takes.
            CompileError: it cannot be read.
        """
        ...


@runtime_checkable
class CompilesText(Protocol):
    """A compiler for devices that also takes the text of a kernel's description in a report of a crash."""

    def text_job(
        self, text: str, kernel: str, target: Target, launch: LaunchInfo, options: Mapping[str, int]
    ) -> CompileJob:
        """The job that compiles the text for ``target``; ``launch`` has its parameters."""
        ...


class LoadedKernel(Protocol):
    """An artifact ready to launch on one device; the native module's own type. Keeps its module loaded."""

    @property
    def entry(self) -> str:
        """The symbol that runs."""
        ...


@runtime_checkable
class AdoptsModules(Protocol):
    """A device that also launches code which another library has loaded there."""

    def adopt(self, launch: LaunchInfo, blob: bytes, name: str, module: int) -> LoadedKernel:
        """A kernel of ``blob`` that is loaded already: ``module``, whose owner keeps it loaded. Raises DeviceError."""
        ...


class Timer(Protocol):
    """A device's clock."""

    def elapsed_ns(self, launch: Callable[[], object], repeats: int) -> int:
        """Run ``launch`` ``repeats`` times, back to back, and wait for the end; nanoseconds for all of them."""
        ...


class EnergyMeter(Protocol):
    """A device's counter of the energy that it has used."""

    def millijoules(self) -> int:
        """The counter, which only grows. Raises OSError if it cannot be read now."""
        ...


@runtime_checkable
class MetersEnergy(Protocol):
    """A device that may have an energy counter. Devices without this method have none."""

    def energy_meter(self) -> EnergyMeter | Rejected:
        """The counter, or why it cannot be read."""
        ...


@runtime_checkable
class WatchfulTimer(Timer, Protocol):
    """A clock that detects samples disturbed by other work on the machine, so that they are taken again."""

    def disturbed(self) -> bool:
        """Whether the last :meth:`elapsed_ns` is unreliable."""
        ...

    def settle(self) -> None:
        """Prepare a process that does nothing but measure; once, before its first launch."""
        ...


class Device(Protocol):
    """Plug-in: something that runs artifacts. Entry-point group ``silo.devices``."""

    @property
    def model(self) -> DeviceModel:
        """The model of the device."""
        ...

    @property
    def target(self) -> Target:
        """The concrete target this machine's device is compiled for by default."""
        ...

    @property
    def index(self) -> int:
        """The number of the device among equal devices; 0 for the CPU."""
        ...

    def facts(self) -> Mapping[str, int]:
        """Leaves of the expression language: ``sm_count``, ``warp_size``, ``reserved_sms``, ..."""
        ...

    @property
    def memory(self) -> Memory:
        """The memory that its code reads and writes. With the kernel's kind it decides where a call runs."""
        ...

    @property
    def measuring(self) -> Measuring | Rejected:
        """In which process candidates may be timed, or why they may not.

        The process of :attr:`Measuring.CONFINED` finds the device by its name and the arrays in a :class:`silo.Buffer`,
        so that is for devices of the host's memory and of drivers that the native module has, and for code that one of
        these drivers loads: code that a library runs (``silo.loaders``) gets the call's own objects, which stay here.
        """
        ...

    def runs(self, target: Target, blob_kind: str = "") -> Decision:
        """Whether code for this target, and of this kind if that matters, runs here (``silo.artifacts.runs_on``)."""
        ...

    def synchronize(self) -> None:
        """Wait until all that was enqueued is done; returns at once if launches return when they are done."""
        ...

    def free_memory(self) -> int | None:
        """The number of free bytes; None if it is unknown, and copies are made without a check."""
        ...

    @property
    def driver(self) -> str:
        """The driver's version, "" without a driver: part of the key of every trial."""
        ...

    @property
    def timing(self) -> str:
        """The name and version of how times are taken (``cpu-wall-warm/1``): part of the key of every trial."""
        ...

    def timer(self) -> Timer:
        """A clock that times launches on this device."""
        ...

    def load(
        self, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None = None
    ) -> LoadedKernel:
        """Hand a verified blob to the driver. Raises DeviceError.

        Host code (:func:`silo.core.plugins.is_host_code`) runs in this process as soon as it is mapped: a device that
        maps some raises TrustError without consent to these bytes and this launch
        (``silo.core.consent.require_consent``).
        """
        ...


class LibraryCall(Protocol):
    """Code that a library runs, as the native launcher calls it, with Python's lock held."""

    def __call__(self, arguments: tuple[object, ...], grid: tuple[int, int, int], stream: object, /) -> object:
        """Run it, or enqueue it; results are written through the arguments.

        Its return value is the launch's: None, or arrays that it made because the call lacks them.

        ``arguments`` are the caller's own objects in the order of the kernel's parameters: the given value, else the
        default, else the config's value. ``stream`` is the caller's own object too, None if none was given: then the
        library's current stream is used. Whatever is raised reaches the caller, with a note that names the kernel.
        """
        ...


class Loader(Protocol):
    """Plug-in: a function that loads one kind of blobs, which a library runs and no driver.

    Its :class:`silo.core.declaration.LoaderDeclaration` is the entry point, in the group ``silo.loaders``.
    """

    def __call__(self, device: Device, launch: LaunchInfo, blob: bytes, name: str, /) -> LibraryCall:
        """From a verified blob to something to call; consent to host code was given before. Raises DeviceError.

        ``name`` is the kernel's, for messages.
        """
        ...


class Searcher(Protocol):
    """Chooses which configs to try next. State is plain JSON, so a run can be resumed by replaying observations."""

    def suggest(self, count: int) -> Sequence[Config]:
        """Up to ``count`` configs not suggested before.

        It is asked ahead of observations. Fewer, even none, if it must first learn the outcome of earlier ones. An
        empty list although every suggestion was observed ends the search.
        """
        ...

    def observe(self, config: Config, time_ns: float | None) -> None:
        """The outcome of one config, suggested or not: its median time, or None if it failed."""
        ...

    def finish(self) -> None:
        """The budget is nearly spent: from now on suggest configs that make the best config certain."""
        ...

    def state(self) -> JSON:
        """The state from which the search goes on."""
        ...

    def restore(self, state: JSON) -> None:
        """Go on from a :meth:`state`; ``ValueError`` if it is the state of another search."""
        ...


@runtime_checkable
class CatchesUp(Protocol):
    """Records that several machines share; this machine has a part of them."""

    def catch_up(self, keys: Sequence[str], *, follow: bool = False) -> bool:
        """Take in what other machines have kept under these keys; whether anything was new.

        With ``follow`` even if they were requested earlier, and the first key again from time to time as it is read.
        """
        ...


class RecordStore(Protocol):
    """Append-only lists of JSON records by key."""

    def append(self, key: str, record: JSON) -> None:
        """Add one record, atomically and durably."""
        ...

    def read(self, key: str) -> Iterator[JSON]:
        """Every whole record of the key, in the order they were appended."""
        ...


class ListedRecords(RecordStore, Protocol):
    """Records whose keys can be listed."""

    def keys(self) -> tuple[str, ...]:
        """The keys that have records, sorted."""
        ...


MOST_STEPS = 100_000_000
"""Turns of loops and accesses of one program, if the caller names no other number."""


@frozen
class CheckLimits:
    """How much a checked run examines, and for how long; see :func:`silo.check`.

    ``nan``: also find NaNs that the kernel computes from numbers. ``uninitialized``: names of arguments that hold
    nothing yet. ``memory``: further arrays that pointers in memory may point into. ``steps``: turns of loops and
    accesses that one program (of a Metal kernel: one threadgroup) may take. ``views``: an access must be within the
    array that was passed, not only within the memory that the array is a view of.
    """

    nan: bool = False
    uninitialized: tuple[str, ...] = ()
    memory: tuple[object, ...] = ()
    steps: int = MOST_STEPS
    views: bool = False
