"""The records of operations: one each, complete; no other file of the front end or the CPU compiler names one."""

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import silo.kinds.triton.cpu
import silo.kinds.triton.front
from silo.core.signature import Effect
from silo.kinds.triton.cpu.operations_page import operations_table
from silo.kinds.triton.front.operations import arith, flow, further_dialects, tt
from silo.kinds.triton.front.operations.attribute_rules import AttributeRules
from silo.kinds.triton.front.operations.cpu.c_arith import MathFunction
from silo.kinds.triton.front.operations.nvidia.libdevice import FUNCTIONS
from silo.kinds.triton.front.operations.operation_record import (
    Family,
    OperationRecord,
    OperationRole,
    SideEffect,
    define,
    derived,
    no_flow,
)
from silo.kinds.triton.front.operations.operation_table import (
    ATOMICS,
    EFFECTS,
    MESSAGES,
    OPAQUE,
    OPERATIONS,
    RENDERED,
    STRUCTURAL,
    WRITES,
    foreign_reason,
    own_cost,
)
from silo.kinds.triton.front.ssa import Operation, Type, Value

BACKEND, FRONT = Path(silo.kinds.triton.cpu.__file__).parent, Path(silo.kinds.triton.front.__file__).parent
DIALECTS = {
    "arith": arith,
    "math": arith,
    "tt": tt,
    "scf": flow,
    "cf": flow,
    "gpu": further_dialects,
    "llvm": further_dialects,
    "ttg": further_dialects,
    "ttng": further_dialects,
    "ub": further_dialects,
    "silo": further_dialects,
}
NAME = re.compile(r"(tt|arith|math|scf|cf|ub|gpu|ttg|ttng|llvm|silo)\.[a-z_0-9.]+")
HINTS = {"tt.divisibility", "tt.contiguity", "tt.constancy", "tt.pointer_range"}
# Texts of this form that name no operation (attributes of Triton, modules), and the parser, which the records import.
ALLOWED = {
    "checking/instrument.py": HINTS,
    "checking/cpu_report.py": HINTS,
    "checking/cpu_runs.py": HINTS,
    "lower/messages.py": HINTS,
    "compiled_for.py": HINTS,
    "adapter/lowering.py": HINTS,
    "ssa.py": {"cf.br", "tt.call"},
    "ttir.py": {"tt.func"},
    "ssa_facts.py": {"scf.condition"},  # the one operation that decides whether a loop goes on
}
TEXT = [record for record in OPERATIONS.values() if not record.is_own]


def named(path):
    """The texts in the code of a module, those of docstrings and examples aside, that look like an operation's name."""
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value)
    }


@pytest.mark.parametrize(("root", "apart"), [(BACKEND, "no folder"), (FRONT, "operations/")])
def test_no_other_file_names_an_operation(root, apart):
    found = {}
    for path in sorted(root.rglob("*.py")):
        place = str(path.relative_to(root))
        names = {name for name in named(path) if not name.startswith(("silo.kinds.", "silo.drivers."))}
        if not place.startswith(apart) and (extra := names - ALLOWED.get(place, set())):
            found[place] = extra
    assert found == {}


def test_an_operation_is_defined_once_in_the_module_of_its_dialect():
    defined = Counter()
    for module in set(DIALECTS.values()):
        tree = ast.parse(inspect.getsource(module))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in {"define", "_silo_record", "_gpu"}:
                name = node.args[0]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    defined[name.value] += 1
                    assert DIALECTS[name.value.partition(".")[0]] is module, name.value
    assert defined == Counter(dict.fromkeys(OPERATIONS, 1))


def test_a_record_is_its_operation_s_name():
    scan = Operation("tt.scan", [], [], {})
    assert scan.name == tt.SCAN
    assert OPERATIONS[scan.name] is tt.SCAN
    assert (tt.SCAN.role, tt.SCAN.side_effect, tt.SCAN.dialect) == (OperationRole.ORDERED, SideEffect.NONE, "tt")
    assert f"{tt.SCAN}" == "tt.scan"
    with pytest.raises(AttributeError, match="is not changed"):
        tt.SCAN.cost = 1.0
    with pytest.raises(AssertionError, match=r"tt\.scan"):
        define("tt.scan", types=None, attributes=None)


def test_a_record_declares_every_field_and_no_other():
    fields = {
        name
        for name, parameter in inspect.signature(define).parameters.items()
        if name != "name" and parameter.annotation is not inspect.Parameter.empty
    }
    assert fields == set(OperationRecord.__annotations__)
    for record in OPERATIONS.values():
        assert type(record) is OperationRecord
        assert set(vars(record)) == fields, record
    for field in fields:
        assert re.search(rf"^        {field}: ", str(OperationRecord.__doc__), re.MULTILINE), (
            f"{field} is not described"
        )


@pytest.mark.parametrize("record", TEXT, ids=str)
def test_a_text_s_operation_is_checked(record):
    if record.role is not OperationRole.FOREIGN:
        assert isinstance(record.attributes, AttributeRules)
    # A terminator without a rule of its own is checked by the operation whose region it ends.
    assert record.types is not None or record.terminator or record.role is OperationRole.FOREIGN
    if record.region_ends:
        assert all(OPERATIONS[name].terminator for name in record.region_ends)
    if record.on_cpu:
        assert record.terminator == (
            record.role in {OperationRole.YIELD, OperationRole.JUMP, OperationRole.REGION_RETURN}
        )


@pytest.mark.parametrize("record", TEXT, ids=str)
def test_what_is_done_to_memory_is_said_in_one_way(record):
    assert record.access is None or record.flow is None, "an access hands on no pointer"
    assert record.access is not Effect.NONE
    if record.family in {Family.LOAD, Family.STORE, Family.ATOMIC}:
        assert record.access is not None
    if record.access in {Effect.WRITE, Effect.BOTH} and record.on_cpu and record.role is not OperationRole.REWRITTEN:
        assert record.side_effect is SideEffect.WRITES
    if record.terminator or record.side_effect is SideEffect.TELLS:
        assert record.flow is not derived


def test_pointers_are_followed_through_address_arithmetic_and_control():
    assert {tt.ADDPTR, tt.SPLAT, tt.BROADCAST, tt.EXPAND_DIMS, arith.SELECT} <= with_flow(derived)
    assert {tt.RETURN, tt.REDUCE_RETURN, flow.YIELD, tt.PRINT, tt.ASSERT, arith.CMPI} <= with_flow(no_flow)
    assert tt.INT_TO_PTR.flow is None
    assert tt.LOAD.flow is None


def with_flow(wanted):
    return {record for record in OPERATIONS.values() if record.flow is wanted}


def test_every_operation_has_a_way_into_c_or_a_place_in_the_schedule():
    for record in OPERATIONS.values():
        if record.role is OperationRole.ELEMENTWISE and not record.is_own:
            assert record.render is not None, record
        if record.render is None:
            assert record.refuse is not None, record
        assert not record.cheap or record.render is not None, record
    assert set(RENDERED) | set(STRUCTURAL) == {record for record in OPERATIONS.values() if record.on_cpu}
    assert set(RENDERED) & set(STRUCTURAL) == {arith.CONSTANT, tt.ELEMENTWISE_INLINE_ASM}


def test_what_the_cpu_has_no_code_for_is_refused_by_its_record():
    foreign = {record for record in OPERATIONS.values() if record.role is OperationRole.FOREIGN}
    assert {tt.DESCRIPTOR_LOAD, tt.MAKE_TENSOR_PTR, further_dialects.UNREACHABLE} <= foreign
    for record in foreign:
        assert record.refuse(Operation(record, [], [], {})) == "not supported"
        assert not record.on_cpu


def test_what_has_effects():
    assert {further_dialects.FENCE, further_dialects.VOLATILE_LOAD, tt.CALL, tt.STORE, *ATOMICS} == WRITES
    assert {tt.ASSERT, tt.PRINT} == MESSAGES
    assert WRITES | MESSAGES == EFFECTS
    assert {flow.FOR, flow.IF, flow.WHILE, tt.REDUCE, tt.SCAN, tt.DOT, tt.CALL, further_dialects.NETWORK} <= OPAQUE
    assert not {tt.LOAD, tt.STORE, tt.SPLAT, arith.ADDF} & OPAQUE


def test_costs_are_those_of_the_record_or_of_the_element():
    def made(name, element):
        return Operation(name, [], [Value("%0", Type(element, (4,), tensor=True))], {})

    assert own_cost(made("tt.load", "f32")) == tt.LOAD_COST
    assert own_cost(made("arith.addf", "f32")) == own_cost(made("arith.mulf", "bf16")) == 1.0
    assert own_cost(made("arith.addi", "i32")) == 0.5
    assert own_cost(made("tt.splat", "f32")) == own_cost(made("arith.constant", "f32")) == 0.0
    assert (own_cost(made("math.exp", "f32")), own_cost(made("math.sqrt", "f32"))) == (15.0, 8.0)


def test_foreign_operations_are_refused_with_the_reason():
    assert "NVIDIA" in foreign_reason("ttng.tmem_load")
    assert "Gluon" in foreign_reason("ttg.local_alloc")
    assert foreign_reason("tt.unheard_of") == "not supported"
    assert further_dialects.ASSUME in OPERATIONS


def test_a_function_of_the_math_dialect_is_called_by_its_own_name():
    for record in OPERATIONS.values():
        if record.dialect == "math" and isinstance(record.render, MathFunction):
            assert record == f"math.{record.render.name}"
    assert FUNCTIONS["exp"] is arith.EXP.render


def test_the_page_lists_the_table():
    page = operations_table()
    for record in OPERATIONS.values():
        if record.on_cpu:
            assert record.partition(".")[2] in page
    assert "silo" not in page
    assert "descriptor_load" not in page


def test_compilers_import_no_record_before_they_read_code():
    code = """if True:
    import sys
    import silo.kinds.triton.cpu.cpu_compiler, silo.kinds.triton.gpu.gpu_compiler
    assert "silo.kinds.triton.front.operations" not in sys.modules
    import silo.kinds.triton.front.ssa_facts
    assert "silo.kinds.triton.front.operations.tt" in sys.modules
    assert "silo.kinds.triton.front.operations.nvidia" not in sys.modules  # few kernels call libdevice
    """
    subprocess.run([sys.executable, "-c", code], check=True)
