"""Records of the operations of ``tt``, Triton's own dialect."""

from __future__ import annotations

from typing import Final

from silo.core.signature import Effect
from silo.kinds.triton.front.operations.arith import SQRT, TRUNCI
from silo.kinds.triton.front.operations.attribute_rules import (
    AXIS,
    COUNT,
    FACTS,
    FLAG,
    INT32,
    NO_ATTRIBUTES,
    OPAQUE,
    SYMBOL,
    TEXT,
    VISIBILITY,
    any_number,
    integer,
    integers,
    rules,
    segments,
)
from silo.kinds.triton.front.operations.cpu.atomics import cas_refusal, rmw_refusal
from silo.kinds.triton.front.operations.cpu.c_arith import (
    addptr,
    bitcast,
    clampf,
    float_binary,
    int_to_ptr,
    integer_call,
    ptr_to_int,
    triton_float_cast,
)
from silo.kinds.triton.front.operations.cpu.c_types import ScalarCall, access_refusal, dot_refusal, dot_scaled_refusal
from silo.kinds.triton.front.operations.operation_record import (
    JUMPS_OUT,
    Family,
    OperationRole,
    SideEffect,
    call_flow,
    define,
    derived,
    no_flow,
    reduction_flow,
)
from silo.kinds.triton.front.operations.type_rules import (
    addptr_types,
    assert_types,
    atomic_cas_types,
    atomic_load_types,
    atomic_poll_types,
    atomic_rmw_types,
    broadcast_types,
    call_types,
    cat_types,
    dot_scaled_types,
    dot_types,
    expand_dims_types,
    foreign_types,
    func_types,
    gather_types,
    histogram_types,
    join_types,
    load_types,
    make_range_types,
    map_elementwise_types,
    no_values,
    print_types,
    program_types,
    reduction_types,
    reshape_types,
    same_shape,
    same_type,
    splat_types,
    split_types,
    store_types,
    trans_types,
    unsplat_types,
)
from silo.kinds.triton.front.ssa import Operation

_ANY_ORDER = {"sem": integer(1, 4), "scope": integer(1, 3)}
_CACHED = {"cachePolicy": OPAQUE, "boundaryCheck": integers(any_number), "cache": COUNT, "evict": COUNT}
_FACTORS = {
    "a_elem_type": integer(0, 6),
    "b_elem_type": integer(0, 6),
    "operandSegmentSizes": segments(5, 1),
    "lhs_k_pack": FLAG,
    "rhs_k_pack": FLAG,
}


def _extern(call: ScalarCall) -> str:
    """Renders a call of a libdevice function."""
    from silo.kinds.triton.front.operations.nvidia.libdevice import extern_renderer  # noqa: PLC0415  # few kernels call one

    return extern_renderer(call)


def _inline(call: ScalarCall) -> str:
    """Renders inline PTX."""
    from silo.kinds.triton.front.operations.nvidia.ptx import inline_renderer  # noqa: PLC0415  # few kernels hold one

    return inline_renderer(TRUNCI)(call)


def _inline_refusal(operation: Operation) -> str:
    """The reason why the CPU compiler does not support a text of inline assembly, or ""."""
    from silo.kinds.triton.front.operations.nvidia.ptx import inline_refusal  # noqa: PLC0415  # few kernels hold one

    return inline_refusal(TRUNCI)(operation)


# The cost of a load is above every threshold of the scheduler, so that a read of memory is not repeated.
LOAD_COST: Final = 2.0**20

# ---- functions, and the program's position in the grid
FUNC: Final = define(
    "tt.func",
    OperationRole.FUNCTION,
    types=func_types,
    attributes=rules(
        {"sym_name": TEXT},
        function_type=TEXT,
        sym_visibility=VISIBILITY,
        arg_attrs=FACTS,
        res_attrs=FACTS,
        noinline=FLAG,
    ),
    region_ends=("tt.return", *JUMPS_OUT),
    flow=no_flow,
)
CALL: Final = define(
    "tt.call",
    OperationRole.WHOLE,
    types=call_types,
    attributes=rules({"callee": SYMBOL}, arg_attrs=FACTS, res_attrs=FACTS),
    flow=call_flow,
    carries=True,
    side_effect=SideEffect.WRITES,
)
RETURN: Final = define(
    "tt.return", OperationRole.JUMP, types=None, attributes=NO_ATTRIBUTES, terminator=True, flow=no_flow
)
GET_PROGRAM_ID: Final = define(
    "tt.get_program_id", OperationRole.LEAF, types=program_types, attributes=rules({"axis": integer(0, 2)})
)
GET_NUM_PROGRAMS: Final = define(
    "tt.get_num_programs", OperationRole.LEAF, types=program_types, attributes=rules({"axis": integer(0, 2)})
)

# ---- memory accesses
LOAD: Final = define(
    "tt.load",
    OperationRole.ACCESS,
    types=load_types,
    attributes=rules(None, operandSegmentSizes=segments(3, 1), isVolatile=FLAG, padding=COUNT, **_CACHED),
    access=Effect.READ,
    family=Family.LOAD,
    cost=LOAD_COST,
    refuse=access_refusal,
)
STORE: Final = define(
    "tt.store",
    OperationRole.ACCESS,
    types=store_types,
    attributes=rules(None, ignore_cta=FLAG, **_CACHED),
    access=Effect.WRITE,
    family=Family.STORE,
    side_effect=SideEffect.WRITES,
    refuse=access_refusal,
)
ATOMIC_CAS: Final = define(
    "tt.atomic_cas",
    OperationRole.ORDERED,
    types=atomic_cas_types,
    attributes=rules(_ANY_ORDER),
    access=Effect.BOTH,
    family=Family.ATOMIC,
    order="atomic operation",
    side_effect=SideEffect.WRITES,
    refuse=cas_refusal,
)
ATOMIC_RMW: Final = define(
    "tt.atomic_rmw",
    OperationRole.ORDERED,
    types=atomic_rmw_types,
    attributes=rules({**_ANY_ORDER, "atomic_rmw_op": integer(1, 10)}),
    access=Effect.BOTH,
    family=Family.ATOMIC,
    order="atomic operation",
    side_effect=SideEffect.WRITES,
    refuse=rmw_refusal,
)
ATOMIC_LOAD: Final = define(
    "tt.atomic_load", OperationRole.REWRITTEN, types=atomic_load_types, attributes=rules(_ANY_ORDER), access=Effect.READ
)
ATOMIC_STORE: Final = define(
    "tt.atomic_store", OperationRole.REWRITTEN, types=store_types, attributes=rules(_ANY_ORDER), access=Effect.WRITE
)
ATOMIC_POLL: Final = define(
    "tt.atomic_poll", OperationRole.REWRITTEN, types=atomic_poll_types, attributes=rules(_ANY_ORDER), access=Effect.READ
)

# ---- changes of shape
MAKE_RANGE: Final = define(
    "tt.make_range",
    OperationRole.LEAF,
    types=make_range_types,
    attributes=rules({"start": INT32, "end": INT32}),
    cost=0.0,
)
SPLAT: Final = define(
    "tt.splat",
    OperationRole.VIEW,
    types=splat_types,
    attributes=NO_ATTRIBUTES,
    flow=derived,
    keeps_size=True,
    moves=True,
    cost=0.0,
)
EXPAND_DIMS: Final = define(
    "tt.expand_dims",
    OperationRole.VIEW,
    types=expand_dims_types,
    attributes=rules({"axis": COUNT}),
    flow=derived,
    keeps_range=True,
    keeps_size=True,
    moves=True,
    cost=0.0,
)
BROADCAST: Final = define(
    "tt.broadcast",
    OperationRole.VIEW,
    types=broadcast_types,
    attributes=NO_ATTRIBUTES,
    flow=derived,
    keeps_range=True,
    keeps_size=True,
    moves=True,
    cost=0.0,
)
TRANS: Final = define(
    "tt.trans",
    OperationRole.VIEW,
    types=trans_types,
    attributes=rules(
        {"order": integers(lambda operation: len(operation.operands[0].type.shape) if operation.operands else 0)}
    ),
    flow=derived,
    moves=True,
    cost=0.0,
)
RESHAPE: Final = define(
    "tt.reshape",
    OperationRole.VIEW,
    types=reshape_types,
    attributes=rules(allow_reorder=FLAG, efficient_layout=FLAG),
    flow=derived,
    moves=True,
    cost=0.0,
)
CAT: Final = define(
    "tt.cat", OperationRole.SHUFFLE, types=cat_types, attributes=rules(allow_reorder=FLAG), flow=derived
)
GATHER: Final = define(
    "tt.gather",
    OperationRole.SHUFFLE,
    types=gather_types,
    attributes=rules({"axis": AXIS}, efficient_layout=FLAG),
    flow=derived,
)
JOIN: Final = define("tt.join", OperationRole.SHUFFLE, types=join_types, attributes=NO_ATTRIBUTES, flow=derived)
SPLIT: Final = define("tt.split", OperationRole.SHUFFLE, types=split_types, attributes=NO_ATTRIBUTES, flow=derived)
UNSPLAT: Final = define(
    "tt.unsplat", OperationRole.ORDERED, types=unsplat_types, attributes=NO_ATTRIBUTES, flow=derived, moves=True
)

# ---- operations on whole tensors
REDUCE: Final = define(
    "tt.reduce",
    OperationRole.REDUCTION,
    types=reduction_types,
    attributes=rules({"axis": AXIS}),
    region_ends=("tt.reduce.return", *JUMPS_OUT),
    flow=reduction_flow,
    family=Family.REDUCTION,
    order="reduction",
)
SCAN: Final = define(
    "tt.scan",
    OperationRole.ORDERED,
    types=reduction_types,
    attributes=rules({"axis": AXIS, "reverse": FLAG}),
    region_ends=("tt.scan.return", *JUMPS_OUT),
    flow=reduction_flow,
    family=Family.SCAN,
    order="scan",
)
HISTOGRAM: Final = define(
    "tt.histogram", OperationRole.ORDERED, types=histogram_types, attributes=NO_ATTRIBUTES, order="histogram"
)
DOT: Final = define(
    "tt.dot",
    OperationRole.DOT,
    types=dot_types,
    attributes=rules(inputPrecision=integer(0, 4), maxNumImpreciseAcc=INT32),
    family=Family.DOT,
    order="dot",
    refuse=dot_refusal,
)
DOT_SCALED: Final = define(
    "tt.dot_scaled",
    OperationRole.DOT,
    types=dot_scaled_types,
    attributes=rules(_FACTORS, fastMath=FLAG),
    family=Family.DOT,
    order="dot",
    refuse=dot_scaled_refusal,
)
MAP_ELEMENTWISE: Final = define(
    "tt.map_elementwise",
    OperationRole.WHOLE,
    types=map_elementwise_types,
    attributes=rules({"pack": integer(1, 1 << 16)}),
    region_ends=("tt.map_elementwise.return", *JUMPS_OUT),
    carries=True,
)
MAP_ELEMENTWISE_RETURN: Final = define(
    "tt.map_elementwise.return", OperationRole.REGION_RETURN, types=None, attributes=NO_ATTRIBUTES, terminator=True
)
REDUCE_RETURN: Final = define(
    "tt.reduce.return", OperationRole.REGION_RETURN, types=None, attributes=NO_ATTRIBUTES, terminator=True, flow=no_flow
)
SCAN_RETURN: Final = define(
    "tt.scan.return", OperationRole.REGION_RETURN, types=None, attributes=NO_ATTRIBUTES, terminator=True, flow=no_flow
)

# ---- messages
ASSERT: Final = define(
    "tt.assert",
    OperationRole.ORDERED,
    types=assert_types,
    attributes=rules({"message": TEXT}),
    flow=no_flow,
    side_effect=SideEffect.TELLS,
)
PRINT: Final = define(
    "tt.print",
    OperationRole.ORDERED,
    types=print_types,
    attributes=rules({"prefix": TEXT, "hex": FLAG, "isSigned": integers(lambda operation: len(operation.operands))}),
    flow=no_flow,
    side_effect=SideEffect.TELLS,
)

# ---- elementwise operations
ADDPTR: Final = define(
    "tt.addptr", types=addptr_types, attributes=NO_ATTRIBUTES, flow=derived, moves=True, cheap=True, render=addptr
)
MULHIUI: Final = define(
    "tt.mulhiui", types=same_type, attributes=NO_ATTRIBUTES, render=integer_call("mulhiui", signed=False, least=32)
)
CLAMPF: Final = define(
    "tt.clampf", types=same_type, attributes=rules({"propagateNan": integer(0, 0xFFFF)}), cost=2.0, render=clampf
)
PRECISE_DIVF: Final = define(
    "tt.precise_divf", types=same_type, attributes=NO_ATTRIBUTES, cost=8.0, render=float_binary("/")
)
APPROX_DIVF: Final = define(
    "tt.approx_divf", types=same_type, attributes=NO_ATTRIBUTES, cheap=True, render=float_binary("/")
)
BITCAST: Final = define(
    "tt.bitcast", types=same_shape, attributes=NO_ATTRIBUTES, flow=derived, cheap=True, render=bitcast
)
FP_TO_FP: Final = define(
    "tt.fp_to_fp", types=same_shape, attributes=rules(rounding=integer(0, 1)), render=triton_float_cast
)
INT_TO_PTR: Final = define("tt.int_to_ptr", types=same_shape, attributes=NO_ATTRIBUTES, cheap=True, render=int_to_ptr)
PTR_TO_INT: Final = define("tt.ptr_to_int", types=same_shape, attributes=NO_ATTRIBUTES, cheap=True, render=ptr_to_int)
PRECISE_SQRT: Final = define("tt.precise_sqrt", types=same_type, attributes=NO_ATTRIBUTES, cost=8.0, render=SQRT.render)
ELEMENTWISE_INLINE_ASM: Final = define(
    "tt.elementwise_inline_asm",
    types=foreign_types,
    attributes=rules({"asm_string": TEXT, "constraints": TEXT, "packed_element": integer(1, 64)}, pure=FLAG),
    cost=15.0,
    render=_inline,
    refuse=_inline_refusal,
)
EXTERN_ELEMENTWISE: Final = define(
    "tt.extern_elementwise",
    types=foreign_types,
    attributes=rules({"symbol": TEXT}, libname=TEXT, libpath=TEXT, pure=FLAG),
    cost=15.0,
    render=_extern,
)

# ---- ordering operations that have no effect on a CPU
GRID_DEPENDENCY_LAUNCH_DEPENDENTS: Final = define(
    "tt.grid_dependency_launch_dependents", OperationRole.HINT, types=no_values, attributes=NO_ATTRIBUTES
)
GRID_DEPENDENCY_WAIT: Final = define(
    "tt.grid_dependency_wait", OperationRole.HINT, types=no_values, attributes=NO_ATTRIBUTES
)

# ---- pointers to blocks, and tensor descriptors, which Triton's passes rewrite to pointers for the CPU
MAKE_TENSOR_PTR: Final = define("tt.make_tensor_ptr", OperationRole.FOREIGN, types=None, attributes=None, flow=derived)
ADVANCE: Final = define("tt.advance", OperationRole.FOREIGN, types=None, attributes=None, flow=derived, moves=True)
MAKE_TENSOR_DESCRIPTOR: Final = define(
    "tt.make_tensor_descriptor", OperationRole.FOREIGN, types=None, attributes=None, flow=derived
)
DESCRIPTOR_LOAD: Final = define(
    "tt.descriptor_load", OperationRole.FOREIGN, types=None, attributes=None, access=Effect.READ, family=Family.LOAD
)
DESCRIPTOR_GATHER: Final = define(
    "tt.descriptor_gather", OperationRole.FOREIGN, types=None, attributes=None, access=Effect.READ, family=Family.LOAD
)
DESCRIPTOR_STORE: Final = define(
    "tt.descriptor_store", OperationRole.FOREIGN, types=None, attributes=None, access=Effect.WRITE, family=Family.STORE
)
DESCRIPTOR_SCATTER: Final = define(
    "tt.descriptor_scatter",
    OperationRole.FOREIGN,
    types=None,
    attributes=None,
    access=Effect.WRITE,
    family=Family.STORE,
)
DESCRIPTOR_REDUCE: Final = define(
    "tt.descriptor_reduce",
    OperationRole.FOREIGN,
    types=None,
    attributes=None,
    access=Effect.BOTH,
    family=Family.ATOMIC,
    order="atomic operation",
)
