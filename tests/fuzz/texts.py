"""Small TTIR texts, one for each operation that the CPU knows, and those that the tests keep of real kernels."""

from __future__ import annotations

from pathlib import Path

from silo.kinds.triton.front.operations.attribute_rules import FAST
from silo.kinds.triton.front.operations.cpu.c_arith import MathFunction
from silo.kinds.triton.front.operations.operation_table import OPERATIONS

__all__ = ["operation_texts", "recorded_texts"]

_DATA = Path(__file__).parent.parent / "data" / "ttir"
_HEAD = """"builtin.module"() ({
%FUNCTIONS%  "tt.func"() <{arg_attrs = [{tt.divisibility = 16 : i32}, {}, {}, {}], function_type = (!tt.ptr<f32>, \
!tt.ptr<i32>, i32, f32) -> (), sym_name = "kernel", sym_visibility = "public"}> ({
  ^bb0(%pf: !tt.ptr<f32>, %pi: !tt.ptr<i32>, %n: i32, %x: f32):
    %r = "tt.make_range"() <{end = 16 : i32, start = 0 : i32}> : () -> tensor<16xi32>
    %qf = "tt.splat"(%pf) : (!tt.ptr<f32>) -> tensor<16x!tt.ptr<f32>>
    %af = "tt.addptr"(%qf, %r) : (tensor<16x!tt.ptr<f32>>, tensor<16xi32>) -> tensor<16x!tt.ptr<f32>>
    %qi = "tt.splat"(%pi) : (!tt.ptr<i32>) -> tensor<16x!tt.ptr<i32>>
    %ai = "tt.addptr"(%qi, %r) : (tensor<16x!tt.ptr<i32>>, tensor<16xi32>) -> tensor<16x!tt.ptr<i32>>
    %f = "tt.load"(%af) <{isVolatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}> \
: (tensor<16x!tt.ptr<f32>>) -> tensor<16xf32>
    %i = "tt.load"(%ai) <{isVolatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}> \
: (tensor<16x!tt.ptr<i32>>) -> tensor<16xi32>
    %c = "arith.cmpi"(%i, %r) <{predicate = 2 : i64}> : (tensor<16xi32>, tensor<16xi32>) -> tensor<16xi1>
"""
_TAIL = """    "tt.return"() : () -> ()
  }) {noinline = false} : () -> ()
}) : () -> ()
"""
_F, _I, _C, _PF, _PI = "tensor<16xf32>", "tensor<16xi32>", "tensor<16xi1>", "tensor<16x!tt.ptr<f32>>", "!tt.ptr<i32>"


def _op(name: str, operands: str, types: str, result: str, attributes: str = "") -> str:
    properties = f" <{{{attributes}}}>" if attributes else ""
    return f'    %v = "{name}"({operands}){properties} : ({types}) -> {result}\n' + _shown(result)


def _shown(result: str) -> str:
    return f'    "tt.print"(%v) <{{hex = false, isSigned = array<i32: 0>, prefix = " v: "}}> : ({result}) -> ()\n'


_FLOAT_1 = "math.absf arith.negf"
_FLOAT_2 = """arith.addf arith.subf arith.mulf arith.divf arith.remf arith.maximumf arith.maxnumf arith.minimumf
arith.minnumf tt.precise_divf tt.approx_divf"""
_INT_1 = "math.absi math.ctlz math.ctpop math.cttz"
_INT_2 = """arith.addi arith.subi arith.muli arith.andi arith.ori arith.xori arith.shli arith.shrsi arith.shrui
arith.divsi arith.divui arith.remsi arith.remui arith.maxsi arith.maxui arith.minsi arith.minui arith.ceildivsi
arith.ceildivui arith.floordivsi tt.mulhiui"""
_FAST = "fastmath = #arith.fastmath<none>"
_ATOMIC = "scope = 1 : i32, sem = 4 : i32"
_PLACE = "tensor<16x!tt.ptr<i32>>"
_REGION = """    %v = "{name}"(%f) <{{{attributes}}}> ({{
    ^bb0(%l: f32, %m: f32):
      %s = "arith.addf"(%l, %m) <{{fastmath = #arith.fastmath<none>}}> : (f32, f32) -> f32
      "{name}.return"(%s) : (f32) -> ()
    }}) : (tensor<16xf32>) -> {result}
"""
_MATRIX = """    %m = "tt.reshape"(%f) <{allow_reorder}> : (tensor<16xf32>) -> tensor<4x4xf32>
"""


def _texts() -> dict[str, str]:
    """The lines of each operation, after those of the head."""
    known: dict[str, str] = {}
    for name, record in OPERATIONS.items():
        if isinstance(record.render, MathFunction):
            count = record.render.arity
            fast = _FAST if record.attributes is FAST else ""
            known[name] = _op(name, ", ".join(["%f"] * count), ", ".join([_F] * count), _F, fast)
    for name in _FLOAT_1.split():
        known[name] = _op(name, "%f", _F, _F, "" if name.startswith("tt.") else _FAST)
    for name in _FLOAT_2.split():
        known[name] = _op(name, "%f, %f", f"{_F}, {_F}", _F, "" if name.startswith("tt.") else _FAST)
    for name in _INT_1.split():
        known[name] = _op(name, "%i", _I, _I)
    for name in _INT_2.split():
        known[name] = _op(name, "%i, %r", f"{_I}, {_I}", _I)
    for name in ("math.isfinite", "math.isinf", "math.isnan"):
        known[name] = _op(name, "%f", _F, _C, _FAST)
    for name, source, kind, result in (
        ("arith.extsi", "%i", _I, "tensor<16xi64>"),
        ("arith.extui", "%i", _I, "tensor<16xi64>"),
        ("arith.trunci", "%i", _I, "tensor<16xi8>"),
        ("arith.extf", "%f", _F, "tensor<16xf64>"),
        ("arith.truncf", "%f", _F, "tensor<16xf16>"),
        ("arith.convertf", "%f", _F, "tensor<16xf16>"),
        ("arith.sitofp", "%i", _I, _F),
        ("arith.uitofp", "%i", _I, _F),
        ("arith.fptosi", "%f", _F, _I),
        ("arith.fptoui", "%f", _F, _I),
        ("arith.bitcast", "%f", _F, _I),
        ("arith.index_cast", "%i", _I, "tensor<16xindex>"),
        ("arith.index_castui", "%i", _I, "tensor<16xindex>"),
        ("tt.bitcast", "%f", _F, _I),
        ("tt.ptr_to_int", "%af", _PF, "tensor<16xi64>"),
        ("tt.histogram", "%i", _I, "tensor<8xi32>"),
        ("tt.split", "", "", ""),
    ):
        known[name] = _op(name, source, kind, result)
    known |= {
        "arith.constant": _op("arith.constant", "", "", "i32", "value = 7 : i32")
        + '    %w = "arith.constant"() <{value = dense<1.5> : tensor<16xf32>}> : () -> tensor<16xf32>\n'
        '    "tt.store"(%af, %w) : (tensor<16x!tt.ptr<f32>>, tensor<16xf32>) -> ()\n',
        "arith.cmpf": _op("arith.cmpf", "%f, %f", f"{_F}, {_F}", _C, f"{_FAST}, predicate = 2 : i64"),
        "arith.cmpi": _op("arith.cmpi", "%i, %r", f"{_I}, {_I}", _C, "predicate = 2 : i64"),
        "arith.select": _op("arith.select", "%c, %f, %f", f"{_C}, {_F}, {_F}", _F),
        "math.fma": _op("math.fma", "%f, %f, %f", f"{_F}, {_F}, {_F}", _F, _FAST),
        "ub.poison": _op("ub.poison", "", "", _F, "value = #ub.poison"),
        "tt.addptr": _op("tt.addptr", "%af, %i", f"{_PF}, {_I}", _PF),
        "tt.clampf": _op("tt.clampf", "%f, %f, %f", f"{_F}, {_F}, {_F}", _F, "propagateNan = 0 : i32"),
        "tt.fp_to_fp": _op("tt.fp_to_fp", "%f", _F, "tensor<16xf8E5M2>", "rounding = 1 : i32"),
        "tt.int_to_ptr": '    %w = "tt.ptr_to_int"(%af) : (tensor<16x!tt.ptr<f32>>) -> tensor<16xi64>\n'
        + _op("tt.int_to_ptr", "%w", "tensor<16xi64>", _PF),
        "tt.elementwise_inline_asm": _op(
            "tt.elementwise_inline_asm",
            "%f",
            _F,
            _F,
            'asm_string = "ex2.approx.ftz.f32 $0, $1;", constraints = "=f,f", packed_element = 1 : i32, pure = true',
        ),
        "tt.extern_elementwise": _op(
            "tt.extern_elementwise", "%f", _F, _F, 'libname = "", libpath = "", pure = true, symbol = "__nv_tanhf"'
        ),
        "tt.get_program_id": _op("tt.get_program_id", "", "", "i32", "axis = 1 : i32"),
        "tt.get_num_programs": _op("tt.get_num_programs", "", "", "i32", "axis = 2 : i32"),
        "tt.make_range": _op("tt.make_range", "", "", _I, "end = 24 : i32, start = 8 : i32"),
        "tt.splat": _op("tt.splat", "%x", "f32", _F),
        "tt.unsplat": '    %w = "tt.splat"(%x) : (f32) -> tensor<1xf32>\n'
        + _op("tt.unsplat", "%w", "tensor<1xf32>", "f32"),
        "tt.expand_dims": _op("tt.expand_dims", "%f", _F, "tensor<16x1xf32>", "axis = 1 : i32"),
        "tt.broadcast": '    %w = "tt.expand_dims"(%f) <{axis = 0 : i32}> : (tensor<16xf32>) -> tensor<1x16xf32>\n'
        + _op("tt.broadcast", "%w", "tensor<1x16xf32>", "tensor<4x16xf32>"),
        "tt.reshape": _op("tt.reshape", "%f", _F, "tensor<4x4xf32>", "allow_reorder"),
        "tt.trans": _MATRIX + _op("tt.trans", "%m", "tensor<4x4xf32>", "tensor<4x4xf32>", "order = array<i32: 1, 0>"),
        "tt.join": _op("tt.join", "%f, %f", f"{_F}, {_F}", "tensor<16x2xf32>"),
        "tt.cat": _op("tt.cat", "%f, %f", f"{_F}, {_F}", "tensor<32xf32>"),
        "tt.split": '    %w = "tt.join"(%f, %f) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16x2xf32>\n'
        '    %s:2 = "tt.split"(%w) : (tensor<16x2xf32>) -> (tensor<16xf32>, tensor<16xf32>)\n'
        '    "tt.store"(%af, %s#1) : (tensor<16x!tt.ptr<f32>>, tensor<16xf32>) -> ()\n',
        "tt.gather": _op("tt.gather", "%f, %i", f"{_F}, {_I}", _F, "axis = 0 : i32"),
        "tt.dot": _MATRIX
        + _op(
            "tt.dot",
            "%m, %m, %m",
            "tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>",
            "tensor<4x4xf32>",
            "inputPrecision = 0 : i32, maxNumImpreciseAcc = 0 : i32",
        ),
        "tt.dot_scaled": _MATRIX
        + '    %w = "tt.fp_to_fp"(%m) <{rounding = 1 : i32}> : (tensor<4x4xf32>) -> tensor<4x4xf8E5M2>\n'
        + _op(
            "tt.dot_scaled",
            "%w, %w, %m",
            "tensor<4x4xf8E5M2>, tensor<4x4xf8E5M2>, tensor<4x4xf32>",
            "tensor<4x4xf32>",
            "a_elem_type = 1 : i32, b_elem_type = 1 : i32, fastMath = false, lhs_k_pack = true, "
            "operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, rhs_k_pack = true",
        ),
        "tt.load": _op(
            "tt.load",
            "%af, %c, %f",
            f"{_PF}, {_C}, {_F}",
            _F,
            "boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32, isVolatile = true, "
            "operandSegmentSizes = array<i32: 1, 1, 1>",
        ),
        "tt.store": '    "tt.store"(%af, %f, %c) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : '
        f"({_PF}, {_F}, {_C}) -> ()\n",
        "tt.atomic_rmw": _op(
            "tt.atomic_rmw",
            "%ai, %i, %c",
            f"{_PLACE}, {_I}, {_C}",
            _I,
            f"atomic_rmw_op = 4 : i32, {_ATOMIC}",
        ),
        "tt.atomic_cas": _op("tt.atomic_cas", "%ai, %i, %r", f"{_PLACE}, {_I}, {_I}", _I, _ATOMIC),
        "tt.atomic_load": _op("tt.atomic_load", "%ai", _PLACE, _I, "scope = 1 : i32, sem = 2 : i32"),
        "tt.atomic_poll": _op("tt.atomic_poll", "%ai, %i", f"{_PLACE}, {_I}", _C, "scope = 1 : i32, sem = 2 : i32"),
        "tt.atomic_store": '    "tt.atomic_store"(%ai, %i) <{scope = 1 : i32, sem = 3 : i32}> : '
        f"({_PLACE}, {_I}) -> ()\n",
        "tt.print": '    "tt.print"(%f, %i) <{hex = true, isSigned = array<i32: 0, 1>, prefix = " both: "}> : '
        f"({_F}, {_I}) -> ()\n",
        "tt.assert": f'    "tt.assert"(%c) <{{message = "so it is"}}> : ({_C}) -> () loc("a.py":3:1)\n',
        "llvm.intr.assume": '    %w = "arith.cmpi"(%n, %n) <{predicate = 0 : i64}> : (i32, i32) -> i1\n'
        '    "llvm.intr.assume"(%w) <{op_bundle_sizes = array<i32>}> : (i1) -> ()\n',
        "tt.reduce": _REGION.format(name="tt.reduce", attributes="axis = 0 : i32", result="f32") + _shown("f32"),
        "tt.scan": _REGION.format(name="tt.scan", attributes="axis = 0 : i32, reverse = true", result=_F) + _shown(_F),
        "tt.map_elementwise": """    %v = "tt.map_elementwise"(%f) <{pack = 2 : i32}> ({
    ^bb0(%l: f32, %m: f32):
      "tt.map_elementwise.return"(%m, %l) : (f32, f32) -> ()
    }) : (tensor<16xf32>) -> tensor<16xf32>
"""
        + _shown(_F),
        "scf.for": """    %v = "scf.for"(%n, %n, %n, %f) ({
    ^bb0(%k: i32, %l: tensor<16xf32>):
      %s = "tt.precise_divf"(%l, %f) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
      "scf.yield"(%s) : (tensor<16xf32>) -> ()
    }) {tt.num_stages = 3 : i32} : (i32, i32, i32, tensor<16xf32>) -> tensor<16xf32>
"""
        + _shown(_F),
        "scf.if": """    %w = "arith.cmpi"(%n, %n) <{predicate = 0 : i64}> : (i32, i32) -> i1
    %v = "scf.if"(%w) ({
      "scf.yield"(%n) : (i32) -> ()
    }, {
      %s = "arith.addi"(%n, %n) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32
      "scf.yield"(%s) : (i32) -> ()
    }) : (i1) -> i32
"""
        + _shown("i32"),
        "scf.while": """    %v = "scf.while"(%n) ({
    ^bb0(%l: i32):
      %s = "arith.cmpi"(%l, %n) <{predicate = 2 : i64}> : (i32, i32) -> i1
      "scf.condition"(%s, %l) : (i1, i32) -> ()
    }, {
    ^bb0(%m: i32):
      "scf.yield"(%m) : (i32) -> ()
    }) : (i32) -> i32
"""
        + _shown("i32"),
        "cf.cond_br": """    %w = "arith.cmpi"(%n, %n) <{predicate = 0 : i64}> : (i32, i32) -> i1
    "cf.cond_br"(%w, %x)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 0, 1>}> : (i1, f32) -> ()
  ^bb1:
    "cf.br"(%x)[^bb2] : (f32) -> ()
  ^bb2(%v: f32):
"""
        + _shown("f32"),
        "tt.call": """    %v = "tt.call"(%x) <{callee = @helper}> : (f32) -> f32
"""
        + _shown("f32"),
    }
    for name in ("gpu.barrier", "ttg.barrier", "ttg.local_barrier", "tt.grid_dependency_wait"):
        known[name] = f'    "{name}"() : () -> ()\n' + _op("arith.addi", "%i, %i", f"{_I}, {_I}", _I)
    known["tt.grid_dependency_launch_dependents"] = known["tt.grid_dependency_wait"].replace(
        "dependency_wait", "dependency_launch_dependents"
    )
    return known


_HELPER = """  "tt.func"() <{function_type = (f32) -> f32, sym_name = "helper", sym_visibility = "private"}> ({
  ^bb0(%a: f32):
    %b = "arith.mulf"(%a, %a) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
    "tt.return"(%b) : (f32) -> ()
  }) {noinline = true} : () -> ()
"""
# Those that stand in the texts of others.
_WITHIN = (
    "cf.br scf.condition scf.yield tt.func tt.map_elementwise.return tt.reduce.return tt.return tt.scan.return"
    " ub.unreachable"
)


def operation_texts() -> dict[str, str]:
    """A module for each operation; every one that the rules know is in one of them."""
    texts = {
        name: _HEAD.replace("%FUNCTIONS%", _HELPER if name == "tt.call" else "") + lines + _TAIL
        for name, lines in _texts().items()
    }
    missing = {name for name, record in OPERATIONS.items() if record.attributes} - set(texts) - set(_WITHIN.split())
    assert not missing, f"operations without a text: {sorted(missing)}"
    return texts


def recorded_texts() -> dict[str, str]:
    """What Triton made of the tests' kernels."""
    return {path.stem: path.read_text() for path in sorted(_DATA.glob("*.ttir"))}
