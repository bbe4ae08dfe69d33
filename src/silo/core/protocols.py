"""Protocols of services that one package calls and another implements; the implementations are passed in."""

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
        """The kind of the source: ``triton``, ``binary``, ..."""
        ...

    @property
    def name(self) -> str:
        """The kernel's name."""
        ...

    @property
    def fingerprint(self) -> str:
        """The sha256 of the kernel, the functions it calls and the globals it reads; it does not depend on paths."""
        ...

    @property
    def signature(self) -> Signature:
        """The parameters, without types."""
        ...


class Compiler(Protocol):
    """Plug-in: compiles variants of one kind of source for a target.

    An entry point of ``silo.compilers`` declares it.
    """

    @property
    def declaration(self) -> CompilerDeclaration:
        """The compiler's name, options and kinds of blobs: the object that the entry point names."""
        ...

    def identity(self, target: Target) -> str:
        """Returns the versions and flags that decide the bytes of compiled code, as a text for keys.

        Must be cheap: do not hash whole installations.
        """
        ...

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Whether this plug-in can compile a source of this kind for ``target`` here, with the reason if not.

        Called only if the compiler's declaration accepts the source kind and the target's kind. The answer may depend
        on the arch and on installed packages.
        """
        ...

    def artifact_target(self, target: Target) -> Target:
        """Returns the target of code made for ``target``: the same, or narrower (Triton makes sm_90a for sm_90)."""
        ...

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """Runs the front end in the caller's process: returns the source's lowered text and the facts about its code.

        Raises SourceError, CompileError.
        """
        ...

    def compile(self, job: CompileJob) -> Compiled:
        """Runs the back end in a worker process. Raises CompileError."""
        ...


@runtime_checkable
class ReadsBinaries(Protocol):
    """A compiler that makes the launch info of a binary that the kernel's framework (Triton) compiled itself."""

    def read_binary(self, variant: Variant, binary: bytes, kind: str, metadata: Mapping[str, object]) -> LaunchInfo:
        """Returns the launch info of the binary, from its bytes and the metadata that the framework stored with it.

        Raises CompileError, SourceError.
        """
        ...


@runtime_checkable
class MakesCacheFiles(Protocol):
    """A compiler that makes the files of its framework's own cache (Triton's cache folder).

    A program that compiles with the framework itself finds the compiled kernel in this cache. The job has the text and
    parameters that the framework would compile, so the files have the same bytes.
    """

    def cache_files(self, job: CompileJob) -> CacheFiles:
        """Compiles in a worker process. Raises CompileError if the framework's compiler refuses the text."""
        ...


@runtime_checkable
class WarmsUp(Protocol):
    """A compiler whose first ``compile`` in a process takes longer because it loads modules."""

    def warm_up(self) -> None:
        """Loads the modules that ``compile`` needs. Raises SiloError as ``compile`` would."""
        ...


@runtime_checkable
class ShowsCode(Protocol):
    """A compiler that shows the texts of a job's stages."""

    def code_forms(self, target: Target) -> tuple[str, ...]:
        """Returns the names of the stages' texts for a target, in order: ``ttir``, ``ttgir``, ``llir``, ``ptx``, ..."""
        ...

    def code_form(self, job: CompileJob, form: str) -> str:
        """Returns the text of one stage. Raises CompileError, or ToolchainError if a tool for the text is missing."""
        ...


class CheckedKernel(Protocol):
    """A kernel compiled to check itself while it runs. Launch ``loaded`` in a ``with`` block of :meth:`over`."""

    @property
    def launch(self) -> LaunchInfo:
        """The kernel's launch info."""
        ...

    @property
    def loaded(self) -> LoadedKernel:
        """The loaded artifact, ready to launch."""
        ...

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The kernel's effect through each parameter of the layout."""
        ...

    def over(self, arguments: Mapping[str, object], limits: CheckLimits) -> AbstractContextManager[list[str]]:
        """Returns a context manager that checks all launches in its ``with`` block. They must pass these ``arguments``.

        The ``with`` statement yields a list of notes on accesses that were not checked. Raises CheckError.
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
        """Compiles a checked kernel from the text stored beside an artifact. The text lacks the source's line numbers.

        Raises CompileError, and TrustError if the consent is not for this text and these calls, because the compiled
        text runs in this process.
        """
        ...


@runtime_checkable
class GivesCheckedText(ChecksKernels, Protocol):
    """A compiler whose :meth:`check_text` takes texts that hold a kernel and no other code of their author.

    Loading the compiled objects runs none of their code, so a confined process can compile and load an untrusted text.
    """

    def text_to_check(self, source: Source, variant: Variant) -> tuple[str, tuple[LayoutSlot, ...]]:
        """Returns a source's text for :meth:`check_text`, with the source's line numbers, and the kernel's parameters.

        Raises SourceError.
        """
        ...


@runtime_checkable
class DescribesText(ChecksKernels, Protocol):
    """A compiler that can name the arguments that decide the memory accesses of a text for :meth:`check_text`."""

    def describe_text(self, text: str, launch: LaunchInfo, config: Config) -> Mapping[str, JSON]:
        """Returns the members that describe the text in a crash report. ``launch`` has the text's parameters.

        Raises:
            UnsupportedError: the crash recorder does not keep the parameters that the text takes.
            CompileError: the text cannot be read.
        """
        ...


@runtime_checkable
class CompilesText(Protocol):
    """A compiler that can also compile, for a device, the text of a kernel from a crash report."""

    def text_job(
        self, text: str, kernel: str, target: Target, launch: LaunchInfo, options: Mapping[str, int]
    ) -> CompileJob:
        """Returns the job that compiles ``text`` for ``target``; the layout in ``launch`` has the text's parameters."""
        ...


class LoadedKernel(Protocol):
    """An artifact ready to launch on one device: a type of the native module.

    As long as this object exists, the artifact's code stays loaded.
    """

    @property
    def entry(self) -> str:
        """The name of the function in the artifact that a launch runs."""
        ...


@runtime_checkable
class AdoptsModules(Protocol):
    """A device that can also launch code which another library has loaded on it."""

    def adopt(self, launch: LaunchInfo, blob: bytes, name: str, module: int) -> LoadedKernel:
        """Returns a kernel of ``blob`` from ``module``, which another library loaded and keeps loaded.

        Raises DeviceError.
        """
        ...


class Timer(Protocol):
    """A device's clock."""

    def elapsed_ns(self, launch: Callable[[], object], repeats: int) -> int:
        """Runs ``launch`` ``repeats`` times, back to back, and waits for the end; returns the total nanoseconds."""
        ...


class EnergyMeter(Protocol):
    """A device's counter of the energy that it has used."""

    def millijoules(self) -> int:
        """Returns the counter, which never decreases. Raises OSError if it cannot be read now."""
        ...


@runtime_checkable
class MetersEnergy(Protocol):
    """A device that may have an energy counter. Devices without this method have none."""

    def energy_meter(self) -> EnergyMeter | Rejected:
        """Returns the counter, or why it cannot be read."""
        ...


@runtime_checkable
class WatchfulTimer(Timer, Protocol):
    """A clock that detects samples disturbed by other work on the machine, so that they can be measured again."""

    def disturbed(self) -> bool:
        """Whether the last :meth:`elapsed_ns` is unreliable."""
        ...

    def settle(self) -> None:
        """Prepares a process that does nothing but measure; a CPU pins the threads of launches to processors.

        Called once, before the first launch of the process.
        """
        ...


class Device(Protocol):
    """Plug-in: something that runs artifacts. Entry-point group ``silo.devices``."""

    @property
    def model(self) -> DeviceModel:
        """The model of the device."""
        ...

    @property
    def target(self) -> Target:
        """The concrete target that code for this device is compiled for by default."""
        ...

    @property
    def index(self) -> int:
        """The number of the device among the devices of its kind; 0 for the CPU."""
        ...

    def facts(self) -> Mapping[str, int]:
        """Numbers that the expression language can read: ``sm_count``, ``warp_size``, ``reserved_sms``, ..."""
        ...

    @property
    def memory(self) -> Memory:
        """The memory that the device's code reads and writes.

        The memory of a call's arrays and the kernel's kind decide on which device the call runs.
        """
        ...

    @property
    def measuring(self) -> Measuring | Rejected:
        """The process in which candidates may be timed, or why they may not be timed.

        A :attr:`Measuring.CONFINED` process finds the device by its name and the arrays in a :class:`silo.Buffer`. So
        only devices that use the host's memory or a driver of the native module can use such a process, and only for
        code that such a driver loads. Code that a library runs (``silo.loaders``) takes the call's own objects, which
        exist only in this process.
        """
        ...

    def runs(self, target: Target, blob_kind: str = "") -> Decision:
        """Whether code for this target, and of this kind if given, runs on the device (``silo.artifacts.runs_on``)."""
        ...

    def synchronize(self) -> None:
        """Waits until all enqueued work is done; returns at once if launches are synchronous."""
        ...

    def free_memory(self) -> int | None:
        """Returns the number of free bytes; None if unknown: then copies are made without checking that they fit."""
        ...

    @property
    def driver(self) -> str:
        """The driver's version, "" without a driver. It is part of the key of every trial."""
        ...

    @property
    def timing(self) -> str:
        """The name and version of the timing method (``cpu-wall-warm/1``). It is part of the key of every trial."""
        ...

    def timer(self) -> Timer:
        """Returns a clock that times launches on this device."""
        ...

    def load(
        self, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None = None
    ) -> LoadedKernel:
        """Loads a verified blob through the driver. Raises DeviceError.

        Host code (:func:`silo.core.plugins.is_host_code`) may run in this process as soon as it is mapped. A device
        that maps host code raises TrustError without consent to these bytes and this launch
        (``silo.core.consent.require_consent``).
        """
        ...


class LibraryCall(Protocol):
    """Code that a library runs. The native launcher calls it, and holds the interpreter lock meanwhile."""

    def __call__(self, arguments: tuple[object, ...], grid: tuple[int, int, int], stream: object, /) -> object:
        """Runs or enqueues the code; results are written through the arguments.

        Returns the return value of the launch: None, or the arrays that the code made because the call omits them.

        ``arguments`` are the caller's own objects in the order of the kernel's parameters: the given value, else the
        default, else the config's value. ``stream`` is the caller's own object too; None means the library's current
        stream. Exceptions reach the caller, with a note that names the kernel.
        """
        ...


class Loader(Protocol):
    """Plug-in: a function that loads one kind of blobs, which a library runs instead of a driver.

    Its :class:`silo.core.declaration.LoaderDeclaration` is the entry point, in the group ``silo.loaders``.
    """

    def __call__(self, device: Device, launch: LaunchInfo, blob: bytes, name: str, /) -> LibraryCall:
        """Returns a callable for a verified blob; consent to host code was given earlier. Raises DeviceError.

        ``name`` is the kernel's name, for messages.
        """
        ...


class Searcher(Protocol):
    """Chooses which configs to try next. Its state is plain JSON; a run is resumed by replaying observations."""

    def suggest(self, count: int) -> Sequence[Config]:
        """Returns up to ``count`` configs that this searcher has not suggested before.

        This method may be called before earlier suggestions were observed; it returns fewer configs, or none, if it
        needs their outcomes first. If it returns none although every suggestion was observed, the search ends.
        """
        ...

    def observe(self, config: Config, time_ns: float | None) -> None:
        """Takes the outcome of one config, suggested or not: its median time, or None if it failed."""
        ...

    def finish(self) -> None:
        """Tells the searcher that the budget is nearly spent.

        From now on the searcher only confirms which config is best.
        """
        ...

    def state(self) -> JSON:
        """Returns the state from which :meth:`restore` continues the search."""
        ...

    def restore(self, state: JSON) -> None:
        """Continues from a :meth:`state`; raises ``ValueError`` if it is the state of another search."""
        ...


@runtime_checkable
class CatchesUp(Protocol):
    """A record store that several machines share; this machine holds only a part of its records."""

    def catch_up(self, keys: Sequence[str], *, follow: bool = False) -> bool:
        """Fetches records that other machines have stored under these keys; returns whether any were new.

        A process fetches the records of a key once. With ``follow`` it fetches them now even if it did so earlier, and
        from then on also at some of the reads of ``keys[0]``, from time to time.
        """
        ...


class RecordStore(Protocol):
    """Append-only lists of JSON records by key."""

    def append(self, key: str, record: JSON) -> None:
        """Adds one record, atomically and durably."""
        ...

    def read(self, key: str) -> Iterator[JSON]:
        """Yields every complete record of the key, in the order they were appended."""
        ...


class ListedRecords(RecordStore, Protocol):
    """Records whose keys can be listed."""

    def keys(self) -> tuple[str, ...]:
        """Returns the keys that have records, sorted."""
        ...


MOST_STEPS = 100_000_000
"""The default limit on the loop iterations and accesses of one program in a checked run."""


@frozen
class CheckLimits:
    """How much a checked run examines, and for how long; see :func:`silo.check`.

    ``nan``: also find NaNs that the kernel computes from numbers. ``uninitialized``: names of arguments whose memory
    holds no values yet. ``memory``: further arrays that pointers stored in memory may point into. ``steps``: the loop
    iterations and accesses that one program (of a Metal kernel: one threadgroup) may take. ``views``: an access must be
    within the array that was passed, not only within the memory that the array is a view of.
    """

    nan: bool = False
    uninitialized: tuple[str, ...] = ()
    memory: tuple[object, ...] = ()
    steps: int = MOST_STEPS
    views: bool = False
