"""A stranger's bundle against every command and every call: nothing of it runs, and nothing of it is compiled.

Its objects have an ELF constructor that makes a file, and its entry makes another; the C compiler that checks would
use makes a third. Its store is not the one of whoever looks at it.
"""

import contextlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import click
import numpy as np
import pytest

import silo
from bundle_samples import put
from silo.bundle.contents import encode_documents
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.writer import write_bundle
from silo.cli.main import app
from silo.commands.build_bundle import build_bundle
from silo.commands.export_bundle import ExportOptions, export_cpp
from silo.commands.run_cases import run_cases
from silo.commands.trust_code import trust_bundle, trusted_code, untrust
from silo.commands.tune_cases import tune_path
from silo.core.expressions import Const
from silo.core.launch_info import AbiType, LayoutSlot
from silo.core.signature import Effect, Parameter, ParameterKind
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.errors import BundleError, BundleFormatError, DeviceError, SiloError, TrustError
from silo.frozen import replace
from silo.kernels.collection import collect_kernels
from silo.machine.process_session import session
from silo.settings import child_environment, override
from twice_kernel import twice

pytest.importorskip("triton", reason="the bundle is built from a Triton kernel")

KERNEL = twice('space={"BLOCK": [64, 128]}, key=["n"]')

EVIL = """
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>
static void touch(const char *path) { close(open(path, O_CREAT | O_WRONLY, 0600)); }
__attribute__((constructor)) static void begin(void) { touch("MARKS/constructor"); }
int32_t ENTRY(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end, void *scratch, void *context) {
    touch("MARKS/entry");
    return 0;
}
"""


class World:
    """A folder with a kernel, the bundle that its author built, and a stranger's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.home = folder / "mine"
        self.source = folder / "k.py"
        self.source.write_text(KERNEL, encoding="utf-8")
        self.good = folder / "good.silo"
        with override(home=self.home, jobs=1):
            build_bundle([self.source], self.good, tune="off", configs="all")
        self.compiler = folder / "cc"
        self.compiler.write_text(f'#!/bin/sh\ntouch {self.marks}/compiled\nexec cc "$@"\n', encoding="utf-8")
        self.compiler.chmod(0o755)
        self.evil = folder / "evil.silo"
        self._write_evil()

    def _write_evil(self) -> None:
        with open_bundle(self.good) as bundle:
            (kernel,) = bundle.contents().kernels
            entry = kernel.variants[0].artifact.launch.entry
            text = EVIL.replace("MARKS", str(self.marks)).replace("ENTRY", entry)
            (self.folder / "evil.c").write_text(text, encoding="utf-8")
            library = self.folder / "evil.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, self.folder / "evil.c"], check=True)
            self.write(
                bundle,
                self.evil,
                lambda one, blobs: replace(one, blob=put(blobs, "so", library.read_bytes())),
            )

    def write(self, bundle: Bundle, path: Path, change, head=lambda kernel: kernel) -> Path:
        """The bundle with every artifact changed, its hashes right: ``change(artifact, new blobs)``."""
        contents = bundle.contents()
        (kernel,) = contents.kernels
        blobs = {ref.sha256: bundle.blob(ref.sha256) for ref in kernel.refs}
        variants = tuple(replace(one, artifact=change(one.artifact, blobs)) for one in kernel.variants)
        write_bundle(path, replace(contents, kernels=(head(replace(kernel, variants=variants)),)), blobs.get)
        return path

    def clean(self) -> list[str]:
        """What was made; there is nothing of it afterwards."""
        found = sorted(path.name for path in self.marks.iterdir())
        for name in found:
            (self.marks / name).unlink()
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    made = World(tmp_path_factory.mktemp("strangers"))
    assert made.clean() == []
    return made


@pytest.fixture
def home(world, tmp_path):
    """The store of a user who knows nothing of the bundle."""
    folder = tmp_path / "store"
    with override(home=folder, cc=str(world.compiler), jobs=1):
        yield folder
    assert world.clean() == []


def command(world: World, home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", "from silo.cli.main import main; main()", *map(str, words)],
        env=child_environment(SILO_HOME=str(home), SILO_JOBS="1", CC=str(world.compiler), COLUMNS="100"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(100, dtype=np.float32), np.full(100, -1, dtype=np.float32)


# Every command that takes a bundle. 3: refused; 0: it only reads.
COMMANDS = {
    "run": (("run", "K"), 3),
    "run --check": (("run", "K", "--check"), 3),
    "check": (("check", "K"), 3),
    "tune": (("tune", "K", "--budget", "1"), 3),
    "build": (("build", "K", "-o", "OUT/made.silo"), 3),
    "inspect": (("inspect", "K"), 0),
    "diff": (("diff", "K", "K"), 3),
    "crash": (("crash", "K"), 3),  # a bundle is no report; test_flight has a stranger's report
    "exec --check-launches": (("exec", "--check-launches", "K", "-c", "pass"), 3),
    "diff --no-run": (("diff", "K", "K", "--no-run"), 0),
    "judge": (("judge", "K", "K"), 3),
    "inspect --json": (("inspect", "K", "--json"), 0),
    "inspect --code c": (("inspect", "K", "--code", "c"), 0),
    "inspect --code ttir": (("inspect", "K", "--code", "ttir"), 0),
    "inspect --code asm": (("inspect", "K", "--code", "asm"), None),  # 0 where objdump is here
    "inspect --code llvm": (("inspect", "K", "--code", "llvm"), 3),
    "report": (("report", "K", "-o", "OUT"), None),  # its trials were made elsewhere
    "export": (("export", "K", "--cpp", "OUT/cpp"), 3),
    "export --cpu-source": (("export", "K", "--cpp", "OUT/cpp", "--cpu-source"), 3),
    "export --wheel": (("export", "K", "--wheel", "evil", "-o", "OUT"), 3),
    "cache import": (("cache", "import", "K"), None),
    "cache export": (("cache", "export", "K", "-o", "OUT"), None),
    "cache": (("cache",), 0),
    "trust --list": (("trust", "--list"), 0),
    "untrust": (("untrust", "K"), 3),
    "verify": (("verify", "K"), 1),
    "push": (("push", "K", "oci://127.0.0.1:9/r:1"), 3),
    "slice": (("slice", "K", "-o", "OUT"), 0),
    "merge": (("merge", "K", "K", "-o", "OUT/merged.silo"), 0),
    "sign": (("sign", "K", "--key", "K"), 3),  # what signs it is in test_signed_bundles.py
    "doctor": (("doctor",), None),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_runs_nothing_of_a_strangers_bundle(world, home, tmp_path, name):
    words, code = COMMANDS[name]
    out = tmp_path / "out"
    out.mkdir()
    given = [str(world.evil) if word == "K" else word.replace("OUT", str(out)) for word in words]
    done = command(world, home, *given)
    made = world.clean()
    assert "constructor" not in made
    assert "entry" not in made
    # doctor tries the compiler, on code of its own.
    assert not made or name == "doctor"
    if code is not None:
        assert done.returncode == code, done.stderr
    if name in ("run", "run --check", "check", "tune") or name.startswith("export"):
        assert "brings native code" in done.stderr
        assert f"silo trust {world.evil}" in done.stderr
    if name.startswith("export"):
        assert list(out.iterdir()) == []


def test_there_is_no_command_that_was_forgotten():
    known = {words[0] for words, _ in COMMANDS.values()} | {
        "trust",
        "cache",
        "selftest",
        "keygen",
        "pull",
        "exec",
        "agent",
        "fleet",
        "help",
        "version",
    }  # all but the first two take no bundle
    asked = set(app.list_commands(click.Context(app)))
    assert asked == known


CALLS = {
    "call": lambda k: k(*arrays(), 100),
    "call with a grid": lambda k: k[(2,)](*arrays(), 100),
    "bind": lambda k: k.bind(*arrays(), 100),
    "compiled": lambda k: k.compiled(*arrays(), 100),
    "warmup": lambda k: k.warmup(*arrays(), 100),
    "check": lambda k: silo.check(k)(*arrays(), 100),
    "check nan": lambda k: silo.check(k, nan=True)(*arrays(), 100),
    "launcher": lambda k: k.launcher(*arrays(), 100),
    "resolve": lambda k: k.launcher.resolve(*arrays(), 100),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("home")
def test_a_call_runs_nothing_of_a_strangers_bundle(world, name):
    kernel = silo.load(world.evil).twice
    assert "twice" in kernel.explain(*arrays(), 100)  # reading needs no trust
    with pytest.raises(TrustError, match="brings native code"):
        CALLS[name](kernel)
    assert world.clean() == []


def exported(path: Path, folder: Path, **more: bool) -> list[Path]:
    export_cpp(path, folder, ExportOptions(cpu_source=more.pop("cpu_source", False)), **more)
    return [*folder.rglob("cpu/**/*.c")]


@pytest.mark.usefixtures("home")
def test_an_export_is_made_with_the_consent_that_a_load_needs(world, tmp_path):
    """For code that other programs run later: the ledger of the user who exports decides, as it does at a load."""
    with pytest.raises(TrustError, match="nothing is exported"):
        exported(world.good, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    assert exported(world.good, tmp_path / "said", trust=True, cpu_source=True)
    with override(home=world.home):
        assert exported(world.good, tmp_path / "own", cpu_source=True)
    trust_bundle(world.good)
    assert exported(world.good, tmp_path / "trusted", cpu_source=True)
    untrust([str(world.good)])
    with pytest.raises(TrustError, match="nothing is exported"):
        exported(world.good, tmp_path / "refused", cpu_source=True)


@pytest.mark.usefixtures("home")
def test_the_c_text_beside_code_that_was_built_here_is_not_believed(world, tmp_path):
    """For texts that are compiled later: consent to an object is none to the C that a stranger put beside it."""
    path = tmp_path / "lie.silo"

    def lie(artifact, blobs):
        text = put(blobs, "c", b"#include <stdlib.h>\n")
        return replace(artifact, sidecars=tuple(text if ref.kind == "c" else ref for ref in artifact.sidecars))

    with open_bundle(world.good) as bundle:
        world.write(bundle, path, lie)
    with override(home=world.home):
        exported(path, tmp_path / "objects")  # these are the author's own
        with pytest.raises(TrustError, match="nothing is exported"):
            exported(path, tmp_path / "texts", cpu_source=True)
    assert not (tmp_path / "texts").exists()


@pytest.mark.usefixtures("home")
def test_what_only_reads_runs_nothing(world):
    loaded = silo.load(world.evil)
    assert [*loaded] == ["twice"]
    assert dir(loaded)
    kernel = loaded.twice
    for value in (kernel.contents, kernel.signature, kernel.grid, kernel.recipes(), kernel.launcher, repr(kernel)):
        assert value
    assert trusted_code() == []
    with pytest.raises(SiloError):
        collect_kernels([world.evil])


def test_the_traps_of_these_tests_work(world, tmp_path):
    """With this user's word for it, what the stranger wrote does run."""
    with override(home=tmp_path / "store"):
        silo.load(world.evil, trust=True).twice(*arrays(), 100)
    assert world.clean() == ["constructor", "entry"]
    with override(home=tmp_path / "store", cc=str(world.compiler)):
        silo.check(silo.load(world.good, trust=True).twice)(*arrays(), 100)
    assert world.clean() == ["compiled"]
    assert command(world, tmp_path / "store", "tune", world.evil, "--trust", "--budget", "1").returncode in (0, 1, 3)
    assert "constructor" in world.clean()


def test_trust_is_given_listed_and_taken_back(world, tmp_path):
    with override(home=tmp_path / "store"):
        made = trust_bundle(world.good)
        assert made.added == made.codes > 0
        assert trust_bundle(world.good).added == 0
        rows = trusted_code()
        assert len(rows) == 2 * made.codes + 1  # each piece of code, the C text beside it, and the cases
        assert {row.origin for row in rows} == {"good.silo"}
        assert {row.kernel.partition(" for cpu:")[0] for row in rows} == {
            "twice",
            "the C text of twice",
            "the cases of twice",
        }
        assert all(row.since > 0 for row in rows)
        x, out = arrays()
        silo.load(world.good).twice(x, out, 100)
        assert (out == 2 * x).all()
        silo.check(silo.load(world.good).twice)(x, out, 100)
        assert untrust([str(world.good)]) == 2 * made.codes + 1
        assert trusted_code() == []
        with pytest.raises(TrustError):
            silo.load(world.good).twice(x, out, 100)
    assert world.clean() == []


def test_the_list_of_what_is_trusted_is_shown(world, tmp_path):
    home = tmp_path / "store"
    assert command(world, home, "trust", world.good).returncode == 0
    shown = command(world, home, "trust", "--list")
    assert "good.silo" in shown.stdout
    with override(home=home):
        rows = trusted_code()
    assert rows[0].sha256[:16] in shown.stdout
    assert command(world, home, "untrust", rows[0].sha256[:16]).returncode == 0
    with override(home=home):
        assert len(trusted_code()) == len(rows) - 1
    assert command(world, home, "untrust", "0123456789abcdef").returncode == 3
    assert command(world, home, "trust").returncode == 2
    assert command(world, home, "trust", "--list", world.good).returncode == 2


def slots(artifact, *layout):
    return replace(artifact, launch=replace(artifact.launch, layout=tuple(layout)))


def signature(artifact, **changes):
    """With parameters changed by name."""
    made = artifact.variant.signature
    parameters = tuple(replace(one, **changes.get(one.name, {})) for one in made.parameters)
    return replace(artifact, variant=replace(artifact.variant, signature=type(made)(parameters)))


def entry(artifact, name):
    return replace(artifact, launch=replace(artifact.launch, entry=name))


def other_facts(artifact):
    """None where the code assumes some, so that it may be given any array; and some where it assumes none."""
    facts = artifact.variant.specialization.facts
    return Specialization() if facts else Specialization((("x", Fact.ALIGNED_16),))


# Lies about code that this user's store built: each crashed the process, or wrote where it should not.
LIES = {
    "layout too short": lambda one, _: slots(one, one.launch.layout[0]),
    "no layout": lambda one, _: slots(one),
    "an integer for a pointer": lambda one, _: slots(one, LayoutSlot("n", AbiType.I64), *one.launch.layout[1:]),
    "effect": lambda one, _: signature(one, out={"effect": Effect.READ}),
    "entry of libc": lambda one, _: entry(one, "abort"),
    "scratch": lambda one, _: replace(one, launch=replace(one.launch, scratch_bytes=1 << 20)),
    "other facts": lambda one, _: replace(one, variant=replace(one.variant, specialization=other_facts(one))),
    "text": lambda one, blobs: replace(
        one, sidecars=(*(ref for ref in one.sidecars if ref.kind != "ttir"), put(blobs, "ttir", b"module {}"))
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_code_that_was_built_here_is_refused(world, tmp_path, lie):
    path = tmp_path / "lie.silo"
    with open_bundle(world.good) as bundle:
        world.write(bundle, path, LIES[lie])
    with override(home=world.home):
        x, out = arrays()
        silo.load(world.good).twice(x, out, 100)  # the truth about it
        for call in CALLS.values():
            with pytest.raises((TrustError, BundleError)):
                call(silo.load(path).twice)
        for use in (tune_path, run_cases, partial(run_cases, check=True)):
            with pytest.raises(TrustError):
                use(path)
    assert world.clean() == []


def cased(world, path, change) -> Path:
    """The bundle that was built here, its cases changed."""

    with open_bundle(world.good) as bundle:
        contents = bundle.contents()
        (kernel,) = contents.kernels
        blobs = {ref.sha256: bundle.blob(ref.sha256) for ref in kernel.refs}
        documents = [json.loads(line) for line in bundle.blob(kernel.cases.sha256).splitlines()]
        cases = put(blobs, kernel.cases.kind, encode_documents([change(one) for one in documents]))
        write_bundle(path, replace(contents, kernels=(replace(kernel, cases=cases),)), blobs.get)
    return path


def test_a_case_that_a_stranger_wrote_is_not_run_on_code_that_was_built_here(world, tmp_path):
    """Its arrays had a few elements, and it said that they have 2^26: the code of this store wrote beyond them."""

    def larger(case):
        case["arguments"] = [[name, {"scalar": 1 << 26} if name == "n" else value] for name, value in case["arguments"]]
        return case

    path = cased(world, tmp_path / "lie.silo", larger)
    with override(home=world.home):
        x, out = arrays()
        silo.load(path).twice(x, out, 100)  # which runs no case
        assert (out == 2 * x).all()
        for use in (tune_path, run_cases, partial(run_cases, check=True)):
            with pytest.raises(TrustError, match="cases for native code that is known here"):
                use(path)
    done = command(world, world.home, "run", path)
    assert done.returncode == 3
    assert "it may not be run on what they say" in done.stderr


def test_cases_of_the_bundle_itself_are_run_and_those_that_this_user_trusts(tmp_path):
    world = World(tmp_path)  # its own: what is trusted no more is the other tests' code too

    def smaller(case):
        case["arguments"] = [[name, {"scalar": 7} if name == "n" else value] for name, value in case["arguments"]]
        return {**case, "expected": []}

    path = cased(world, tmp_path / "other.silo", smaller)
    with override(home=world.home):
        assert all(row.ok for row in run_cases(world.good))
        with pytest.raises(TrustError):
            run_cases(path)
        assert all(row.ok for row in run_cases(path, trust=True))
        trust_bundle(path)
        assert all(row.ok for row in run_cases(path))
        untrust([str(path)])
        with pytest.raises(TrustError):
            run_cases(path)


# What of the kernel itself decides how its code is called.
HEADS = {
    "grid": lambda kernel: replace(kernel, grid=(Const(1 << 30),)),
    "default": lambda kernel: replace(
        kernel,
        signature=type(kernel.signature)(
            tuple(replace(one, default=1 << 30) if one.name == "n" else one for one in kernel.signature.parameters)
        ),
    ),
    "derived": lambda kernel: replace(kernel, derived=(("EXTRA", Const(1)),)),
}


@pytest.mark.parametrize("lie", HEADS)
def test_a_lie_about_how_it_is_called_is_refused(world, tmp_path, lie):
    path = tmp_path / "lie.silo"
    with open_bundle(world.good) as bundle:
        world.write(bundle, path, lambda one, _: one, HEADS[lie])
    with override(home=world.home):
        for call in CALLS.values():
            with pytest.raises((TrustError, SiloError)):
                call(silo.load(path).twice)


def test_arrays_of_another_type_are_refused_for_code_that_was_built_here(world, tmp_path):
    path = tmp_path / "lie.silo"
    small = {"dtype": dtype("int8")}
    with open_bundle(world.good) as bundle:
        world.write(bundle, path, lambda one, _: signature(one, x=small, out=small))
    x = np.zeros(100, dtype=np.int8)
    with override(home=world.home), pytest.raises(TrustError):
        silo.load(path).twice(x, x.copy(), 100)


DECLARED = [
    (name, {"kind": kind, "dtype": element})
    for name in ("x", "n")
    for kind in ParameterKind
    for element in (None, dtype("int64"), dtype("float32"))
]


def test_a_trusted_variant_that_declares_its_parameters_wrong_is_an_error_of_silo(world, tmp_path):
    """``bind`` compares the declarations with the code, where other calls compare their arguments."""
    said = set()
    for number, (name, changes) in enumerate(DECLARED):
        path = tmp_path / f"lie{number}.silo"
        with open_bundle(world.good) as bundle, contextlib.suppress(SiloError, ValueError):
            world.write(bundle, path, lambda one, _, name=name, changes=changes: signature(one, **{name: changes}))
        with override(home=world.home), contextlib.suppress(SiloError):
            try:
                if path.exists():
                    silo.load(path, trust=True).twice.bind(*arrays(), 100)
            except DeviceError as error:
                said.add(str(error))
    assert any("the variant's signature and its code do not agree: twice: parameter 2" in text for text in said), said
    assert world.clean() == []


def test_a_kernel_whose_parameters_lie_in_another_order_is_no_bundle(world, tmp_path):
    path = tmp_path / "lie.silo"

    def reordered(kernel):
        x, out, n, block = kernel.signature.parameters
        return replace(kernel, signature=type(kernel.signature)((n, x, out, block)))

    with open_bundle(world.good) as bundle:
        world.write(bundle, path, lambda one, _: one, reordered)
    with override(home=world.home), pytest.raises(BundleFormatError, match="other parameters than the kernel"):
        silo.load(path, trust=True).twice(100, *arrays())


def test_a_pointer_has_no_address_for_a_default():
    with pytest.raises(ValueError, match="is a pointer, whose default can only be None"):
        Parameter("x", ParameterKind.POINTER, default=4096)
    with pytest.raises(ValueError, match="is a pointer"):
        Parameter.from_json({"name": "x", "kind": "pointer", "dtype": "float32", "default": [4096]})
    assert Parameter("x", ParameterKind.POINTER, default=None).default is None


def test_the_notes_of_an_older_silo_are_asked_about_again(world, tmp_path):
    """They cover bytes alone: its bundle asks once more, and says why."""
    with open_bundle(world.good) as bundle:
        shas = [one.sha256 for one in bundle.blobs if one.kind == "so"]
    with override(home=tmp_path / "older"):
        for sha256 in shas:
            session().store.trust._records.append("built", {"sha256": sha256, "kind": "so"})
        with pytest.raises(TrustError, match="an older Silo noted no more than those"):
            silo.load(world.good).twice(*arrays(), 100)
        trust_bundle(world.good)
        silo.load(world.good).twice(*arrays(), 100)


def test_a_store_of_an_older_silo_compiles_again_and_says_so_once(world, tmp_path, caplog):
    home = tmp_path / "store"
    with override(home=home, jobs=1):
        assert all(row.ok for row in run_cases(world.source, tune="off"))
    path = home / "trust" / "built.jsonl"
    path.unlink()
    with override(home=home, jobs=2), caplog.at_level("WARNING", "silo.store"):  # another session, as another process
        ledger = session().store.trust
        for blob in (home / "blobs").rglob("*"):
            if blob.is_file():
                ledger._records.append("built", {"sha256": blob.name, "kind": "so"})
        assert all(row.ok for row in run_cases(world.source, tune="off"))
    (said,) = caplog.records
    assert "compiled again" in said.getMessage()
    assert "an older Silo noted no more than those" in said.getMessage()
