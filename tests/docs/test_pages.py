"""The pages run: Python blocks as one program a page, `silo` lines of shell blocks.

A line that compiles every example does so in ``scripts/test --all``; in other runs it has one example, the rest of the
line as written.
"""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

import warm_python
from emulator_jobs import require_clang
from repetitions import EVERYTHING
from silo.kinds.triton.cpu.operations_page import updated
from triton_entry import SILO, entry_folder

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    return [text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


# Their kernels need NVRTC, the CuTe DSL, and jax: test_cuda_page.py, test_cute_page.py, test_pallas_page.py,
# test_jax_page.py. Tutorials' blocks are files: test_tutorials.py.
ELSEWHERE = (
    "cuda.md",
    "cute.md",
    "pallas.md",
    "pallas-on-gpus.md",
    "jax.md",
    *(page.name for page in (ROOT / "docs").glob("tutorial-*.md")),
)
# One kernel stands for all of a file where a run is not to take minutes.
EVERY_EXAMPLE = re.compile(r"silo (build|check) examples/kernels\.py(?!.* --kernel )")
# Pages that build and tune the same kernels and only add to a store: whichever comes second compiles next to nothing.
ONE_STORE = (
    "README.md",
    "quickstart.md",
    "c-and-cpp.md",
    "cross-compiling.md",
    "deploying.md",
    "keeping.md",
    "reports.md",
)


def environment(home, store):
    bin_folder = str(Path(sys.executable).parent)
    path = [str(entry_folder(home.parent, SILO)), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),  # Triton finds Silo however old the metadata of this checkout is
        "SILO_TRITON": "cpu",
        "TRITON_CACHE_DIR": str(home / "triton"),
        "SILO_HOME": str(store),
        "SILO_TUNE_BUDGET": "1",
        "PATH": bin_folder + os.pathsep + os.environ["PATH"],
    }


def run(command, folder, store=None):
    home = folder / "home"
    place = environment(home, store or home)
    return warm_python.run(command, cwd=folder, env=place, capture_output=True, text=True)


def pages_with(language):
    return [pytest.param(page, id=page.name) for page in PAGES if blocks(page, language) and page.name not in ELSEWHERE]


@pytest.mark.parametrize("page", pages_with("python"))
def test_python_blocks_run(page, tmp_path):
    pytest.importorskip("triton", reason="the pages compile Triton kernels")
    if page.name in ("metal.md", "cuda-cpp-cpu.md"):
        require_clang()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    result = run([sys.executable, str(program)], tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("sh"))
def test_silo_commands_run(page, tmp_path, tmp_path_factory):
    pytest.importorskip("triton", reason="the pages compile Triton kernels")
    if page.name == "security.md":
        pytest.importorskip("cryptography", reason="signatures need kernel-silo[sign]")
    store = tmp_path_factory.getbasetemp().parent / "store-of-pages" if page.name in ONE_STORE else None
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    lines = [line for text in blocks(page, "sh") for line in text.splitlines() if line.startswith("silo ")]
    if not lines:
        pytest.skip("no silo commands on this page")
    for line in lines:
        words = shlex.split(line if EVERYTHING else EVERY_EXAMPLE.sub(r"\g<0> --kernel add", line), comments=True)
        result = run([sys.executable, "-m", "silo", *words[1:]], tmp_path, store)
        assert result.returncode == 0, f"{line}\n{result.stdout}{result.stderr}"


def test_the_operations_table_is_current():
    page = (ROOT / "docs" / "cpu.md").read_text(encoding="utf-8")
    assert updated(page) == page, "run python -m silo.kinds.triton.cpu.operations_page"
