"""Random kernels do the same in both schedules and under Triton's interpreter.

More seeds than the suite runs: ``python -m tests.fuzz FIRST LAST``.
"""

import random
import re
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("triton", reason="random kernels are lowered by Triton")

from cpu_samples import needs_compiler
from fuzz.functions import FUNCTIONS, build_functions
from fuzz.inputs import contents
from fuzz.interpreter import Interpreter
from fuzz.judge import Verdict, difference, judge
from fuzz.profiles import PROFILES, generate
from fuzz.rounded import tolerance
from fuzz.shrink import shrink
from repetitions import repetitions
from silo.kinds.triton.cpu.schedule.scratch_layout import Lifetimes

pytestmark = [needs_compiler, pytest.mark.filterwarnings("ignore:tl.cat")]
SEEDS = repetitions("SILO_TEST_SEEDS", 1, 4)  # of each profile


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory):
    library = tmp_path_factory.mktemp("functions") / "functions.so"
    build_functions(library)
    process = Interpreter(library)
    yield process
    process.close()


@pytest.mark.parametrize("profiles", [list(PROFILES)[first::3] for first in range(3)], ids=", ".join)
def test_random_kernels_do_the_same_in_both_schedules_and_under_the_interpreter(profiles, interpreter):
    kernels = [generate(seed, profile) for seed in range(SEEDS) for profile in profiles]
    verdicts = judge(kernels, interpreter)
    assert [verdict for verdict in verdicts if verdict.failed or verdict.status == "refused"] == []
    judged = [verdict for verdict in verdicts if verdict.status == "same"]
    assert len(judged) > len(kernels) * 0.9, verdicts


def test_a_function_takes_what_memory_holds_or_a_choice_that_nobody_can_fold():
    texts = [generate(seed, "elementwise").text() for seed in range(600)]
    taken = [(text, name) for text in texts for name in re.findall(rf"tl\.(?:{'|'.join(FUNCTIONS)})\(([^,()]+)", text)]
    assert len(taken) > 20
    for text, name in taken:
        if name != "tl.where":
            (value,) = re.findall(rf"^ +{name} = (.*)", text, re.MULTILINE)
            assert value.startswith("tl.load("), value
            assert "mask=" not in value, value
    chosen = rf"tl\.(?:{'|'.join(FUNCTIONS)})\(tl\.where\(pid >= 0, \w+, pid\.to\(tl\.\w+\)\)\)"
    assert all(re.search(chosen, text) for text, name in taken if name == "tl.where")


@pytest.mark.parametrize("profile", ["loop", "control"])
def test_carried_values_are_never_one_value_under_two_names(profile):
    lines = "\n".join(generate(seed, profile).text() for seed in range(40)).splitlines()
    changed = [line.split(" = ")[1] for line in lines if re.match(r" *c\d+(, c\d+)* = ", line)]
    assert len(changed) > 100
    assert all(re.fullmatch(r"\w+ (\+ \d+|\* 1\.0)", text) for texts in changed for text in texts.split(", "))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_seed_is_one_kernel_with_one_memory(profile):
    one, two = generate(11, profile), generate(11, profile)
    assert one.text() == two.text()
    assert one.text() != generate(12, profile).text()
    first, second = contents(one), contents(two)
    assert all(np.array_equal(first[name].view(np.uint8), second[name].view(np.uint8)) for name in first)


def test_a_difference_is_seen_and_named():
    kernel = generate(3, "memory")
    name = next(name for name, storage in kernel.storages.items() if storage.written)
    one = contents(kernel)
    two = {key: array.copy() for key, array in one.items()}
    assert difference(kernel, one, two) == ""
    two[name].view(np.uint8)[0] ^= 1
    assert "at" in difference(kernel, one, two)


@contextmanager
def _loop_that_forgets_what_is_kept(lifetimes):
    lifetimes.clock += 1
    start = lifetimes.clock
    yield
    lifetimes.clock += 1
    for span in lifetimes.spans.values():
        if span[0] < start <= span[1]:
            span[1] = lifetimes.clock


def test_panels_that_do_not_last_from_program_to_program_are_seen(monkeypatch):
    """A fault that was there once: what a product keeps for the next program shared memory with what came after."""
    kernels = [generate(seed, "product") for seed in range(6)]
    assert [verdict.reason for verdict in judge(kernels, None) if verdict.failed] == []
    monkeypatch.setattr(Lifetimes, "loop", _loop_that_forgets_what_is_kept)
    monkeypatch.setattr(
        "silo.kinds.triton.cpu.lower.module_lowering.check_sharing", lambda *_: None
    )  # which sees it earlier
    verdicts = judge(kernels, None)
    assert any(verdict.status == "differs" for verdict in verdicts)


def test_a_kernel_too_sensitive_to_rounding_has_no_tolerance():
    kernel = generate(0, "rounded")
    assert tolerance(kernel, 1.0, 1.0) is None
    assert tolerance(kernel, 0.0, 1.0) < 0.1


def test_shrinking_keeps_what_fails_and_drops_the_rest():
    def masked(kernel):
        return any("tl.store" in line and "mask=" in line for line in kernel.text().splitlines())

    def blame(tried):
        """A fault that every kernel with a masked store has."""
        return [Verdict(k.seed, k.profile, "differs" if masked(k) else "same", "optimized: so") for k in tried]

    seeds = random.Random(0).sample(range(1000), 200)
    kernel = next(k for k in (generate(seed, "memory") for seed in seeds) if masked(k) and len(k.text()) > 1500)
    small = shrink(kernel, blame([kernel])[0], blame)
    assert masked(small)
    assert len(small.text()) < 500
