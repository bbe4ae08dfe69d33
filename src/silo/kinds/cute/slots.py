"""The slots of launch info, from the kernel's parameters as the host function passes them.

:mod:`.tensor_maps` reads tensor maps from the traced module, before the slots are made.
"""

from __future__ import annotations

from collections.abc import Sequence

from silo.core.launch_info import ABI_BYTES, AbiType, LayoutSlot
from silo.errors import CompileError, UnsupportedError
from silo.kinds.cute.cute_job import CuteArgumentRole, HostArgument
from silo.kinds.cute.launch_call import ArgumentLeaf, Computed, HostValue, LaunchCall, LaunchValue, PassedParameter
from silo.kinds.cute.tensor_maps import ArrayMap

__all__ = ["map_slot", "placed_arguments", "slot_of", "value_words"]

_LET_THE_DSL = 'let the DSL\'s host function launch it: silo.cute(..., host="dsl")'


def placed_arguments(arguments: Sequence[HostArgument], call: LaunchCall) -> tuple[HostArgument, ...]:
    """Returns the host function's arguments in its order; an author's function may take the stream at any position.

    Raises:
        UnsupportedError: it takes a stream, and launches on another.
    """
    rest = [one for one in arguments if one.role is not CuteArgumentRole.STREAM]
    if len(rest) == len(arguments):
        if isinstance(call.stream, int) and call.stream == 0:
            return tuple(rest)
        raise UnsupportedError("the host function launches on a stream of its own; take it as an argument")
    if not isinstance(call.stream, LaunchValue):
        raise UnsupportedError(
            "the host function takes a stream and launches on another: the launch would not be on the stream of the "
            "call; write .launch(..., stream=stream)"
        )
    stream = next(one for one in arguments if one.role is CuteArgumentRole.STREAM)
    return (*rest[: call.stream.argument], stream, *rest[call.stream.argument :])


def slot_of(parameter: PassedParameter, index: int, arguments: Sequence[HostArgument]) -> LayoutSlot:
    """Returns the slot of the kernel's parameter ``index``; ``arguments`` are the host function's, in its order.

    Raises:
        UnsupportedError: it holds a value that the launcher cannot make; the message has its origin and a cure.
        CompileError: the module and the job contradict each other.
    """
    if parameter.size == 1 and all(leaf.value == 0 for leaf in parameter.leaves):
        return LayoutSlot("", AbiType.EMPTY)  # for example a TiledMma
    given = [leaf.value for leaf in parameter.leaves]
    owners = {value.argument for value in given if isinstance(value, LaunchValue)}
    if len(owners) != 1 or not all(isinstance(value, LaunchValue) for value in given):
        raise UnsupportedError(_unmakeable(parameter, index, arguments))
    owner = arguments[owners.pop()]
    if owner.role not in (CuteArgumentRole.POINTER, CuteArgumentRole.TENSOR, CuteArgumentRole.SCALAR):
        raise UnsupportedError(_unmakeable(parameter, index, arguments))
    leaves = [_leaf(leaf, owner, index) for leaf in parameter.leaves]
    if len(leaves) == 1 and not leaves[0][1] and owner.role is not CuteArgumentRole.TENSOR:
        return LayoutSlot(owner.name, owner.leaves[0][0])
    return _struct(owner.name, parameter, index, leaves)


def map_slot(one: ArrayMap, index: int, arguments: Sequence[HostArgument]) -> LayoutSlot:
    """Returns the slot of the kernel's parameter ``index``, which is a tensor map.

    Raises:
        UnsupportedError: it is not made from an array of the call.
    """
    owner = arguments[one.argument] if one.argument < len(arguments) else None
    if owner is None or owner.role not in (CuteArgumentRole.POINTER, CuteArgumentRole.TENSOR):
        raise UnsupportedError(
            f"the kernel's parameter {index}, a tensor map, is not made of an array of the call; {_LET_THE_DSL}"
        )
    return LayoutSlot(owner.name, AbiType.TENSORMAP)


def _leaf(leaf: ArgumentLeaf, owner: HostArgument, index: int) -> tuple[str, str]:
    assert isinstance(leaf.value, LaunchValue)
    if leaf.value.member >= len(owner.leaves):
        raise CompileError(
            f"the kernel's parameter {index} holds member {leaf.value.member} of {owner.name}, which was said to have "
            f"{len(owner.leaves)}"
        )
    kind, part = owner.leaves[leaf.value.member]
    if ABI_BYTES[kind] != ABI_BYTES[leaf.type]:
        raise CompileError(
            f"the kernel's parameter {index} holds {part or owner.name} as {leaf.type.value}, and it was said to be "
            f"{kind.value}"
        )
    return kind.value, part


def _struct(name: str, parameter: PassedParameter, index: int, leaves: list[tuple[str, str]]) -> LayoutSlot:
    try:
        slot = LayoutSlot.struct(name, leaves)
    except ValueError as error:
        raise UnsupportedError(f"the kernel's parameter {index} cannot be packed from {name}: {error}") from error
    if slot.offsets != tuple(leaf.offset for leaf in parameter.leaves) or slot.bytes != parameter.size:
        raise UnsupportedError(f"the kernel's parameter {index}, of {name}, does not lie in memory as C would have it")
    return slot


def _unmakeable(parameter: PassedParameter, index: int, arguments: Sequence[HostArgument]) -> str:
    names = [arguments[one].name or arguments[one].role.value for one in parameter.arguments if one < len(arguments)]
    origin = f"from {', '.join(names)}" if names else "from constants alone"
    return (
        f"the kernel's parameter {index} ({parameter.size} bytes) is made by the host function {origin}: the launcher "
        f"passes arrays and numbers as they are; {_LET_THE_DSL}"
    )


def value_words(value: HostValue, arguments: Sequence[HostArgument]) -> str:
    """Returns the origin of a value, for messages."""
    match value:
        case LaunchValue(argument, _):
            found = frozenset({argument})
        case Computed(found):
            pass
        case _:
            return str(value)
    names = [arguments[one].name or arguments[one].role.value for one in sorted(found) if one < len(arguments)]
    return f"worked out from {', '.join(names)}" if names else "known only when it runs"
