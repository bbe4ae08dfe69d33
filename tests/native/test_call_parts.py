"""The parts of a call that need no Python, as C programs of their own under the sanitizers."""

import ctypes
import random
from pathlib import Path

import pytest

import core_native
from libsilo import Error
from native_builds import ADDRESS, CORE, THREAD, archive
from sanitized_program import build_sanitized, run_sanitized
from silo.core.launch_info import TensorMap
from silo.launch.array_parts import map_problem

HERE = Path(__file__).parent


def check(folder: Path, program: str, flags: tuple[str, ...]) -> None:
    words = (*flags, f"-I{CORE}", HERE / program, archive(flags), "-ldl", "-lm", "-pthread")
    assert run_sanitized(build_sanitized(folder / "check", core_native.compiler("gcc"), *words)) == "ok\n"


@pytest.mark.parametrize("flags", [THREAD, ADDRESS], ids=["thread", "address"])
def test_the_guard_is_read_without_a_lock_while_it_grows(tmp_path, flags):
    check(tmp_path, "guard_check.c", flags)


def test_words_grids_packing_layouts_shapes_and_maps(tmp_path):
    check(tmp_path, "call_check.c", ADDRESS)


def test_structs_are_written_byte_for_byte(tmp_path):
    check(tmp_path, "struct_check.c", ADDRESS)


class MapForm(ctypes.Structure):
    _fields_ = [
        ("element_type", ctypes.c_int32),
        ("element_bytes", ctypes.c_uint32),
        ("swizzle", ctypes.c_int32),
        ("rank", ctypes.c_uint32),
        ("box", ctypes.c_uint32 * 5),
        ("fp4_padded", ctypes.c_uint32),
    ]


def test_c_and_python_refuse_the_same_tensor_maps_in_the_same_words():
    library = core_native.library()
    source = random.Random(7)
    refused = 0
    for _ in range(3000):
        box = tuple(source.choice((1, 2, 4, 8, 16, 64, 256, 257)) for _ in range(source.randint(1, 5)))
        form = TensorMap(
            "x",
            swizzle=source.randrange(5),
            element_type=source.randrange(18),
            element_bytes=source.choice((1, 2, 4, 8)),
            box=box,
        )
        in_c = MapForm(form.element_type, form.element_bytes, form.swizzle, len(box), box)
        error = Error()
        result = library.silo_map_form_check(ctypes.byref(in_c), ctypes.byref(error))
        problem = map_problem(form)
        assert (error.text.decode() if result else None) == problem
        refused += result != 0
    assert 500 < refused < 2900
