"""Kernels in Metal Shading Language as sources."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from silo.core.argument_facts import ArgumentFacts, describe
from silo.core.dtypes import DType, DTypeKind, dtype
from silo.core.expressions import Node, to_json
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.values import Value, digest
from silo.emulation.text_source import TextSource
from silo.errors import ArgumentError, CompileError
from silo.frozen import replace
from silo.kinds.metal.front.parser import MslKernel, MslText
from silo.kinds.metal.front.variant_text import metal_text
from silo.sources.launch_options import evaluated

__all__ = ["MOST_GROUP_BYTES", "MOST_THREADS", "SCALARS", "MetalSource", "element_of", "scalar_of"]


# ---- Metal's types by Silo's dtypes ----


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
    """Returns the dtype of a scalar type, None for any other type.

    >>> scalar_of("uint").short, scalar_of("float4")
    ('u32', None)
    """
    return SCALARS.get(text.removeprefix("metal::"))


def element_of(text: str) -> DType | None:
    """Returns the element dtype of an array with elements of that type; None for a struct.

    >>> element_of("packed_half3").short, element_of("atomic_uint").short, element_of("vec<float, 4>").short
    ('fp16', 'u32', 'fp32')
    """
    plain = text.removeprefix("metal::").removeprefix("packed_").removeprefix("atomic_")
    found = SCALARS.get(plain)
    if found is None and plain[-1:] in "234":
        found = SCALARS.get(plain[:-1])
    name, bracket, rest = plain.partition("<")
    if found is None and bracket and name.strip() in _WRAPPED:
        found = element_of(rest.rpartition(">")[0].partition(",")[0].strip())
    return found


# ---- Kernels in Metal Shading Language as sources ----


MOST_THREADS = 1024
MOST_GROUP_BYTES = 32768


@dataclass(frozen=True, kw_only=True, eq=False)
class MetalSource(TextSource):
    """One kernel of a text. ``group`` is the shape of a threadgroup, ``memory`` the threadgroup memory of a launch.

    The signature has the buffers by rising index, then constants.
    """

    text: MslText
    kernel: MslKernel
    group: tuple[Node, ...]
    memory: tuple[tuple[str, Node], ...] = ()
    kind: str = "metal"
    cut: bool = False  # the grid may end within a threadgroup: a call passes its threads after the buffers

    @property
    def fingerprint(self) -> str:
        """Digest of the kernel's text and parameters; contains no paths."""
        return digest(
            "metal-source/1",
            [
                self.name,
                self.signature.to_json(),
                self.text.text,
                self.kernel.name,
                [to_json(one) for one in self.group],
                [[name, to_json(one)] for name, one in self.memory],
                self.cut,
            ],
        )

    def _typed(self, parameter: Parameter, given: ArgumentFacts) -> Parameter:
        if parameter.kind is ParameterKind.POINTER:
            return self._array(parameter, given)
        assert parameter.dtype is not None  # read from the text
        self._check_scalar(parameter.name, parameter.dtype, str(parameter.dtype), given)
        return parameter

    def _array(self, parameter: Parameter, given: ArgumentFacts) -> Parameter:
        name = parameter.name
        if not given.is_pointer or given.block_shape:
            raise ArgumentError(f"{self.name}: {name} takes an array, not {describe(given.value)}")
        element = next(one for one in self.kernel.buffers if one.name == name)
        if given.dtype is None:
            raise ArgumentError(f"{self.name}: the dtype of the array {name} is not known")
        if given.dtype.bits == 64 and given.dtype.kind is DTypeKind.FLOAT:
            raise ArgumentError(f"{self.name}: {name} is an array of {given.dtype}, which Metal does not have")
        wanted = element_of(element.type)
        if wanted is not None and wanted != given.dtype:
            raise ArgumentError(
                f"{self.name}: {name} is an array of {given.dtype}, and the kernel reads {element.type}: pass {wanted}"
            )
        return replace(parameter, dtype=given.dtype)

    def ending_within_groups(self) -> MetalSource:
        """Returns the kernel for grids that end within a threadgroup. A call passes the grid's threads as well."""
        parameters = self.signature.parameters
        passed = [one for one in parameters if one.kind is not ParameterKind.CONSTEXPR]
        threads = [Parameter(f"threads_{axis}", ParameterKind.INTEGER, dtype("uint32")) for axis in "xyz"]
        folded = [one for one in parameters if one.kind is ParameterKind.CONSTEXPR]
        return dataclasses.replace(self, cut=True, signature=Signature((*passed, *threads, *folded)))

    def group_size(self, constants: Mapping[str, Value]) -> tuple[int, int, int]:
        """Returns threads of a threadgroup. Raises CompileError, which rejects only this config, for invalid sizes."""
        sizes = [evaluated(self.name, "group_size", one, constants) for one in self.group]
        x, y, z = (*sizes, *[1] * (3 - len(sizes)))
        if min(x, y, z) < 1 or x * y * z > self.kernel.most_threads:
            most = self.kernel.most_threads
            raise CompileError(f"{self.name}: the threadgroup is ({x}, {y}, {z}); it has 1 to {most} threads")
        required = (*self.kernel.group, 1, 1, 1)[:3]
        if self.kernel.group and required != (x, y, z):
            raise CompileError(f"{self.name}: the kernel requires a threadgroup of {required}, not ({x}, {y}, {z})")
        return x, y, z

    def memory_bytes(self, constants: Mapping[str, Value]) -> dict[str, int]:
        """Returns bytes of threadgroup memory that a launch provides, by parameter. Raises CompileError."""
        found = {name: evaluated(self.name, "threadgroup_bytes", one, constants) for name, one in self.memory}
        for name, size in found.items():
            if not 0 < size <= MOST_GROUP_BYTES:
                raise CompileError(f"{self.name}: {name} has {size} bytes of threadgroup memory, of {MOST_GROUP_BYTES}")
        if sum(found.values()) > MOST_GROUP_BYTES:
            raise CompileError(
                f"{self.name}: it takes {sum(found.values())} bytes of threadgroup memory, of {MOST_GROUP_BYTES}"
            )
        return found

    def metal(self, constants: Mapping[str, Value]) -> str:
        """Returns the text for Metal, without ``[[threadgroup(n)]]`` parameters of the kernel. Raises CompileError."""
        return metal_text(self.text, self.kernel, constants, self.memory_bytes(constants))
