"""``silo build --toolchain``: environments, what is downloaded and when, and the bundle of several of them."""

import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import silo
from silo.cli.main import app
from silo.commands.build_with_toolchains import (
    Environment,
    build_with_toolchains,
    find_environment,
    made_folder,
    parse_toolchain,
)
from silo.errors import CompileError, SpaceError, ToolchainError
from silo.settings import override

KERNEL = """
import silo
import triton
import triton.language as tl


@silo.kernel(grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), space={"BLOCK": [128, 256]}, key=["n"])
@triton.jit
def k(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@k.cases(n=[500])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 2})
"""


@pytest.fixture(autouse=True)
def _store(tmp_path):
    with override(home=str(tmp_path / "store")):
        yield


def wheel(folder, text="value = 1\n"):
    """A wheel of a package without code of its own to run, as an index would have it."""
    path = folder / "madeup_compiler-1.5-py3-none-any.whl"
    info = "madeup_compiler-1.5.dist-info"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("madeup_compiler.py", text)
        made.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: madeup-compiler\nVersion: 1.5\nRequires-Dist: nothing-of-that-name\n",
        )
        made.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        made.writestr(f"{info}/RECORD", f"madeup_compiler.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """pip looks in a folder alone, whatever it is set up for."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.parametrize("text", ["triton", "triton>=3", "==3", "a=", "-r=x==1", "triton==3 --index-url=x", "x y=/z"])
def test_what_names_no_toolchain_is_refused(text):
    with pytest.raises(ToolchainError, match=r"name a package with its version"):
        parse_toolchain(text)


def test_a_package_of_this_environment_needs_no_other():
    name = parse_toolchain(f"click=={version('click')}")
    found = find_environment(name, download=False, report=pytest.fail)
    assert (found.python, found.packages) == (sys.executable, "")


def test_nothing_is_downloaded_unasked_and_the_message_names_what_and_where(index):
    wheel(index)
    name = parse_toolchain("madeup_compiler==1.5")
    with pytest.raises(ToolchainError) as refused:
        find_environment(name, download=False, report=pytest.fail)
    assert "--download" in str(refused.value)
    assert str(made_folder(name)) in str(refused.value)
    assert "madeup_compiler==1.5" in str(refused.value)
    assert not made_folder(name).parent.exists()


def test_a_download_is_announced_and_kept(index):
    wheel(index)
    name, lines = parse_toolchain("madeup_compiler==1.5"), []
    found = find_environment(name, download=True, report=lines.append)
    assert len(lines) == 1
    assert str(made_folder(name)) in lines[0]
    assert (Path(found.packages) / "madeup_compiler.py").read_text() == "value = 1\n"
    with found.variables() as variables:
        code = "import madeup_compiler, silo; print(madeup_compiler.value, silo.__file__)"
        shown = subprocess.run(
            [found.python, "-P", "-c", code], env=variables, capture_output=True, text=True, check=True
        )
    assert shown.stdout.startswith("1 ")
    again = find_environment(name, download=False, report=pytest.fail)  # not twice
    assert again == found
    assert sorted(one.name for one in made_folder(name).parent.iterdir()) == [made_folder(name).name]


def test_a_folder_that_others_can_write_is_not_used(index):
    wheel(index)
    name = parse_toolchain("madeup_compiler==1.5")
    find_environment(name, download=True, report=lambda _: None)
    for place in (made_folder(name), made_folder(name).parent):
        place.chmod(0o777)
        with pytest.raises(ToolchainError, match="code that others wrote could run"):
            find_environment(name, download=True, report=pytest.fail)
        place.chmod(0o700)
    find_environment(name, download=False, report=pytest.fail)


def test_without_a_network_the_error_names_the_cure_and_leaves_nothing(index):
    name = parse_toolchain("madeup-compiler==1.5")
    with pytest.raises(ToolchainError, match=r"is the package index within reach\?.*\n.*ERROR") as refused:
        find_environment(name, download=True, report=lambda _: None)
    assert "=/path/to/venv" in str(refused.value)
    assert list(made_folder(name).parent.iterdir()) == []


def test_a_folder_without_a_python_is_refused(tmp_path):
    with pytest.raises(ToolchainError, match="this folder has no bin/python"):
        find_environment(parse_toolchain(f"old={tmp_path}"), download=False, report=pytest.fail)


def test_bad_choices_are_refused_before_anything_is_compiled(tmp_path):
    here, output = f"here={sys.prefix}", tmp_path / "k.silo"
    with pytest.raises(ToolchainError, match="two toolchains have one name"):
        build_with_toolchains([tmp_path / "k.py"], output, [here, here])
    with pytest.raises(SpaceError):
        build_with_toolchains([tmp_path / "k.py"], output, [here], configs="few")
    with override(deterministic=True), pytest.raises(ToolchainError, match="deterministic mode"):
        build_with_toolchains([tmp_path / "k.py"], output, [here, f"other={sys.prefix}"])
    with pytest.raises(SystemExit) as ended:
        app(["build", str(tmp_path / "k.py"), "-o", str(output), "--download"])
    assert ended.value.code == 2


def test_an_error_of_an_environments_build_is_shown(tmp_path):
    source = tmp_path / "broken_kernels.py"
    source.write_text("import silo\nraise RuntimeError('not today')\n")
    with pytest.raises(CompileError, match=r"(?s)the build with here \(.*not today"):
        build_with_toolchains([source], tmp_path / "k.silo", [f"here={sys.prefix}"])
    assert not (tmp_path / "k.silo").exists()


def test_the_builds_of_the_environments_are_joined_and_measured(tmp_path, monkeypatch):
    pytest.importorskip("triton", reason="it compiles a Triton kernel")
    source = tmp_path / "toolchain_kernels.py"
    source.write_text(KERNEL)
    both, one = tmp_path / "both.silo", tmp_path / "one.silo"
    silo.build(source, output=one, tune="off", configs="all")
    asked = []

    def copied(self, arguments):
        asked.append(arguments)
        shutil.copy(one, arguments[arguments.index("-o") + 1])
        return subprocess.CompletedProcess(
            arguments, 0, '{"compiled": 2, "reused": 1, "remarks": [], "left_out": []}', ""
        )

    monkeypatch.setattr(Environment, "run", copied)
    names = [f"one={sys.prefix}", f"other={sys.prefix}"]
    summary = build_with_toolchains([source], both, names, tune="off")
    assert (summary.compiled, summary.reused) == (4, 2)
    assert [row.measured for row in summary.rows] == ["first toolchain"]
    assert one.read_bytes() == both.read_bytes()  # equal compilers make the bundle of one
    summary = build_with_toolchains([source], both, names, tune="auto")
    assert [row.measured for row in summary.rows] == ["measured"]
    assert [words[words.index("--tune") + 1] for words in asked] == ["off"] * 4
    assert "--configs" in asked[-1]
    assert "--configs" not in asked[0]
    with pytest.raises(ToolchainError, match="used no numpy"):  # kernels of Triton are not compiled by it
        build_with_toolchains([source], both, [f"numpy=={version('numpy')}"], tune="off")


@pytest.mark.all
@pytest.mark.skipif(not Path(".venv-triton36/bin/python").exists(), reason="needs .venv-triton36 (scripts/test)")
def test_two_versions_of_triton_in_one_bundle_that_is_tuned(tmp_path):
    import numpy as np

    import silo

    source = tmp_path / "toolchain_kernels.py"
    source.write_text(KERNEL)
    output = tmp_path / "k.silo"
    old = Path(".venv-triton36").absolute()
    summary = build_with_toolchains([source], output, [f"old={old}", f"here={sys.prefix}"])
    assert [row.measured for row in summary.rows] == ["measured"]
    assert any("triton 3.6" in line for line in summary.remarks)
    one, other = tmp_path / "one.silo", tmp_path / "other.silo"
    build_with_toolchains([source], one, [f"here={sys.prefix}"], tune="off")
    silo.build(source, output=other, tune="off")
    assert one.read_bytes() == other.read_bytes()
    x, out = np.arange(500, dtype=np.float32), np.zeros(500, np.float32)
    silo.load(output).k(x, out, 500)  # built here: no consent is needed
    assert (out == 2 * x).all()
