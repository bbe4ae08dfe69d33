"""The table of operations: one record each, and no other file of the backend names an operation."""

import ast
import re
from pathlib import Path

import pytest
from silo.kinds.triton.cpu.operations import arith, flow, others, own, tt
from silo.kinds.triton.cpu.operations.record import Effect, Record, Role, define
from silo.kinds.triton.cpu.operations.table import (
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

import silo.kinds.triton.cpu
from silo.kinds.triton.cpu.operations_page import operations_table
from silo.kinds.triton.front.ssa import Operation, Type, Value

BACKEND = Path(silo.kinds.triton.cpu.__file__).parent
NAME = re.compile(r"(tt|arith|math|scf|cf|ub|gpu|ttg|ttng|llvm|silo)\.[a-z_0-9.]+")
# Texts of this form that name no operation: attributes of Triton, modules.
ALLOWED = {
    "checking/instrument.py": {"tt.divisibility", "tt.contiguity", "tt.constancy"},
    "checking/report.py": {"tt.divisibility", "tt.contiguity", "tt.constancy"},
    "checking/run.py": {"tt.divisibility"},
    "declaration.py": {"silo.kinds.triton.front"},
    "lower/checked.py": {"tt.divisibility", "tt.contiguity", "tt.constancy"},
}


def named(path):
    """The texts in the code of a module, those of docstrings and examples aside, that look like an operation's name."""
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value)
    }


def test_no_other_file_names_an_operation():
    found = {}
    for path in sorted(BACKEND.rglob("*.py")):
        place = str(path.relative_to(BACKEND))
        names = {name for name in named(path) if not name.startswith("silo.kinds.")}
        if not place.startswith(("operations/", "triton_plugin/")) and (extra := names - ALLOWED.get(place, set())):
            found[place] = extra
    assert found == {}


def test_a_record_is_its_operation_s_name():
    scan = Operation("tt.scan", [], [], {})
    assert scan.name == tt.SCAN
    assert OPERATIONS[scan.name] is tt.SCAN
    assert (tt.SCAN.role, tt.SCAN.effect, tt.SCAN.dialect) == (Role.ORDERED, Effect.NONE, "tt")
    assert f"{tt.SCAN}" == "tt.scan"
    with pytest.raises(AttributeError, match="is not changed"):
        tt.SCAN.cost = 1.0
    with pytest.raises(AssertionError, match=r"tt\.scan"):
        define("tt.scan")


def test_every_operation_has_a_way_into_c_or_a_place_in_the_schedule():
    for record in OPERATIONS.values():
        assert type(record) is Record
        if record.role is Role.ELEMENTWISE and not record.is_own:
            assert record.render is not None, record
        if record.render is None and not record.is_own:
            assert record.refuse is not None, record
        assert not record.cheap or record.render is not None, record
    assert set(RENDERED) | set(STRUCTURAL) == {record for record in OPERATIONS.values() if not record.is_own}
    assert set(RENDERED) & set(STRUCTURAL) == {arith.CONSTANT}


def test_what_has_effects():
    assert {own.FENCE, own.VOLATILE_LOAD, tt.CALL, tt.STORE, *ATOMICS} == WRITES
    assert {tt.ASSERT, tt.PRINT} == MESSAGES
    assert WRITES | MESSAGES == EFFECTS
    assert {flow.FOR, flow.IF, flow.WHILE, tt.REDUCE, tt.SCAN, tt.DOT, tt.CALL, own.NETWORK} <= OPAQUE
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
    assert others.ASSUME in OPERATIONS


def test_the_page_lists_the_table():
    page = operations_table()
    for record in OPERATIONS.values():
        assert record.is_own or record.partition(".")[2] in page
    assert "silo" not in page
