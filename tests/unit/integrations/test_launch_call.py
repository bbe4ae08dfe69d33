"""What a launch through Helion's seam says, read and refused before anything is compiled."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from silo.errors import ArgumentError, GridError, SiloError, UnsupportedError
from silo.integrations.helion import CallNotes, bundled_cute_launcher, default_cute_launcher
from silo.integrations.helion.launcher_call import axes, launch_marks, plain_arguments

KERNEL = SimpleNamespace(__name__="_helion_add")


def marked(**values):
    return SimpleNamespace(__name__="k", **{f"_helion_cute_{name}": value for name, value in values.items()})


def test_a_grid_and_a_block_get_ones_for_what_is_left_out():
    assert axes("grid", (16,)) == (16, 1, 1)
    assert axes("block", (32, 6)) == (32, 6, 1)
    assert axes("grid", (2, 3, 4)) == (2, 3, 4)


@pytest.mark.parametrize("value", [16, [16], (), None, "16", (1, 1, 1, 1)])
@pytest.mark.parametrize("word", ["grid", "block"])
def test_anything_but_a_tuple_of_one_to_three_is_a_value_error(word, value):
    given = {"grid": (1,), "block": (32,), word: value}
    with pytest.raises(ValueError, match=f"the {word} of a launch is a tuple") as raised:
        default_cute_launcher(KERNEL, given["grid"], block=given["block"])
    assert isinstance(raised.value, GridError)
    assert isinstance(raised.value, SiloError)


@pytest.mark.parametrize("grid", [(0,), (4, 0), (4, 2, 0), (-1,)])
def test_a_grid_without_programs_returns_before_anything_is_asked_of_the_kernel(grid):
    launch = bundled_cute_launcher({})
    assert default_cute_launcher(object(), grid, object(), block=(32,)) is None
    assert launch(object(), grid, object()) is None


def test_keywords_that_no_launcher_has_are_named():
    with pytest.raises(UnsupportedError, match=r"not num_stages, num_warps"):
        default_cute_launcher(KERNEL, (0,), num_warps=4, num_stages=2)


def test_compile_options_without_effect_on_results_are_taken_and_others_named():
    assert default_cute_launcher(KERNEL, (0,), cute_compile_options="--enable-tvm-ffi --generate-line-info") is None
    with pytest.raises(UnsupportedError, match=r"without --ptxas-options=-O1 -g --opt-level=1;"):
        default_cute_launcher(
            KERNEL, (0,), cute_compile_options="--enable-tvm-ffi --ptxas-options='-O1 -g' --opt-level=1"
        )
    with pytest.raises(ValueError, match="is a text or None, not 3"):
        default_cute_launcher(KERNEL, (0,), cute_compile_options=3)


def test_an_array_without_axes_is_one_of_a_single_element_in_the_same_memory():
    scale = np.array(2.0, dtype="float32")
    (view,) = plain_arguments(KERNEL, [scale])
    assert isinstance(view, np.ndarray)
    assert view.shape == (1,)
    view[0] = 5
    assert scale == 5


def test_arguments_are_arrays_and_numbers():
    class SymInt:
        def __int__(self):
            return 7

    array = np.zeros(3)
    assert plain_arguments(KERNEL, [array, 1, 2.5, True, SymInt()]) == (array, 1, 2.5, True, 7)
    with pytest.raises(ArgumentError, match="_helion_add: argument 1 is a str"):
        plain_arguments(KERNEL, [1, "x"])
    with pytest.raises(ArgumentError, match="argument 0 is a NoneType"):
        default_cute_launcher(KERNEL, (1,), None)


def test_marks_are_read_from_the_kernel():
    assert launch_marks(KERNEL).plain
    assert launch_marks(marked(cluster_shape=(1, 2, 1), disable_bake_tensor_shapes=True)).cluster == (1, 2, 1)
    assert launch_marks(marked(disable_bake_tensor_shapes=True)).dynamic
    assert launch_marks(marked(cluster_shape=(1, 1, 1))).cluster is None
    assert not launch_marks(marked(use_pdl=True)).plain
    assert not launch_marks(marked(min_blocks_per_mp=2)).plain
    assert launch_marks(marked(preferred_smem_carveout=25)).carveout == 25


@pytest.mark.parametrize(
    "marks",
    [
        {"cluster_shape": (2, 1)},
        {"cluster_shape": [2, 1, 1]},
        {"cluster_shape": (2, "1", 1)},
        {"cluster_shape": (0, 1, 1)},
        {"preferred_smem_carveout": "25"},
        {"min_blocks_per_mp": -1},
    ],
)
def test_marks_that_make_no_sense_are_refused(marks):
    with pytest.raises(UnsupportedError, match="k: "):
        launch_marks(marked(**marks))


def test_notes_keep_calls_and_launch_nothing():
    notes = CallNotes()
    array = np.zeros((4, 4), dtype="float32")
    notes(KERNEL, (4,), array, 64, block=(32, 4))
    (call,) = notes.calls
    assert (call.kernel, call.grid, call.block) == (KERNEL, (4, 1, 1), (32, 4, 1))
    assert call.arguments == (array, 64)
    with pytest.raises(UnsupportedError, match="not num_warps"):
        notes(KERNEL, (4,), num_warps=4)


def test_a_bundles_launcher_looks_up_by_name():
    launched = []

    class Bundled:
        def __getitem__(self, grid):
            return lambda *args: launched.append((grid, args))

    bundled_cute_launcher({"_helion_add": Bundled()})(KERNEL, (16,), 1, 2, block=(32, 32, 1))
    assert launched == [((16, 1, 1), (1, 2))]


def test_the_seam_imports_neither_helion_nor_torch_nor_the_dsl():
    code = (
        "import sys, silo.integrations.helion as helion; helion.default_cute_launcher(object(), (0,))\n"
        "print(*[one for one in ('helion', 'torch', 'cutlass', 'triton', 'numpy') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
