"""What is published: metadata, the page on an index, what the archives hold. No network."""
# pyright: reportCallIssue=false

import email
import importlib.util
import json
import os
import re
import struct
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


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """:func:`metadata` where no address of the project is named."""
    return metadata(tmp_path_factory.mktemp("metadata"))


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


def test_the_page_of_an_index_has_no_links_that_lead_nowhere(made, monkeypatch):
    relative_links = script("long_description", monkeypatch).relative_links
    assert relative_links((ROOT / "README.md").read_text(encoding="utf-8")), "or this test shows nothing"
    found, sources = made
    page = found.get_payload()
    assert "@triton.jit" in page
    assert relative_links(page) == []
    assert found["Description-Content-Type"] == "text/markdown"
    # What the page names instead comes with the sdist.
    named = set(re.findall(r"`(docs/[a-z-]+\.md|CONTRIBUTING\.md)`", page))
    assert "docs/quickstart.md" in named
    assert named <= set(sources)


def test_no_address_is_made_up_and_one_that_is_named_is_used(made, tmp_path, monkeypatch):
    found, _ = made
    assert found.get_all("Project-URL") is None
    assert found["Home-page"] is None
    found, _ = metadata(tmp_path, SILO_PROJECT_URL="https://host.example/silo/")
    urls = dict(one.split(", ") for one in found.get_all("Project-URL"))
    assert urls["Homepage"] == "https://host.example/silo"
    at = f"https://host.example/silo/blob/v{PROJECT['version']}"
    assert urls["Changelog"] == f"{at}/CHANGELOG.md"
    page = found.get_payload()
    assert f"[quickstart]({at}/docs/quickstart.md)" in page
    assert script("long_description", monkeypatch).relative_links(page) == []


def test_metadata_says_who_it_is_for(made):
    found, sources = made
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


def elf(*names):
    """A 64-bit ELF file with sections of these names, whose data mentions other names."""
    table = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    offsets = [table.index(name.encode() + b"\0") for name in names]
    data = b".symtab of an image within" + table
    begin = 64 + len(data) - len(table)
    rows = b"".join(struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, begin, 0, 0, 0, 0, 0) for at in offsets)
    head = struct.pack("<4s36xQ10xHHH", b"\x7fELF", 64 + len(data), 64, len(names), 0)
    return head + data + rows


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
    right = {
        "name": "kernel_silo-0.1.0-cp311-abi3-manylinux_2_28_x86_64.whl",
        "library": elf(".shstrtab", ".text"),
        "members": (),
    }
    given = archives(tmp_path, **right, classifier="Typing :: Typed", link="https://host.example")
    assert check.main(*given) == 1
    assert capsys.readouterr().out.splitlines() == [
        "it has no digests of the compilers' code, so each first process would parse it",
        "the sdist lacks docs/quickstart.md",
    ]
    wrong = {
        "name": "kernel_silo-0.1.0-cp311-abi3-linux_x86_64.whl",
        "library": elf(".shstrtab", ".symtab"),
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
        "from silo.export.project import native_sources as of; "
        "from silo.export.project import licence; licence(); "
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


def test_archives_of_the_same_contents_have_the_same_bytes(tmp_path, monkeypatch):
    tools = script("release_tools", monkeypatch)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    made = []
    for order, mode, moment in (((0, 1), 0o600, 10**9), ((1, 0), 0o664, 10**9 + 77)):
        folder = tmp_path / str(mode)
        folder.mkdir()
        files = [("silo/a.py", "a = 1"), ("kernel_silo-0.1.0.dist-info/RECORD", "")]
        with zipfile.ZipFile(folder / "k.whl", "w") as wheel:
            for place in order:
                info = zipfile.ZipInfo(files[place][0], (2020, 1, 1 + mode % 9, 0, 0, 0))
                info.external_attr = mode << 16
                wheel.writestr(info, files[place][1])
        with tarfile.open(folder / "k.tar.gz", "w:gz") as sdist:
            for place in order:
                info = tarfile.TarInfo(files[place][0])
                info.mtime, info.mode, info.uid, info.uname = moment, mode, mode, "somebody"
                sdist.addfile(info)
        tools.same_bytes(str(folder / "k.whl"), str(folder / "k.tar.gz"))
        made.append([(folder / name).read_bytes() for name in ("k.whl", "k.tar.gz")])
        with zipfile.ZipFile(folder / "k.whl") as wheel:
            assert wheel.namelist()[-1].endswith("RECORD")
            assert wheel.read("silo/a.py") == b"a = 1"
    assert made[0] == made[1]


def test_the_bill_of_materials_names_files_and_requirements(tmp_path, monkeypatch):
    tools = script("release_tools", monkeypatch)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    with zipfile.ZipFile(tmp_path / "kernel_silo-0.1.0-py3-none-any.whl", "w") as wheel:
        found, _ = metadata(tmp_path)
        wheel.writestr("kernel_silo-0.1.0.dist-info/METADATA", found.as_string())
    tools.bill_of_materials(str(tmp_path))
    bill = json.loads((tmp_path / "sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/kernel-silo@{PROJECT['version']}"
    libraries = {one["name"] for one in bill["components"] if one["type"] == "library"}
    assert libraries == {re.split(r"[<>=]", one)[0] for one in PROJECT["dependencies"]}
    (file,) = (one for one in bill["components"] if one["name"].endswith(".whl"))
    assert len(file["hashes"][0]["content"]) == 64
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


def test_the_line_to_install_is_the_quickstarts(tmp_path, monkeypatch, capsys):
    tools = script("release_tools", monkeypatch)
    tools.install_line(str(ROOT / "docs" / "quickstart.md"))
    assert capsys.readouterr().out == "pip install kernel-silo\n"
    with pytest.raises(ValueError, match="does not say how"):
        tools.line_of("conda install silo")
    (tmp_path / "k-1.whl").write_bytes(b"x")
    tools.index(str(tmp_path / "simple"), str(tmp_path / "k-1.whl"))
    page = (tmp_path / "simple" / "kernel-silo" / "index.html").read_text()
    assert re.search(r'href="k-1\.whl#sha256=[0-9a-f]{64}"', page)


def test_workflows_and_the_recipe_agree_with_the_project():
    workflows = {path.name: path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    assert set(workflows) >= {"test.yml", "release.yml"}
    for text in workflows.values():
        for command in re.findall(r"\./(scripts/\w+)", text):
            assert os.access(ROOT / command, os.X_OK), command
    matrix = re.search(r"python: \[(.*)\]", workflows["test.yml"])[1]
    known = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if " :: 3." in one}
    assert known <= set(re.findall(r"3\.\d+", matrix))
    assert "id-token: write" in workflows["release.yml"]
    assert "password" not in workflows["release.yml"].replace("no password", "")
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    for one in PROJECT["dependencies"]:
        name, bounds = re.match(r"([\w-]+)(.*)", one).groups()
        assert f"- {name} {bounds}\n" in recipe
