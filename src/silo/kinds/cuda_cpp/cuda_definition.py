"""``silo.cuda``: kernels in CUDA C++."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from silo.core.config import Config
from silo.core.grids import Grid
from silo.core.search_space import DeclaredSpace, space_of
from silo.core.signature import NO_DEFAULT, Effect, Parameter, ParameterKind, Signature
from silo.core.space import Space as SearchSpace
from silo.core.values import DTypeKind, Value, dtype
from silo.errors import SourceError, SpaceError
from silo.frozen import replace
from silo.kinds.cuda_cpp.cuda_source import CudaSource, DeclaredParameter, member_name, scalar_parameter
from silo.kinds.cuda_cpp.cuda_text import (
    KernelText,
    Numbers,
    chosen_kernel,
    flat_members,
    kernels_of,
    qualified,
    with_constant_memory,
)
from silo.kinds.cuda_cpp.cuda_unit import CudaText, CudaType, Form
from silo.kinds.cuda_cpp.literal_places import literal_places
from silo.kinds.cuda_cpp.macro_kernels import macro_kernel
from silo.kinds.cuda_cpp.signature_probe import written_scalar
from silo.kinds.cuda_cpp.user_headers import HeaderFolders, Wanted, closed_text, decoded
from silo.plain_files import read_plain
from silo.sources.declaration import Declaration
from silo.sources.written_values import LaunchOption, read_launch_options, written_map, written_members

__all__ = ["cuda"]

_EFFECTS = {"in": Effect.READ, "out": Effect.WRITE, "inout": Effect.BOTH}
_FILES = (".cu", ".cuh", ".hip", ".cpp", ".h", ".hpp")
_INCLUDABLE = ("-D", "--define-macro", "-I", "--include-path", "-include", "--pre-include")
_ALLOWED = (
    "-use_fast_math",
    "--use_fast_math",
    "-ftz=",
    "--ftz=",
    "-prec-sqrt=",
    "--prec-sqrt=",
    "-prec-div=",
    "--prec-div=",
    "-fmad=",
    "--fmad=",
    "-std=",
    "--std=",
    "-maxrregcount=",
    "--maxrregcount=",
    "-lineinfo",
    "--generate-line-info",
    "-default-device",
    "--device-as-default-execution-space",
    "--extra-device-vectorization",
    "-w",
)
_STANDARD = "-std=c++17"
_WORD = re.compile(r"[A-Za-z_]\w*")


def cuda(
    source: str | Path,
    *,
    entry: str | None = None,
    signature: str | Mapping[str, str] | None = None,
    threads: LaunchOption | None = None,
    shared: int | str | Callable[[Any], object] | None = None,
    cluster: LaunchOption | None = None,
    grid: Callable[[Any], object] | Sequence[int] | Grid | None = None,
    space: Mapping[str, Iterable[Value]] | Iterable[Config | Mapping[str, Value]] | DeclaredSpace | None = None,
    constants: Mapping[str, Value] | Sequence[str] = (),
    key: Sequence[str] = (),
    include: Sequence[str | os.PathLike[str]] | Mapping[str, str] = (),
    flags: Sequence[str] = (),
    constant_memory: Mapping[str, Numbers] | None = None,
    device_only: bool = False,
    cooperative: bool = False,
    pdl: bool = False,
    name: str | None = None,
    release_gil: bool = True,
) -> Any:  # noqa: ANN401  # a kernel, called with its parameters in order
    """Makes a Silo kernel from a ``__global__`` function in CUDA C++.

    Nothing is compiled here: the types of the parameters are read by a compiler at the first call or build. A struct by
    value is passed member by member: ``p_x`` and ``p_n`` for ``struct P { float *x; int n; } p``.

    Args:
        source: the text, or the path of a file (``.cu``, ``.cuh``, ``.hip``, ...). A parameter without a name is
            called ``arg0``, ``arg1``, ... by its position.
        entry: the kernel's name, with its arguments if it is a template: ``"vadd"``, ``"ns::vadd<float, BLOCK>"``.
            Constants among the template arguments get their values there; other constants are macros. Needed if the
            text has several kernels or a template.
        signature: effects of arrays (``{"out": "out", "sums": "inout"}``), or types too. If it has all parameters with
            their types, ``"x: in *fp32, out: out *fp32, n: i32"``, no compiler has to read the types. By default a
            pointer to const is read, any other is read and written.
        threads: threads of a block: a number, the name of a constant, up to three of these, or a function of the
            constants. A kernel with ``__block_size__`` needs none.
        shared: dynamic shared memory of a block in bytes: a number, a constant, or a function of the constants.
        cluster: blocks of a cluster, in the same form as ``threads``.
        grid: as for :func:`silo.kernel`; it counts blocks, or clusters if ``cluster`` is given.
        space: as for :func:`silo.kernel`; its values are constants.
        constants: values of further macros or template arguments; if it is a sequence of names, each call or config
            sets them.
        key: as for :func:`silo.kernel`.
        include: folders that headers are read from, besides the folder of ``source``; or the text of each header by
            name. Headers of the CUDA toolkit need no folder.
        flags: further options of NVRTC: mathematics (``-use_fast_math``, ``-fmad=false``), ``-std=c++20``,
            ``-maxrregcount=``, ``-lineinfo``.
        constant_memory: values of ``__constant__`` variables, by name: numbers, or rows of them (``array.tolist()``).
            They are part of the code.
        device_only: leave out the file's host functions, host headers, and declarations that the kernel does not need.
        cooperative: launch cooperatively, so that blocks may wait for each other.
        pdl: use programmatic dependent launch.
        name: the kernel's name in Silo; its own name by default.
        release_gil: as for :func:`silo.kernel`.

    Raises:
        SourceError: no kernel of that name, several kernels but no name, a header outside of its folder, or an option
            that is not allowed.
        SpaceError: the space is invalid.
        TraceError: the grid, or a size, cannot be traced to an expression.
    """
    caller = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the caller of silo.cuda
    source_line = f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno}"
    text, path = _read(source)
    file = path.name if path is not None else "kernel.cu"
    shown = path.name if path is not None else f"<text at {source_line}>"
    if constant_memory:
        text = with_constant_memory(text, shown, constant_memory)
    expression, kernel = chosen_kernel(text, shown, entry)
    folders = HeaderFolders.of(include, None if path is None else path.parent)
    request = Wanted(_base(expression), _named_types(expression, constants, space)) if device_only else None
    closed = closed_text(CudaText(file, text), folders, shown, request)
    if kernel is None:
        base = _base(expression)
        header_kernels = [
            kernel for _, header in closed.headers for kernel in kernels_of(header) if kernel.name == base
        ]
        kernel = header_kernels[0] if header_kernels else None
        kernel = kernel or macro_kernel((text, *(header for _, header in closed.headers)), base)
        expression = qualified(expression, kernel)
    base = kernel.name if kernel is not None else _base(expression)
    if kernel is not None:
        parameter_names = tuple(parameter or f"arg{at}" for at, parameter in enumerate(kernel.parameters))
        kernel = replace(kernel, parameters=parameter_names)
    made_name = name or base
    places = literal_places(caller.f_code.co_filename, text) if path is None else None
    line = kernel.line if kernel is not None else 0
    python_line = places.line(line) if places is not None else 0
    location = f"{Path(caller.f_code.co_filename).name}:{python_line}" if python_line else f"{shown}:{line}"
    if not line:
        location = shown
    where = f"{made_name} ({location})"
    names, configs, made_space = _constants(where, constants, space)
    values = dict(constants) if isinstance(constants, Mapping) else {}
    declared = _declared(where, kernel, (text, *(header for _, header in closed.headers)), signature)
    if kernel is None and signature is None:
        raise SourceError(
            f"{shown}: there is no __global__ function {base!r}; it has "
            f"{', '.join(kernel.name for kernel in kernels_of(text)) or 'none'}. If a macro makes it, name its "
            "parameters in signature="
        )
    values_of_calls = [own for declaration in declared for own in (declaration.members or (declaration,))]
    repeated = [value.name for value in values_of_calls if value.name in names]
    if repeated:
        raise SourceError(f"{where}: {repeated[0]} is both a parameter and a constant")
    folded = [Parameter(name, ParameterKind.CONSTEXPR, default=values.get(name, NO_DEFAULT)) for name in names]
    # The first config's constants are used when a compiler reads the parameters' types.
    first = {**values, **(dict(configs[0].values) if configs else {})}
    kernel_source = CudaSource(
        name=made_name,
        signature=Signature((*[_untyped(value) for value in values_of_calls], *folded)),
        text=closed,
        entry=expression,
        location=location,
        declared=declared,
        launch=read_launch_options(where, names, block=threads, cluster=cluster, smem=shared),
        first=tuple(sorted(first.items())),
        flags=_flags(where, flags),
        cooperative=cooperative,
        pdl=pdl,
        places=places,
        typed=_is_complete(where, kernel, signature),
    )
    return Declaration(source=kernel_source, space=made_space, key=tuple(key), grid=grid, release_gil=release_gil)


def _base(expression: str) -> str:
    """Returns the name of a kernel without namespace and template arguments."""
    return expression.partition("<")[0].strip().rpartition("::")[2].strip()


def _named_types(expression: str, *values: object) -> tuple[str, ...]:
    """Returns the words in an entry and in those constants that are texts; a word may name a type of the user."""
    return tuple(dict.fromkeys(_WORD.findall(" ".join((expression, *_texts(values))))))


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Config):
        yield from _texts([own for _, own in value.values])
    elif isinstance(value, Mapping):
        yield from _texts(list(cast("Mapping[str, object]", value).values()))
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[object]", value):
            yield from _texts(item)


def _read(source: str | Path) -> tuple[str, Path | None]:
    """Returns the text, and the path of its file; None as path if the source is the text itself."""
    if isinstance(source, str) and ("\n" in source or not source.endswith(_FILES)):
        return source, None
    path = Path(source)
    try:
        return decoded(read_plain(path)), path
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{source}: the text of CUDA kernels cannot be read: {error}") from error


def _constants(
    where: str,
    constants: Mapping[str, Value] | Sequence[str],
    space: Mapping[str, Iterable[Value]] | Iterable[Config | Mapping[str, Value]] | DeclaredSpace | None,
) -> tuple[tuple[str, ...], Sequence[Config], DeclaredSpace | None]:
    """Returns the names of the constants, the configs, and the space. Raises SpaceError, SourceError."""
    try:
        own_space = space if space is None or isinstance(space, DeclaredSpace) else SearchSpace.of(space)
        configs = () if own_space is None else space_of(own_space).configs()
    except SpaceError as error:
        raise SpaceError(f"{where}: {error}") from error
    names = tuple(dict.fromkeys((*constants, *(constant for config in configs for constant, _ in config.values))))
    for name in names:
        if not name.isidentifier() or name.startswith("__"):
            raise SourceError(f"{where}: {name!r} cannot be a macro or a template argument")
    return names, configs, own_space


def _untyped(declared: DeclaredParameter) -> Parameter:
    """Returns a parameter of the signature: typed if it is a scalar with a declared type, otherwise without a type."""
    own = declared.type
    if own is not None and own.form == Form.SCALAR:
        return scalar_parameter(Parameter(declared.name), own)
    return Parameter(declared.name, effect=Effect.BOTH if declared.effect is None else declared.effect)


def _declared(
    where: str, kernel: KernelText | None, texts: Sequence[str], signature: str | Mapping[str, str] | None
) -> tuple[DeclaredParameter, ...]:
    """Returns the parameters: names from the text, with effects and types as the author declared them."""
    names = () if kernel is None else kernel.parameters
    members = {} if kernel is None else _members(kernel, texts)
    written = {} if signature is None else written_members(where, signature)
    declarations = {name: _declaration(where, name, value) for name, value in written.items()}
    if not names or _is_complete(where, kernel, signature):
        return tuple(declarations.values())
    known_names = [own for name in names for own, _ in (members.get(name) or ((name, ""),))]
    for declaration in declarations:
        if declaration not in known_names:
            raise SourceError(
                f"{where}: signature= names {declaration}, and the parameters are {', '.join(known_names)}"
            )
    types = {} if kernel is None else dict(zip(kernel.parameters, kernel.types, strict=True))
    return tuple(
        DeclaredParameter(name, members=tuple(_completed(declarations, own, kind) for own, kind in members[name]))
        if members.get(name)
        else _completed(declarations, name, types.get(name, ""))
        for name in names
    )


def _is_complete(where: str, kernel: KernelText | None, signature: str | Mapping[str, str] | None) -> bool:
    """Whether ``signature=`` has the types of all parameters."""
    written = {} if signature is None else written_members(where, signature)
    count = 0 if kernel is None else len(kernel.parameters)
    types = [_declaration(where, name, value).type for name, value in written.items()]
    return bool(types) and None not in types and len(types) >= count


def _completed(declared: Mapping[str, DeclaredParameter], name: str, spelled: str) -> DeclaredParameter:
    """Returns a declared parameter; a scalar without a declared type gets its type from the text."""
    own = declared.get(name, DeclaredParameter(name))
    return own if own.type is not None or own.effect is not None else replace(own, type=written_scalar(spelled))


def _members(kernel: KernelText, texts: Sequence[str]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Returns, for each struct by value, the values that a call passes, with their types."""
    return {
        name: tuple((member_name(name, own), own_kind) for own, own_kind in flat_members(texts, kind))
        for name, kind in zip(kernel.parameters, kernel.types, strict=True)
        if kind
    }


def _declaration(where: str, name: str, written: Value) -> DeclaredParameter:
    words = written.split() if isinstance(written, str) else []
    effect = _EFFECTS[words.pop(0)] if words and words[0] in _EFFECTS else None
    if (encoding := written_map(where, name, words)) is not None:
        kind = CudaType(Form.TENSORMAP, "CUtensorMap", bytes=128, align=64)
        return DeclaredParameter(name, effect, kind, map=encoding)
    spelled = "".join(words)
    if not words and effect is not None:
        return DeclaredParameter(name, effect)
    try:
        element = dtype(spelled.removeprefix("*"))
    except KeyError:
        raise SourceError(
            f"{where}: {name} is {written!r} in signature=; write an effect (in, out, inout), a dtype for a scalar, or "
            "both for an array: out *fp32"
        ) from None
    if spelled.startswith("*"):
        kind = CudaType(Form.POINTER, f"*{element.short}", element.short, const=effect is Effect.READ)
        return DeclaredParameter(name, effect, kind)
    if effect is not None or (element.kind is DTypeKind.FLOAT and element.bits < 16):
        raise SourceError(f"{where}: {name} is {written!r} in signature=; a scalar has no effect, and at least 16 bits")
    kind = CudaType(Form.SCALAR, element.short, element.short, bytes=element.itemsize, align=element.itemsize)
    return DeclaredParameter(name, None, kind)


def _flags(where: str, options: Sequence[str]) -> tuple[str, ...]:
    """Returns the options in order, preceded by a default C++ standard if they set none.

    Raises SourceError for an option that is not allowed.
    """
    for flag in options:
        if flag.startswith(_INCLUDABLE):
            raise SourceError(f"{where}: {flag}: macros are constants=, headers are include=")
        if not any(flag == allowed or (allowed.endswith("=") and flag.startswith(allowed)) for allowed in _ALLOWED):
            raise SourceError(f"{where}: the option {flag!r} is not allowed; these are: {' '.join(_ALLOWED)}")
    standard = () if any(flag.lstrip("-").startswith("std=") for flag in options) else (_STANDARD,)
    return (*standard, *options)
