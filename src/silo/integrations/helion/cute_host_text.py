"""Generates the DSL host function of a matmul kernel, which needs TMA atoms besides a block and a cluster.

Helion describes these needs in plans: dictionaries with a ``kind``, in a list on the kernel. Silo serves the plans of
one matmul: its two operands, and the store of its result.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from typing import Any, Literal, cast

from silo.errors import UnsupportedError
from silo.integrations.helion.launcher_call import Axes, LaunchMarks, name_of
from silo.kinds.cute.front.cute_installation import FRONT_END, dsl_module
from silo.kinds.cute.front.wrapping import function_of_text

__all__ = [
    "STREAM",
    "HostParameter",
    "MatmulDescription",
    "OperandDescription",
    "StoreDescription",
    "host_function",
    "host_lines",
    "host_text",
    "read_plans",
    "shares_loads",
]

_OPERANDS = "tcgen05_ab_tma"
_STORE = "tcgen05_d_tma"
_WHY = {
    "grouped": "grouped matmuls, whose tables of groups a launcher fills at each call",
    "chunk": "chunked kernels, whose tensor maps lie in memory of the launcher",
    "flash": "attention, whose host code is Helion's own",
    "aux": "a second input of the epilogue",
}
_DTYPE = re.compile(r"cutlass\.[A-Z][A-Za-z0-9]*")


@dataclass(frozen=True)
class OperandDescription:
    """The operands of a matmul. ``left`` and ``right`` are argument numbers, and ``tile`` is the MMA tile (M, N, K).

    ``names`` are the kernel parameters that take the TMA atoms and tensors.
    """

    left: int
    right: int
    tile: tuple[int, int, int]
    cluster: tuple[int, int, int]
    stages: int
    dtype: str
    accumulator: str
    left_k_major: bool
    right_k_major: bool
    two_blocks: bool
    pdl: bool
    names: tuple[str, ...]


@dataclass(frozen=True)
class StoreDescription:
    """The store of a matmul's result, which TMA copies from shared memory.

    ``box`` is the size of one TMA copy in elements, None if Helion gives no size. ``names`` are the kernel parameters
    that take the TMA atom and tensor.
    """

    result: int
    tile: tuple[int, int]
    box: tuple[int, int] | None
    stages: int
    dtype: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class MatmulDescription:
    """The TMA atoms of one matmul; without ``store`` the kernel's threads write the result themselves."""

    operands: OperandDescription
    store: StoreDescription | None = None


class _Fields:
    """The members of one plan. Each is read once; members that are left over at the end are not supported."""

    def __init__(self, kernel: str, plan: Mapping[str, Any]) -> None:
        self.kernel = kernel
        self.kind = str(plan.get("kind"))
        self.left = {name: value for name, value in plan.items() if name != "kind" and value is not None}

    def number(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        value = self.left.pop(name, default)
        if type(value) is not int or value < least:
            raise UnsupportedError(f"{self.kernel}: {name} of its plan {self.kind} is {value!r}, not an integer")
        return value

    def dtype(self, name: str) -> str:
        value = self.left.pop(name, None)
        if not isinstance(value, str) or not _DTYPE.fullmatch(value):
            raise UnsupportedError(
                f"{self.kernel}: {name} of its plan {self.kind} is {value!r}, not a dtype of cutlass"
            )
        return value

    def names(self, count: int) -> tuple[str, ...]:
        value = self.left.pop("kernel_args", ())
        elements = tuple(cast("Sequence[object]", value)) if isinstance(value, list | tuple) else ()
        if len(elements) != count or not all(
            isinstance(element, str) and element.isidentifier() for element in elements
        ):
            raise UnsupportedError(
                f"{self.kernel}: kernel_args of its plan {self.kind} are {value!r}, not {count} names"
            )
        return cast("tuple[str, ...]", elements)

    def flag(self, name: str, *, default: bool = False) -> bool:
        return bool(self.left.pop(name, default))

    def finish(self) -> None:
        unknown = sorted(name for name, value in self.left.items() if value is not False)
        if unknown:
            raise UnsupportedError(
                f"{self.kernel}: Silo does not make what {', '.join(unknown)} of its plan {self.kind} asks for; "
                "choose a config of the kernel without it, or use Helion's own launcher"
            )


def read_plans(kernel: str, plans: Sequence[Mapping[str, Any]], arrays: int) -> MatmulDescription:
    """Returns the matmul that the plans describe, for a kernel that is called with ``arrays`` arguments.

    Raises:
        UnsupportedError: a plan describes something else; the message names it.
    """
    by_kind: dict[str, Mapping[str, Any]] = {}
    for plan in plans:
        kind = str(plan.get("kind"))
        if kind not in (_OPERANDS, _STORE):
            why = next((why for word, why in _WHY.items() if word in kind), "kernels that need it")
            raise UnsupportedError(
                f"{kernel}: Silo does not serve Helion's plan {kind}, which is for {why}; use Helion's own launcher"
            )
        if kind in by_kind:
            raise UnsupportedError(f"{kernel}: several plans {kind}: Silo serves kernels of one matmul")
        by_kind[kind] = plan
    if _OPERANDS not in by_kind:
        raise UnsupportedError(f"{kernel}: its plans lack {_OPERANDS}, the operands of the matmul")
    operands = _operands(_Fields(kernel, by_kind[_OPERANDS]))
    store = _store(_Fields(kernel, by_kind[_STORE])) if _STORE in by_kind else None
    places = [operands.left, operands.right, *([store.result] if store else [])]
    if max(places) >= arrays:
        raise UnsupportedError(f"{kernel}: its plans name argument {max(places)}, and the call has {arrays}")
    return MatmulDescription(operands, store)


def shares_loads(kernel: str, plans: Sequence[Mapping[str, Any]], arrays: int) -> bool:
    """Returns whether the blocks of a cluster load operands for each other (multicast).

    Raises UnsupportedError like :func:`read_plans`.
    """
    return bool(plans) and read_plans(kernel, plans, arrays).operands.cluster != (1, 1, 1)


def _operands(fields: _Fields) -> OperandDescription:
    tile = (fields.number("bm"), fields.number("bn"), fields.number("bk"))
    cluster = (fields.number("cluster_m", 1), fields.number("cluster_n", 1), 1)
    for name in ("m_size", "n_size", "k_total_size", "lhs_name", "rhs_name"):  # only Helion's own checks read these
        fields.left.pop(name, None)
    description = OperandDescription(
        left=fields.number("lhs_idx", least=0),
        right=fields.number("rhs_idx", least=0),
        tile=tile,
        cluster=cluster,
        stages=fields.number("ab_stage_count", 2),
        dtype=fields.dtype("input_dtype"),
        accumulator=fields.dtype("acc_dtype"),
        left_k_major=fields.flag("a_k_major", default=True),
        right_k_major=fields.flag("b_k_major"),
        two_blocks=fields.flag("use_2cta_instrs", default=cluster[0] == 2 and tile[0] == 256),
        pdl=fields.flag("use_pdl"),
        names=fields.names(4),
    )
    fields.finish()
    return description


def _store(fields: _Fields) -> StoreDescription:
    box = None
    if {"epi_tile_m", "epi_tile_n", "d_store_box_n"} & fields.left.keys():
        box = (fields.number("epi_tile_m"), fields.number("epi_tile_n"))
        if fields.number("d_store_box_n") != box[1]:
            raise UnsupportedError(f"{fields.kernel}: its plan {_STORE} stores boxes that are not its tile's width")
    description = StoreDescription(
        result=fields.number("d_idx", least=0),
        tile=(fields.number("bm"), fields.number("bn")),
        box=box,
        stages=fields.number("c_stage_count"),
        dtype=fields.dtype("output_dtype"),
        names=fields.names(2),
    )
    fields.finish()
    return description


def host_lines(plan: MatmulDescription, names: Sequence[str], shapes: Mapping[int, tuple[int, ...]]) -> tuple[str, ...]:
    """Returns the lines of a host function that make the TMA atoms and tensors of a matmul.

    The variables have the names of the kernel parameters. ``names`` are the names of the host function's arguments;
    ``shapes`` maps an array's position to its shape.
    """
    operands = plan.operands
    left, right = names[operands.left], names[operands.right]
    atom_left, tensor_left, atom_right, tensor_right = operands.names
    group = "TWO" if operands.two_blocks else "ONE"
    lines = [
        (
            f"mma = blackwell.make_trivial_tiled_mma({operands.dtype}, {operands.dtype}, "
            f"{_major(operands.left_k_major)}, {_major(operands.right_k_major)}, {operands.accumulator}, "
            f"tcgen05.CtaGroup.{group}, {operands.tile[:2]}, "
            "tcgen05.OperandSource.SMEM)"
        ),
        f"across = cute.tiled_divide(cute.make_layout({operands.cluster}), (mma.thr_id.shape,))",
        f"left_tiles = {_tiles('a', operands, operands.left_k_major, usual=True)}",
        f"right_tiles = {_tiles('b', operands, operands.right_k_major, usual=False)}",
        # The matmul reads its right operand as N by K, so the operand is transposed.
        f"turned = cute.make_tensor({right}.iterator, cute.select({right}.layout, mode=[1, 0]))",
        (
            f"{atom_left}, {tensor_left} = cute.nvgpu.make_tiled_tma_atom_A("
            f"blackwell.cluster_shape_to_tma_atom_A({operands.cluster}, mma.thr_id), {left}, "
            f"cute.slice_(left_tiles, (None, None, None, 0)), {operands.tile}, mma, across.shape)"
        ),
        (
            f"{atom_right}, {tensor_right} = cute.nvgpu.make_tiled_tma_atom_B("
            f"blackwell.cluster_shape_to_tma_atom_B({operands.cluster}, mma.thr_id), turned, "
            f"cute.slice_(right_tiles, (None, None, None, 0)), {operands.tile}, mma, across.shape)"
        ),
    ]
    for operand in (operands.left, operands.right, *([plan.store.result] if plan.store else [])):
        if len(shapes.get(operand, ())) != 2:
            raise UnsupportedError(f"{names[operand]} of a matmul has {len(shapes.get(operand, ()))} axes, not 2")
    if plan.store is not None:
        atom, tensor = plan.store.names
        result, tile, dtype = names[plan.store.result], plan.store.tile, plan.store.dtype
        part = f"blackwell.compute_epilogue_tile_shape({tile}, False, rows, {dtype}, layout_c=rows, elem_ty_c={dtype})"
        if plan.store.box is not None:
            part = f"({', '.join(f'cute.make_layout({size})' for size in plan.store.box)})"
        lines += [
            "rows = tensor_layouts.ROW_MAJOR",
            f"part = {part}",
            f"result_tiles = blackwell.make_smem_layout_epi({dtype}, rows, part, {plan.store.stages})",
            (
                f"{atom}, {tensor} = cute.nvgpu.cpasync.make_tiled_tma_atom("
                f"cute.nvgpu.cpasync.CopyBulkTensorTileS2GOp(), {result}, cute.slice_(result_tiles, (None, None, 0)), "
                f"cute.composition(cute.make_identity_layout({result}.shape), part))"
            ),
        ]
    return tuple(lines)


def _major(k_major: bool) -> str:  # noqa: FBT001
    return f"cute.nvgpu.OperandMajorMode.{'K' if k_major else 'MN'}"


def _tiles(operand: Literal["a", "b"], plan: OperandDescription, k_major: bool, *, usual: bool) -> str:  # noqa: FBT001
    """Returns the DSL expression for the layout of an operand's stages in shared memory.

    If ``k_major`` equals ``usual``, the DSL's default for ``is_k_major``, that argument is omitted.
    """
    suffix = "" if k_major == usual else f", is_k_major={k_major}"
    return f"blackwell.make_smem_layout_{operand}(mma, {plan.tile}, {plan.dtype}, {plan.stages}{suffix})"


STREAM = "stream_of_the_call"
"""The name of the parameter for the stream, which callers do not pass."""

_MODULES = {
    "cutlass": "cutlass",
    "cute": "cutlass.cute",
    "blackwell": "cutlass.utils.blackwell_helpers",
    "tcgen05": "cutlass.cute.nvgpu.tcgen05",
}


@dataclass(frozen=True)
class HostParameter:
    """A parameter of the host function: its name in the kernel, its annotation in the DSL, and an array's rank."""

    name: str
    annotation: str
    rank: int | None = None


def host_text(kernel: str, parameters: Sequence[HostParameter], marks: LaunchMarks, grid: Axes, block: Axes) -> str:
    """Returns the text of a ``@cute.jit`` function that makes the TMA atoms of ``marks.plans`` and launches ``kernel``.

    Raises:
        UnsupportedError: a plan that Silo does not serve.
    """
    names = [parameter.name for parameter in parameters]
    parameter_names = list(names)
    lines: list[str] = []
    cluster, pdl = marks.cluster, marks.pdl
    if marks.plans:
        plan = read_plans(kernel, marks.plans, len(names))
        shapes = {
            position: (0,) * parameter.rank
            for position, parameter in enumerate(parameters)
            if parameter.rank is not None
        }
        lines += host_lines(plan, names, shapes)
        parameter_names += [*plan.operands.names, *(plan.store.names if plan.store else ())]
        pdl = pdl or plan.operands.pdl
        if cluster is None and plan.operands.cluster != (1, 1, 1):
            cluster = plan.operands.cluster
    launch_arguments = [f"grid={grid}", f"block={block}"]
    if any(parameter.name == STREAM for parameter in parameters):
        launch_arguments.append(f"stream={STREAM}")
        parameter_names.remove(STREAM)
    if cluster is not None:
        launch_arguments.append(f"cluster={cluster}")
    if pdl:
        launch_arguments.append("use_pdl=True")
    if marks.min_blocks:
        launch_arguments.append(f"min_blocks_per_mp={marks.min_blocks}")
    carveout = marks.carveout
    if carveout is None and marks.min_blocks > 1:
        # the driver's own choice; without a value, the DSL would ask this machine's GPU for its memory size
        carveout = -1
    if carveout is not None:
        launch_arguments.append(f"preferred_smem_carveout={carveout}")
    lines.append(f"device_function({', '.join(parameter_names)}).launch({', '.join(launch_arguments)})")
    head = ", ".join(f"{parameter.name}: {parameter.annotation}" for parameter in parameters)
    return "".join(["@cute.jit\n", f"def {kernel}({head}):\n", *(f"    {line}\n" for line in lines)])


def _tensor_layouts() -> Any:  # noqa: ANN401  # an enumeration of the DSL
    """Returns the DSL's enumeration of tensor layouts, whose module depends on the DSL's version."""
    if find_spec("cutlass.tensor_utils") is not None:
        return dsl_module("cutlass.tensor_utils").LayoutEnum
    return dsl_module("cutlass.utils.layout").LayoutEnum


def host_function(kernel: object, text: str, parameters: Sequence[HostParameter]) -> Any:  # noqa: ANN401
    """Executes ``text``, a result of :func:`host_text`, and returns the DSL function that it defines.

    Raises:
        ToolchainError: the DSL is not installed or lacks a needed name.
    """
    name = name_of(kernel)
    file = f"<launch of {name}, {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    space: dict[str, Any] = {word: dsl_module(module) for word, module in _MODULES.items()}
    space["tensor_layouts"] = _tensor_layouts()
    space["CUstream"] = dsl_module("cuda.bindings.driver").CUstream
    space["device_function"] = kernel
    with FRONT_END:
        annotations = {parameter.name: _annotation(parameter.annotation, space) for parameter in parameters}
        return function_of_text(file, text, name, annotations, space)


def _annotation(word: str, space: Mapping[str, Any]) -> Any:  # noqa: ANN401  # a class of the DSL
    """Returns the class of a dotted name such as ``cutlass.Int64``."""
    module, *members = word.split(".")
    return reduce(getattr, members, space[module])
