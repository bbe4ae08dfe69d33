"""What a text in Metal Shading Language has: kernels with their parameters, function constants, threadgroup arrays."""

from __future__ import annotations

from enum import Enum

from silo.frozen import frozen

__all__ = ["AddressSpace", "ArrayDeclaration", "FunctionConstant", "MslKernel", "MslParameter", "MslText"]

Span = tuple[int, int]  # from a character up to another


class AddressSpace(Enum):
    """The address space that a parameter points to."""

    DEVICE = "device"
    CONSTANT = "constant"
    THREADGROUP = "threadgroup"
    NONE = ""  # a value: a position, a size


@frozen
class MslParameter:
    """One parameter of a kernel. ``type`` is what it is or points to, in the text's words (``float4``).

    ``attribute`` is Metal's (``buffer``, ``threadgroup``, ``thread_position_in_grid``), with its ``index`` where it has
    one; ``form`` is ``*``, ``&`` or ""; ``span`` is where it stands.
    """

    name: str
    type: str
    space: AddressSpace
    form: str
    const: bool
    attribute: str
    index: int
    span: Span
    line: int

    @property
    def is_buffer(self) -> bool:
        """Whether a call passes it."""
        return self.attribute == "buffer"


@frozen
class MslKernel:
    """One kernel function.

    ``name`` is what programs call it: its ``host_name`` where it is the instance of a template; ``function`` is how
    C++ calls it (``add<float>``). ``body`` is between its braces. ``group`` is what it requires of a threadgroup.
    """

    name: str
    function: str
    parameters: tuple[MslParameter, ...]
    body: Span
    line: int
    group: tuple[int, ...] = ()
    most_threads: int = 1024
    template: bool = False  # its parameters belong to one instance, its text to all

    @property
    def buffers(self) -> tuple[MslParameter, ...]:
        """What a call passes, by rising index: as torch and MLX pass it."""
        return tuple(sorted((one for one in self.parameters if one.is_buffer), key=lambda one: one.index))


@frozen
class FunctionConstant:
    """``constant type name [[function_constant(index)]];``, where it stands: ``span`` is from the type to the ``;``."""

    name: str
    type: str
    index: int
    span: Span
    line: int


@frozen
class ArrayDeclaration:
    """``threadgroup type a[n], b[m];`` within a function: ``arrays`` are names with their dimensions."""

    type: str
    arrays: tuple[tuple[str, str], ...]
    span: Span  # the ; too
    line: int


@frozen
class MslText:
    """A text as it was read; ``file`` is for messages.

    ``refused`` are kernels that no launch could call, each with the reason.
    """

    text: str
    file: str
    kernels: tuple[MslKernel, ...]
    constants: tuple[FunctionConstant, ...]
    arrays: tuple[ArrayDeclaration, ...]
    instances: tuple[Span, ...]  # attributes of explicit instances, which C++ does not take there
    words: frozenset[str]
    refused: tuple[tuple[str, str], ...] = ()
