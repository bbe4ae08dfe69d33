"""What is published: metadata, the page on an index, what the archives hold. No network."""
# pyright: reportCallIssue=false

import email
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import types
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools", reason="setuptools is not installed")

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def script(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def metadata(folder, **variables):
    """PKG-INFO as a build makes it, and the files an sdist would hold."""
    environment = {name: value for name, value in os.environ.items() if name != "SILO_PROJECT_URL"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "setup.py", "-q", "egg_info", "--egg-base", str(folder)],
        cwd=ROOT,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = folder / "kernel_silo.egg-info"
    message = email.message_from_string((made / "PKG-INFO").read_text(encoding="utf-8"))
    return message, (made / "SOURCES.txt").read_text(encoding="utf-8").splitlines()


def test_the_page_of_an_index_has_no_links_that_lead_nowhere(tmp_path, monkeypatch):
    relative_links = script("long_description", monkeypatch).relative_links
    assert relative_links((ROOT / "README.md").read_text(encoding="utf-8")), "or this test shows nothing"
    found, sources = metadata(tmp_path)
    page = found.get_payload()
    assert "@triton.jit" in page
    assert relative_links(page) == []
    assert found["Description-Content-Type"] == "text/markdown"
    # What the page names instead comes with the sdist.
    named = set(re.findall(r"`(docs/[a-z-]+\.md|CONTRIBUTING\.md)`", page))
    assert "docs/quickstart.md" in named
    assert named <= set(sources)


def test_no_address_is_made_up_and_one_that_is_named_is_used(tmp_path, monkeypatch):
    found, _ = metadata(tmp_path)
    assert found.get_all("Project-URL") is None
    assert found["Home-page"] is None
    (tmp_path / "named").mkdir()
    found, _ = metadata(tmp_path / "named", SILO_PROJECT_URL="https://host.example/silo/")
    urls = dict(one.split(", ") for one in found.get_all("Project-URL"))
    assert urls["Homepage"] == "https://host.example/silo"
    at = f"https://host.example/silo/blob/v{PROJECT['version']}"
    assert urls["Changelog"] == f"{at}/CHANGELOG.md"
    page = found.get_payload()
    assert f"[quickstart]({at}/docs/quickstart.md)" in page
    assert script("long_description", monkeypatch).relative_links(page) == []


def test_metadata_says_who_it_is_for(tmp_path):
    found, sources = metadata(tmp_path)
    classifiers = found.get_all("Classifier")
    assert len(classifiers) == len(set(classifiers)) > 8
    assert all(" :: " in one for one in classifiers)
    assert not any(one.startswith("License") for one in classifiers), "an index refuses one beside a license expression"
    assert found["License-Expression"] == "Apache-2.0"
    versions = sorted(int(one.rpartition(".")[2]) for one in classifiers if " :: 3." in one)
    assert f">=3.{versions[0]}" == found["Requires-Python"]
    tested = (ROOT / "scripts" / "environment.sh").read_text(encoding="utf-8")
    assert f"(3, {versions[0]}) <= sys.version_info[:2] <= (3, {versions[-1]})" in tested
    assert {"LICENSE", "CHANGELOG.md", "native/python/python.h", "scripts/long_description.py"} <= set(sources)


def test_the_native_module_declares_no_function_of_python_by_hand():
    """The headers show what Python's stable ABI has; a declaration of one's own would reach past it."""
    for path in sorted((ROOT / "native").rglob("*.[ch]")):
        assert "PyAPI_" not in path.read_text(encoding="utf-8"), path.name


def archives(folder, *, name, library, classifier, link, members):
    wheel = folder / name
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("silo/_native.abi3.so", library)
        page = f"Metadata-Version: 2.4\nName: kernel-silo\nClassifier: {classifier}\n\n# Silo\n\nsee [a page]({link})\n"
        made.writestr("kernel_silo-0.1.0.dist-info/METADATA", page)
        for member in members:
            made.writestr(member, "")
    sdist = folder / "kernel_silo-0.1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as made:
        for member in ("LICENSE", "README.md", "CHANGELOG.md", "native/python/python.h", "src/silo/py.typed"):
            made.add(ROOT / member, arcname=f"kernel_silo-0.1.0/{member}")
    return str(wheel), str(sdist)


def test_archives_are_looked_at(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "trove_classifiers", types.SimpleNamespace(classifiers={"Typing :: Typed"}))
    check = script("check_wheel", monkeypatch)
    right = {"name": "kernel_silo-0.1.0-cp311-abi3-manylinux_2_28_x86_64.whl", "library": "\x7fELF", "members": ()}
    given = archives(tmp_path, **right, classifier="Typing :: Typed", link="https://host.example")
    assert check.main(*given) == 1
    assert capsys.readouterr().out.splitlines() == [
        "it has no digests of the compilers' code, so each first process would parse it",
        "the sdist lacks docs/quickstart.md",
    ]
    wrong = {
        "name": "kernel_silo-0.1.0-cp311-abi3-linux_x86_64.whl",
        "library": "\x7fELF .symtab",
        "members": ("a.py",),
    }
    assert check.main(*archives(tmp_path, **wrong, classifier="Made :: Up", link="docs/a.md")) == 1
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "kernel_silo-0.1.0-cp311-abi3-linux_x86_64.whl is not tagged for the stable ABI and a range of systems",
        "silo/_native.abi3.so is not stripped: .symtab",
        "it has no digests of the compilers' code, so each first process would parse it",
        "no such classifier: Made :: Up",
        "a link that leads nowhere on an index page: docs/a.md",
        "a.py would be installed outside of the package",
    ]


def test_a_build_carries_the_sources_that_exports_copy(tmp_path):
    build = ["setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run([sys.executable, "-W", "ignore", *build], cwd=ROOT, check=True, capture_output=True)
    export, found = tmp_path / "silo" / "export", set[str]()
    for part, marker in (("core", "silo.h"), ("frameworks", "framework.h")):
        sources = {path.name: path.read_bytes() for path in (ROOT / "native" / part).glob("*.[ch]")}
        assert marker in sources
        assert {path.name: path.read_bytes() for path in (export / part).iterdir()} == sources
        found |= set(sources)
    templates = ROOT / "src" / "silo" / "export" / "templates"
    assert {path.name for path in (export / "templates").iterdir()} == {path.name for path in templates.iterdir()}
    # An installed package finds them beside its code, with no source tree around it.
    program = (
        "from silo.export.native_sources import native_sources as of; "
        "from silo.export.native_sources import licence; licence(); "
        "print(*of('core', 'silo.h'), *of('frameworks', 'framework.h'))"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == found


# Packages that a process which only opens bundles does without, whatever is installed beside it.
NOT_NEEDED = ("rich", "typer", "pydantic", "pygments", "jinja2", "numpy", "triton", "torch", "cryptography", "psutil")
BLOCKED = f"""
import sys


class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NOT_NEEDED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Block())
from silo.cli.main import main

main()
"""


def test_at_most_four_packages_come_with_it():
    """Each of them needs no other one on Linux."""
    import importlib.metadata

    names = [re.split(r"[<>=;\[ ]", one)[0] for one in PROJECT["dependencies"]]
    assert len(names) <= 4
    for name in names:
        needed = [one for one in importlib.metadata.requires(name) or () if "extra ==" not in one]
        assert all("Windows" in one or "win32" in one for one in needed), (name, needed)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--help"], "Compile kernels for every target into one bundle."),
        (["build", "--help"], "--output"),
        (["inspect", "{bundle}"], "dispatch rules"),
        (["inspect", "{bundle}", "--json"], '"kernels"'),
        (["verify", "{bundle}"], "every byte is as it was written"),
        (["doctor"], "native module"),
        (["cache"], "total"),
        (["trust", "--list"], "trusted"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_commands_work_with_the_base_alone(words, shown, tmp_path):
    from hostile_bundle import FORBIDDEN, hostile_bundle

    hostile_bundle(tmp_path / "k.silo")
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *(word.format(bundle=tmp_path / "k.silo") for word in words)],
        env={**os.environ, "SILO_HOME": str(tmp_path / "store"), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert shown in done.stdout
    assert not set(done.stdout) & set("│┃━"), "tables are plain text"
    assert not any(character in done.stdout for character in FORBIDDEN)
    if words[0] in ("--help", "build", "doctor"):
        assert max(map(len, done.stdout.splitlines())) <= 100
