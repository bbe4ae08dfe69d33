"""What CONTRIBUTING asks of the tree and no linter checks."""
# pyright: reportAttributeAccessIssue=false

import ast
import importlib
import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
# Words that would tie the project to one machine, one registry or one way of working on it.
FOREIGN = re.compile(r"/work/|/root/|pypi\.org|files\.pythonhosted|registry\.npmjs|\bissue #?\d|\.library/")


def tracked_files():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is not a checkout")
    return [ROOT / name for name in listed.stdout.splitlines()]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_sources_hold_no_pickle_eval_or_bare_except(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            found.append(f"line {node.lineno}: a bare except")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"}:
            found.append(f"line {node.lineno}: {node.func.id}")
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            found += [
                f"line {node.lineno}: {name}" for name in names if name.partition(".")[0] in {"pickle", "marshal"}
            ]
    assert found == []


def is_importable(module, name):
    if hasattr(importlib.import_module(module), name):
        return True
    try:
        return importlib.util.find_spec(f"{module}.{name}") is not None
    except ModuleNotFoundError:  # the module is not a package
        return False


PROGRAMS = sorted(path for folder in ("bench", "examples", "scripts") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_programs_import_what_there_is(path):
    """No test runs them all, and the type checker does not read them."""
    imports = [
        node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)
    ]
    missing = [
        f"line {node.lineno}: {node.module}.{alias.name}"
        for node in imports
        if (node.module or "").split(".")[0] == "silo"
        for alias in node.names
        if not is_importable(node.module, alias.name)
    ]
    assert missing == []


def test_every_public_name_exists():
    import importlib

    missing = []
    for path in SOURCES:
        names = re.search(r"^__all__ = \[(.*?)\]", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        if names and name != "silo.compile.worker":
            module = importlib.import_module(name)
            missing += [f"{name}.{public}" for public in module.__all__ if not hasattr(module, public)]
    assert missing == []


def test_the_project_speaks_of_itself_alone():
    found = []
    for path in tracked_files():
        if path == Path(__file__).resolve() or path.suffix in {".silo", ".json", ".ttir"} or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            if FOREIGN.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


def climbs(node):
    """How many folders an expression goes up from what it starts with, and that: ``Path(__file__).parents[2]`` is 3."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
        up, start = climbs(node.value.value)
        index = node.slice.value if isinstance(node.slice, ast.Constant) else 0
        return up + index + 1, start
    if isinstance(node, ast.Attribute) and node.attr == "parent":
        up, start = climbs(node.value)
        return up + 1, start
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"resolve", "absolute"}
    ):
        return climbs(node.func.value)
    return 0, ast.unparse(node)


def outside(path, text):
    """Where a program names a folder above the checkout, or one of this machine."""
    depth = len(path.relative_to(ROOT).parts)  # that many folders up from a file is the checkout
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute | ast.Subscript):
            up, start = climbs(node)
            if ("__file__" in start and up > depth) or (up and start in {"ROOT", "REPOSITORY"}):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
        named = node.args[:1] if isinstance(node, ast.Call) and ast.unparse(node.func) in {"Path", "open"} else []
        named += [node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) else []
        folders = ("../", "/home/", "/mnt/", "/data/")
        texts = [one.value for one in named if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        found += [f"line {node.lineno}: {text!r}" for text in texts if f"{text}/".startswith(folders)]
    return found


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Path(__file__).parents[2]", None),
        ("Path(__file__).resolve().parents[3] / 'data'", "line 1: Path(__file__).resolve().parents[3]"),
        ("Path(__file__).parent.parent.parent", None),
        ("Path(__file__).parent.parent.parent.parent", "line 1: Path(__file__).parent.parent.parent.parent"),
        ("ROOT.parent / 'data'", "line 1: ROOT.parent"),
        ("open('../data')", "line 1: '../data'"),
        ("ROOT / '..' / 'data'", "line 1: '..'"),
    ],
)
def test_what_counts_as_outside(text, fault):
    assert outside(ROOT / "tests" / "unit" / "made_up.py", text) == ([fault] if fault else [])


def test_no_program_reads_outside_of_the_checkout():
    """What lies elsewhere is named by an argument or by a SILO_TEST_ variable, and tests skip where it is not named."""
    found = []
    for folder in ("tests", "bench", "scripts", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            faults = outside(path, path.read_text(encoding="utf-8"))
            found += [f"{path.relative_to(ROOT)}: {fault}" for fault in faults]
    assert found == []
