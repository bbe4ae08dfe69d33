"""What a kernel does through each pointer, from recorded modules and from small ones."""

from pathlib import Path

import pytest

from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.errors import SourceError
from silo.kinds.triton.front.ssa_facts import argument_effects, effects_of
from silo.kinds.triton.front.triton_specialize import module_arguments
from silo.kinds.triton.front.ttir import parse_ttir
from silo.kinds.triton.front.verifier import verify

DATA = Path(__file__).parents[4] / "data" / "ttir"
N, R, W, B = Effect.NONE, Effect.READ, Effect.WRITE, Effect.BOTH


def kernel_effects(body, count=2, functions=""):
    """The effects of a kernel that takes ``count`` pointers %p0, %p1, ... and a condition %c."""
    arguments = ", ".join(f"%p{index}: !tt.ptr<f32>" for index in range(count)) + ", %c: i1, %n: i32"
    types = ", ".join(["!tt.ptr<f32>"] * count) + ", i1, i32"
    module = parse_ttir(
        f""""builtin.module"() ({{
  "tt.func"() <{{function_type = ({types}) -> (), sym_name = "k", sym_visibility = "public"}}> ({{
  ^bb0({arguments}):
{body}
    "tt.return"() : () -> ()
  }}) : () -> ()
{functions}
}}) : () -> ()
"""
    )
    verify(module)
    found = argument_effects(module)
    assert found[count:] == (N, N)
    return found[:count]


LOAD = '"tt.load"({0}) : (!tt.ptr<f32>) -> f32'
STORE = '"tt.store"({0}, %v) : (!tt.ptr<f32>, f32) -> ()'
VALUE = '%v = "arith.constant"() <{value = 1.0 : f32}> : () -> f32\n'


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", (R, R, W, N)),
        ("softmax", (W, R, N, N)),
        ("matmul", (R, R, W, N, N, N)),
        ("early_return", (R, W, N)),
        ("branches", (R, R, W, N)),
        ("atomics", (B, B, B, N)),
        ("calls", (R, W, N)),
        ("pointer_array", (R, W)),
        ("printing", (R, N)),
    ],
)
@pytest.mark.parametrize("version", ["36", "39"])
def test_recorded_kernels(name, version, expected):
    assert argument_effects(parse_ttir((DATA / f"{name}-{version}.ttir").read_text())) == expected


def test_unused_pointers_have_no_effect():
    assert kernel_effects("") == (N, N)


def test_reading_and_writing_through_one_pointer_is_both():
    assert kernel_effects(f"%v = {LOAD.format('%p0')}\n{STORE.format('%p0')}") == (B, N)


def test_a_select_may_be_either_pointer():
    select = '%s = "arith.select"(%c, %p0, %p1) : (i1, !tt.ptr<f32>, !tt.ptr<f32>) -> !tt.ptr<f32>\n'
    assert kernel_effects(f"{VALUE}{select}{STORE.format('%s')}") == (W, W)


def test_pointers_swapped_in_a_loop_reach_both_places():
    body = f"""{VALUE}
    %r:2 = "scf.for"(%n, %n, %n, %p0, %p1) ({{
    ^bb0(%i: i32, %x: !tt.ptr<f32>, %y: !tt.ptr<f32>):
      {STORE.format("%x")}
      "scf.yield"(%y, %x) : (!tt.ptr<f32>, !tt.ptr<f32>) -> ()
    }}) : (i32, i32, i32, !tt.ptr<f32>, !tt.ptr<f32>) -> (!tt.ptr<f32>, !tt.ptr<f32>)"""
    assert kernel_effects(body, 3) == (W, W, N)


def test_a_while_loop_passes_pointers_through_both_regions():
    body = f"""{VALUE}
    %r = "scf.while"(%p0) ({{
    ^bb0(%x: !tt.ptr<f32>):
      "scf.condition"(%c, %x) : (i1, !tt.ptr<f32>) -> ()
    }}, {{
    ^bb0(%y: !tt.ptr<f32>):
      "scf.yield"(%p1) : (!tt.ptr<f32>) -> ()
    }}) : (!tt.ptr<f32>) -> !tt.ptr<f32>
    {STORE.format("%r")}"""
    assert kernel_effects(body, 3) == (W, W, N)


def test_results_of_an_if_are_either_branchs():
    body = f"""{VALUE}
    %r = "scf.if"(%c) ({{
      "scf.yield"(%p0) : (!tt.ptr<f32>) -> ()
    }}, {{
      "scf.yield"(%p1) : (!tt.ptr<f32>) -> ()
    }}) : (i1) -> !tt.ptr<f32>
    %w = {LOAD.format("%r")}"""
    assert kernel_effects(body, 3) == (R, R, N)


def test_block_arguments_carry_pointers():
    body = f"""{VALUE}
    "cf.cond_br"(%c, %p0, %p1)[^bb1, ^bb1] <{{operandSegmentSizes = array<i32: 1, 1, 1>}}>
      : (i1, !tt.ptr<f32>, !tt.ptr<f32>) -> ()
  ^bb1(%x: !tt.ptr<f32>):
    {STORE.format("%x")}"""
    assert kernel_effects(body, 3) == (W, W, N)


def test_calls_pass_pointers_in_and_out():
    function = f"""  "tt.func"() <{{sym_name = "f", sym_visibility = "private"}}> ({{
  ^bb0(%x: !tt.ptr<f32>):
    %v = {LOAD.format("%x")}
    "tt.return"(%x) : (!tt.ptr<f32>) -> ()
  }}) : () -> ()"""
    call = '%r = "tt.call"(%p0) <{callee = @f}> : (!tt.ptr<f32>) -> !tt.ptr<f32>\n'
    assert kernel_effects(VALUE + call, functions=function) == (R, N)
    assert kernel_effects(VALUE + call + STORE.format("%r"), functions=function) == (B, N)


@pytest.mark.parametrize(
    "body",
    [
        '%a = "tt.ptr_to_int"(%p0) : (!tt.ptr<f32>) -> i64',
        '%q = "x.unknown"(%p0) : (!tt.ptr<f32>) -> !tt.ptr<f32>',
        '"x.unknown"(%p0) : (!tt.ptr<f32>) -> ()',
    ],
)
def test_a_pointer_that_escapes_counts_as_both(body):
    assert kernel_effects(body) == (B, N)


def test_a_pointer_that_is_stored_escapes():
    text = """"builtin.module"() ({
  "tt.func"() <{function_type = (!tt.ptr<!tt.ptr<f32>>, !tt.ptr<f32>) -> (), sym_name = "k"}> ({
  ^bb0(%p: !tt.ptr<!tt.ptr<f32>>, %q: !tt.ptr<f32>):
    "tt.store"(%p, %q) : (!tt.ptr<!tt.ptr<f32>>, !tt.ptr<f32>) -> ()
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""
    module = parse_ttir(text)
    verify(module)
    assert argument_effects(module) == (W, B)


def test_arguments_of_a_module_by_parameter():
    module = parse_ttir((DATA / "descriptors-39.ttir").read_text())
    kinds = ParameterKind
    signature = Signature(
        (
            Parameter("x", kinds.DESCRIPTOR, dtype("fp16")),
            Parameter("nothing", kinds.POINTER),
            Parameter("out", kinds.DESCRIPTOR, dtype("fp16")),
            Parameter("one", kinds.INTEGER, dtype("i32")),
            Parameter("M", kinds.CONSTEXPR),
        )
    )
    facts = Specialization((("nothing", Fact.NONE), ("one", Fact.EQUAL_1)), (("x", (16, 32)), ("out", (16, 32))))
    found = module_arguments(signature, facts, module)
    assert [slot.part for slot in found if slot.parameter == "x"] == [
        "", "shape.0", "shape.1", "stride.0", "stride.1", "nan", "tf32", "shape.0", "shape.1", "stride.0", "stride.1",
    ]  # fmt: skip
    assert [slot.type.element for slot in found][:11] == ["f16", *["i64"] * 4, "i1", "i1", "i32", "i32", "i64", "i64"]
    assert effects_of(module, signature, facts) == {"x": R, "nothing": N, "out": W}
    with pytest.raises(SourceError, match="takes 22 arguments"):
        module_arguments(Signature(signature.parameters[:1]), facts, module)
