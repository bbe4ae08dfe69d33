"""Makes launch info for a cubin: from the host function's launch, the author's options, and the cubin's own table.

The kernel's tensor maps are not read here: :mod:`.tensor_maps` reads them from the traced module before it is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from silo.artifacts.binary_inspection import BinaryKernel
from silo.artifacts.runs_on import capability
from silo.core.device import Target
from silo.core.launch_info import ABI_BYTES, AbiType, LaunchInfo, LayoutSlot, format_block
from silo.errors import CompileError, UnsupportedError
from silo.kinds.cute.cute_job import AXES, CuteArgumentRole, CuteJob, HostArgument
from silo.kinds.cute.launch_call import ArgumentLeaf, Computed, HostValue, LaunchCall, LaunchValue, PassedParameter
from silo.kinds.cute.tensor_maps import NO_MAPS, ArrayMap

__all__ = ["SHARED_BYTES", "launch_info", "map_slot", "placed_arguments", "slot_of", "value_words"]


# ---- The slots of launch info, from the kernel's parameters as the host function passes them ----


_LET_THE_DSL = 'let the DSL\'s host function launch it: silo.cute(..., host="dsl")'


def placed_arguments(arguments: Sequence[HostArgument], call: LaunchCall) -> tuple[HostArgument, ...]:
    """Returns the host function's arguments in the order of the function's parameters.

    An author's function may take the stream at any position.

    Raises:
        UnsupportedError: the function does not launch on the stream that it takes, or launches on a stream of its own.
    """
    non_stream = [argument for argument in arguments if argument.role is not CuteArgumentRole.STREAM]
    if len(non_stream) == len(arguments):
        if isinstance(call.stream, int) and call.stream == 0:
            return tuple(non_stream)
        raise UnsupportedError("the host function launches on a stream of its own; take it as an argument")
    if not isinstance(call.stream, LaunchValue):
        raise UnsupportedError(
            "the host function takes a stream and launches on another: the launch would not be on the stream of the "
            "call; write .launch(..., stream=stream)"
        )
    stream = next(argument for argument in arguments if argument.role is CuteArgumentRole.STREAM)
    return (*non_stream[: call.stream.argument], stream, *non_stream[call.stream.argument :])


def slot_of(parameter: PassedParameter, index: int, arguments: Sequence[HostArgument]) -> LayoutSlot:
    """Returns the slot of the kernel's parameter ``index``; ``arguments`` are the host function's, in its order.

    Raises:
        UnsupportedError: the parameter contains a value that the launcher cannot make; the message has the value's
            origin and a remedy.
        CompileError: the module and the job contradict each other.
    """
    if parameter.size == 1 and all(leaf.value == 0 for leaf in parameter.leaves):
        return LayoutSlot("", AbiType.EMPTY)  # the parameter has no bytes, such as a TiledMma
    values = [leaf.value for leaf in parameter.leaves]
    owners = {value.argument for value in values if isinstance(value, LaunchValue)}
    if len(owners) != 1 or not all(isinstance(value, LaunchValue) for value in values):
        raise UnsupportedError(_unmakeable(parameter, index, arguments))
    owner = arguments[owners.pop()]
    if owner.role not in (CuteArgumentRole.POINTER, CuteArgumentRole.TENSOR, CuteArgumentRole.SCALAR):
        raise UnsupportedError(_unmakeable(parameter, index, arguments))
    leaves = [_leaf(leaf, owner, index) for leaf in parameter.leaves]
    if len(leaves) == 1 and not leaves[0][1] and owner.role is not CuteArgumentRole.TENSOR:
        return LayoutSlot(owner.name, owner.leaves[0][0])
    return _struct(owner.name, parameter, index, leaves)


def map_slot(array_map: ArrayMap, index: int, arguments: Sequence[HostArgument]) -> LayoutSlot:
    """Returns the slot of the kernel's parameter ``index``, which is a tensor map.

    Raises:
        UnsupportedError: the tensor map is not made from an array of the call.
    """
    owner = arguments[array_map.argument] if array_map.argument < len(arguments) else None
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
    names = [
        arguments[argument].name or arguments[argument].role.value
        for argument in parameter.arguments
        if argument < len(arguments)
    ]
    origin = f"from {', '.join(names)}" if names else "from constants alone"
    return (
        f"the kernel's parameter {index} ({parameter.size} bytes) is made by the host function {origin}: the launcher "
        f"passes arrays and numbers as they are; {_LET_THE_DSL}"
    )


def value_words(value: HostValue, arguments: Sequence[HostArgument]) -> str:
    """Returns a description of the origin of a value, for messages."""
    match value:
        case LaunchValue(argument, _):
            found = frozenset({argument})
        case Computed(found):
            pass
        case _:
            return str(value)
    names = [arguments[index].name or arguments[index].role.value for index in sorted(found) if index < len(arguments)]
    return f"worked out from {', '.join(names)}" if names else "known only when it runs"


# ---- Launch info of a cubin ----


_WARP = 32

# The numbers of launch attributes (CUlaunchAttributeID).
_COOPERATIVE = 2
_CLUSTER = 4
_PDL = 6
_SILENT = {7: "programmatic events", 11: "a preferred cluster", 12: "launch completion events"}

# Bytes of shared memory that a block may opt in to, by compute capability (CUDA Programming Guide, "Technical
# Specifications").
SHARED_BYTES = {
    "80": 163 << 10,
    "86": 99 << 10,
    "87": 163 << 10,
    "89": 99 << 10,
    "90": 227 << 10,
    "100": 227 << 10,
    "103": 227 << 10,
    "110": 227 << 10,
    "120": 99 << 10,
    "121": 99 << 10,
}
_FIRST_KEPT = 90
_KEPT_BYTES = 1024
_MOST_THREADS = 1024
_FIRST_WITH_CLUSTERS = 90
_MOST_BLOCKS = 16  # the most blocks of a cluster, if the launch asks the driver to allow more than 8


def launch_info(
    call: LaunchCall,
    job: CuteJob,
    kernels: Sequence[BinaryKernel],
    target: Target,
    maps: Mapping[int, ArrayMap] = NO_MAPS,
) -> LaunchInfo:
    """Returns the launch info for launching the cubin in the same way as the host function.

    ``maps`` are the tensor maps that the host function makes, by the index of the kernel's parameter.

    Raises:
        UnsupportedError: the launcher cannot launch in that way; the message has the reason and a remedy.
        CompileError: the author's options, the module and the cubin contradict each other, or the arch is unsuitable.
    """
    kernel = _kernel(call, kernels)
    arguments = placed_arguments(job.arguments, call)
    _compare_table(call.parameters, kernel)
    slots = tuple(
        map_slot(maps[index], index, arguments) if index in maps else slot_of(parameter, index, arguments)
        for index, parameter in enumerate(call.parameters)
    )
    attributes = dict(call.attributes)
    block = _sizes("block", call.block, job.block, arguments)
    if kernel.required_block is not None and kernel.required_block != block:
        raise CompileError(
            f"the kernel is compiled for blocks of {format_block(kernel.required_block)} threads and launched with "
            f"{format_block(block)}"
        )
    threads = block[0] * block[1] * block[2]
    if not 1 <= threads <= _MOST_THREADS:
        raise CompileError(f"a block of {format_block(block)} threads has {threads}; a block has 1 to {_MOST_THREADS}")
    _check_grid(call, job, arguments)
    return LaunchInfo(
        entry=kernel.entry,
        layout=slots,
        num_warps=-(-threads // _WARP),
        threads=threads,
        block=block,
        cluster=_cluster(attributes, job, arguments, target),
        shared_bytes=_shared(call, job, kernel, target, arguments),
        cooperative=_flag(_COOPERATIVE, "cooperative", attributes, arguments),
        counts_blocks=True,
        pdl=_flag(_PDL, "use_pdl", attributes, arguments),
        registers=kernel.registers,
        spills=kernel.spills,
        tensor_maps=tuple(maps[index].of(slots[index].name) for index in sorted(maps)),
    )


def _kernel(call: LaunchCall, kernels: Sequence[BinaryKernel]) -> BinaryKernel:
    matching = [kernel for kernel in kernels if call.kernel.endswith(kernel.entry)]
    if len(matching) != 1:
        entries = ", ".join(kernel.entry for kernel in kernels)
        raise CompileError(f"the host function launches {call.kernel}, and the cubin holds {entries}")
    return matching[0]


def _compare_table(passed: Sequence[PassedParameter], kernel: BinaryKernel) -> None:
    """Raises CompileError if the parameters in the cubin's table differ, by number or size, from those ``passed``."""
    sizes = [parameter.size for parameter in passed]
    stated = [size for _, size in kernel.parameters]
    # In MLIR an empty struct has no bytes; in the assembler's table it has one byte.
    if [size or 1 for size in sizes] != stated:
        raise CompileError(f"the host function passes parameters of {sizes} bytes, and {kernel.entry} takes {stated}")


def _sizes(
    label: str,
    module_sizes: Sequence[HostValue],
    declared_sizes: tuple[int, ...] | None,
    arguments: Sequence[HostArgument],
) -> tuple[int, int, int]:
    """Returns the dimensions of the block or the cluster (``label``): the module's if constant, else the author's.

    If both exist, they must agree.
    """
    stated = None if declared_sizes is None else (*declared_sizes, 1, 1, 1)[:3]
    dims: list[int] = []
    for axis, value in enumerate(module_sizes):
        if isinstance(value, int):
            dims.append(value)
        elif stated is not None:
            dims.append(stated[axis])
        else:
            raise UnsupportedError(
                f"the {label}'s {AXES[axis]} is no constant of the kernel: it is {value_words(value, arguments)}; say "
                f"it: silo.cute(..., {label}=...)"
            )
    if stated is not None and tuple(dims) != stated:
        raise CompileError(
            f"{label}={tuple(declared_sizes or ())} was said, and the host function launches with {tuple(dims)}; "
            "leave it out, or "
            "let both be the same"
        )
    return dims[0], dims[1], dims[2]


def _cluster(
    attributes: dict[int, tuple[HostValue, ...]], job: CuteJob, arguments: Sequence[HostArgument], target: Target
) -> tuple[int, int, int]:
    for number, feature in _SILENT.items():
        if any(word != 0 for word in attributes.get(number, ())):
            raise UnsupportedError(f'the host function asks for {feature}, which Silo does not; use host="dsl"')
    cluster = _sizes("cluster", attributes.get(_CLUSTER, (1, 1, 1)), job.cluster, arguments)
    blocks = cluster[0] * cluster[1] * cluster[2]
    if not 1 <= blocks <= _MOST_BLOCKS:
        raise CompileError(f"a cluster of {format_block(cluster)} blocks cannot be; there are 1 to {_MOST_BLOCKS}")
    if blocks > 1 and 0 < capability(target) < _FIRST_WITH_CLUSTERS:
        raise CompileError(
            f"it is launched in clusters of {format_block(cluster)} blocks, and {target.arch} has none; leave cluster "
            f"out, or build it for sm_{_FIRST_WITH_CLUSTERS} and later"
        )
    return cluster


def _flag(
    number: int, label: str, attributes: dict[int, tuple[HostValue, ...]], arguments: Sequence[HostArgument]
) -> bool:
    value = attributes.get(number, (0,))[0]
    if not isinstance(value, int):
        raise UnsupportedError(
            f"{label} of the launch is no constant: it is {value_words(value, arguments)}; let it be a Constexpr"
        )
    return value != 0


def _shared(
    call: LaunchCall, job: CuteJob, kernel: BinaryKernel, target: Target, arguments: Sequence[HostArgument]
) -> int:
    """Returns the bytes of dynamic shared memory of a block."""
    if isinstance(call.smem, int):
        smem = call.smem
    elif job.smem is not None:
        smem = job.smem
    else:
        raise UnsupportedError(
            f"the bytes of shared memory are no constant of the kernel: they are {value_words(call.smem, arguments)}; "
            "say them: silo.cute(..., smem=...)"
        )
    if job.smem is not None and job.smem != smem:
        # without grid arguments, the author wrote the host function, which sets the bytes itself
        if not any(argument.role is CuteArgumentRole.GRID for argument in arguments):
            raise CompileError(f"smem={job.smem} was said, and the host function launches with {smem}; leave it out")
        if job.smem < smem:
            raise CompileError(f"smem={job.smem} was said, and the kernel allocates {smem} bytes; leave it out")
        smem = job.smem
    number = capability(target)
    limit = SHARED_BYTES.get(str(number))
    # From sm_90 on, the assembler's count includes memory reserved by the driver, which does not count against the
    # limit of a block.
    fixed = max(0, kernel.shared_bytes - _KEPT_BYTES) if number >= _FIRST_KEPT else kernel.shared_bytes
    if smem < 0 or (limit is not None and smem + fixed > limit):
        raise CompileError(
            f"a block takes {smem + fixed} bytes of shared memory, and {target.arch} has {limit}; take smaller tiles "
            "or fewer stages"
        )
    return smem


def _check_grid(call: LaunchCall, job: CuteJob, arguments: Sequence[HostArgument]) -> None:
    """Raises CompileError if the host function launches another grid than the call's.

    A host function that Silo wrote takes the grid as arguments. In an author's host function the grid may be constant.
    """
    if any(argument.role is CuteArgumentRole.GRID for argument in arguments):
        for axis, value in enumerate(call.grid):
            owner = arguments[value.argument] if isinstance(value, LaunchValue) else None
            if owner is None or owner.name != AXES[axis]:
                raise CompileError(
                    f"the grid's {AXES[axis]} is {value_words(value, arguments)}, not what a launch gives"
                )
        return
    if job.grid is None:
        return
    sizes = [value for value in call.grid if isinstance(value, int)]
    if len(sizes) == len(call.grid) and tuple(sizes) != job.grid:
        raise CompileError(
            f"the grid of this call is {job.grid}, and the host function launches {tuple(sizes)} blocks; let grid= say "
            "the same"
        )
