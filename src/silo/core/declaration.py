"""Declarations of compiler and loader plug-ins: their options and kinds of blobs, as data."""

from __future__ import annotations

import re
from typing import Protocol

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.values import Value
from silo.errors import CompileError
from silo.frozen import frozen

__all__ = ["BlobKind", "CompilerDeclaration", "LoaderDeclaration", "Option"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_PLUGIN_NAME = re.compile(r"[a-z][a-z0-9]{0,31}")


class _Target(Protocol):
    """The part of a target that a declaration reads.

    The class ``Target`` of :mod:`silo.core.device` cannot be imported here: that module looks up plug-ins, and the
    look-up imports this module.
    """

    @property
    def kind(self) -> str: ...


@frozen
class Option:
    """A compile option.

    ``kind`` is the type of its values; ``allowed`` are all valid values, None if the compiler checks them itself.
    ``default`` is its value if a config does not set it. A ``launch`` option is a natural number that goes to launch
    info (:attr:`silo.core.launch_info.LaunchInfo.options`), from where the device takes it. An ``arithmetic`` option
    may change the bits of results. ``threads`` is the number of a block's threads per unit of this option: among
    equally fast configs the config with the fewest threads wins.

    >>> Option("stack_depth", int, 64, "the most values on the stack", allowed=range(1, 257)).read(300)
    Traceback (most recent call last):
    silo.errors.CompileError: stack_depth=300 means nothing; it is an integer: the most values on the stack
    """

    name: str
    kind: type[int | str]
    default: Value
    meaning: str
    allowed: range | tuple[Value, ...] | None = None
    launch: bool = False
    arithmetic: bool = False
    threads: int = 0

    def __post_init__(self) -> None:
        """Raises ``ValueError`` if the declaration contradicts itself."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"not the name of an option: {self.name!r}; it is {_NAME.pattern}")
        if self.launch and (self.kind is not int or self.default != 0):
            raise ValueError(f"{self.name}: an option for launches is a natural number, by default 0")

    def read(self, value: Value) -> Value:
        """Returns the value if it is valid for the option; raises CompileError if it is not."""
        fits = self.allowed is None or value in self.allowed
        if not fits or (value is not self.default and type(value) is not self.kind):
            form = {int: "an integer", bool: "a bool", str: "a string"}.get(self.kind, self.kind.__name__)
            raise CompileError(f"{self.name}={value} means nothing; it is {form}: {self.meaning}")
        return value


@frozen
class BlobKind:
    """A kind of bytes that a compiler makes.

    ``host_code``: whether the bytes run in the process that loads them, so that they are loaded only with consent:
    machine code for the host, or anything that an interpreter of this process would execute. ``checked_text``: whether
    the bytes are a kernel's text, stored beside its code, that a :class:`ChecksKernels` can compile.
    """

    name: str
    host_code: bool = False
    checked_text: bool = False

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for an invalid name."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"not the name of a kind of blobs: {self.name!r}; it is {_NAME.pattern}")


@frozen
class CompilerDeclaration:
    """A compiler plug-in before it is imported: the object that an entry point of ``silo.compilers`` names.

    The declaration's module should import almost nothing: Silo imports it to look up kinds of blobs that Silo does not
    ship, and option names that begin with the plug-in's name.

    Attributes:
        name: the plug-in's name, which is its entry point's name and is stored in compile jobs.
        compiler: ``module:Class`` of the compiler, which is made without arguments when it is first needed.
        sources: the kinds of sources it compiles; () for any.
        targets: the kinds of targets it compiles for; () for any.
        options: its compile options. If Silo does not ship the plug-in, their names begin with the plug-in's name
            (``stack_depth``), so that installing the plug-in does not change what another kernel's config means.
        blobs: the kinds of blobs it makes, sidecars included.
        code: packages whose files decide the bytes it makes; their :func:`silo.compile.identity.code_digest` is part of
            its identity. ``-`` before the name of a package inside one of these excludes that package, because
            compiling runs none of its code.
        before: names of plug-ins over which it takes precedence if both compile a source for a target.
        in_process: compiling takes so little time that it is done in the caller's process.
    """

    name: str
    compiler: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    options: tuple[Option, ...]
    blobs: tuple[BlobKind, ...]
    code: tuple[str, ...]
    before: tuple[str, ...] = ()
    in_process: bool = False

    def __post_init__(self) -> None:
        """Raises ``ValueError`` if the declaration contradicts itself."""
        if not _PLUGIN_NAME.fullmatch(self.name):
            raise ValueError(f"not the name of a compiler: {self.name!r}; it is {_PLUGIN_NAME.pattern}")
        for names in ([option.name for option in self.options], [blob.name for blob in self.blobs]):
            if len(set(names)) != len(names):
                raise ValueError(f"{self.name} declares a name twice: {', '.join(names)}")

    def takes(self, source_kind: str, target: _Target) -> Decision:
        """Decides whether the compiler is declared for a source of this kind and a target of this kind."""
        if self.sources and source_kind not in self.sources:
            return Rejected(f"compiles {' and '.join(self.sources)} kernels only, not {source_kind}")
        if self.targets and target.kind not in self.targets:
            return Rejected(f"compiles for {' and '.join(self.targets)}, not for {target}")
        return Accepted("it is declared to")

    def own(self, options: tuple[tuple[str, Value], ...]) -> tuple[tuple[str, Value], ...]:
        """Returns the options of a config that this compiler declares.

        The code that the compiler makes does not depend on the other options.
        """
        names = {option.name for option in self.options}
        return tuple(item for item in options if item[0] in names)

    def read(self, options: tuple[tuple[str, Value], ...]) -> dict[str, Value]:
        """Returns the value of each option that the compiler declares, by name: the given value, else the default.

        Raises CompileError for a value that an option may not have.
        """
        given_options = dict(options)
        return {
            option.name: option.read(given_options[option.name]) if option.name in given_options else option.default
            for option in self.options
        }

    def makes(self, kinds: tuple[str, ...]) -> Decision:
        """Accepted if the compiler declares that it makes blobs of all these kinds."""
        declared = [blob.name for blob in self.blobs]
        for kind in kinds:
            if kind not in declared:
                return Rejected(f"the compiler {self.name} made a blob of kind {kind!r}, and declares {declared}")
        return Accepted()


@frozen
class LoaderDeclaration:
    """A loader before it is imported: the object that an entry point of ``silo.loaders`` names.

    A loader is for a kind of blobs that a library runs instead of a driver, for example an executable of jax. Its
    module should import almost nothing: Silo imports it to look up the kind, even if no such blob is loaded.

    Attributes:
        kind: the kind of blobs, which is the entry point's name.
        host_code: whether such code runs in the process that loads it; if so, it is loaded only with consent.
        load: ``module:function`` of a :class:`silo.core.protocols.Loader`, imported when the first blob is loaded.
        unmeasured: kinds of targets on which launch times do not measure the kernel, each with the reason; kernels are
            not tuned on them.
        remark: ``module:function`` that returns a remark from the loader's text in the launch info, for
            ``silo inspect``; its module imports no library. "" without a remark.
    """

    kind: str
    host_code: bool
    load: str
    unmeasured: tuple[tuple[str, str], ...] = ()
    remark: str = ""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for an invalid name."""
        if not _NAME.fullmatch(self.kind):
            raise ValueError(f"not the name of a kind of blobs: {self.kind!r}; it is {_NAME.pattern}")
