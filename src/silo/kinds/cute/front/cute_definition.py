"""``silo.cute``: kernels of the CuTe DSL."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from silo.core.config import Config
from silo.core.grids import Grid
from silo.core.signature import NO_DEFAULT, Parameter, ParameterKind, Signature
from silo.core.space import DeclaredSpace, Space, space_of
from silo.core.values import Value
from silo.errors import SourceError, SpaceError
from silo.kinds.cute.front.cute_installation import decorated_as
from silo.kinds.cute.front.cute_parameters import declared_parameters
from silo.kinds.cute.front.cute_source import CuteSource, Host, Layouts, WrittenWrapper
from silo.kinds.cute.front.cute_specialize import constant_value, plain_function
from silo.sources.declaration import Declaration
from silo.sources.launch_options import LaunchOption, LaunchOptions, read_launch_options
from silo.sources.written_signature import written_members

__all__ = ["cute"]

_Choice = TypeVar("_Choice", Host, Layouts)


def cute(
    function: object,
    *,
    signature: str | Mapping[str, Value] | None = None,
    block: LaunchOption | None = None,
    cluster: LaunchOption | None = None,
    smem: int | str | Callable[[Any], object] | None = None,
    host: Literal["auto", "silo", "dsl"] = "auto",
    layouts: Literal["static", "dynamic"] = "static",
    space: Mapping[str, Iterable[Value]] | Iterable[Config | Mapping[str, Value]] | DeclaredSpace | None = None,
    grid: Callable[[Any], object] | Sequence[int] | Grid | None = None,
    key: Sequence[str] = (),
    name: str | None = None,
    release_gil: bool = True,
) -> Any:  # noqa: ANN401  # a kernel, called as the function declares
    """Make a Silo kernel of a CuTe DSL one.

    Args:
        function: a ``@cute.kernel`` function, which Silo launches once with the call's grid; or the host code of the
            launch: a ``@cute.jit`` function, an object whose ``__call__`` is one, or a class of these objects. The
            parameters of a class's ``__init__`` are constants, which a call or a config sets.
        signature: facts missing from the annotations, ``"x: in *fp32, out: out, n: i32, TILE: constexpr"`` or a
            mapping: the effect on an array (``in``, ``out``, ``inout``), its dtype, the width of a scalar, and
            constants. Other parameters are as annotated; an array counts as read and written.
        block: threads of a block: a number, the name of a constant, up to three of these, or a function of the
            constants. A ``@cute.kernel`` needs it.
        cluster: blocks of a cluster, in the same form.
        smem: bytes of dynamic shared memory; computed by the DSL by default.
        host: ``silo``: the driver launches the device code, without any part of the DSL. ``dsl``: the DSL's own host
            code launches it, for kernels whose parameters only that code makes; it needs the DSL's library, and
            consent. ``auto``: ``silo`` if that can make every parameter, else ``dsl`` if the host function takes a
            stream; one line of the log has the reason.
        layouts: ``static``: shapes and strides are part of the code, which is compiled for each. ``dynamic``: they are
            passed with each call.
        space: as for :func:`silo.kernel`; its values are Constexprs, parameters of ``__init__``, or names that
            ``block``, ``cluster`` and ``smem`` use.
        grid: as for :func:`silo.kernel`; it counts blocks, with clusters too.
        key: as for :func:`silo.kernel`.
        name: the kernel's name; its function's name by default.
        release_gil: as for :func:`silo.kernel`.

    Raises:
        SourceError: another kind of function, a function without source, or a signature that contradicts it.
        SpaceError: the space is invalid.
        TraceError: the grid, or a launch option, cannot be traced to an expression.
    """
    written, called, method = _read(function)
    plain = plain_function(getattr(called, "__func__", called))
    made_name = name or _name_of(function)
    location = _location(made_name, plain)
    where = f"{made_name} ({location})"
    declared = declared_parameters(where, called, written_members(where, signature or {}), method=method)
    init = _init_parameters(where, function) if written is WrittenWrapper.CLASS else ()
    constants = [one.name for one in (*declared.parameters, *init) if one.kind is ParameterKind.CONSTEXPR]
    try:
        made_space = space if space is None or isinstance(space, DeclaredSpace) else Space.of(space)
        configs = () if made_space is None else space_of(made_space).configs()
    except SpaceError as error:
        raise SpaceError(f"{where}: {error}") from error
    chosen = [name for config in configs for name, _ in config.values]
    options = read_launch_options(
        where, tuple(dict.fromkeys((*constants, *chosen))), block=block, cluster=cluster, smem=smem
    )
    if written is WrittenWrapper.KERNEL and options.block is None:
        raise SourceError(f"{where}: how many threads has a block? Give block=, for example block=128")
    if written is not WrittenWrapper.KERNEL and any(one.keyword for one in declared.passed):
        names = ", ".join(one.name for one in declared.passed if one.keyword)
        raise SourceError(f"{where}: {names} can be passed by keyword only; make it a parameter by position")
    parameters = (*declared.parameters, *init)
    source = CuteSource(
        name=made_name,
        signature=Signature((*parameters, *_launch_constants(where, parameters, options))),
        function=function,
        written=written,
        location=location,
        passed=declared.passed,
        host=_choice(where, "host", Host, host),
        layouts=_choice(where, "layouts", Layouts, layouts),
        options=options,
        stream=declared.stream,
        init_names=tuple(one.name for one in init),
    )
    return Declaration(
        source=source,
        space=made_space,
        key=tuple(key),
        grid=grid,
        release_gil=release_gil,
    )


def _read(function: object) -> tuple[WrittenWrapper, Any, bool]:
    """Returns the author's form, the function that is called, and whether its first parameter is the object."""
    match decorated_as(function):
        case "kernel":
            return WrittenWrapper.KERNEL, function, False
        case "jit":
            return WrittenWrapper.HOST, function, False
        case None:
            pass
    call = getattr(function if inspect.isclass(function) else type(function), "__call__", None)  # noqa: B004
    if decorated_as(call) == "jit":
        return (WrittenWrapper.CLASS if inspect.isclass(function) else WrittenWrapper.HOST), call, True
    named = getattr(function, "__name__", type(function).__name__)
    raise SourceError(
        f"{named} is not a kernel of the CuTe DSL: give silo.cute a function with @cute.kernel or @cute.jit, or an "
        "object whose __call__ has @cute.jit"
    )


def _name_of(function: Any) -> str:  # noqa: ANN401
    named: str = function.__qualname__ if hasattr(function, "__qualname__") else type(function).__qualname__
    return named.rpartition("<locals>.")[2]


def _location(name: str, plain: Any) -> str:  # noqa: ANN401
    """Returns ``file:line``. Raises SourceError if the source, which the DSL needs, cannot be read."""
    code = plain.__code__
    try:
        inspect.getsource(plain)
    except (OSError, TypeError) as error:
        raise SourceError(
            f"{name} has no source ({code.co_filename}), and the CuTe DSL compiles a kernel from its source: write it "
            "to a file and import it from there; a notebook cell will do"
        ) from error
    return f"{code.co_filename}:{code.co_firstlineno}"


def _init_parameters(where: str, kind: Any) -> tuple[Parameter, ...]:  # noqa: ANN401
    """Returns the parameters of a class's ``__init__``, all of them constants."""
    found: list[Parameter] = []
    for one in inspect.signature(kind).parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise SourceError(f"{where}: *{one.name} of __init__ stands for any number of parameters; name each")
        try:
            default = NO_DEFAULT if one.default is one.empty else constant_value(one.default)
        except TypeError as error:
            raise SourceError(f"{where}: the default of {one.name}: {error}") from None
        found.append(Parameter(one.name, ParameterKind.CONSTEXPR, default=default))
    return tuple(found)


def _launch_constants(where: str, parameters: Sequence[Parameter], options: LaunchOptions) -> list[Parameter]:
    """Returns a constant for each name that launch options read and the function does not have."""
    known = {one.name: one for one in parameters}
    for name in options.names:
        if name in known and known[name].kind is not ParameterKind.CONSTEXPR:
            raise SourceError(
                f"{where}: a launch option reads {name}, which each call passes, and it is part of the code: make it a "
                "Constexpr"
            )
    return [Parameter(name, ParameterKind.CONSTEXPR) for name in options.names if name not in known]


def _choice(where: str, what: str, kind: type[_Choice], given: str) -> _Choice:
    try:
        return kind(given)
    except ValueError:
        known = " or ".join(repr(one.value) for one in kind)
        raise SourceError(f"{where}: {what}={given!r}; it is {known}") from None
