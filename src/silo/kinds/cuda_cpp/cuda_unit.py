"""Values that describe a CUDA C++ kernel to its compilers: its texts, its parameters, and one variant of it."""

from __future__ import annotations

from typing import Final

from silo.core.json_reader import read_integers, read_list, read_natural, read_text
from silo.core.launch_info import LayoutSlot, TensorMap
from silo.core.values import JSON, malformed
from silo.frozen import frozen

__all__ = ["CudaMember", "CudaParameter", "CudaText", "CudaType", "CudaUnit", "Form"]


class Form:
    """The forms of a parameter's type."""

    SCALAR: Final = "scalar"
    POINTER: Final = "pointer"
    STRUCT: Final = "struct"
    TENSORMAP: Final = "tensormap"


@frozen
class CudaText:
    """A text with the user's own headers.

    ``file`` is the file name that the compiler sees, without a folder. ``headers`` has, for each header, the name by
    which it is included and its text, sorted by name; headers of the toolkit are not among them.
    """

    file: str
    text: str
    headers: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> JSON:
        """Returns the canonical form: ``[file, text, [[name, text]...]]``."""
        return [self.file, self.text, [list(header) for header in self.headers]]

    @classmethod
    def from_json(cls, data: JSON) -> CudaText:
        """The inverse of :meth:`to_json`; raises ``ValueError`` for any other data."""
        match read_list(data, "a text in CUDA C++"):
            case [str() as file, str() as text, list() as headers]:
                return cls(file, text, tuple(_pair(header, "a header") for header in headers))
            case _:
                raise malformed("a text in CUDA C++", data)


@frozen
class CudaType:
    """The type of a parameter or of a member.

    ``form`` is one of :class:`Form`. ``spelled`` is the type in C++ (``const float *``). ``dtype`` is the short name of
    the scalar, or of the elements behind a pointer; "" if unknown (``void``, a struct). ``const``: the kernel writes
    nothing through the pointer. ``bytes`` and ``align`` describe the parameter itself. ``lanes``: the scalars of a
    vector type, also behind a pointer (4 for ``float4 *``). ``members``: the members of a struct, in order.
    """

    form: str
    spelled: str
    dtype: str = ""
    const: bool = False
    bytes: int = 8
    align: int = 8
    lanes: int = 1
    members: tuple[CudaMember, ...] = ()

    def to_json(self) -> JSON:
        """Returns the canonical form."""
        members: list[JSON] = [member.to_json() for member in self.members]
        return [self.form, self.spelled, self.dtype, self.const, self.bytes, self.align, self.lanes, members]

    @classmethod
    def from_json(cls, data: JSON) -> CudaType:
        """The inverse of :meth:`to_json`; raises ``ValueError`` for any other data."""
        match read_list(data, "a type"):
            case [str() as form, str() as spelled, str() as dtype, bool() as const, size, align, lanes, list() as own]:
                members = tuple(CudaMember.from_json(item) for item in own)
                number, aligned, count = (read_natural(item, "a size of a type") for item in (size, align, lanes))
                return cls(form, spelled, dtype, const, number, aligned, count, members)
            case _:
                raise malformed("a type", data)


@frozen
class CudaMember:
    """A data member of a struct: its name, its offset in bytes and its type.

    ``x.0`` is the first element of an array x.
    """

    name: str
    offset: int
    type: CudaType

    def to_json(self) -> JSON:
        """Returns the canonical form."""
        return [self.name, self.offset, self.type.to_json()]

    @classmethod
    def from_json(cls, data: JSON) -> CudaMember:
        """The inverse of :meth:`to_json`; raises ``ValueError`` for any other data."""
        match read_list(data, "a member"):
            case [str() as name, offset, own]:
                return cls(name, read_natural(offset, "an offset"), CudaType.from_json(own))
            case _:
                raise malformed("a member", data)


@frozen
class CudaParameter:
    """A parameter of a kernel."""

    name: str
    type: CudaType


@frozen
class CudaUnit:
    """One variant of a kernel.

    ``expression`` names the function in C++, with its template arguments (``vadd<float, 128>``); ``defines`` are macros
    with their values. ``layout`` has the parameters as they are passed; ``block`` is the block's threads along each
    axis, (0, 0, 0) if the text decides; ``shared_bytes`` is dynamic shared memory.
    """

    text: CudaText
    expression: str
    defines: tuple[tuple[str, str], ...]
    flags: tuple[str, ...]
    layout: tuple[LayoutSlot, ...]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int = 0
    cooperative: bool = False
    pdl: bool = False
    maps: tuple[TensorMap, ...] = ()

    def parameters_to_json(self) -> JSON:
        """Returns the parameters of a compile job: all data except the text itself."""
        return {
            "file": self.text.file,
            "headers": [list(header) for header in self.text.headers],
            "expression": self.expression,
            "defines": [list(define) for define in self.defines],
            "flags": list(self.flags),
            "layout": [item.to_json() for item in self.layout],
            "block": list(self.block),
            "cluster": list(self.cluster),
            "shared_bytes": self.shared_bytes,
            "cooperative": self.cooperative,
            "pdl": self.pdl,
            "maps": [item.to_json() for item in self.maps],
        }

    @classmethod
    def from_parameters(cls, text: str, data: JSON) -> CudaUnit:
        """Returns the unit of a job; raises ``ValueError``, ``TypeError`` or ``KeyError`` for any other data."""
        if not isinstance(data, dict):
            raise malformed("the parameters of a job", data)
        flags = [read_text(item, "a flag") for item in read_list(data["flags"], "the flags of a job")]
        return cls(
            text=CudaText.from_json([data["file"], text, data["headers"]]),
            expression=read_text(data["expression"], "the expression of a job"),
            defines=tuple(_pair(item, "a macro") for item in read_list(data["defines"], "the macros of a job")),
            flags=tuple(flags),
            layout=tuple(LayoutSlot.from_json(item) for item in read_list(data["layout"], "the layout of a job")),
            block=_three(data["block"]),
            cluster=_three(data["cluster"]),
            shared_bytes=read_natural(data["shared_bytes"], "shared memory"),
            cooperative=data["cooperative"] is True,
            pdl=data["pdl"] is True,
            maps=tuple(TensorMap.from_json(item) for item in read_list(data["maps"], "the tensor maps of a job")),
        )


def _pair(data: JSON, label: str) -> tuple[str, str]:
    match data:
        case [str() as name, str() as value]:
            return name, value
        case _:
            raise malformed(label, data)


def _three(data: JSON) -> tuple[int, int, int]:
    sizes = read_integers(data, "sizes along three axes")
    if len(sizes) != 3 or min(sizes) < 0:
        raise malformed("sizes along three axes", data)
    return sizes
