"""The examples by the command line: bundled for the CPU and for Metal, tuned, and used where their source is not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import silo
from emulator_jobs import require_clang
from silo.cli.main import app
from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.device import Target
from silo.core.signature import ParameterKind
from silo.core.variant import Variant
from silo.emulation.clang import find_clang
from silo.kinds.metal.clang import code_flags
from silo.kinds.metal.compile_job import entry_text
from silo.kinds.metal.metal_compiler import EmulatorCompiler
from silo.kinds.metal.metal_job import EmulatorJob

require_clang()

EXAMPLES = Path(__file__).parents[4] / "examples" / "metal_kernels.py"
CONFIGS = {"add": 3, "histogram": 2, "matmul": 2, "softmax": 3}
CASES = {"add": 2, "histogram": 1, "matmul": 2, "softmax": 2}
# Another process, with an empty store and no clang, that knows the bundle alone.
PROGRAM = """
import json, sys
import numpy as np
import silo
kernels = silo.load(sys.argv[1], trust=True)
x = np.random.default_rng(0).standard_normal((33, 500)).astype(np.float32)
sums, rows = np.zeros_like(x), np.zeros_like(x)
kernels.add(x, x, sums, x.size)
assert np.array_equal(sums, 2 * x)
kernels.softmax(x, rows, 500)
assert np.allclose(rows.sum(axis=1), 1)
product = np.zeros((33, 33), np.float32)
kernels.matmul(x, np.ascontiguousarray(x.T), product, 33, 33, 500)
assert np.allclose(product, x @ x.T, rtol=1e-4, atol=1e-3)
values, counts = np.arange(1000).astype(np.uint8), np.zeros(256, np.uint32)
kernels.histogram(values, counts, 1000)
assert np.array_equal(counts, np.bincount(values, minlength=256))
assert not any("backends.metal" in name or "sources.metal" in name for name in sys.modules)
"""


def silo_command(*words, home=None, **settings):
    """A command in this process, and what it printed."""
    environment = {f"SILO_{name.upper()}": value for name, value in settings.items()}
    if home is not None:
        environment["SILO_HOME"] = str(home)
    made = CliRunner().invoke(app, [str(word) for word in words], env=environment)
    assert made.exit_code == 0, (made.output, made.exception)
    return made.output


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The examples with every config, for both targets; and the store in which they were tuned."""
    folder = tmp_path_factory.mktemp("examples")
    made = folder / "metal.silo"
    words = ["build", EXAMPLES, "-o", made, "-t", "cpu", "-t", "metal:3.1", "--configs", "all"]
    silo_command(*words, home=folder / "home", tune="off")
    told = silo_command("tune", made, "--device", "cpu", "--trust", home=folder / "home", tune="auto")
    assert "measured in this process" not in told, "only what is for Metal is run by a library"
    return made


def test_every_config_is_there_for_both_targets_and_the_emulator_s_were_measured(bundle):
    shown = json.loads(silo_command("inspect", bundle, "--json"))
    for target in ("cpu", "metal"):
        packed = [one["kernel"] for one in shown["variants"] if one["target"].startswith(target)]
        assert {name: packed.count(name) for name in CONFIGS} == CONFIGS
    measured = {
        (rule["kernel"], rule["target"].partition(":")[0]) for rule in shown["winners"] if rule["reason"] == "measured"
    }
    assert measured == {(name, "cpu") for name in CONFIGS}, "times of the emulator are the CPU's, never Metal's"


def test_the_cases_are_right_where_nothing_can_be_compiled(bundle, tmp_path):
    ran = json.loads(silo_command("run", bundle, "--trust", "--json", home=tmp_path, clang="no-such-clang"))
    assert {name: sum(one["kernel"] == name for one in ran) for name in CASES} == CASES
    assert all(one["ok"] for one in ran)


def test_another_process_computes_other_shapes(bundle, tmp_path):
    environment = {"SILO_HOME": str(tmp_path), "SILO_CLANG": "no-such-clang", "PATH": "/usr/bin:/bin"}
    environment["PYTHONPATH"] = str(Path(silo.__file__).parents[1])
    words = [sys.executable, "-c", PROGRAM, str(bundle)]
    made = subprocess.run(words, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize("name", ["add", "matmul"])
def test_clang_takes_an_example_for_another_machine(name, monkeypatch, tmp_path):
    """It needs no header of that machine: one kernel whose threads wait for each other, and one whose do not."""
    monkeypatch.syspath_prepend(EXAMPLES.parent)
    import metal_kernels

    source = getattr(metal_kernels, name).kernel.source
    scalars = ("n", "rows", "columns", "inner")
    facts = {
        one.name: ArgumentFacts(64) if one.name in scalars else ArgumentFacts.array("float32", 64)
        for one in source.signature.parameters
        if one.kind is not ParameterKind.CONSTEXPR
    }
    signature, specialization = source.specialize(facts)
    config = Config.of({"add": {"THREADS": 128}, "matmul": {"DEPTH": 32}}[name])
    target = Target.parse("cpu:aarch64-armv8.2")
    variant = Variant(name, source.fingerprint, signature, specialization, config, target)
    job = EmulatorJob.from_job(EmulatorCompiler().lower(source, variant).job)
    made = tmp_path / "kernel.o"
    command = [*find_clang().command, "--target=aarch64-linux-gnu", *code_flags(target), "-x", "c++", "-c", "-o", made]
    done = subprocess.run(
        [*command, "-"], input=entry_text(job, "silo_entry"), text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert made.read_bytes()[:20].endswith(b"\xb7\0"), "machine of the object's header"
