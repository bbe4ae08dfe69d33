"""Checks rules of CONTRIBUTING.md that no linter checks: which modules may name a driver, which module names repeat.

``python scripts/conventions.py`` prints each violation, and fails if there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "silo"
MOST_OF_A_NAME = 2
_EVERYWHERE = frozenset({"__init__.py", "__main__.py"})

_ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"})
_INTERNALS = re.compile(r"triton(\.\w+)+")
# The modules of Triton's language, in which kernels are written.
_LANGUAGE = frozenset({"triton", "triton.language"})
# Modules that may use Triton's internals. The compiler for HIP C++ needs the linker inside Triton's library, but
# belongs to another kind than the adapter, so it is listed itself.
_KNOWS_TRITON = (
    "kinds/triton/front/adapter/",
    "kinds/triton/programs/backend/",
    "kinds/cuda_cpp/hip_compiler.py",
)
# A launch imports only this module, to find out whether the program gave Triton an allocator; importing the adapter
# would cost too much there.
_ASKED_AT_A_LAUNCH = "kinds/triton/front/allocation.py"

# The modules that may import the native module, which is below all layers; other modules call these.
_NATIVE = frozenset({"artifacts/runs_on.py", "bundle/reader.py", "launch/native.py"})

# Classes that threads wait for: locks, events, queues. ``forks`` makes locks that stay usable in a forked child.
_LOCKS = frozenset(
    {"Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore", "allocate_lock"}
    | {"LifoQueue", "PriorityQueue", "Queue", "SimpleQueue"}
)
_LOCK_MODULES = frozenset({"_thread", "multiprocessing", "queue", "threading"})
# Modules that may make such objects, each with the reason why no forked child waits for one of them.
_RENEWED = {
    "forks.py": "it renews them",
    "tuning/agents/agent_serving.py": "an agent's process forks nothing",
    "compile/worker_serving.py": "a worker's process forks nothing",
    "store/remote/client.py": "those that it keeps are made anew in a child, the others live within one call",
}

# The kinds of GPUs with their archs, and below the modules that may name them besides the driver's folder. A driver
# declares every fact about its devices that other modules need (silo.core.device), so that a new driver changes only
# its own folder.
_DRIVERS = {"hip": re.compile(r"hip(:.*)?|gfx[0-9].*"), "cuda": re.compile(r"cuda(:.*)?|sm_[0-9].*")}
_NAMES_A_DRIVER = {
    "hip": {
        "kinds/triton/": "generates code for it, by Triton's names",
        "kinds/cuda_cpp/": "generates code for it",
        "heuristics/facts.py": "PyTorch's heuristics differ for AMD",
    },
    "cuda": {
        "kinds/triton/": "generates code for it, by Triton's names",
        "kinds/cuda_cpp/": "generates code for it; the kind has the language's name",
        "__init__.py": "the function that has the language's name",
        "builtin_plugins.py": "the kind that has the language's name",
        "kinds/cute/": "generates code for it alone",
        "kinds/binary/": "reads NVIDIA's code",
        "kinds/pallas/": "generates code for it, through jax",
        "heuristics/": "PyTorch's heuristics differ for NVIDIA; a target by which the names of blocks are read",
        "building/kernel_declaration.py": "a target by which the names of blocks are read",
        "bundle/encode.py": "the target of a bundle for tests of the format",
        "core/device.py": "the name that DLPack has for the memory",
        "integrations/": "the names that torch and jax have for devices",
        "launch/array_libraries/": "the names that torch and jax have for devices",
        "launch/native.py": "the name that torch has for every GPU",
        "launch/plan_copies.py": "copies in plans by kernels that are NVIDIA's code",
        "launch/plan_torch.py": "the name that torch has for the GPUs whose work it captures",
        "launch/scratch.py": "the name that torch has for every GPU",
    },
}


def modules_named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and name of every module that a file imports, also by ``import_module("name")``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield node.lineno, name.value


def environment_read(place: str, tree: ast.AST) -> Iterator[str]:
    """Check that only ``settings.py`` reads or changes the environment; yield a message for each violation."""
    if place == "settings.py":
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found = node.attr in _ENVIRONMENT and ast.unparse(node.value) == "os"
        elif isinstance(node, ast.ImportFrom):
            found = node.module == "os" and any(alias.name in _ENVIRONMENT for alias in node.names)
        else:
            continue
        if found:
            yield f"{place}:{node.lineno}: the environment is read by settings.py alone: add a setting"


def native_imported(place: str, tree: ast.AST) -> Iterator[str]:
    """Check that only the modules of ``_NATIVE`` import the native module; yield a message for each violation."""
    if place in _NATIVE:
        return
    for line, name in modules_named(tree):
        if name == "silo._native" or name.startswith("silo._native."):
            yield f"{place}:{line}: the native module is imported by {', '.join(sorted(_NATIVE))} alone"


def internals_known(place: str, tree: ast.AST) -> Iterator[str]:
    """Check that only the adapter and the Triton plug-in name Triton's internals; yield a line for each violation."""
    if place.startswith(_KNOWS_TRITON) or place == _ASKED_AT_A_LAUNCH:
        return
    kernels = place.startswith("kinds/triton/front/") and place.endswith("_kernels.py")
    for line, name in modules_named(tree):
        if name.partition(".")[0] == "triton" and not (kernels and name in _LANGUAGE):
            yield f"{place}:{line}: {name} is imported outside of kinds/triton/front/adapter"
    for node in ast.walk(tree):
        # the name of a module, as in sys.modules["triton.runtime"]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _INTERNALS.fullmatch(node.value):
            yield f"{place}:{node.lineno}: {node.value} is known outside of kinds/triton/front/adapter"


def locks_made(place: str, tree: ast.AST) -> Iterator[str]:
    """Check that locks come from ``forks``; yield a message for each violation.

    Otherwise a forked child could wait for a lock that a thread of its parent held at the fork.
    """
    if place in _RENEWED:
        return
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _LOCK_MODULES:
            found = [node.attr]
        elif isinstance(node, ast.ImportFrom) and node.module in _LOCK_MODULES:
            found = [alias.name for alias in node.names]
        yield from (
            f"{place}:{getattr(node, 'lineno', 0)}: {name} may be held by another thread while the process forks: "
            "take Mutex or Condition of silo.forks"
            for name in found
            if name in _LOCKS
        )


def driver_named(place: str, tree: ast.AST) -> Iterator[str]:
    """Check that only a driver's folder has its name or an arch as a text; yield a message for each violation.

    Sentences may contain the name as a word.
    """
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = [node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and node.body]
    texts = {id(node.value) for node in first if isinstance(node, ast.Expr)}  # docstrings
    for kind, pattern in _DRIVERS.items():
        if place.startswith((f"drivers/{kind}/", *_NAMES_A_DRIVER[kind])):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or id(node) in texts:
                continue
            if isinstance(node.value, str) and pattern.fullmatch(node.value):
                yield f"{place}:{node.lineno}: {node.value} is known outside of drivers/{kind}: let it declare the fact"


def broken_rules(place: str, text: str) -> list[str]:
    """Return the violations of one module; ``place`` is its path within ``src/silo``."""
    tree = ast.parse(text)
    return [
        *environment_read(place, tree),
        *native_imported(place, tree),
        *internals_known(place, tree),
        *locks_made(place, tree),
        *driver_named(place, tree),
    ]


def repeated_names(source: Path) -> list[str]:
    """Return a message for each file name that more than two modules have: in a stack trace it would be ambiguous."""
    places: dict[str, list[str]] = {}
    for path in sorted(source.rglob("*.py")):
        if path.name not in _EVERYWHERE:
            places.setdefault(path.name, []).append(path.relative_to(source).as_posix())
    return [
        f"{name} is the name of {len(found)} modules: {', '.join(found)}"
        for name, found in places.items()
        if len(found) > MOST_OF_A_NAME
    ]


def loose_tests(tests: Path) -> list[str]:
    """Return a message for each test module that is not in a layer's folder."""
    return [f"{path.name} lies in tests/unit: move it to its layer's folder" for path in tests.glob("unit/test_*.py")]


def main() -> int:
    """Check everything; return 1 if there is a violation."""
    found = [*repeated_names(SOURCE), *loose_tests(ROOT / "tests")]
    for path in sorted(SOURCE.rglob("*.py")):
        found += broken_rules(path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8"))
    for one in found:
        print(one, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
