"""Bundles with the code of several compilers: joined, tuned, and read; the winner is the fastest right code."""

import json
import random
from collections import Counter

import numpy as np
import pytest

from bundle_samples import sealed
from fuzz import chooser
from silo.artifacts.artifact import Artifact
from silo.bundle.contents import BundleRules
from silo.bundle.merged_evidence import Evidence
from silo.bundle.mixed_compilers import (
    CompiledConfig,
    RulesPart,
    compiler_names,
    joined_rules,
    mixed_rules,
    table_of,
)
from silo.bundle.reader import open_bundle, stored_blobs
from silo.bundle.update import KernelUpdate, update_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
from silo.commands.bundle_description import describe_bundle
from silo.commands.trust_code import trust_bundle
from silo.core.config import Config
from silo.core.device import DeviceModel, Target
from silo.core.dispatch import Bound, DecisionList, DispatchRules, Step, bucket_of
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.errors import BundleError, BundleFormatError, TrustError
from silo.frozen import replace
from silo.launch.runtime import inspect_call
from silo.machine.device_plugins import device_named
from silo.settings import override
from silo.shipping.slice_bundle import merge_bundles, slice_by_target
from silo.tuner.ledger import pair_to_document
from silo.tuner.trial import Status, Study

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import silo

KERNEL = """
import silo
import triton
import triton.language as tl


@silo.kernel(grid=lambda a: (silo.cdiv(a.n, 128),), key=["n"])
@triton.jit
def k(x, out, n):
    i = tl.program_id(0) * 128 + tl.arange(0, 128)
    value = tl.load(x + i, mask=i < n)
    spent = value
    for _ in range({rounds}):
        spent = tl.sin(spent) + value
    tl.store(out + i, {value}, mask=i < n)


@k.cases(n={sizes})
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n){expected})
"""
EXPECTED = ', expected={"out": lambda: x.host * 2}'
# Neither is folded away: no value is as large as that.
RIGHT = "value * 2.0 + tl.where(spent > 1e30, 1.0, 0.0)"
WRONG = "value * 2.5 + tl.where(spent > 1e30, 1.0, 0.0)"
MANY = "400"


def renamed(path, version):
    """The bundle as a compiler of another version would have made it."""
    with open_bundle(path) as bundle:
        contents = bundle.contents()

        def of(artifact: Artifact) -> Artifact:
            return replace(artifact, compiler=f"cpu code 00 triton {version} files 00")

        kernels = tuple(
            replace(one, variants=tuple(replace(each, artifact=of(each.artifact)) for each in one.variants))
            for one in contents.kernels
        )
        toolchain = (("triton", version),)
        stored = stored_blobs([bundle])
        write_bundle(path, replace(contents, kernels=kernels, toolchain=toolchain), lambda _: None, read_stored=stored)
    return path


class Maker:
    """Builds bundles of one kernel, whose bodies differ, in one store."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, version, rounds="0", value=RIGHT, expected=EXPECTED, sizes="[400, 20000]"):
        name = f"{version}-{abs(hash((rounds, value, expected, sizes)))}"
        path = self.folder / f"{name}.silo"
        if not path.exists():
            source = self.folder / f"k_{name.replace('.', '_').replace('-', '_')}.py"
            source.write_text(KERNEL.format(rounds=rounds, value=value, expected=expected, sizes=sizes))
            silo.build(source, output=path, tune="off")
            renamed(path, version)
        return path

    def joined(self, *paths, name="joined"):
        made = self.folder / f"{name}.silo"
        merge_bundles(paths, made)
        return made


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    with override(home=str(folder / "store")):
        yield Maker(folder)


def tuned(path):
    rows = silo.tune(path, device="cpu", trust=True)
    return {row.case: row for row in rows}


def chosen(path, n):
    """The version of the compiler whose code a call gets, and its result."""
    kernel = silo.load(path, trust=True).k
    x, out = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    kernel(x, out, n)
    return kernel.launcher.resolve(x, out, n).tag.artifact.compiler.split()[4], out


def test_bundles_of_two_compilers_are_joined_with_the_code_of_both(make):
    first, second = make("1.0"), make("2.0", MANY)
    path = make.joined(first, second, name="both")
    assert verify_bundle(path) == ()
    with open_bundle(path) as bundle:
        kernel = bundle.kernel("k")
        assert dict(bundle.manifest.toolchain)["triton"] == "1.0; 2.0"
        found = Counter(one.artifact.compiler.split()[4] for one in kernel.variants)
        assert found["1.0"] == found["2.0"] > 0
        assert {name.split()[4] for rules in kernel.rules for name in rules.compilers} == {"1.0"}
    assert path.read_bytes()[10] == 9  # the minor version of the format
    again = make.joined(first, second, name="again")
    assert again.read_bytes() == path.read_bytes()
    other = make.joined(second, first, name="other")
    assert chosen(path, 400)[0] == "1.0"
    assert chosen(other, 400)[0] == "2.0"


def test_a_bundle_of_one_compiler_is_of_the_version_that_it_was(make):
    assert make("1.0").read_bytes()[10] < 9


def test_inspect_names_the_compiler_of_each_variant(make):
    description = describe_bundle(make.joined(make("1.0"), make("2.0", MANY), name="inspected"), None)
    assert description.mixed
    assert set(description.compilers.values()) == {"triton 1.0", "triton 2.0"}
    assert {description.compilers[row.compiler] for row in description.variants} == {"triton 1.0", "triton 2.0"}
    assert {description.compilers[row.compiler] for row in description.winners} == {"triton 1.0"}
    assert not describe_bundle(make("1.0"), None).mixed


def test_the_faster_code_wins_wherever_it_stands(make):
    for order in (("1.0", "2.0"), ("2.0", "1.0")):
        paths = {"1.0": make("1.0", MANY), "2.0": make("2.0")}
        path = make.joined(*(paths[one] for one in order), name=f"faster-{order[0]}")
        rows = tuned(path)
        for n in (400, 20000):
            version, out = chosen(path, n)
            assert version == "2.0"
            assert (out == 2 * np.arange(n, dtype=np.float32)).all()
        assert any("triton 2.0" in line and "of its time" in line for line in rows["n=20000"].remarks)
        assert verify_bundle(path) == ()


def test_each_case_gets_the_better_compiler_for_it(make):
    small = make("1.0", "tl.where(n > 1000, 400, 0).to(tl.int32)")
    large = make("2.0", "tl.where(n > 1000, 0, 4000).to(tl.int32)")
    path = make.joined(small, large, name="each")
    tuned(path)
    assert [chosen(path, n)[0] for n in (400, 20000)] == ["1.0", "2.0"]
    assert chosen(path, 18000)[0] == "2.0"  # in the same bucket
    rows = tuned(path)  # nothing new is measured, and the same is chosen
    assert {row.measured for row in rows.values()} == {0}
    assert [chosen(path, n)[0] for n in (400, 20000)] == ["1.0", "2.0"]


def test_cases_of_one_bucket_get_the_compiler_that_loses_least_over_them(make):
    sizes = "[17000, 20000]"
    first = make("1.0", "tl.where(n > 18000, 30, 0).to(tl.int32)", sizes=sizes)
    second = make("2.0", "tl.where(n > 18000, 0, 300).to(tl.int32)", sizes=sizes)
    path = make.joined(first, second, name="shared")
    rows = tuned(path)
    faster = [any("is faster than" in line for line in rows[f"n={n}"].remarks) for n in (17000, 20000)]
    assert faster == [False, True]  # each case by itself would take another
    assert [chosen(path, n)[0] for n in (17000, 20000)] == ["1.0", "1.0"]
    assert ("measured", 2) in {(row.reason, row.cases) for row in describe_bundle(path).winners}


def test_wrong_code_does_not_win_however_fast(make):
    path = make.joined(make("1.0", MANY), make("2.0", value=WRONG), name="wrong")
    rows = tuned(path)
    assert [chosen(path, n)[0] for n in (400, 20000)] == ["1.0", "1.0"]
    assert all("triton 2.0: none of its configs can be used" in row.remarks for row in rows.values())
    assert all(row.failures == {"wrong": 1} for row in rows.values())
    path = make.joined(make("2.0", value=WRONG), make("1.0", MANY), name="wrong-first")
    tuned(path)
    assert [chosen(path, n)[0] for n in (400, 20000)] == ["1.0", "1.0"]


def test_other_results_than_the_first_compilers_do_not_win_where_nothing_is_expected(make):
    # Other sources than in the tests above, whose trials count for equal sources.
    path = make.joined(make("1.0", "401", expected=""), make("2.0", "1", WRONG, expected=""), name="differs")
    rows = tuned(path)
    assert [chosen(path, n)[0] for n in (400, 20000)] == ["1.0", "1.0"]
    for row in rows.values():
        assert "result differs from that of triton 1.0" in " ".join(row.remarks)


def test_slices_of_a_mixed_bundle_are_it_again(make):
    path = make.joined(make("1.0", MANY), make("2.0"), name="whole")
    tuned(path)
    slices = slice_by_target(path, make.folder / "slices")
    found = merge_bundles([make.folder / "slices" / one.path for one in slices], make.folder / "again-whole.silo")
    assert found.whole
    assert (make.folder / "again-whole.silo").read_bytes() == path.read_bytes()


def test_consent_to_the_parts_is_consent_to_the_whole_and_to_nothing_else(make, tmp_path):
    path = make.joined(make("1.0"), make("2.0", MANY), name="consented")
    # The compilers were renamed, and the code is as it was built, so only the cases of the whole are new.
    assert silo.tune(path, device="cpu")[0].winner is not None
    for trusted in (["1.0"], ["1.0", "2.0"]):
        with override(home=str(tmp_path / "".join(trusted))):
            own = tmp_path / f"{len(trusted)}.silo"
            for version in trusted:
                trust_bundle(make(version, "0" if version == "1.0" else MANY))
            merge_bundles([make("1.0"), make("2.0", MANY)], own)
            if len(trusted) == 2:
                assert silo.tune(own, device="cpu")[0].winner is not None
            else:
                with pytest.raises(TrustError):
                    silo.tune(own, device="cpu")


def test_bundles_of_other_sources_are_not_joined(make):
    source = make.folder / "other_source.py"
    source.write_text(KERNEL.format(rounds="0", value=RIGHT, expected=EXPECTED, sizes="[500]"))
    other = make.folder / "other_source.silo"
    silo.build(source, output=other, tune="off")
    with pytest.raises(BundleError, match="not of one source"):
        merge_bundles([make("1.0"), renamed(other, "2.0")], make.folder / "never.silo")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda found: found[:-1], "compilers for"),
        (lambda found: [*found, 0], "compilers for"),
        (lambda found: [7, *found[1:]], "out of range"),
        (lambda found: ["0", *found[1:]], "integer"),
        (lambda found: 0, "list"),
    ],
)
def test_a_file_that_names_compilers_wrongly_is_refused(make, change, reason, tmp_path):
    path = make.joined(make("1.0"), make("2.0", MANY), name="damaged")

    def damage(manifest):
        rules = manifest["kernels"][0]["rules"][0]
        rules["compilers"] = change(rules["compilers"])

    with open_bundle(path) as bundle:
        manifest = json.loads(bundle.manifest_text)
    damage(manifest)
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    broken = tmp_path / "broken.silo"
    broken.write_bytes(sealed(path.read_bytes(), text, compress=False))
    with pytest.raises(BundleFormatError) as refused:
        open_bundle(broken).kernel("k")
    assert "rules[0].compilers" in str(refused.value.field)
    assert reason in str(refused.value)


def test_the_native_choice_is_that_of_a_search_through_all_variants(make):
    path = make.joined(make("1.0"), make("2.0", MANY), name="random")
    draw, device = random.Random(3), device_named("cpu")
    x = np.zeros(64, np.float32)
    seen = Counter()
    for _ in range(15):
        with open_bundle(path) as bundle:
            rules = bundle.kernel("k").rules[0]
        config, names = rules.rules.fallback, sorted({*rules.compilers, *_compilers(path)})
        table = {bucket_of([draw.randrange(1, 5000)]): config for _ in range(draw.randrange(4))}
        bounds = Bound("n", most=draw.randrange(1, 3000))
        unseen = DecisionList((Step((bounds,), config), Step((), config))) if draw.random() < 0.5 else None
        made = DispatchRules.of(["n"], table, config, unseen)
        count = len(made.rules) + 1 + (0 if unseen is None else 2)
        compilers = tuple(draw.choice(names) for _ in range(count))
        update_bundle(path, {"k": KernelUpdate(rules=(replace(rules, rules=made, compilers=compilers),))})
        kernel = silo.load(path, trust=True).k
        for _ in range(20):
            n = draw.choice([draw.randrange(1, 8000), -draw.randrange(1, 300)])
            call = inspect_call(kernel.launcher, kernel.contents.signature, x, x, n)
            found = kernel.rank_numbers(call, device)
            assert list(found) == chooser.ranked(kernel.contents, call, device)
            seen[kernel.variant(found[0]).artifact.compiler] += 1
    assert len(seen) == 2
    assert min(seen.values()) > 30


def _compilers(path):
    with open_bundle(path) as bundle:
        return {one.artifact.compiler for one in bundle.kernel("k").variants}


# ---- the parts ----

ONE, TWO = Config.of(BLOCK=1), Config.of(BLOCK=2)


def test_steps_get_the_compiler_that_won_with_their_config():
    steps = DecisionList((Step((Bound("n", most=64),), TWO), Step((), ONE)))
    table = {
        (16,): CompiledConfig(TWO, "b"),
        (1024,): CompiledConfig(ONE, "a"),
        (2048,): CompiledConfig(ONE, "b"),
        (4096,): CompiledConfig(ONE, "b"),
    }
    rules = DispatchRules.of(["n"], {bucket: one.config for bucket, one in table.items()}, ONE, steps)
    found = mixed_rules(rules, table, CompiledConfig(ONE, "a"))
    assert found == ("a", "b", "b", "b", "a", "b", "b")  # 1024 is the first by its text
    assert mixed_rules(DispatchRules.of(["n"], {}, ONE, steps), {}, CompiledConfig(ONE, "a")) == ("a", "a", "a")


def rules_of(table, compilers=()):
    made = DispatchRules.of(["n"], table, ONE)
    return BundleRules(Target.parse("cpu"), Signature(()), made, 2, (), compilers)


def test_joined_rules_keep_the_first_decision_of_a_bucket():
    first, second = rules_of({(16,): ONE}), rules_of({(16,): TWO, (32,): TWO})
    found, remarks = joined_rules([RulesPart(first, ("a",)), RulesPart(second, ("b",))])
    assert remarks == []
    table, fallback = table_of(found, ["a", "b"])
    assert table == {(16,): CompiledConfig(ONE, "a"), (32,): CompiledConfig(TWO, "b")}
    assert fallback == CompiledConfig(ONE, "a")


def evidence(compiler, times, model="A100"):
    """Trials of the buckets and configs of ``times``, as a bundle stores them."""
    documents = []
    for (bucket, config), median in times.items():
        study = Study(
            kernel="k",
            source="s",
            signature=Signature(()),
            specialization=Specialization(),
            target=Target.parse("cpu"),
            compiler=compiler,
            bucket_names=("n",),
            bucket=(bucket,),
            device=DeviceModel("nvidia", model, "sm_80", 108, 1 << 35),
            policy="p",
        )
        trial = study.trial(config, Status.OK, [median + one % 3 for one in range(20)])
        documents.append(pair_to_document(study, trial))
    return Evidence.of(documents, [compiler])


@pytest.mark.parametrize(
    ("times", "model", "chosen"),
    [
        ({(16, TWO): 500}, "A100", "b"),  # faster beyond doubt, on the same device
        ({(16, TWO): 1500}, "A100", "a"),  # slower
        ({(16, TWO): 1000}, "A100", "a"),  # not separated
        ({(16, TWO): 500}, "H100", "a"),  # on another device
        ({(32, TWO): 500}, "A100", "a"),  # of another bucket
        ({(16, ONE): 500, (16, TWO): 1500}, "A100", "a"),  # of another config than the rule's
    ],
)
def test_joined_rules_take_the_faster_decision_where_trials_of_one_device_show_it(times, model, chosen):
    first, second = rules_of({(16,): ONE}), rules_of({(16,): TWO})
    parts = [
        RulesPart(first, ("a",), evidence("a", {(16, ONE): 1000})),
        RulesPart(second, ("b",), evidence("b", times, model)),
    ]
    found, remarks = joined_rules(parts)
    table, _ = table_of(found, ["a", "b"])
    assert table == {(16,): CompiledConfig(TWO if chosen == "b" else ONE, chosen)}
    assert len(remarks) == (chosen == "b")
    assert all("n=16: b: 501 ns and 1001 ns on" in line for line in remarks)


def test_rules_with_another_number_of_compilers_are_no_value():
    with pytest.raises(ValueError, match="3 compilers for 1 rules"):
        rules_of({(16,): ONE}, ("a", "b", "c"))


def test_names_of_compilers_are_short_and_different():
    pairs = [("triton", "1; 2"), ("zstd", "3")]
    found = compiler_names(["code 00 triton 1 files 00", "code 00 triton 2 files 00", "other thing of 5"], pairs)
    assert list(found.values()) == ["triton 1", "triton 2", "other thing of"]
    alike = compiler_names(["code 00 triton 1 files 00", "code 11 triton 1 files 00"], pairs)
    assert len(set(alike.values())) == 2
    assert all(name.startswith("triton 1 (") for name in alike.values())
