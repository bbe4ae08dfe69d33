"""The host functions of CuTe kernels, traced and compiled for GPUs that are not here. Needs the DSL, no GPU."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import importlib.util
import operator
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

import cutlass

import cute_kernels as kernels
from silo.compile.toolchain import select_compiler
from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.device import Target
from silo.core.extents import DynamicLayout, Extents
from silo.core.launch_info import ABI_BYTES, AbiType
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.errors import CompileError, SourceError, UnsupportedError
from silo.frozen import replace
from silo.kinds.cute.front.cute_installation import FRONT_END
from silo.kinds.cute.front.cute_source import Layouts, cute
from silo.kinds.cute.front.wrapping import Form, WrapperParameter

FLAT = ("float32", (1000,), (1,))
ADD = {"x": FLAT, "y": FLAT, "out": FLAT, "n": 1000}


def variant_of(source, given, *, address=0, arch="sm_90a", **config):
    """A variant of a call with arrays ``(dtype, shape, strides)`` and scalars."""
    arrays = {name: one for name, one in given.items() if isinstance(one, tuple)}
    facts = {name: ArgumentFacts(source.constant(one)) for name, one in given.items() if name not in arrays}
    for name, (element, shape, strides) in arrays.items():
        facts[name] = replace(ArgumentFacts.array(element, address), shape=shape, strides=strides)
    signature, found = source.specialize(facts)

    def held(element, shape, strides):
        if source.layouts is Layouts.STATIC:
            return Extents(shape, strides)
        return DynamicLayout.of(shape, strides, dtype(element).bits)

    names = () if source.extents is None else source.extents.names
    extents = tuple((name, held(*one)) for name, one in arrays.items() if name in names)
    return Variant(
        kernel=source.name,
        source=source.fingerprint,
        signature=signature,
        specialization=replace(found, extents=extents),
        config=Config.of(config),
        target=Target.parse(f"cuda:{arch}"),
    )


def wrapper_of(source, given, **config):
    with FRONT_END:
        return source.wrapper(variant_of(source, given, **config))


def lowered(source, given, **config):
    variant = variant_of(source, given, **config)
    return select_compiler("cute", variant.target).lower(source, variant).job


def built(source, given, **config):
    variant = variant_of(source, given, **config)
    compiler = select_compiler("cute", variant.target)
    return compiler.compile(compiler.lower(source, variant).job)


def slots(made):
    return [(slot.name, slot.type.value) for slot in made.launch.layout]


# -- static layouts --------------------------------------------------------------------------------------------------


def test_the_wrapper_of_a_kernel_is_text_without_a_path():
    source = cute(kernels.add, block="BLOCK", cluster=(2, 1), smem=512, host="dsl").source
    wrapper = wrapper_of(source, ADD, BLOCK=256)
    array, scalar = dtype("float32"), dtype("int32")
    assert wrapper.parameters == (
        *(WrapperParameter(name, Form.POINTER, array) for name in ("x", "y", "out")),
        WrapperParameter("n", Form.SCALAR, scalar),
    )
    assert (wrapper.written, wrapper.stream, len(wrapper.arguments)) == (True, True, 8)
    assert (wrapper.block, wrapper.cluster, wrapper.smem) == ((256, 1, 1), (2, 1, 1), 512)
    assert wrapper.text == (
        "@cute.jit\n"
        "def silo_launch(x, y, out, n, silo_grid_x, silo_grid_y, silo_grid_z, silo_stream):\n"
        '    silo_kernel(x, y, out, n, silo_constants["BLOCK"]).launch(grid=(silo_grid_x, silo_grid_y, silo_grid_z), '
        'block=silo_options["block"], cluster=silo_options["cluster"], smem=silo_options["smem"], '
        "stream=silo_stream)\n"
    )


def test_every_array_is_one_pointer():
    made = built(cute(kernels.add, block="BLOCK").source, ADD, BLOCK=256)
    assert slots(made) == [("x", "ptr"), ("y", "ptr"), ("out", "ptr"), ("n", "i32")]
    assert made.launch.block == (256, 1, 1)


def test_jobs_are_the_same_in_every_folder(tmp_path):
    def imported(folder, above=""):
        path = tmp_path / folder / "cute_kernels_moved.py"
        path.parent.mkdir()
        path.write_text(above + Path(kernels.__file__).read_text(encoding="utf-8"), encoding="utf-8")
        spec = importlib.util.spec_from_file_location("cute_kernels_moved", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    one, other = imported("one"), imported("another", "\n# further down\n\n")
    for made in ("add", "Scaled"):
        given = ADD if made == "add" else {"x": FLAT, "out": FLAT, "n": 3, "block": 64}
        said = {"block": 128} if made == "add" else {}
        config = {"BLOCK": 128} if made == "add" else {}
        jobs = [lowered(cute(getattr(module, made), **said).source, given, **config) for module in (one, other, one)]
        assert jobs[0] == jobs[1] == jobs[2]
        assert str(tmp_path) not in jobs[0].text


@pytest.mark.parametrize(
    ("element", "address", "alignment"), [("float32", 16, 16), ("float32", 4, 4), ("float16", 2, 2), ("int8", 1, 1)]
)
def test_the_alignment_is_exact(element, address, alignment):
    flat = (element, (64,), (1,))
    made = built(cute(kernels.add, block=64).source, {**dict.fromkeys(("x", "y", "out"), flat), "n": 64},
                 BLOCK=64, address=address)  # fmt: skip
    said = set(re.findall(r"gmem(?:align(\d+))?o", made.launch.entry))
    assert said == ({str(alignment)} if alignment > dtype(element).itemsize else {""})


def test_shapes_and_strides_are_part_of_the_code():
    source = cute(kernels.row_sum, block="THREADS").source
    rows, sums = ("bfloat16", (64, 100), (128, 1)), ("float32", (64,), (1,))
    columns = ("bfloat16", (64, 100), (1, 64))
    jobs = {lowered(source, {"x": one, "out": sums}, THREADS=32).text for one in (rows, columns)}
    assert len(jobs) == 2
    made = built(source, {"x": rows, "out": sums}, THREADS=32)
    assert (slots(made), made.launch.threads) == ([("x", "ptr"), ("out", "ptr")], 32)


def test_an_array_that_is_none_is_not_a_parameter():
    source = cute(kernels.first, block=1).source
    assert slots(built(source, {"x": FLAT, "out": FLAT, "bias": None})) == [("x", "ptr"), ("out", "ptr")]
    assert slots(built(source, {"x": FLAT, "out": FLAT, "bias": FLAT}))[2:] == [("bias", "ptr")]


def test_a_pointer_has_no_layout():
    made = built(cute(kernels.at, block=1).source, {"p": FLAT, "out": FLAT, "i": 2**40, "by": 1.5})
    assert slots(made) == [("p", "ptr"), ("out", "ptr"), ("i", "i64"), ("by", "fp32")]


# -- dynamic layouts -------------------------------------------------------------------------------------------------


def test_dynamic_layouts_are_structs_of_what_is_passed():
    source = cute(kernels.row_sum, block="THREADS", layouts="dynamic").source
    given = {"x": ("bfloat16", (64, 100), (128, 1)), "out": ("float32", (64,), (3,))}
    wrapper = wrapper_of(source, given, THREADS=32)
    assert [one.form for one in wrapper.parameters] == [Form.TENSOR, Form.TENSOR]
    pointer, word = AbiType.POINTER, AbiType.I32
    assert wrapper.parameters[0].leaves == ((pointer, ""), (word, "shape.0"), (word, "shape.1"), (word, "stride.0"))
    assert wrapper.parameters[1].leaves == ((pointer, ""), (word, "shape.0"), (word, "stride.0"))
    made = built(source, given, THREADS=32)
    for slot, one in zip(made.launch.layout, wrapper.parameters, strict=True):
        assert tuple((leaf.type, leaf.part) for leaf in slot.leaves) == one.leaves
    assert all(leaf.type in ABI_BYTES for slot in made.launch.layout for leaf in slot.leaves)


def test_one_code_serves_shapes_that_have_the_same_layout():
    source = cute(kernels.add, block=128, layouts="dynamic").source

    def job(size, step=1):
        return lowered(source, {**dict.fromkeys(("x", "y", "out"), ("float32", (size,), (step,))), "n": 3}, BLOCK=128)

    assert job(64) == job(128)
    assert len({job(64).text, job(63).text, job(64, 2).text, job(2**40).text}) == 4


# -- what the author launches ----------------------------------------------------------------------------------------


def test_a_host_function_is_the_authors():
    source = cute(kernels.add_on_host).source
    wrapper = wrapper_of(source, ADD, BLOCK=128)
    assert (wrapper.written, wrapper.text, wrapper.function) == (False, "", kernels.add_on_host)
    assert wrapper.arguments[-1] == 128
    assert [one.name for one in wrapper.parameters] == ["x", "y", "out", "n"]
    made = built(source, ADD, BLOCK=128)
    assert slots(made) == [("x", "ptr"), ("y", "ptr"), ("out", "ptr"), ("n", "i32")]
    assert made.launch.block == (128, 1, 1)


def test_kernel_objects_and_their_classes_make_the_same_code():
    given = {"x": FLAT, "out": ("float16", (1000,), (1,)), "n": 3}
    kept = kernels.Scaled(64, dtype=cutlass.Float16)
    before = dict(vars(kept))
    of_object = built(cute(kept).source, given)
    assert vars(kept) == before  # tracing leaves values in the object that it is done with
    of_class = built(
        cute(kernels.Scaled, space={"block": [32, 64]}).source, {**given, "dtype": dtype("float16")}, block=64
    )
    assert of_object.blob.data == of_class.blob.data
    assert built(cute(kernels.Scaled).source, {**given, "block": 32}).launch.threads == 32


def test_a_config_that_the_class_refuses_costs_itself_alone():
    source = cute(kernels.Scaled, space={"block": [48, 64]}).source
    given = {"x": FLAT, "out": FLAT, "n": 3}
    with pytest.raises(CompileError, match=r"Scaled\(block=48, .*ValueError: a block of 48 threads") as raised:
        built(source, given, block=48)
    assert "\n" not in str(raised.value)
    assert built(source, given, block=64).blob.data


def test_a_constant_without_a_value_is_an_error():
    with pytest.raises(SourceError, match=r"add .* the constant BLOCK has no value: pass it, or let the space set it"):
        built(cute(kernels.add, block=128).source, ADD)


def test_functions_and_dtypes_are_constants():
    source, given = cute(kernels.apply, block=128).source, {"x": FLAT, "out": FLAT}
    made = [built(source, {**given, "op": op}).blob.data for op in (operator.neg, kernels.plus_offset, operator.neg)]
    assert made[0] == made[2] != made[1]


def test_a_host_function_that_only_the_driver_reads_takes_no_stream():
    wrapper = wrapper_of(cute(kernels.add, block="BLOCK").source, ADD, BLOCK=128)
    assert (wrapper.stream, len(wrapper.arguments)) == (False, 7)
    assert "silo_stream" not in wrapper.text


@pytest.mark.parametrize(("layouts", "array"), [("static", "ptr"), ("dynamic", "struct")])
def test_a_host_function_may_take_a_stream_and_numbers_of_pythons(layouts, array):
    given = {"x": FLAT, "out": FLAT, "rows": 3, "scale": 1.5}
    made = built(cute(kernels.on_a_stream, layouts=layouts).source, given)
    assert slots(made) == [("x", array), ("out", array), ("rows", "i32"), ("scale", "fp32")]


def test_a_method_that_is_a_kernel_keeps_its_object():
    bodies = [kernels.Scaled(64, factor).body for factor in (2.0, 3.0)]
    sources = [cute(body, block=64).source for body in bodies]
    assert sources[0].fingerprint != sources[1].fingerprint
    one, other = (built(source, {"x": FLAT, "out": FLAT, "n": 3}).blob.data for source in sources)
    assert one != other


# -- the code that launches -------------------------------------------------------------------------------------------

DOUBLED = {"x": FLAT, "out": FLAT, "rows": 3, "scale": 1.5}


def test_the_dsl_launches_what_the_driver_cannot_and_one_line_has_the_reason(caplog):
    pytest.importorskip("tvm_ffi", reason="tvm-ffi is not installed")
    source = cute(kernels.doubled).source
    with caplog.at_level("WARNING", "silo"):
        made = [built(source, DOUBLED, arch=arch) for arch in ("sm_80", "sm_90a")]
    assert [one.blob.kind for one in made] == ["cuteobj", "cuteobj"]
    assert source.in_library
    (line,) = [one.message for one in caplog.records if "host code" in one.message]
    assert "doubled" in line
    assert "made by the host function from scale" in line


def test_the_driver_launches_what_it_can():
    source = cute(kernels.on_a_stream).source
    assert built(source, DOUBLED).blob.kind == "cubin"
    assert not source.in_library


@pytest.mark.parametrize(("function", "options"), [(kernels.doubled, {"host": "silo"}), (kernels.unstreamed, {})])
def test_native_code_is_not_chosen_against_the_author_or_without_a_stream(function, options):
    with pytest.raises(UnsupportedError, match=r'made by the host function from scale.*host="dsl"'):
        built(cute(function, **options).source, DOUBLED)


def test_the_stride_of_an_axis_of_one_element_takes_no_alignment_from_the_code():
    stack = {"x": ("float16", (64, 32, 1), (32, 1, 1)), "out": FLAT, "rows": 3, "scale": 1.5}
    wrapper = wrapper_of(cute(kernels.on_a_stream).source, stack)
    assert str(wrapper.arguments[0]) == "FakeTensor<Float16, (64, 32, 1), (32, 1, 2048)>"


# -- mistakes of the author ------------------------------------------------------------------------------------------


def test_a_runtime_value_where_a_constexpr_is_declared_says_so():
    cure = "a value of each call where it declares a Constexpr: pass it a constant, or declare the parameter with"
    with pytest.raises(CompileError, match=cure) as raised:
        built(cute(kernels.passes_a_value).source, {"x": FLAT, "n": 3})
    assert "\x1b" not in str(raised.value)


# -- threads ---------------------------------------------------------------------------------------------------------


def test_threads_lower_one_at_a_time():
    source = cute(kernels.add, block="BLOCK").source
    asked = [(block, arch) for block in (32, 64, 128, 256) for arch in ("sm_80", "sm_90a", "sm_100a", "sm_120a")]
    alone = {one: lowered(source, ADD, BLOCK=one[0], arch=one[1]).text for one in asked}
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(
            lambda one: lowered(cute(kernels.add, block="BLOCK").source, ADD, BLOCK=one[0], arch=one[1]).text, asked
        )
        assert dict(zip(asked, found, strict=True)) == alone


def test_silo_cute_imports_no_dsl_where_the_kernel_does_not():
    program = (
        "import silo, sys; silo.cute; import silo.kinds.cute.front.cute_source; assert 'cutlass' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
