"""Which functions a bundle's kernels become."""

import pytest

from export_samples import SHAPED_GRID, Maker, add_kernel, add_parameters, parameter
from silo.core.config import Config
from silo.core.recipes import ArrayRecipe, CaseRecipe, ScalarRecipe
from silo.core.signature import Parameter, ParameterKind
from silo.core.specialization import Fact, Specialization
from silo.core.values import FunctionValue, dtype
from silo.errors import BundleError
from silo.export.function_signatures import ParameterRole, functions_of


def taken(kernel, cases=()):
    (function,) = functions_of([kernel], {kernel.name: cases})
    return {one.called: one for one in function.parameters}


def with_constants(maker, values, *, name="MODE", default=None):
    parameters = (*add_parameters(), parameter(name, "c"))
    variants = [
        maker.variant("k", parameters, Specialization(constants=((name, value),)), config=Config.of(BLOCK=32 << at))
        for at, value in enumerate(values)
    ]
    return maker.kernel("k", variants, defaults={} if default is None else {name: default})


def test_one_function_a_dtype_signature_and_its_name_in_c():
    kernel = add_kernel(Maker(), elements=("float32", "bfloat16", "float16"))
    found = functions_of([kernel], {})
    assert [one.name for one in found] == ["add"] * 3
    assert [one.c_name for one in found] == ["add_fp32", "add_bf16", "add_fp16"]
    assert [[str(target) for target in one.targets] for one in found] == [["cpu:x86-64-v2", "cuda:sm_80"]] * 3
    x, out, n, block = found[1].parameters
    assert (x.dtype, x.writes, out.writes) == (dtype("bfloat16"), False, True)
    assert (n.role, block.role) == (ParameterRole.INTEGER, ParameterRole.LEFT)


def test_a_width_of_integers_is_no_signature_of_its_own():
    maker = Maker()
    wide = [parameter("n", "i int64") if one.name == "n" else one for one in add_parameters()]
    kernel = maker.kernel("add", [maker.variant("add", add_parameters()), maker.variant("add", wide)])
    (function,) = functions_of([kernel], {})
    assert (function.c_name, len(function.variants)) == ("add", 2)


def test_constants_of_the_caller():
    texts = taken(with_constants(Maker(), ["relu", "", "relu"], default="relu"))["MODE"]
    assert texts.role is ParameterRole.CHOICE
    assert [(one.name, one.value) for one in texts.choices] == [("empty", ""), ("relu", "relu")]
    assert texts.default == "relu"
    assert taken(with_constants(Maker(), [64, 128], default=64))["MODE"].role is ParameterRole.INTEGER
    assert taken(with_constants(Maker(), [True, False]))["MODE"].role is ParameterRole.BOOL
    mixed = taken(with_constants(Maker(), [True, 1, None, dtype("float16")]))["MODE"]
    assert mixed.role is ParameterRole.CHOICE
    assert {one.name for one in mixed.choices} == {"true_", "n1", "none", "float16"}
    assert taken(with_constants(Maker(), [1, 2], name="BLOCK_K"))["BLOCK"].role is ParameterRole.LEFT


def test_none_in_place_of_an_array_makes_it_nullable():
    maker = Maker()
    none = tuple(Parameter("x", ParameterKind.POINTER) if one.name == "x" else one for one in add_parameters())
    variants = [
        maker.variant("add", none, Specialization(facts=(("x", Fact.NONE),))),
        maker.variant("add", add_parameters()),
    ]
    kernel = maker.kernel("add", variants, defaults={"x": None})
    (function,) = functions_of([kernel], {})
    assert function.parameters[0].nullable
    assert function.parameters[0].default is None
    assert len(function.variants) == 2
    (alone,) = functions_of([maker.kernel("add", variants[:1])], {})
    assert alone.parameters[0].role is ParameterRole.NULL


def test_arrays_have_shapes_where_the_grid_reads_them():
    maker = Maker()
    kernel = maker.kernel("add", [maker.variant("add", add_parameters())], grid=SHAPED_GRID)
    found = taken(kernel)
    assert (found["x"].role, found["out"].role) == (ParameterRole.ARRAY, ParameterRole.POINTER)


@pytest.mark.parametrize(("facts", "usual"), [((), ()), ((("x", Fact.CONFIG_BLOCK),), (16, 16))])
def test_descriptors_say_their_axes_and_the_block_that_needs_no_saying(facts, usual):
    maker = Maker()
    parameters = (parameter("x", "d float16"), parameter("n", "i int32"), parameter("BLOCK", "c"))
    variants = [
        maker.variant("k", parameters, Specialization(facts=facts, constants=(("x", (16, side)),))) for side in (16, 32)
    ]
    one = taken(maker.kernel("k", variants))["x"]
    assert (one.role, one.rank, one.block) == (ParameterRole.DESCRIPTOR, 2, usual)


def test_what_no_program_in_c_can_call_is_refused():
    maker = Maker()
    executable = maker.kernel("k", [maker.variant("k", add_parameters(), kind="xla", target="tpu:v5e")])
    with pytest.raises(BundleError, match=r"kernel k cannot be exported.*tpu:v5e is of kind xla.*-k NAME.*--target"):
        functions_of([executable], {})
    for value, word in (((1, 2), "a tuple"), (FunctionValue("f", "ab"), "a function"), (1 << 70, "beyond 64 bits")):
        with pytest.raises(BundleError, match=f"its constant MODE is .*{word}"):
            functions_of([with_constants(Maker(), [value])], {})
    # No case gives it, so a heuristic of Python's did.
    case = CaseRecipe("", (("x", ArrayRecipe.of("zeros", (4,))), ("n", ScalarRecipe(4))))
    with pytest.raises(BundleError, match="MODE is computed by a heuristic that is not an expression"):
        functions_of([with_constants(Maker(), [1])], {"k": [case]})


def test_a_kernel_without_a_grid_takes_one():
    maker = Maker()
    kernel = maker.kernel("k", [maker.variant("k", add_parameters())], grid=None)
    (function,) = functions_of([kernel], {})
    assert not function.has_grid


def test_names_that_meet_are_told_apart():
    maker = Maker()
    names = ["a.b", "a_b", "open", "add", "add_warmup", "class"]
    kernels = [maker.kernel(name, [maker.variant(name, add_parameters())]) for name in names]
    found = functions_of(kernels, {})
    assert [one.name for one in found] == ["a_b", "a_b_2", "open_2", "add", "add_warmup", "class_"]
    assert len({one.c_name for one in found} | {f"{one.c_name}_warmup" for one in found}) == 2 * len(names)


def test_a_case_finds_its_signature():
    kernel = add_kernel(Maker(), elements=("float32", "float16"))
    found = functions_of([kernel], {})
    for element, name in (("float32", "add_fp32"), ("float16", "add_fp16"), ("int32", None)):
        arguments = (
            ("x", ArrayRecipe.of("zeros", (4,), element)),
            ("out", ArrayRecipe.of("zeros", (4,), element)),
            ("n", ScalarRecipe(4)),
        )
        fitting = [one.c_name for one in found if one.takes(CaseRecipe("", arguments))]
        assert fitting == ([name] if name else [])
