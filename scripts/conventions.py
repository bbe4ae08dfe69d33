"""Rules of CONTRIBUTING.md for Silo's modules that no linter checks: which may name a driver, which names repeat.

``python scripts/conventions.py`` prints what breaks a rule, and fails.
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
# Triton's language, of which kernels are made.
_LANGUAGE = frozenset({"triton", "triton.language"})
# The compiler for HIP C++ calls the linker that is within Triton's library, and is of another kind than the adapter.
_KNOWS_TRITON = (
    "kinds/triton/front/adapter/",
    "kinds/triton/programs/backend/",
    "kinds/cuda_cpp/hip_compiler.py",
)
# A launch asks it alone whether the program gave Triton an allocator; the adapter would be too much to import there.
_ASKED_AT_A_LAUNCH = "kinds/triton/front/allocation.py"

# Who imports the native module, which is below all layers; the others ask one of them.
_NATIVE = frozenset({"artifacts/runs_on.py", "bundle/reader.py", "launch/native.py"})

# What threads wait for: locks and the like. ``forks`` makes those that a child made by fork finds usable.
_LOCKS = frozenset(
    {"Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore", "allocate_lock"}
    | {"LifoQueue", "PriorityQueue", "Queue", "SimpleQueue"}
)
_LOCK_MODULES = frozenset({"_thread", "multiprocessing", "queue", "threading"})
# Modules that make others, and why no child is left waiting for one of them.
_RENEWED = {
    "forks.py": "it renews them",
    "tuning/agents/agent_serving.py": "an agent's process forks nothing",
    "compile/worker_serving.py": "a worker's process forks nothing",
    "store/remote/client.py": "those that it keeps are made anew in a child, the others live within one call",
}

# The kinds of GPUs, the archs of each, and which modules name them besides the driver's folder. What others need to
# know of a device its driver declares (silo.core.device), so that a new one touches its folder alone.
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
    """The line and name of every module that a text imports, also by ``import_module("name")``."""
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
    """Only ``settings.py`` reads or changes the environment."""
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
    """The native module is imported for opening bundles, for launching and for the rule of targets, nowhere else."""
    if place in _NATIVE:
        return
    for line, name in modules_named(tree):
        if name == "silo._native" or name.startswith("silo._native."):
            yield f"{place}:{line}: the native module is imported by {', '.join(sorted(_NATIVE))} alone"


def internals_known(place: str, tree: ast.AST) -> Iterator[str]:
    """Only the adapter knows Triton's internals, and the plug-in has the form that Triton asks of its backends."""
    if place.startswith(_KNOWS_TRITON) or place == _ASKED_AT_A_LAUNCH:
        return
    kernels = place.startswith("kinds/triton/front/") and place.endswith("_kernels.py")
    for line, name in modules_named(tree):
        if name.partition(".")[0] == "triton" and not (kernels and name in _LANGUAGE):
            yield f"{place}:{line}: {name} is imported outside of kinds/triton/front/adapter"
    for node in ast.walk(tree):
        # The name of a module, as in sys.modules["triton.runtime"].
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _INTERNALS.fullmatch(node.value):
            yield f"{place}:{node.lineno}: {node.value} is known outside of kinds/triton/front/adapter"


def locks_made(place: str, tree: ast.AST) -> Iterator[str]:
    """Locks are made by ``forks``, so that a child made by fork never waits for a thread that it does not have."""
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
    """The name of a driver, or an arch of its devices, stands in its folder alone; sentences may have it as a word."""
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
    """What a module breaks; ``place`` is its path within ``src/silo``."""
    tree = ast.parse(text)
    return [
        *environment_read(place, tree),
        *native_imported(place, tree),
        *internals_known(place, tree),
        *locks_made(place, tree),
        *driver_named(place, tree),
    ]


def repeated_names(source: Path) -> list[str]:
    """Names that more than two modules have: a line of a stack trace does not say which of them it means."""
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
    """Test modules that lie in no folder of a layer."""
    return [f"{path.name} lies in tests/unit: move it to its layer's folder" for path in tests.glob("unit/test_*.py")]


def main() -> int:
    """Check everything; 1 where something was found."""
    found = [*repeated_names(SOURCE), *loose_tests(ROOT / "tests")]
    for path in sorted(SOURCE.rglob("*.py")):
        found += broken_rules(path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8"))
    for one in found:
        print(one, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
