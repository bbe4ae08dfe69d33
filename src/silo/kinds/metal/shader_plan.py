"""How a library launches a shader: what each buffer is given. Launch info has it for the loader, as text."""

from __future__ import annotations

from silo.core.dtypes import DType
from silo.core.json_reader import read_dtype, read_integers, read_list, read_natural, read_object, read_text
from silo.core.values import JSON, MAX_PARAMETERS, canonical_json, malformed, parse_json
from silo.frozen import frozen, names_of

__all__ = ["MOST_BUFFERS", "ShaderBuffer", "ShaderPlan"]

MOST_BUFFERS = 31
_VERSION = 1


@frozen
class ShaderBuffer:
    """One buffer of the kernel: its ``index``, the place of its ``parameter``, and of a number its ``dtype``."""

    index: int
    parameter: int
    dtype: DType | None = None

    def to_json(self) -> JSON:
        """The canonical form: ``[index, parameter]``, or ``[index, parameter, dtype]``."""
        return [self.index, self.parameter, *(() if self.dtype is None else (self.dtype.name,))]


@frozen
class ShaderPlan:
    """``function`` is the kernel's name in the library, ``group`` how a threadgroup's threads lie.

    ``read`` and ``written`` are indices of arrays that are only read, or only written; others are both.
    """

    function: str
    group: tuple[int, ...]
    buffers: tuple[ShaderBuffer, ...]
    read: tuple[int, ...] = ()
    written: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """What launch info has."""
        data: JSON = {
            "version": _VERSION,
            "function": self.function,
            "group": list(self.group),
            "buffers": [one.to_json() for one in self.buffers],
            "read": list(self.read),
            "written": list(self.written),
        }
        return canonical_json(data).decode()

    @classmethod
    def from_text(cls, text: str) -> ShaderPlan:
        """The inverse of :attr:`text`; ``ValueError`` on anything else."""
        data = parse_json(text.encode())
        members = read_object(data, ("version", *names_of(cls)), "the plan of a shader")
        if members["version"] != _VERSION:
            raise malformed("a plan of a shader that this Silo knows", data)
        group = read_integers(members["group"], "a threadgroup")
        buffers = tuple(_buffer(one) for one in read_list(members["buffers"], "buffers", MOST_BUFFERS))
        indices = [one.index for one in buffers]
        if len(group) != 3 or min(group) < 1 or indices != sorted(set(indices)):  # axes
            raise malformed("the plan of a shader", data)
        read, written = (_indices(members[name]) for name in ("read", "written"))
        if not {*read, *written} <= set(indices) or set(read) & set(written):
            raise malformed("the effects of a shader", data)
        return cls(read_text(members["function"], "a function"), group, buffers, read, written)


def _indices(data: JSON) -> tuple[int, ...]:
    return tuple(read_natural(one, "the index of a buffer") for one in read_list(data, "indices", MOST_BUFFERS))


def _buffer(data: JSON) -> ShaderBuffer:
    items = read_list(data, "a buffer", 3)
    if len(items) < 2:
        raise malformed("a buffer", data)
    index, parameter = (read_natural(one, "a buffer") for one in items[:2])
    if index >= MOST_BUFFERS or parameter >= MAX_PARAMETERS:
        raise malformed("a buffer", data)
    return ShaderBuffer(index, parameter, read_dtype(items[2], "a number") if items[2:] else None)
