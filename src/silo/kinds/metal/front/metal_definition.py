"""``silo.metal``: kernels in Metal Shading Language."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from silo.core.config import Config
from silo.core.dtypes import DTypeKind
from silo.core.expressions import Const, Node
from silo.core.grids import Grid
from silo.core.signature import NO_DEFAULT, Effect, Parameter, ParameterKind, Signature
from silo.core.space import DeclaredSpace, space_of
from silo.core.space import Space as SearchSpace
from silo.core.values import Value
from silo.errors import SourceError, SpaceError
from silo.kinds.metal.front.metal_source import MetalSource, scalar_of
from silo.kinds.metal.front.parser import AddressSpace, MslKernel, MslParameter, MslText, parse_metal, written_by_cast
from silo.kinds.metal.front.preprocessor import makes_kernels, preprocess
from silo.kinds.metal.runtime import FOLDER, TORCH_HEADERS
from silo.plain_files import read_plain
from silo.sources.declaration import Declaration
from silo.sources.foreign_files import plain_lines, refuse_foreign_files
from silo.sources.launch_options import LaunchOption, read_axes

__all__ = ["metal"]

_EFFECTS = {"in": Effect.READ, "out": Effect.WRITE, "inout": Effect.BOTH}
_KINDS = {DTypeKind.FLOAT: ParameterKind.FLOAT, DTypeKind.BOOL: ParameterKind.BOOL}


def metal(
    source: str | Path,
    *,
    kernel: str | None = None,
    constants: Mapping[str, Value] | Sequence[str] = (),
    group_size: LaunchOption | None = None,
    threadgroup_bytes: Mapping[str, LaunchOption] | LaunchOption | None = None,
    effects: Mapping[str, str] | None = None,
    include: Sequence[str | Path] = (),
    space: Mapping[str, Iterable[Value]] | Iterable[Config | Mapping[str, Value]] | DeclaredSpace | None = None,
    grid: Callable[[Any], object] | Sequence[int] | Grid | None = None,
    key: Sequence[str] = (),
    name: str | None = None,
    release_gil: bool = True,
) -> Any:  # noqa: ANN401  # a kernel, called with its buffers by rising index
    """Make a Silo kernel of a kernel in Metal Shading Language.

    Args:
        source: the text, or the path of a file that ends in ``.metal``.
        kernel: the name of one of the text's kernels, as programs call it; needed if the text has several.
        constants: values of function constants; names that the text does not declare as function constants are macros.
            If it is a sequence of names, each call or config sets them.
        group_size: threads of a threadgroup: a number, the name of a constant, up to three of these, or a function of
            the constants. A kernel with ``[[required_threads_per_threadgroup]]`` needs none.
        threadgroup_bytes: bytes of each ``[[threadgroup(n)]]`` parameter, by its name; a number for a single one.
        effects: ``in``, ``out`` or ``inout`` by parameter. By default ``const`` parameters that no cast makes writable
            are read, others are read and written.
        include: folders that are searched for the files which the text includes, after the folder of ``source``. If
            the text includes files, or its macros make kernels, the preprocessor runs first: conditions hold for Metal
            3.1, and nothing outside of these folders is read.
        space: as for :func:`silo.kernel`; its values are constants.
        grid: as for :func:`silo.kernel`; it counts threadgroups.
        key: as for :func:`silo.kernel`.
        name: the kernel's name in Silo; its own name by default.
        release_gil: as for :func:`silo.kernel`.

    Raises:
        SourceError: no kernel has that name, several kernels and no name given, or a kernel that cannot be launched;
            with file and line.
        SpaceError: the space is invalid.
        TraceError: the grid, or a size, cannot be traced to an expression.
    """
    caller = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the caller of silo.metal
    try:
        made_space = space if space is None or isinstance(space, DeclaredSpace) else SearchSpace.of(space)
        configs = () if made_space is None else space_of(made_space).configs()
    except SpaceError as error:
        raise SpaceError(f"{name or kernel or 'a kernel'} of a text in Metal's language: {error}") from error
    in_configs = [name for config in configs for name, _ in config.values]
    place = f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno}"
    text = _read(source, place, [Path(one) for one in include], frozenset((*constants, *in_configs)))
    chosen = _chosen(text, kernel)
    made_name = name or chosen.name
    where = f"{made_name} ({text.file}:{chosen.line})"
    values = dict(constants) if isinstance(constants, Mapping) else {}
    names = tuple(dict.fromkeys((*constants, *(one.name for one in text.constants), *in_configs)))
    constant = [one.name for one in chosen.buffers if one.const]
    cast = written_by_cast(text.text[slice(*chosen.body)], constant)
    parameters = [_parameter(where, one, effects or {}, cast) for one in chosen.buffers]
    passed = [one.name for one in parameters]
    for one in (*names, *(effects or {})):
        if (one in passed) == (one in names):
            raise SourceError(
                f"{where}: {one} is {'both a parameter and a constant' if one in passed else 'no buffer'}"
            )
    folded = [Parameter(one, ParameterKind.CONSTEXPR, default=values.get(one, NO_DEFAULT)) for one in names]
    made = MetalSource(
        name=made_name,
        signature=Signature((*parameters, *folded)),
        text=text,
        kernel=chosen,
        location=f"{text.file}:{chosen.line}",
        group=_group(where, chosen, group_size, names),
        memory=_memory(where, chosen, threadgroup_bytes, names),
    )
    return Declaration(source=made, space=made_space, key=tuple(key), grid=grid, release_gil=release_gil)


def _read(source: str | Path, caller: str, folders: Sequence[Path], given: Collection[str]) -> MslText:
    file, searched = f"<text at {caller}>", list(folders)
    if isinstance(source, Path) or (source.endswith(".metal") and "\n" not in source):
        try:
            text = read_plain(source).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{source}: the text of Metal kernels cannot be read: {error}") from error
        file = Path(source).name
        searched.insert(0, Path(source).parent)
    else:
        text = source
    text = plain_lines(text)
    if folders or makes_kernels(text):
        text = preprocess(text, file, searched, given)
    refuse_foreign_files(text, file, _library(), (TORCH_HEADERS,))
    return parse_metal(text, file)


@cache
def _library() -> frozenset[str]:
    """The headers of Metal's library that the emulator has."""
    files = (one.relative_to(FOLDER) for one in FOLDER.rglob("*") if one.is_file())
    return frozenset(one.as_posix() for one in files if one.parts[0] != "emulator" and one.suffix in ("", ".h"))


def _chosen(text: MslText, name: str | None) -> MslKernel:
    known = ", ".join(one.name for one in text.kernels)
    for refused, reason in text.refused:
        if refused == name or (name is None and len(text.refused) == 1 and not text.kernels):
            raise SourceError(reason)
    if not text.kernels and not text.refused:
        raise SourceError(f"{text.file}: no kernel is defined here; write for example kernel void add(...) {{ }}")
    if name is None:
        if len(text.kernels) + len(text.refused) > 1:
            others = "".join(f"; {reason}" for _, reason in text.refused)
            raise SourceError(f"{text.file}: which kernel? Give kernel= one of {known or 'none'}{others}")
        return next(iter(text.kernels))
    for one in text.kernels:
        if one.name == name:
            return one
    raise SourceError(f"{text.file}: there is no kernel {name!r}; {_listed(text, known)}")


def _listed(text: MslText, known: str) -> str:
    """The kernels that were found, and those that cannot be launched with their reasons."""
    refused = "; ".join(reason for _, reason in text.refused[:3])
    more = f"; and {len(text.refused) - 3} more" if len(text.refused) > 3 else ""
    cannot = f"{len(text.refused)} cannot be launched: {refused}{more}" if text.refused else ""
    shown = known if len(known) < 2000 else f"{known[:2000]} ..."
    has = f"it has {shown}" if known else "it has none that can be launched"
    return f"{has}; {cannot}" if cannot else has


def _parameter(where: str, one: MslParameter, effects: Mapping[str, str], cast: Collection[str]) -> Parameter:
    said = effects.get(one.name)
    if said is not None and said not in _EFFECTS:
        raise SourceError(f"{where}: the effect {said!r} of {one.name}; it is in, out or inout")
    scalar = scalar_of(one.type)
    if one.space is AddressSpace.CONSTANT and one.form == "&" and scalar is not None:
        if said is not None:
            raise SourceError(f"{where}: {one.name} is a number, which has no effect")
        return Parameter(one.name, _KINDS.get(scalar.kind, ParameterKind.INTEGER), scalar)
    const = one.const and one.name not in cast
    if const and said in ("out", "inout"):
        raise SourceError(f"{where}: {one.name} is const, so it is not written")
    default = Effect.READ if const else Effect.BOTH
    return Parameter(one.name, ParameterKind.POINTER, effect=default if said is None else _EFFECTS[said])


def _group(where: str, kernel: MslKernel, given: LaunchOption | None, names: tuple[str, ...]) -> tuple[Node, ...]:
    if given is not None:
        return read_axes(where, "group_size", given, names)
    if not kernel.group:
        raise SourceError(f"{where}: how many threads has a threadgroup? Give group_size=, for example group_size=256")
    return tuple(Const(one) for one in kernel.group)


def _memory(
    where: str,
    kernel: MslKernel,
    given: Mapping[str, LaunchOption] | LaunchOption | None,
    names: tuple[str, ...],
) -> tuple[tuple[str, Node], ...]:
    needed = [one.name for one in kernel.parameters if one.attribute == "threadgroup"]
    if isinstance(given, Mapping):
        sizes = dict(cast("Mapping[str, LaunchOption]", given))
    else:
        sizes = {} if given is None else dict.fromkeys(needed[:1], given)
        if given is not None and len(needed) != 1:
            raise SourceError(
                f"{where}: threadgroup_bytes= is for {', '.join(needed) or 'no parameter'}: give it by name"
            )
    if set(sizes) != set(needed):
        raise SourceError(
            f"{where}: threadgroup_bytes= has {', '.join(sizes) or 'nothing'}, and the kernel takes "
            f"{', '.join(needed) or 'nothing'} as [[threadgroup(n)]]"
        )
    found: list[tuple[str, Node]] = []
    for one in needed:
        axes = read_axes(where, "threadgroup_bytes", sizes[one], names)
        if len(axes) != 1:
            raise SourceError(f"{where}: threadgroup_bytes of {one} is one number, not {len(axes)}")
        found.append((one, axes[0]))
    return tuple(found)
