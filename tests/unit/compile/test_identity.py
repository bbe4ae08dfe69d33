"""A compiler's identity changes with everything that affects its output: entries of an old identity are not found."""
# ruff: noqa: E402  # the imports below need Triton

import ast
import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed")

import silo
from silo.compile.c_compiler import CCompiler
from silo.compile.toolchain import Toolchain
from silo.core.config import Config
from silo.core.device import DeviceModel, Target
from silo.core.plugins import shipped_places
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.variant import CompileJob, Variant
from silo.drivers.cpu.levels import host_target, level_of
from silo.kinds.triton.cpu import cpu_identity
from silo.kinds.triton.cpu import object_build as build
from silo.kinds.triton.front.adapter import triton_toolchain as installation
from silo.settings import override
from silo.tuner.trial import Study

COMPILERS = {
    "binary": [Target.parse("cuda:sm_90")],
    "cpu": [host_target()],
    "triton": [Target.parse("cuda:sm_90"), Target.parse("hip:gfx942")],
}
OF_TRITON = ("cpu", "triton")
PAIRS = [(name, target) for name, targets in COMPILERS.items() for target in targets]
WITH_TRITON = [pair for pair in PAIRS if pair[0] in OF_TRITON]
SOURCE = Path(silo.__file__).parent

pytestmark = pytest.mark.usefixtures("_as_installed")


@pytest.fixture
def _as_installed(monkeypatch):
    """Nothing of the environment, and nothing remembered."""
    for name in [one for one in os.environ if one.startswith(installation._PREFIXES)]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(installation, "_installation", installation._Installation)


def identity(name, target):
    return Toolchain().compiler(name).identity(target)


def keys(compiler):
    """The keys of all entries that contain an identity: artifacts, outcomes of jobs, trials."""
    target, signature, facts = Target.parse("cuda:sm_90"), Signature(()), Specialization()
    variant = Variant("k", "source", signature, facts, Config(), target)
    device = DeviceModel("nvidia", "H100", "sm_90", 132, 80 << 30)
    study = Study("k", "source", signature, facts, target, compiler, (), (), device, "policy")
    return {variant.artifact_key(compiler), CompileJob("c", "k", target, "", {}).key(compiler), study.key}


def test_every_compiler_is_looked_at_here():
    # Their tools are not installed everywhere that Triton is: tests/unit/kinds/cuda_cpp, cute, metal and pallas.
    elsewhere = {"cudacpu", "cute", "hipclang", "metal", "metalcpu", "nvrtc", "pallas"}
    assert set(shipped_places("silo.compilers")) | {"metal"} == set(COMPILERS) | elsewhere


@pytest.mark.parametrize(("name", "target"), PAIRS, ids=str)
def test_it_is_stable_one_line_and_free_of_paths(name, target):
    found = identity(name, target)
    assert found == identity(name, target)
    assert "/" not in found
    assert "\n" not in found


def test_everything_kept_is_under_it():
    assert not keys("one") & keys("other")


# -- Silo's own code -------------------------------------------------------------------------------------------------

# In a copy of Silo: the identities as they are, and after each of some edits, which are undone. Beside them the digests
# of the code of every compiler, because the identities of some need tools that are not installed everywhere.
EDITED = """
import json, sys
from pathlib import Path
import silo
from silo.compile.identity import code_digest
from silo.compile.toolchain import Toolchain
from silo.core.plugins import load_place, shipped_places
from silo.core.device import Target

root = Path(silo.__file__).parent
assert str(root) == sys.argv[1], root

def identities():
    code_digest.cache_clear()
    found = {name: code_digest(*load_place(place).code) for name, place in shipped_places("silo.compilers").items()}
    for name, target in json.loads(sys.argv[2]):
        found[f"{name} {target}"] = Toolchain().compiler(name).identity(Target.parse(target))
    return found

found = {"": identities()}
for edit, files in json.loads(sys.stdin.read()).items():
    kept = {file: (root / file).read_bytes() for file in files}
    for file, text in files.items():
        (root / file).write_text(text, encoding="utf-8")
    found[edit] = identities()
    for file, text in kept.items():
        (root / file).write_bytes(text)
print(json.dumps(found))
"""

FILES = {
    "kinds/binary/binary_compiler.py": {"binary"},
    "kinds/binary/binary_source.py": {"binary"},
    "artifacts/binary_inspection.py": {"binary", "cute", "hipclang", "nvrtc", "triton"},
    "kinds/triton/gpu/gpu_compiler.py": {"triton"},
    "kinds/triton/front/gpu_layout.py": {"cpu", "triton"},
    "kinds/triton/front/operations/tt.py": {"cpu", "triton"},
    "kinds/triton/front/operations/cpu/c_arith.py": {"cpu"},
    "kinds/triton/front/operations/nvidia/ptx.py": {"cpu"},
    "kinds/triton/cpu/object_build.py": {"cpu"},
    "kinds/triton/cpu/runtime/fp8.h": {"cpu"},
    "kinds/cute/cute_compiler.py": {"cute"},
    "kinds/pallas/pallas_compiler.py": {"pallas"},
    "kinds/cuda_cpp/cpu/cpu_text.py": {"cudacpu"},
    "kinds/metal/metal_compiler.py": {"metal", "metalcpu"},
    "kinds/metal/runtime/metal_math": {"metal", "metalcpu"},
    "emulation/runtime/checking/check_state.h": {"cudacpu", "metal", "metalcpu"},
    "cli/main.py": set(),
}


def _changed(file, text):
    """The text of a file with one more constant."""
    return text + ("\nEDITED = 1\n" if file.endswith(".py") else "\n#define SILO_EDITED 1\n")


def _touched(name, text):
    """The text of a file with other comments, documentation and layout."""
    if not name.endswith(".py"):
        return "/* A comment. */\n" + text.replace("\n", "  \n\n", 1) + "\n// at the end\n"
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Expr(ast.Constant("Another."))
    return "# A comment.\n" + ast.unparse(tree)  # with other quotes, line breaks and parentheses


def _install(folder):
    """Writes the plug-in entries of an installer: in some test environments Silo is only on the import path."""
    groups = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "entry-points"
    ]
    lines = [
        line for name, points in groups.items() for line in (f"[{name}]", *(f"{k} = {v}" for k, v in points.items()))
    ]
    info = folder / "kernel_silo-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kernel-silo\nVersion: 0\n")
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def copy(tmp_path):
    """A copy of Silo's code that can be edited."""
    shutil.copytree(SOURCE, tmp_path / "silo", ignore=shutil.ignore_patterns("__pycache__"))
    _install(tmp_path)
    return tmp_path / "silo"


def _affected(copy, edits):
    """By edit, the compilers whose identity it changes. ``edits`` maps names of edits to files and their new texts."""
    pairs = json.dumps([(name, str(target)) for name, target in PAIRS])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(copy.parent), os.environ.get("PYTHONPATH", "")))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # digests are remembered beside byte code
    words = [sys.executable, "-c", EDITED, str(copy), pairs]
    done = subprocess.run(
        words, input=json.dumps(edits), env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    before = found.pop("")
    return {edit: {one.split()[0] for one in before if before[one] != after[one]} for edit, after in found.items()}


def test_it_follows_the_code_that_a_compiler_runs(copy):
    edits = {file: {file: _changed(file, (copy / file).read_text(encoding="utf-8"))} for file in FILES}
    assert _affected(copy, edits) == FILES
    assert set().union(*FILES.values()) == set(shipped_places("silo.compilers"))


def test_an_edit_that_changes_no_code_changes_no_identity(copy):
    texts = {path: path.read_text(encoding="utf-8") for path in copy.rglob("*") if _is_edited(path.relative_to(copy))}
    assert len(texts) > 300
    edits = {str(path.relative_to(copy)): _touched(path.name, text) for path, text in texts.items()}
    assert _affected(copy, {"all of them": edits}) == {"all of them": set()}


def _is_edited(path):
    parts = {"kinds", "drivers", "sources", "artifacts"} & {*path.parts}
    return bool(parts) and (path.suffix in (".py", ".h") or path.name.startswith("metal_"))


# -- Triton ----------------------------------------------------------------------------------------------------------


def reinstalled(monkeypatch, version=None, changes=(), *, record=True):
    """Let the installer have recorded something else of Triton: another version, other digests or sizes of files."""
    real = installation.metadata.distribution("triton")
    rows = [*csv.reader(io.StringIO(real.read_text("RECORD")))]
    for row in rows:
        for part, column, value in changes:
            if row[0].endswith(part):
                row[column] = value
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    found = SimpleNamespace(
        version=version or real.version,
        read_text=lambda _: text.getvalue() if record else None,
        locate_file=real.locate_file,
    )
    monkeypatch.setattr(installation.metadata, "distribution", lambda _: found)


@pytest.mark.parametrize(("name", "target"), WITH_TRITON, ids=str)
def test_it_follows_triton(name, target, monkeypatch):
    before = identity(name, target)
    reinstalled(monkeypatch)
    assert identity(name, target) == before
    seen = {before}
    # ptxas and LLVM come inside Triton: the latter is linked into libtriton.
    for part in ("_C/libtriton.so", "nvidia/bin/ptxas", "triton/language/semantic.py"):
        reinstalled(monkeypatch, changes=[(part, 1, "sha256=another")])
        seen.add(identity(name, target))
    reinstalled(monkeypatch, version=f"{triton.__version__.rpartition('.')[0]}.99")
    seen.add(identity(name, target))
    assert len(seen) == 5


@pytest.mark.parametrize(
    "how",
    [
        {"record": False},
        {"changes": [("_C/libtriton.so", 2, "12345")]},
        {"changes": [("", 1, "")]},
    ],
    ids=["no record", "another binary than recorded", "no digests"],
)
def test_a_triton_of_ones_own_making_counts_by_its_files(how, monkeypatch, tmp_path):
    package = tmp_path / "triton"
    (package / "_C").mkdir(parents=True)
    (package / "__init__.py").touch()
    library = package / "_C" / "libtriton.so"
    library.write_bytes(b"built once")
    os.utime(library, ns=(1, 1))
    before = identity("cpu", host_target())
    monkeypatch.setattr(installation, "_package", lambda: package)
    reinstalled(monkeypatch, **how)
    made = identity("cpu", host_target())
    os.utime(library, ns=(2, 2))
    assert len({before, made, identity("cpu", host_target())}) == 3
    assert "changed" in made


def test_a_triton_before_the_recorded_one_on_the_path_counts_by_its_files(monkeypatch, tmp_path):
    (tmp_path / "__init__.py").touch()
    before = identity("cpu", host_target())
    monkeypatch.setattr(installation, "_package", lambda: tmp_path)
    assert identity("cpu", host_target()) != before


@pytest.mark.parametrize(("name", "target"), WITH_TRITON, ids=str)
def test_it_follows_the_variables_that_change_tritons_code(name, target, monkeypatch, tmp_path):
    tool = tmp_path / "ptxas"
    seen = {identity(name, target)}
    monkeypatch.setenv("TRITON_CACHE_DIR", "/somewhere/else")
    assert identity(name, target) in seen
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    seen.add(identity(name, target))
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tool))
    seen.add(identity(name, target))
    tool.write_text("a tool")
    seen.add(identity(name, target))
    tool.write_text("another tool")
    seen.add(identity(name, target))
    monkeypatch.setattr(triton.knobs.runtime, "debug", True)
    seen.add(identity(name, target))
    assert len(seen) == 6


# -- the C compiler --------------------------------------------------------------------------------------------------


def compiler_saying(folder, version):
    folder.mkdir()
    script = folder / "cc"
    script.write_text(f"#!/bin/sh\nprintf '%s\\n' {version}\n")
    script.chmod(0o755)
    return str(script)


def test_it_follows_the_c_compiler_its_flags_and_the_level(tmp_path, monkeypatch):
    other = "x86-64-v2" if host_target().arch != "x86-64-v2" else "x86-64-v3"
    seen = {identity("cpu", host_target()), identity("cpu", Target("cpu", other))}
    one = compiler_saying(tmp_path / "one", "'made up 1.0'")
    asked = [
        one,
        f"{one} -mno-fma",
        compiler_saying(tmp_path / "next", "'made up 1.1'"),
        compiler_saying(tmp_path / "clang", "'made up 1.0' 'Target: x86_64-linux-gnu'"),
        compiler_saying(tmp_path / "elsewhere", "'made up 1.0' 'Target: x86_64-linux-musl' 'InstalledDir: /opt'"),
    ]
    for command in asked:
        with override(cc=command):
            found = identity("cpu", host_target())
            assert "/" not in found
            seen.add(found)
    monkeypatch.setattr(build, "_CODE_FLAGS", (*build._CODE_FLAGS, "-fno-strict-aliasing"))
    seen.add(identity("cpu", host_target()))
    assert len(seen) == 2 + len(asked) + 1


def test_the_entry_of_an_object_needs_no_triton(monkeypatch):
    """A worker's result depends on the job alone: the worker needs neither Triton nor the caller's settings."""
    toolchain = CCompiler(("cc",), "made up 1.0")
    level = level_of(host_target())
    before = cpu_identity.code_identity(level, toolchain)
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    reinstalled(monkeypatch, version="0.1")
    assert cpu_identity.code_identity(level, toolchain) == before
