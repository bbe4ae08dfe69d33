"""What belongs to one plug-in is named in its folder alone: nothing else knows Triton, nothing else knows binaries.

Looked at are names and texts of code. Comments and docstrings may say what something is for.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "src" / "silo"

# Modules that name Triton although they are not part of its plug-ins, and what for.
TRITON = {
    "kinds/cuda_cpp/hip_compiler.py": "takes AMD's device libraries and linker out of its package",
    "integrations/helion/__init__.py": "the launcher of the next one",
    "integrations/helion/triton_launcher.py": "a launcher for what Helion generates for Triton",
    "integrations/helion/helion_patching.py": "Helion's names of its backends",
    "commands/cache_actions.py": "what writes the files of Triton's cache, by its place",
    "tuning/foreign_results.py": "writes the files of Triton's autotuner, a foreign format by that name",
    **dict.fromkeys(
        (
            f"integrations/inductor/{name}.py"
            for name in (
                "generated_kernels",
                "gpu_choices",
                "gpu_decisions",
                "gpu_launchers",
                "gpu_patching",
                "gpu_questions",
                "gpu_records",
                "gpu_report",
                "inductor_patching",
                "kernel_dimensions",
            )
        ),
        "the kernels that Inductor generates, which are of that kind",
    ),
    "__init__.py": "the module of silo.accelerate",
    "launch/native.py": "the native objects that serve such launches",
    "launch/runtime.py": "their launchers",
    "cli/exec.py": "the command for such programs",
    "cli/build.py": "an example of a package with its version",
    "cli/options.py": "an example of a package with its version",
    "commands/build_with_toolchains.py": "an example of a package with its version",
    "builtin_plugins.py": "the table of the plug-ins that Silo ships",
    "old_names.py": "names that modules had",
    "cli/cache.py": "the option that names that format",
    "kinds/pallas/pallas_compiler.py": "jax lowers Pallas kernels for NVIDIA's GPUs to it",
    "kinds/pallas/gpu_program.py": "the name that jax has for that lowering",
    "integrations/torch/aoti.py": "the kernels of torch's packages, which are of that kind",
    "integrations/torch/import_hook.py": "a module of torch whose name has the word in it",
    "integrations/torch/dynamo.py": "a class of torch whose name has the word in it",
    "integrations/torch/kept_copies.py": "operators of torch whose names have the word in them",
    "integrations/torch/torch_traced_calls.py": "a function of torch whose name has the word in it",
    "integrations/cuda_on_cpu/activation.py": "the variable SILO_TRITON, which has to hold before torch has a device",
    "settings.py": "the variables SILO_TRITON, SILO_FORCE_TRITON and SILO_TRITON_CACHE",
    "tuner/formats/result_files.py": "the table of foreign formats",
    "tuner/formats/triton_configs.py": "these formats",
    "commands/python_commands.py": "the advice for a Triton function that is no kernel yet",
    "variables.py": "the variables SILO_TRITON, SILO_FORCE_TRITON and SILO_TRITON_CACHE",
}
BINARY = {"builtin_plugins.py": "the table of the plug-ins that Silo ships"}
SILO_BINARY = {"__init__.py": "the public name silo.binary"}

TRITON_FOLDERS = ("kinds/triton/",)
BINARY_FOLDERS = ("kinds/binary/",)


def outside(folders, word) -> Iterator[tuple[str, ast.Module]]:
    """The modules elsewhere whose text has the word, in capitals or not."""
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        if not place.startswith(folders) and word in text.lower():
            yield place, ast.parse(text)


def words(tree: ast.Module) -> Iterator[str]:
    """Names and texts of a module, without its docstrings and the texts that stand alone as such."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        for member in ("id", "attr", "arg", "name", "module"):
            word = getattr(node, member, None)
            if isinstance(word, str):
                yield word
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)


def test_nothing_else_names_triton():
    named = outside(TRITON_FOLDERS, "triton")
    assert {place for place, tree in named if any("triton" in word.lower() for word in words(tree))} == set(TRITON)


def test_nothing_else_names_a_binary():
    """The word alone is also English; what counts is the kind's name as a text, and its classes."""
    classes = {"BinarySource", "BinaryCode", "BinaryCompiler"}
    found = set[str]()
    for place, tree in outside(BINARY_FOLDERS, "binary"):
        texts = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        if "binary" in texts or classes & set(words(tree)):
            found.add(place)
    assert found == {*BINARY, *SILO_BINARY}


@pytest.mark.parametrize(
    "folder",
    [
        *("artifacts", "building", "bundle", "calls", "checking", "cli", "commands", "compile", "core", "export"),
        *("kernels", "launch", "machine", "measuring", "report", "shipping", "store", "tuner", "tuning"),
    ],
)
def test_no_layer_below_the_kinds_imports_one(folder):
    """Least of all the parser of TTIR: its results are the facts of code."""
    plugins = ("silo.kinds", "silo.drivers")
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [name for name in imports(tree) if name.startswith(plugins)], path
