"""``silo.binary``: kernels that somebody compiled already."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from silo.api.declared.binary_codes import Binary, Code, binary_code, completed, guarded
from silo.api.kernels.kernel import GridFunction, Kernel, traced_grid
from silo.artifacts.choice import choose_code, preference
from silo.artifacts.runs_on import runs_on
from silo.compile.plan import PlannedVariant
from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.specialization import Specialization
from silo.core.target import Target
from silo.core.values import Value
from silo.core.variant import Variant
from silo.errors import NoVariantError, SourceError
from silo.sources.binary.parameters import parse_signature
from silo.sources.binary.source import BinaryCode, BinarySource

if TYPE_CHECKING:
    from silo.api.code.compiled_calls import CompiledKernel
    from silo.core.cases import Case

__all__ = ["Binary", "BinaryFunction", "BinaryKernel", "binary", "own_targets", "planned_binaries"]


class BinaryKernel(Kernel):
    """A :class:`silo.Kernel` whose code exists already."""

    source: BinarySource

    def __init__(self, source: BinarySource, *, release_gil: bool = True) -> None:
        super().__init__(source, space=None, key=(), grid=None, tune=None, release_gil=release_gil)

    def explain(self, *args: object, grid: object = None, **kwargs: object) -> str:
        """Which binary a call with such arguments gets, and why not the others."""
        from silo.launch.arguments import describe_call  # noqa: PLC0415  # needs the native module
        from silo.launch.runtime import inspect_call  # noqa: PLC0415

        named = {**kwargs, **({} if grid is None else {"grid": grid})}
        call = inspect_call(self.resolver.native, self.source.signature, *args, **named)
        situation = self.resolver.understand(call)
        device = situation.device
        chosen, decisions = choose_code(self.source.codes, device.target, situation.specialization)
        lines = [describe_call(call), f"device: {device.target} ({device.model})"]
        for code, decision in decisions:
            word = "chosen" if code is chosen else "accepted" if decision else "rejected"
            lines.append(f"{word}: {code}: {decision.reason}")
        return "\n".join(lines)


class BinaryFunction:
    """What :func:`binary` gives: called as ``k(...)`` or ``k[grid](...)``. Made by it only."""

    def __init__(self, kernel: BinaryKernel) -> None:
        self.kernel = kernel

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    def cases(self, **parameters: Sequence[object]) -> Callable[[Callable[..., Case]], Callable[..., Case]]:
        """Register a function that makes cases; see :meth:`silo.Kernel.cases`."""
        return self.kernel.cases(**parameters)

    def warmup(self, *args: object, grid: object = None, **kwargs: object) -> CompiledKernel:
        """Load what a call with such arguments needs, without launching; see :meth:`silo.Kernel.compiled`."""
        return self.kernel.warmup(*args, grid=grid, **kwargs)

    def compiled(self, *args: object, grid: object = None, **kwargs: object) -> CompiledKernel:
        """The code that serves a call with such arguments; see :meth:`silo.Kernel.compiled`."""
        return self.kernel.compiled(*args, grid=grid, **kwargs)

    def bind(self, *args: object, grid: object = None, **kwargs: object) -> Any:  # noqa: ANN401  # a launcher
        """A launcher for calls like this example, without the guard; see :meth:`silo.Kernel.bind`."""
        return self.kernel.bind(*args, grid=grid, **kwargs)

    def explain(self, *args: object, grid: object = None, **kwargs: object) -> str:
        """Which binary a call with such arguments gets, and why not the others."""
        return self.kernel.explain(*args, grid=grid, **kwargs)

    def __repr__(self) -> str:
        return f"<silo kernel {self.name}: {', '.join(map(str, self.kernel.source.codes))}>"


def binary(
    code: Code | Binary | Sequence[Code | Binary],
    *,
    signature: str | Mapping[str, Value],
    grid: GridFunction | Sequence[int] | None = None,
    name: str | None = None,
    entry: str | None = None,
    threads: int | Sequence[int] | None = None,
    shared_bytes: int = 0,
    cluster: Sequence[int] | None = None,
    cooperative: bool = False,
    pdl: bool = False,
    target: str | Target | None = None,
    facts: Mapping[str, Value] | None = None,
    scratch_bytes: int = 0,
    scratch_align: int = 16,
    release_gil: bool = True,
) -> Any:  # noqa: ANN401  # a BinaryFunction, whose call takes what the signature says
    """Make a Silo kernel of a compiled one: a cubin, an hsaco, or PTX.

    Args:
        code: the path of a file, its bytes, or PTX text; or several of them, each perhaps a :class:`Binary` with what
            is its own (target, facts, entry). A call gets the one that runs on its device and assumes most of what
            holds.
        signature: the parameters in the binary's order, ``"x: in *fp32, y: out *fp32, n: i32"`` or a mapping: arrays
            with what the kernel does with them (``in``, ``out``, ``inout``), scalars, ``null`` for pointers that are
            always null, ``scratch``, and constexprs for values folded into the code.
        grid: as for :func:`silo.kernel`; with clusters it counts clusters.
        name: what the kernel is called; its entry by default.
        entry: the symbol to launch, where the binary has several.
        threads: of a block: 256, or (16, 16) or (8, 8, 4) for blocks of two or three dimensions; needed where the
            binary does not fix them.
        shared_bytes: dynamic shared memory of a block, in bytes.
        cluster: blocks of a cluster on each axis; what the binary says by default.
        cooperative: launch cooperatively, so that blocks may wait for each other.
        pdl: programmatic dependent launch (NVIDIA).
        target: what the binary was built for, such as ``cuda:sm_100a``; read from it by default. A cubin does not say
            whether it is of an ``a`` form, so say it here.
        facts: what the binary assumes: ``{"x": "aligned16", "n": "divisible16", "k": 4096}``. A call where that does
            not hold is an error.
        scratch_bytes: memory that a ``scratch`` parameter points at, for each program.
        scratch_align: its alignment.
        release_gil: as for :func:`silo.kernel`.

    Raises:
        SourceError: no such file, not device code, or the binary takes other parameters than the signature says.
        TargetError: a target that does not parse, or is another than the binary's.
        TraceError: the grid cannot become an expression.
    """
    everything = Binary(
        code=b"",
        target=target,
        facts=dict(facts or {}),
        entry=entry,
        threads=threads,
        shared_bytes=shared_bytes,
        cluster=cluster,
        cooperative=cooperative,
        pdl=pdl,
        scratch_bytes=scratch_bytes,
        scratch_align=scratch_align,
    )
    several = tuple(code) if isinstance(code, list | tuple) else (cast("Code | Binary", code),)
    if not several:
        raise SourceError(f"{name or 'silo.binary'}: the list of binaries is empty")
    declared = parse_signature(name or entry or "the binary", signature)
    codes = [binary_code(completed(one, everything), declared.signature, declared.layout) for one in several]
    caller = traceback.extract_stack(limit=2)[0]
    source = BinarySource(
        name=name or codes[0].launch.entry,
        signature=guarded(declared.signature, codes),
        codes=tuple(codes),
        location=f"{caller.filename}:{caller.lineno}",
    )
    kernel = BinaryKernel(source, release_gil=release_gil)
    if grid is not None:
        kernel.grid = traced_grid(kernel, grid)
    return _callable(kernel)


def _callable(kernel: BinaryKernel) -> BinaryFunction:
    """The interpreter looks ``__call__`` up on the class, so each kernel has its own: no Python frame lies between."""
    launcher = kernel.launcher
    members = {
        "__module__": __name__,
        "__doc__": BinaryFunction.__doc__,
        "__call__": launcher,
        "__getitem__": staticmethod(launcher.__getitem__),
    }
    return cast("BinaryFunction", type("BinaryFunction", (BinaryFunction,), members)(kernel))


def own_targets(kernel: BinaryKernel) -> tuple[Target, ...]:
    """What its binaries were built for, without repetition."""
    return tuple(dict.fromkeys(code.target for code in kernel.source.codes))


def planned_binaries(kernel: BinaryKernel, targets: Sequence[Target]) -> tuple[PlannedVariant, ...]:
    """The variants that a bundle for ``targets`` holds: every binary that runs on one of them, the preferred first.

    Raises:
        NoVariantError: none does; lists each with the reason.
    """
    source = kernel.source
    planned: dict[Variant, PlannedVariant] = {}
    reasons: list[str] = []
    for code in sorted(source.codes, key=preference, reverse=True):
        decisions = [runs_on(code.target, target, code.kind) for target in targets]
        if not any(decisions):
            refusals = [decision.reason for decision in decisions if isinstance(decision, Rejected)]
            reasons.append(f"{code}: {'; '.join(dict.fromkeys(refusals))}")
            continue
        own = source.fingerprint_of(code)
        variant = Variant(source.name, own, source.signature, code.assumes, Config(), code.target)
        planned.setdefault(
            variant, PlannedVariant(variant, (f"given as {code.label}",), (), generic=_assumes_nothing(code))
        )
    if not planned:
        listing = ", ".join(map(str, targets))
        raise NoVariantError(f"{kernel.name} ({kernel.location}) has no binary for {listing}", reasons)
    return tuple(planned.values())


def _assumes_nothing(code: BinaryCode) -> bool:
    constexprs = Specialization(constants=code.assumes.constants)
    return code.assumes == constexprs and not constexprs.constants
