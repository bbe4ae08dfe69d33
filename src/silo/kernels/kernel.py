"""``silo.kernel``, which makes a Silo kernel of a Triton function, and the class of these kernels."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Protocol, TypeAlias, cast, overload

from silo.building.kernel_declaration import DeclaredKernel
from silo.building.ready_cases import CaseFunction
from silo.core.cases import Case
from silo.core.config import Config
from silo.core.expressions import Argument, ConfigValue, Extent, ItemSize, Node, Stride, leaves
from silo.core.grids import Grid
from silo.core.plugins import is_option, option_names
from silo.core.search_space import DeclaredSpace, Rule, SearchSpace, SpaceHeuristic, space_of
from silo.core.signature import ParameterKind
from silo.core.space import Constraint
from silo.core.trace import trace_grid
from silo.core.values import Value
from silo.errors import CaseError, SettingsError, SourceError, SpaceError, TraceError
from silo.forks import Mutex
from silo.heuristics.inferred import open_blocks, open_sizes
from silo.settings import absolute_path, settings
from silo.sources.kernel_source import KernelSource
from silo.sources.kinds import kind_named, kind_reading
from silo.sources.source_kind import DefinesKernels, HasLaunchHooks, SeenLaunch
from silo.variables import TUNE_MODES

if TYPE_CHECKING:
    from silo.building.code_forms import CompiledKernel
    from silo.building.prepared_calls import TupleCall
    from silo.calls.resolver import Resolved, Resolver
    from silo.launch.hooks import LaunchEvent

__all__ = ["GridFunction", "Kernel", "KernelFunction", "kernel", "kernel_of", "maker", "show_launches", "traced_grid"]


# ---- silo.kernel, and the objects that it makes ----


GridFunction = Callable[[Any], object]
GridLike: TypeAlias = GridFunction | Sequence[int] | Grid
SpaceLike: TypeAlias = (
    Mapping[str, Iterable[Value]] | Iterable[Config | Mapping[str, Value]] | DeclaredSpace | SpaceHeuristic
)


class Kernel(DeclaredKernel):
    """One kernel of this process: its declaration, its cases, and the resolver of its calls.

    ``silo.kernel`` returns another object to users: a copy of the Triton function with the methods ``cases``,
    ``warmup``, ``explain`` and with this object as ``kernel``.
    """

    @cached_property
    def resolver(self) -> Resolver:
        """The resolver, which handles the calls that the launcher cannot serve yet."""
        from silo.calls.resolver import Resolver  # noqa: PLC0415  # heavy: a program may define kernels and call none

        if settings().flight != "0":
            from silo.kernels.recorded_texts import describe_kernels  # noqa: PLC0415  # few programs are recorded

            describe_kernels()
        return Resolver(self)

    @property
    def checking(self) -> bool:
        """Whether calls run in checking mode."""
        return settings().check if self.check is None else self.check

    @cached_property
    def launcher(self) -> Any:  # noqa: ANN401  # the native launcher, or what stands in front of it
        """The object that calls from Python go through."""
        if not self.checking:
            return self.resolver.direct
        from silo.core.protocols import CheckLimits  # noqa: PLC0415
        from silo.kernels.checking_launchers import CheckingKernel  # noqa: PLC0415  # few programs check

        return CheckingKernel(self, self.resolver, CheckLimits())

    def cases(
        self, *functions: Never, **parameters: Iterable[object]
    ) -> Callable[[Callable[..., Case]], Callable[..., Case]]:
        """Registers a function that makes cases: it is called for each combination of the parameters' values.

        The function gets each parameter by name, and ``make``, which makes arrays and records how. It returns
        ``silo.Case(args=..., expected={name: function})``.

        Raises:
            CaseError: ``functions`` is not empty, because the parentheses are missing (``@kernel.cases``); a parameter
                has no list of values, or an empty one.
        """
        where = f"{self.name}.cases ({self.location})"
        if functions:
            raise CaseError(f"{where}: write @{self.name}.cases() above the function, or @{self.name}.cases(n=[1024])")
        for name, choices in parameters.items():
            if isinstance(choices, str) or not hasattr(choices, "__iter__"):
                raise CaseError(f"{where}: {name} is a list of values, not {choices!r}: write {name}=[{choices!r}]")
        values = {name: tuple(choices) for name, choices in parameters.items()}
        for name, choices in values.items():
            if not choices:
                raise CaseError(f"{where}: {name} has no values; list at least one, or leave {name}= out")

        def register(function: Callable[..., Case]) -> Callable[..., Case]:
            code = getattr(function, "__code__", None)
            location = f"{code.co_filename}:{code.co_firstlineno}" if code else ""
            names = (*self.argument_names, *(n for n in self.source.signature.names if n not in self.argument_names))
            ordered = tuple(name for name in self.source.signature.names if name in names)
            case_function = CaseFunction(
                self.name,
                ordered,
                self.config_names,
                function,
                values,
                location,
                constant=self.source.constant,
                open_blocks=self.open_blocks,
                written=self.declared_writes,
            )
            self.case_functions.append(case_function)
            return function

        return register

    def warmup(self, *args: object, grid: object = None, **kwargs: object) -> CompiledKernel:
        """Compiles and loads the code for a call with these arguments, without launching. Blocks until that is done.

        A dtype (``torch.float32``) may replace an array; it stands for an array whose address is a multiple of 16. See
        :meth:`compiled`.
        """
        return self.compiled(*args, grid=grid, **kwargs)

    def compiled(self, *args: object, grid: object = None, **kwargs: object) -> CompiledKernel:
        """Returns the code that serves a call with these arguments, compiled and loaded now if necessary.

        Launches nothing.

        The result has the members of the object that Triton's ``warmup`` returns: ``asm``, ``n_regs``, ``n_spills``,
        ``metadata`` (``shared``, ``num_warps``, ...), and is launched by ``compiled[grid](*args)`` without a guard.
        """
        if (call := self._tuple_call(args, kwargs)) is not None:
            return cast("Kernel", call.kernel).compiled(grid=call.grid(grid), **call.named)
        return self.resolver.compiled(args, grid, kwargs)

    def _tuple_call(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> TupleCall | None:
        """Returns a call with each element of its tuples as a separate argument; None for a call without tuples."""
        if not any(isinstance(argument, tuple) for argument in (*args, *kwargs.values())):
            return None
        from silo.building.prepared_calls import tuple_call  # noqa: PLC0415  # few kernels take tuples

        return tuple_call(self, args, kwargs)

    def bind(self, *args: object, grid: object = None, **kwargs: object) -> Any:  # noqa: ANN401  # a launcher
        """Returns a launcher without a guard for calls like this example.

        The caller promises that later calls equal the example in alignment, divisibility by 16, constants, and the
        shapes or the grid that code was made for. These are not checked: if a promise is broken, the kernel computes
        garbage or faults. Kinds, dtypes, integer ranges and the device are still checked, and ``SILO_DEBUG=1`` checks
        every promise. The launcher is called like the kernel. The code is compiled and loaded now; later calls of
        ``forget``, or retuning, do not change it.
        """
        if (call := self._tuple_call(args, kwargs)) is not None:
            from silo.building.prepared_calls import TupleLauncher  # noqa: PLC0415  # few kernels take tuples

            bound = cast("Kernel", call.kernel).bind(grid=call.grid(grid), **call.named)
            return TupleLauncher(bound, self, call)
        if self.zeroed:
            from silo.building.prepared_calls import refuse_zeroing  # noqa: PLC0415  # few kernels do

            refuse_zeroing(self, "bind")
        if self.checking:  # a bound launcher cannot check launches
            return self.launcher if grid is None else self.launcher[grid]
        return self.resolver.bind(args, grid, kwargs)

    def explain(self, *args: object, grid: object = None, **kwargs: object) -> str:
        """Explains which variant a call with these arguments gets, why, and which variants were rejected.

        Compiles and measures nothing.
        """
        if (call := self._tuple_call(args, kwargs)) is not None:
            return cast("Kernel", call.kernel).explain(grid=call.grid(grid), **call.named)
        return self.resolver.explain(args, grid, kwargs)


class KernelFunction(Protocol):
    """The type of ``silo.kernel(...)``, for type checkers: the Triton function, called with or without a grid."""

    @property
    def kernel(self) -> Kernel:
        """The :class:`Kernel` of this function: its declaration, cases and resolver."""
        ...

    @property
    def __name__(self) -> str:
        """The function's name."""
        ...

    @property
    def fn(self) -> Callable[..., Any]:
        """The Python function."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # inside kernels it is the plain function
        """Launches the kernel with the declared grid."""
        ...

    def __getitem__(self, grid: Any, /) -> Callable[..., None]:  # noqa: ANN401  # a tuple, an integer, a callable
        """Returns a callable that launches with this grid."""
        ...

    def cases(
        self, *functions: Never, **parameters: Iterable[object]
    ) -> Callable[[Callable[..., Case]], Callable[..., Case]]:
        """See :meth:`Kernel.cases`."""
        ...

    def warmup(self, *args: object, grid: object = None, **kwargs: object) -> CompiledKernel:
        """See :meth:`Kernel.warmup`."""
        ...

    def compiled(self, *args: object, grid: object = None, **kwargs: object) -> CompiledKernel:
        """See :meth:`Kernel.compiled`."""
        ...

    def bind(self, *args: object, grid: object = None, **kwargs: object) -> Any:  # noqa: ANN401  # a launcher
        """See :meth:`Kernel.bind`."""
        ...

    def explain(self, *args: object, grid: object = None, **kwargs: object) -> str:
        """See :meth:`Kernel.explain`."""
        ...


def kernel_of(value: object) -> Kernel | None:
    """Returns the :class:`Kernel` of an object that ``silo.kernel`` returned, or None for any other object."""
    if isinstance(value, Kernel):
        return value
    candidate = getattr(value, "__dict__", {}).get("kernel")
    return candidate if isinstance(candidate, Kernel) else None


@overload
def kernel(
    function: object,
    /,
    *,
    space: SpaceLike | None = None,
    key: Sequence[str] | None = None,
    grid: GridLike | None = None,
    constraints: Sequence[Constraint] = (),
    tune: str | None = None,
    release_gil: bool = True,
    check: bool | None = None,
    lock: str | os.PathLike[str] | None = None,
    deterministic: bool | None = None,
    contiguous: Sequence[str] = (),
) -> KernelFunction: ...


@overload
def kernel(
    *,
    space: SpaceLike | None = None,
    key: Sequence[str] | None = None,
    grid: GridLike | None = None,
    constraints: Sequence[Constraint] = (),
    tune: str | None = None,
    release_gil: bool = True,
    check: bool | None = None,
    lock: str | os.PathLike[str] | None = None,
    deterministic: bool | None = None,
    contiguous: Sequence[str] = (),
) -> Callable[[object], KernelFunction]: ...


def kernel(
    function: object = None,
    /,
    *,
    space: SpaceLike | None = None,
    key: Sequence[str] | None = None,
    grid: GridLike | None = None,
    constraints: Sequence[Constraint] = (),
    tune: str | None = None,
    release_gil: bool = True,
    check: bool | None = None,
    lock: str | os.PathLike[str] | None = None,
    deterministic: bool | None = None,
    contiguous: Sequence[str] = (),
) -> Any:
    """Makes a Silo kernel of any ``@triton.jit``, ``@triton.autotune`` or ``@triton.heuristics`` kernel.

    The result is called like the Triton kernel, ``k[grid](...)``, or, with a declared grid, ``k(...)``; inside other
    Triton kernels it is the plain function. The arguments' device decides where it runs.

    Args:
        function: the kernel; absent when used as a decorator with options.
        space: configs worth trying: named values (constexprs and options such as ``num_warps``), or a list of configs.
            The first is the default. A space may also be a heuristic (``silo.heuristics.space``, for combos
            ``silo.heuristics.combo_space``), which makes configs for each call's device and sizes, or a
            ``silo.core.grouped_space.GroupedSpace``. The default is the configs of ``@triton.autotune``. Without
            those, if a call leaves out block sizes with usual names (``BLOCK_SIZE``, ``BLOCK_M``, ...), Silo infers a
            heuristic that chooses them.
        key: names of the scalar arguments that tuning depends on. By default the names in ``@triton.autotune``, or
            those that the heuristic reads.
        grid: the grid as a function of one namespace (arguments, config values, device facts), traced once to
            expressions; or a tuple; or a ``silo.core.grids.Grid``, whose requirements join the constraints.
        constraints: functions of a config that must hold, such as ``lambda c: c.BLOCK >= 32 * c.num_warps``.
        tune: ``auto``, ``background``, ``cached``, ``frozen`` or ``off`` at the first call of a key; the setting
            ``SILO_TUNE`` by default.
        release_gil: False keeps Python's lock during a launch. This saves some 60 ns and stops every other Python
            thread while the kernel runs (on a CPU, where a launch of more than some 50 ms releases the lock) or its
            queue is full (on a GPU).
        check: run every call in checking mode, on the CPU (:func:`silo.check`); the setting ``SILO_CHECK`` by default.
        lock: the lock file with the configs that calls use; the setting ``SILO_LOCK`` by default.
        deterministic: True makes results bitwise equal on every run and rank: measurements never decide about a kernel
            that sums; the setting ``SILO_DETERMINISTIC`` by default.
        contiguous: names of arrays whose elements the kernel takes in order, without reading strides. A call with a
            view that is not contiguous (a column, a transposed matrix, every other element) is refused before it runs.
            An address passed as an integer is accepted, because it lacks a layout. The check costs nothing for other
            kernels.

    Raises:
        SourceError: ``function`` is not a Triton kernel, Triton is absent, the key names no scalar parameter, or
            ``contiguous`` contains a name that is not an array's.
        TraceError: the grid cannot become an expression.
        SpaceError: the space sets a name that the kernel does not have.
        SettingsError: ``tune`` is an unknown mode.
    """
    if function is None:

        def decorate(decorated: object) -> Any:  # noqa: ANN401
            return _make(
                decorated,
                space=space,
                key=key,
                grid=grid,
                constraints=constraints,
                tune=tune,
                release_gil=release_gil,
                check=check,
                lock=lock,
                deterministic=deterministic,
                contiguous=contiguous,
            )

        return decorate
    return _make(
        function,
        space=space,
        key=key,
        grid=grid,
        constraints=constraints,
        tune=tune,
        release_gil=release_gil,
        check=check,
        lock=lock,
        deterministic=deterministic,
        contiguous=contiguous,
    )


def _make(
    function: object,
    *,
    space: SpaceLike | None,
    key: Sequence[str] | None,
    grid: GridLike | None,
    constraints: Sequence[Constraint],
    tune: str | None,
    release_gil: bool,
    check: bool | None,
    lock: str | os.PathLike[str] | None,
    deterministic: bool | None,
    contiguous: Sequence[str],
) -> Any:  # noqa: ANN401
    if tune is not None and tune not in TUNE_MODES:
        raise SettingsError(f"tune={tune!r}: it is one of {', '.join(TUNE_MODES)}")
    kind = kind_reading(function)
    declared = kind.read(function)
    source = declared.source
    names = source.signature.names
    made_key = _checked_key(source, declared.key if key is None else key)
    scalars = [name for name in names if name in made_key]
    if space is None:
        for refusal in declared.refusals:
            raise SourceError(f"{source.name} ({source.location}): {refusal}")
        for remark in declared.remarks:
            logging.getLogger("silo").info("%s (%s): %s", source.name, source.location, remark)
    if isinstance(grid, Grid):
        constraints = (*constraints, *(requirement for requirement, _ in grid.requires))
    made_space: SearchSpace | None = None
    rule: Rule | None = None
    if isinstance(space, SpaceHeuristic):
        rule = space.bound(source.name, source.signature, constraints)
        made_key = _key_of(source, rule, made_key if key is not None else ())
    elif (given_space := declared.space if space is None else space) is not None:
        try:
            made_space = space_of(given_space, () if space is None else constraints, scalars)
        except SpaceError as error:
            raise SpaceError(f"{source.name} ({source.location}): {error}") from error
        _check_space(source, made_space)
        _check_chosen(source, made_space, made_key)
    free = made_space is None and rule is None and declared.open_blocks
    kernel_object = Kernel(
        source,
        space=made_space,
        rule=rule,
        key=made_key,
        grid=None,
        tune=tune,
        release_gil=release_gil and declared.release_gil,
        check=check,
        lock=None if lock is None else absolute_path(Path(lock)),
        deterministic=deterministic,
        open_blocks=open_blocks(source.signature, source.heuristics) if free else (),
        open_key=open_sizes(source.signature) if free else (),
        open_constraints=tuple(constraints) if free else (),
        prunes=space is None and declared.prunes,
        zeroed=dict(declared.zeroed) if space is None else None,
        contiguous=_checked_contiguous(source, contiguous),
    )
    given_grid = declared.grid if grid is None else grid
    if given_grid is not None:
        kernel_object.grid = traced_grid(kernel_object, cast("GridLike", given_grid))
    if isinstance(kind, HasLaunchHooks):
        show_launches(kind)
    return kind.wrap(
        source,
        lambda: kernel_object.launcher,
        {
            "cases": kernel_object.cases,
            "warmup": kernel_object.warmup,
            "compiled": kernel_object.compiled,
            "bind": kernel_object.bind,
            "explain": kernel_object.explain,
            "kernel": kernel_object,
        },
    )


def maker(name: str) -> Callable[..., Any]:
    """Returns ``silo.NAME`` for the kind called NAME: a function that makes a kernel from the user's arguments.

    Raises:
        SourceError: the kind does not exist, or does not load.
    """
    define = cast("DefinesKernels", kind_named(name)).define

    @wraps(define)
    def make(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return kernel(define(*args, **kwargs))

    return make


def _key_of(source: KernelSource, space: Rule, key: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the key of a kernel whose space a heuristic makes: ``key``, or all arguments that the heuristic reads.

    Raises SpaceError if ``key`` is not empty and lacks one of these arguments.
    """
    missing = [name for name in space.reads if name not in key]
    if key and missing:
        raise SpaceError(
            f"{source.name}: the {space.made_by.kind} heuristic reads {', '.join(missing)}, which the key lacks: add "
            "it, or leave key= out"
        )
    return key or space.reads


def _check_chosen(source: KernelSource, space: SearchSpace, key: Sequence[str]) -> None:
    chosen = {name for config in space.configs() for name, _ in config.values}
    for name in key:
        if name in chosen:
            raise SourceError(
                f"{source.name} ({source.location}): the key {name!r} is set by the configs, so it is what tuning "
                "chooses and cannot be what it depends on"
            )


def _checked_key(source: KernelSource, key: Sequence[str]) -> tuple[str, ...]:
    """Checks that the key consists of scalar parameters, and returns it as a tuple of names."""
    where = f"{source.name} ({source.location})"
    if isinstance(key, str):
        raise SourceError(f"{where}: the key is a list of names, not {key!r}; write key=[{key!r}]")
    names = source.signature.names
    for name in key:
        if name not in names or source.signature[name].kind is ParameterKind.POINTER:
            raise SourceError(f"{where}: the key {name!r} is not a scalar parameter; it has {', '.join(names)}")
        if name in source.heuristics:
            raise SourceError(f"{where}: the key {name!r} is computed by a heuristic; name what that reads instead")
        if tuple(key).count(name) > 1:
            raise SourceError(f"{where}: the key names {name!r} twice")
    return tuple(key)


def _checked_contiguous(source: KernelSource, contiguous: Sequence[str]) -> tuple[str, ...]:
    """Checks ``contiguous=``, and returns the names of these parameters in the kernel's order."""
    if not contiguous:
        return ()
    where = f"{source.name} ({source.location})"
    arrays = (ParameterKind.ANY, ParameterKind.POINTER, ParameterKind.DESCRIPTOR)
    names = [parameter.name for parameter in source.signature.parameters if parameter.kind in arrays]
    odd = [name for name in contiguous if name not in names]
    if isinstance(contiguous, str) or odd:
        raise SourceError(
            f"{where}: contiguous= is a list of names of arrays, and is {contiguous!r}; it has "
            f"{', '.join(names) or 'none'}"
        )
    if source.extents is not None and (shaped := [name for name in contiguous if source.extents.kind_of(name)]):
        raise SourceError(
            f"{where}: contiguous= names {', '.join(shaped)}, and its code is compiled for the shapes and strides of "
            "each call's arrays: leave them out"
        )
    return tuple(name for name in names if name in contiguous)


def _check_space(source: KernelSource, space: SearchSpace) -> None:
    constants = [
        parameter.name for parameter in source.signature.parameters if parameter.kind is ParameterKind.CONSTEXPR
    ]
    for config in space.configs():
        for name, _ in config.values:
            if name not in constants:
                where = f"{source.name} ({source.location})"
                if name in source.signature.names:
                    raise SpaceError(
                        f"{where}: the space sets {name!r}, which is a parameter and not a constexpr: annotate it as "
                        f"{name}: tl.constexpr"
                    )
                raise SpaceError(
                    f"{where}: the space sets {name!r}, which is neither a constexpr of the kernel "
                    f"({', '.join(constants) or 'it has none'}) nor a compile option ({', '.join(option_names())})"
                )


def traced_grid(kernel: DeclaredKernel, grid: GridLike) -> tuple[Node, ...]:
    """Returns the declared grid as expressions. If that fails, the ``TraceError`` names the kernel and the remedy."""
    config = (*kernel.config_names, *kernel.source.heuristics)
    if isinstance(grid, Grid):
        return _checked_grid(kernel, grid, config)
    if not callable(grid) and (isinstance(grid, str) or not hasattr(grid, "__iter__")):
        raise TraceError(
            f"the grid of {kernel.name} ({kernel.location}) is {grid!r}: give a function of the arguments, such as "
            "lambda a: (silo.cdiv(a.n, a.BLOCK),), or a tuple of 1 to 3 numbers"
        )
    dimensions = () if callable(grid) else tuple(grid)

    def constant(_namespace: object) -> tuple[int, ...]:
        return dimensions

    try:
        return trace_grid(grid if callable(grid) else constant, kernel.argument_names, config)
    except TraceError as error:
        raise TraceError(
            f"the grid of {kernel.name} ({kernel.location}) cannot be traced: {error}\n"
            f"Or leave grid= out and pass a callable at the call: {kernel.name}[lambda meta: ...](...)"
        ) from error


def _checked_grid(kernel: DeclaredKernel, grid: Grid, config: Sequence[str]) -> tuple[Node, ...]:
    """Returns the axes of a ``Grid``. Raises ``TraceError`` for a name that the kernel does not have."""
    for axis in grid.axes:
        for leaf in leaves(axis):
            name = leaf.argument if isinstance(leaf, Extent | Stride | ItemSize) else leaf.name
            missing = (isinstance(leaf, Argument) and name not in kernel.source.signature.names) or (
                isinstance(leaf, ConfigValue)
                and name not in (*config, *kernel.source.signature.names)
                and not is_option(name)
            )
            if missing:
                have = ", ".join(kernel.source.signature.names)
                raise TraceError(f"the grid of {kernel.name} ({kernel.location}) reads {name}; the kernel has {have}")
    return grid.axes


# ---- Launch hooks of other libraries also see the launches of Silo's kernels ----


# the kinds whose launches are shown, by id(kind); ids are not reused, because kinds live as long as the process
_shown: dict[int, _Shown] = {}


def show_launches(kind: HasLaunchHooks) -> None:
    """Shows launches of a kind's kernels to the launch hooks of the kind's library (such as Triton's hooks)."""
    shown = _shown.setdefault(id(kind), _Shown(kind))
    kind.follow_launch_hooks(shown.switch)


class _Shown:
    """Adds and removes the hook that shows the launches of one kind's kernels to the kind's library."""

    def __init__(self, kind: HasLaunchHooks) -> None:
        self._kind = kind
        self._lock = Mutex()
        self._remove: Callable[[], None] | None = None

    def switch(self, on: bool) -> None:  # noqa: FBT001  # the protocol's
        """Adds Silo's hook if ``on`` (the library has launch hooks), and otherwise removes Silo's hook."""
        if on is (self._remove is not None):
            return
        from silo.launch.hooks import on_launch  # noqa: PLC0415  # few programs have hooks

        with self._lock:
            if on and self._remove is None:
                self._remove = on_launch(self._enter)
            elif not on and self._remove is not None:
                self._remove()
                self._remove = None

    def _enter(self, event: LaunchEvent) -> Callable[[], object] | None:
        from silo.calls.resolver import Resolved  # noqa: PLC0415  # loaded by the first call

        resolved = event.tag
        if not isinstance(resolved, Resolved) or id(kind_named(resolved.kernel.source.kind)) != id(self._kind):
            return None
        arguments = {**event.config, **event.arguments}
        launch = SeenLaunch(resolved.kernel.source, arguments, event.grid, event.stream, lambda: _metadata(resolved))
        return self._kind.enter_launch(launch)


def _metadata(resolved: Resolved) -> object:
    from silo.building.code_forms import code_metadata  # noqa: PLC0415  # few hooks look at it

    return cast("object", code_metadata(resolved.artifact))
