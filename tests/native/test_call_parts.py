"""The parts of a call that need no Python, as C programs of their own under the sanitizers."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CORE = HERE.parents[1] / "native" / "core"
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
CALL = (
    *("parameter.c", "dtypes.c", "error.c", "expression.c", "grid.c", "packing.c", "layout.c", "shape.c"),
    *("descriptor.c", "tensor_map.c"),
)


def check(folder: Path, program: str, sources: tuple[str, ...], sanitizer: str) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc and its sanitizers")
    flags = ["-std=c11", "-D_GNU_SOURCE=1", "-O1", "-g", *WARNINGS, "-pthread", f"-I{CORE}"]
    flags += [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    files = [str(HERE / program), *(str(CORE / name) for name in sources)]
    output = folder / "check"
    built = subprocess.run([compiler, *flags, *files, "-o", str(output)], capture_output=True, text=True, check=False)
    if "cannot find" in built.stderr and "san" in built.stderr:
        pytest.skip("gcc has no such library here")
    assert built.returncode == 0, built.stderr[-3000:]
    done = subprocess.run([str(output)], capture_output=True, text=True, check=False, timeout=120)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address layout is none that ThreadSanitizer knows")
    assert done.stdout == "ok\n", done.stderr[-3000:]
    assert done.returncode == 0


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_the_guard_is_read_without_a_lock_while_it_grows(tmp_path, sanitizer):
    check(tmp_path, "guard_check.c", ("guard.c", "expression.c"), sanitizer)


def test_words_grids_packing_layouts_shapes_and_maps(tmp_path):
    check(tmp_path, "call_check.c", CALL, "address,undefined")
