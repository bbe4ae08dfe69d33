"""The parts of a call that need no Python, as C programs of their own under the sanitizers."""

import ctypes
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from core_native import compiler
from libsilo import Error
from sanitized_program import build_sanitized, run_sanitized
from silo.core.launch_info import TensorMap
from silo.launch.descriptors import map_problem

HERE = Path(__file__).parent
CORE = HERE.parents[1] / "native" / "core"
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
CALL = (
    *("parameter.c", "dtypes.c", "error.c", "expression.c", "grid.c", "packing.c", "layout.c", "shape.c"),
    *("descriptor.c", "tensor_map.c", "struct_form.c", "dynamic_layout.c"),
)


def check(folder: Path, program: str, sources: tuple[str, ...], sanitizer: str) -> None:
    flags = ["-std=c11", "-D_GNU_SOURCE=1", "-O1", "-g", *WARNINGS, "-pthread", f"-I{CORE}"]
    flags += [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    files = [HERE / program, *(CORE / name for name in sources)]
    assert run_sanitized(build_sanitized(folder / "check", compiler("gcc"), *flags, *files)) == "ok\n"


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_the_guard_is_read_without_a_lock_while_it_grows(tmp_path, sanitizer):
    check(tmp_path, "guard_check.c", ("guard.c", "expression.c"), sanitizer)


def test_words_grids_packing_layouts_shapes_and_maps(tmp_path):
    check(tmp_path, "call_check.c", CALL, "address,undefined")


def test_structs_are_written_byte_for_byte(tmp_path):
    sources = ("dtypes.c", "error.c", "packing.c", "descriptor.c", "struct_form.c", "dynamic_layout.c", "shape.c")
    check(tmp_path, "struct_check.c", sources, "address,undefined")


class MapForm(ctypes.Structure):
    _fields_ = [
        ("element_type", ctypes.c_int32),
        ("element_bytes", ctypes.c_uint32),
        ("swizzle", ctypes.c_int32),
        ("rank", ctypes.c_uint32),
        ("box", ctypes.c_uint32 * 5),
        ("fp4_padded", ctypes.c_uint32),
    ]


def test_c_and_python_refuse_the_same_tensor_maps_in_the_same_words(tmp_path):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    rest = tmp_path / "rest.c"
    rest.write_text("int silo_gpu_fail(void) { return -1; }\n")  # of drivers, which a check does not ask
    output = tmp_path / "maps.so"
    files = [str(CORE / "tensor_map.c"), str(CORE / "error.c"), str(rest)]
    subprocess.run(
        [compiler, "-std=c11", "-O1", "-shared", "-fPIC", f"-I{CORE}", *files, "-o", str(output)], check=True
    )
    library = ctypes.CDLL(str(output))
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
