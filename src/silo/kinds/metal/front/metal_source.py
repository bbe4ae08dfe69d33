"""Defines ``silo.metal``, and represents kernels in Metal Shading Language as sources."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from silo.core.argument_facts import ArgumentFacts, describe
from silo.core.config import Config
from silo.core.expressions import Const, Node, to_json
from silo.core.grids import Grid
from silo.core.search_space import DeclaredSpace, space_of
from silo.core.signature import NO_DEFAULT, Effect, Parameter, ParameterKind, Signature
from silo.core.space import Space as SearchSpace
from silo.core.values import DType, DTypeKind, Value, digest, dtype
from silo.emulation.text_source import TextSource
from silo.errors import ArgumentError, CompileError, SourceError, SpaceError
from silo.frozen import replace
from silo.kinds.metal.front.parser import AddressSpace, MslKernel, MslParameter, MslText, parse_metal, written_by_cast
from silo.kinds.metal.front.preprocessor import makes_kernels, preprocess
from silo.kinds.metal.front.variant_text import metal_text
from silo.kinds.metal.runtime import FOLDER, TORCH_HEADERS
from silo.plain_files import read_plain
from silo.sources.declaration import Declaration
from silo.sources.foreign_files import plain_lines, refuse_foreign_files
from silo.sources.written_values import LaunchOption, evaluated, read_axes

__all__ = ["MOST_GROUP_BYTES", "MOST_THREADS", "SCALARS", "MetalSource", "element_of", "metal", "scalar_of"]

# ---- Metal's types for Silo's dtypes ----


_NAMES = {
    "bool": ("bool",),
    "int8": ("char", "int8_t"),
    "uint8": ("uchar", "uint8_t"),
    "int16": ("short", "int16_t"),
    "uint16": ("ushort", "uint16_t"),
    "int32": ("int", "int32_t"),
    "uint32": ("uint", "uint32_t", "unsigned", "unsigned int"),
    "int64": ("long", "int64_t", "ptrdiff_t"),
    "uint64": ("ulong", "uint64_t", "size_t"),
    "float16": ("half",),
    "bfloat16": ("bfloat",),
    "float32": ("float",),
}

SCALARS = MappingProxyType({name: dtype(own) for own, names in _NAMES.items() for name in names})
"""Dtypes by Metal's names for them."""

_WRAPPED = ("atomic", "_atomic", "vec", "packed_vec")


def scalar_of(text: str) -> DType | None:
    """Returns the dtype of a scalar type; None for any other type.

    >>> scalar_of("uint").short, scalar_of("float4")
    ('u32', None)
    """
    return SCALARS.get(text.removeprefix("metal::"))


def element_of(text: str) -> DType | None:
    """Returns the element dtype of an array with elements of this type; None if the elements are structs.

    >>> element_of("packed_half3").short, element_of("atomic_uint").short, element_of("vec<float, 4>").short
    ('fp16', 'u32', 'fp32')
    """
    plain = text.removeprefix("metal::").removeprefix("packed_").removeprefix("atomic_")
    scalar = SCALARS.get(plain)
    if scalar is None and plain[-1:] in "234":
        scalar = SCALARS.get(plain[:-1])
    name, bracket, rest = plain.partition("<")
    if scalar is None and bracket and name.strip() in _WRAPPED:
        scalar = element_of(rest.rpartition(">")[0].partition(",")[0].strip())
    return scalar


# ---- Kernels in Metal Shading Language as sources ----


MOST_THREADS = 1024
MOST_GROUP_BYTES = 32768


@dataclass(frozen=True, kw_only=True, eq=False)
class MetalSource(TextSource):
    """One kernel of a text. ``group`` is the shape of a threadgroup, ``memory`` the threadgroup memory of a launch.

    The signature has the buffers in order of their indices, then constants.
    """

    text: MslText
    kernel: MslKernel
    group: tuple[Node, ...]
    memory: tuple[tuple[str, Node], ...] = ()
    kind: str = "metal"
    # whether the grid may end within a threadgroup; a call then passes the grid's extents in threads after the buffers
    cut: bool = False

    @property
    def fingerprint(self) -> str:
        """A digest of the kernel's text and parameters; it contains no paths."""
        return digest(
            "metal-source/1",
            [
                self.name,
                self.signature.to_json(),
                self.text.text,
                self.kernel.name,
                [to_json(expression) for expression in self.group],
                [[name, to_json(expression)] for name, expression in self.memory],
                self.cut,
            ],
        )

    def _typed(self, parameter: Parameter, facts: ArgumentFacts) -> Parameter:
        if parameter.kind is ParameterKind.POINTER:
            return self._array(parameter, facts)
        assert parameter.dtype is not None  # the dtype was read from the text
        self._check_scalar(parameter.name, parameter.dtype, str(parameter.dtype), facts)
        return parameter

    def _array(self, parameter: Parameter, facts: ArgumentFacts) -> Parameter:
        name = parameter.name
        if not facts.is_pointer or facts.block_shape:
            raise ArgumentError(f"{self.name}: {name} takes an array, not {describe(facts.value)}")
        element = next(buffer for buffer in self.kernel.buffers if buffer.name == name)
        if facts.dtype is None:
            raise ArgumentError(f"{self.name}: the dtype of the array {name} is not known")
        if facts.dtype.bits == 64 and facts.dtype.kind is DTypeKind.FLOAT:
            raise ArgumentError(f"{self.name}: {name} is an array of {facts.dtype}, which Metal does not have")
        scalar = element_of(element.type)
        if scalar is not None and scalar != facts.dtype:
            raise ArgumentError(
                f"{self.name}: {name} is an array of {facts.dtype}, and the kernel reads {element.type}: pass {scalar}"
            )
        return replace(parameter, dtype=facts.dtype)

    def ending_within_groups(self) -> MetalSource:
        """Returns the same kernel for grids that may end within a threadgroup.

        A call of the returned kernel also passes the grid's extents, in threads along x, y and z.
        """
        parameters = self.signature.parameters
        passed = [parameter for parameter in parameters if parameter.kind is not ParameterKind.CONSTEXPR]
        threads = [Parameter(f"threads_{axis}", ParameterKind.INTEGER, dtype("uint32")) for axis in "xyz"]
        folded = [parameter for parameter in parameters if parameter.kind is ParameterKind.CONSTEXPR]
        return dataclasses.replace(self, cut=True, signature=Signature((*passed, *threads, *folded)))

    def group_size(self, constants: Mapping[str, Value]) -> tuple[int, int, int]:
        """Returns the threads of a threadgroup along each axis.

        Raises CompileError for invalid sizes, which rejects only this config.
        """
        sizes = [evaluated(self.name, "group_size", expression, constants) for expression in self.group]
        x, y, z = (*sizes, *[1] * (3 - len(sizes)))
        if min(x, y, z) < 1 or x * y * z > self.kernel.most_threads:
            most_threads = self.kernel.most_threads
            raise CompileError(f"{self.name}: the threadgroup is ({x}, {y}, {z}); it has 1 to {most_threads} threads")
        required = (*self.kernel.group, 1, 1, 1)[:3]
        if self.kernel.group and required != (x, y, z):
            raise CompileError(f"{self.name}: the kernel requires a threadgroup of {required}, not ({x}, {y}, {z})")
        return x, y, z

    def memory_bytes(self, constants: Mapping[str, Value]) -> dict[str, int]:
        """Returns the bytes of threadgroup memory that a launch provides, by parameter. Raises CompileError."""
        sizes = {
            name: evaluated(self.name, "threadgroup_bytes", expression, constants) for name, expression in self.memory
        }
        for name, size in sizes.items():
            if not 0 < size <= MOST_GROUP_BYTES:
                raise CompileError(f"{self.name}: {name} has {size} bytes of threadgroup memory, of {MOST_GROUP_BYTES}")
        if sum(sizes.values()) > MOST_GROUP_BYTES:
            raise CompileError(
                f"{self.name}: it takes {sum(sizes.values())} bytes of threadgroup memory, of {MOST_GROUP_BYTES}"
            )
        return sizes

    def metal(self, constants: Mapping[str, Value]) -> str:
        """Returns the text for Metal, without the kernel's ``[[threadgroup(n)]]`` parameters. Raises CompileError."""
        return metal_text(self.text, self.kernel, constants, self.memory_bytes(constants))


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
    """Makes a Silo kernel from a kernel in Metal Shading Language.

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
        include: folders that are searched for the files that the text includes, after the folder of ``source``. If
            the text includes files, or its macros make kernels, the preprocessor runs first: conditions are evaluated
            for Metal 3.1, and nothing outside of these folders is read.
        space: as for :func:`silo.kernel`; its values are constants.
        grid: as for :func:`silo.kernel`; it counts threadgroups.
        key: as for :func:`silo.kernel`.
        name: the kernel's name in Silo; its own name by default.
        release_gil: as for :func:`silo.kernel`.

    Raises:
        SourceError: no kernel has that name, several kernels but no name is given, or a kernel that cannot be launched;
            the message has file and line.
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
    location = f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno}"
    text = _read(source, location, [Path(item) for item in include], frozenset((*constants, *in_configs)))
    chosen = _chosen(text, kernel)
    made_name = name or chosen.name
    where = f"{made_name} ({text.file}:{chosen.line})"
    values = dict(constants) if isinstance(constants, Mapping) else {}
    names = tuple(dict.fromkeys((*constants, *(constant.name for constant in text.constants), *in_configs)))
    constant = [buffer.name for buffer in chosen.buffers if buffer.const]
    cast = written_by_cast(text.text[slice(*chosen.body)], constant)
    parameters = [_parameter(where, buffer, effects or {}, cast) for buffer in chosen.buffers]
    passed = [parameter.name for parameter in parameters]
    for item in (*names, *(effects or {})):
        if (item in passed) == (item in names):
            raise SourceError(
                f"{where}: {item} is {'both a parameter and a constant' if item in passed else 'no buffer'}"
            )
    folded = [Parameter(item, ParameterKind.CONSTEXPR, default=values.get(item, NO_DEFAULT)) for item in names]
    metal_kernel = MetalSource(
        name=made_name,
        signature=Signature((*parameters, *folded)),
        text=text,
        kernel=chosen,
        location=f"{text.file}:{chosen.line}",
        group=_group(where, chosen, group_size, names),
        memory=_memory(where, chosen, threadgroup_bytes, names),
    )
    return Declaration(source=metal_kernel, space=made_space, key=tuple(key), grid=grid, release_gil=release_gil)


def _read(source: str | Path, caller: str, folders: Sequence[Path], macro_names: Collection[str]) -> MslText:
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
        text = preprocess(text, file, searched, macro_names)
    refuse_foreign_files(text, file, _library(), (TORCH_HEADERS,))
    return parse_metal(text, file)


@cache
def _library() -> frozenset[str]:
    """Returns the names of the headers of Metal's library that the emulator has."""
    files = (path.relative_to(FOLDER) for path in FOLDER.rglob("*") if path.is_file())
    return frozenset(file.as_posix() for file in files if file.parts[0] != "emulator" and file.suffix in ("", ".h"))


def _chosen(text: MslText, name: str | None) -> MslKernel:
    names = ", ".join(kernel.name for kernel in text.kernels)
    for refused, reason in text.refused:
        if refused == name or (name is None and len(text.refused) == 1 and not text.kernels):
            raise SourceError(reason)
    if not text.kernels and not text.refused:
        raise SourceError(f"{text.file}: no kernel is defined here; write for example kernel void add(...) {{ }}")
    if name is None:
        if len(text.kernels) + len(text.refused) > 1:
            others = "".join(f"; {reason}" for _, reason in text.refused)
            raise SourceError(f"{text.file}: which kernel? Give kernel= one of {names or 'none'}{others}")
        return next(iter(text.kernels))
    for kernel in text.kernels:
        if kernel.name == name:
            return kernel
    raise SourceError(f"{text.file}: there is no kernel {name!r}; {_listed(text, names)}")


def _listed(text: MslText, names: str) -> str:
    """Lists, for a message, the kernels of a text and the reasons why others cannot be launched."""
    refused = "; ".join(reason for _, reason in text.refused[:3])
    more = f"; and {len(text.refused) - 3} more" if len(text.refused) > 3 else ""
    cannot = f"{len(text.refused)} cannot be launched: {refused}{more}" if text.refused else ""
    shown = names if len(names) < 2000 else f"{names[:2000]} ..."
    has = f"it has {shown}" if names else "it has none that can be launched"
    return f"{has}; {cannot}" if cannot else has


def _parameter(where: str, msl_parameter: MslParameter, effects: Mapping[str, str], cast: Collection[str]) -> Parameter:
    effect = effects.get(msl_parameter.name)
    if effect is not None and effect not in _EFFECTS:
        raise SourceError(f"{where}: the effect {effect!r} of {msl_parameter.name}; it is in, out or inout")
    scalar = scalar_of(msl_parameter.type)
    if msl_parameter.space is AddressSpace.CONSTANT and msl_parameter.form == "&" and scalar is not None:
        if effect is not None:
            raise SourceError(f"{where}: {msl_parameter.name} is a number, which has no effect")
        return Parameter(msl_parameter.name, _KINDS.get(scalar.kind, ParameterKind.INTEGER), scalar)
    const = msl_parameter.const and msl_parameter.name not in cast
    if const and effect in ("out", "inout"):
        raise SourceError(f"{where}: {msl_parameter.name} is const, so it is not written")
    default = Effect.READ if const else Effect.BOTH
    return Parameter(msl_parameter.name, ParameterKind.POINTER, effect=default if effect is None else _EFFECTS[effect])


def _group(
    where: str, kernel: MslKernel, launch_option: LaunchOption | None, names: tuple[str, ...]
) -> tuple[Node, ...]:
    if launch_option is not None:
        return read_axes(where, "group_size", launch_option, names)
    if not kernel.group:
        raise SourceError(f"{where}: how many threads has a threadgroup? Give group_size=, for example group_size=256")
    return tuple(Const(size) for size in kernel.group)


def _memory(
    where: str,
    kernel: MslKernel,
    options: Mapping[str, LaunchOption] | LaunchOption | None,
    names: tuple[str, ...],
) -> tuple[tuple[str, Node], ...]:
    needed = [parameter.name for parameter in kernel.parameters if parameter.attribute == "threadgroup"]
    if isinstance(options, Mapping):
        sizes = dict(cast("Mapping[str, LaunchOption]", options))
    else:
        sizes = {} if options is None else dict.fromkeys(needed[:1], options)
        if options is not None and len(needed) != 1:
            raise SourceError(
                f"{where}: threadgroup_bytes= is for {', '.join(needed) or 'no parameter'}: give it by name"
            )
    if set(sizes) != set(needed):
        raise SourceError(
            f"{where}: threadgroup_bytes= has {', '.join(sizes) or 'nothing'}, and the kernel takes "
            f"{', '.join(needed) or 'nothing'} as [[threadgroup(n)]]"
        )
    memory: list[tuple[str, Node]] = []
    for memory_name in needed:
        axes = read_axes(where, "threadgroup_bytes", sizes[memory_name], names)
        if len(axes) != 1:
            raise SourceError(f"{where}: threadgroup_bytes of {memory_name} is one number, not {len(axes)}")
        memory.append((memory_name, axes[0]))
    return tuple(memory)
