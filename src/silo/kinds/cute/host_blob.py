"""The blob ``cuteobj``: a shared object with a kernel's host code and device code, and its calling convention.

It begins with :data:`MAGIC`, four bytes with the length of the head (little endian), the head as JSON, and then the
shared object. The object holds the DSL's code for the kernel, and no code of NVIDIA's libraries: it names the libraries
that it needs, and a machine without them refuses to load it.
"""

from __future__ import annotations

from enum import Enum

from silo.core.json_reader import NATURAL, PersistedRow, enumerated, read_list, read_natural, read_object, read_text
from silo.core.values import JSON, MAX_PARAMETERS, canonical_json, malformed, parse_json
from silo.frozen import field, frozen, names_of

__all__ = ["CUTEOBJ", "HostObject", "HostValue", "Passing"]

CUTEOBJ = "cuteobj"
MAGIC = b"silo-cuteobj/1\n"
_MOST_HEAD = 1 << 20


class Passing(Enum):
    """How one argument of the host function is passed."""

    TENSOR = "tensor"  # the array itself, with shape and strides, which the host code compares with its own
    ADDRESS = "address"  # of an array
    INTEGER = "integer"
    FLOAT = "float"
    BOOL = "bool"
    GRID = "grid"  # an extent of the grid
    STREAM = "stream"  # the stream's handle


@frozen
class HostValue(PersistedRow):
    """One argument: ``index`` is the kernel parameter's, or the axis of the grid; 0 for a stream."""

    title = "an argument of host code"

    passing: Passing = field(form=enumerated(Passing))
    index: int = field(default=0, form=NATURAL)

    def __post_init__(self) -> None:
        if self.index > {Passing.GRID: 2, Passing.STREAM: 0}.get(self.passing, MAX_PARAMETERS - 1):
            raise ValueError(f"an argument of host code that is {self.passing.value} has not the index {self.index}")


@frozen
class HostObject:
    """A ``cuteobj``.

    Attributes:
        function: the function's name for tvm-ffi. It returns the launch's CUDA error code.
        initialize: ``int(cudaLibrary_t *)``: loads the device code.
        prepare: ``int(cudaLibrary_t *, int device)``: finds the kernels, and sets their attributes on one device.
        arguments: in the function's order.
        parameters: the number of the kernel's parameters.
        dsl: the version of the DSL whose runtime library it calls.
        toolkit: the version of the CUDA toolkit that compiled the device code.
        code: the shared object.
    """

    function: str
    initialize: str
    prepare: str
    arguments: tuple[HostValue, ...]
    parameters: int
    dsl: str
    toolkit: str
    code: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        """Returns the blob."""
        head: dict[str, JSON] = {name: getattr(self, name) for name in names_of(HostObject) if name != "code"}
        head["arguments"] = [one.to_json() for one in self.arguments]
        text = canonical_json(head)
        return b"".join((MAGIC, len(text).to_bytes(4, "little"), text, self.code))

    @classmethod
    def from_bytes(cls, blob: bytes) -> HostObject:
        """Returns the object of :meth:`to_bytes`; raises ``ValueError`` for any other data."""
        begin = len(MAGIC) + 4
        length = int.from_bytes(blob[len(MAGIC) : begin], "little")
        if not blob.startswith(MAGIC) or length > _MOST_HEAD or begin + length > len(blob):
            raise ValueError("it is no object with CuTe host code")
        names = tuple(name for name in names_of(cls) if name != "code")
        head = read_object(parse_json(blob[begin : begin + length]), names, "the head of CuTe host code")
        parameters = read_natural(head["parameters"], "the number of parameters")
        arguments = tuple(
            HostValue.from_json(one) for one in read_list(head["arguments"], "arguments", 2 * MAX_PARAMETERS)
        )
        for one in arguments:
            if one.passing not in (Passing.GRID, Passing.STREAM) and one.index >= parameters:
                raise malformed("an argument of host code", one.to_json())
        return cls(
            function=read_text(head["function"], "the name of host code"),
            initialize=read_text(head["initialize"], "the name of host code"),
            prepare=read_text(head["prepare"], "the name of host code"),
            arguments=arguments,
            parameters=parameters,
            dsl=read_text(head["dsl"], "a version"),
            toolkit=read_text(head["toolkit"], "a version"),
            code=blob[begin + length :],
        )
