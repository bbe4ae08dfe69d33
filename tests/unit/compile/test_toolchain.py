import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from silo.compile import toolchain
from silo.compile.toolchain import Toolchain, select_compiler
from silo.core.decisions import Accepted, Rejected
from silo.core.declaration import BlobKind, CompilerDeclaration
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo
from silo.core.plugins import COMPILERS, installed_places, shipped_places
from silo.core.variant import Compiled, CompiledBlob, CompileJob
from silo.drivers.cpu.levels import host_target
from silo.errors import CompileError, TargetError

FAKE = "fake_backend.declaration:FAKE"


class Compiler:
    def __init__(self, declaration):
        self.declaration = declaration

    def accepts(self, source_kind, target):
        return Accepted("as told")


class Broken(Compiler):
    def __init__(self):
        super().__init__(BROKEN)

    def accepts(self, source_kind, target):
        raise RuntimeError("out of order")


class Exploding:
    def __init__(self):
        raise OSError("no licence")


def declare(name, compiler, sources=("triton",), targets=(), **more):
    place = f"{__name__}:{compiler}"
    return CompilerDeclaration(name, place, sources, targets, options=(), blobs=(BlobKind("fake"),), code=(), **more)


BROKEN = declare("broken", "Broken")
EXPLODING = declare("exploding", "Exploding")

PLUGINS = {
    "absent": "silo.no_such_module:DECLARATION",
    "broken": f"{__name__}:BROKEN",
    "exploding": f"{__name__}:EXPLODING",
    "fake": FAKE,
    "nameless": "fake_backend.declaration:NO_SUCH_NAME",
}


def test_the_plugin_that_accepts_is_selected():
    chain = Toolchain(PLUGINS)
    compiler = chain.select("triton", Target.parse("fake:one"))
    assert compiler.declaration.name == "fake"
    assert chain.compiler("fake") is compiler


def test_a_target_nobody_builds_lists_every_reason():
    with pytest.raises(TargetError) as caught:
        Toolchain(PLUGINS).select("triton", Target.parse("tpu:v5e"))
    message = str(caught.value)
    assert "nothing here compiles a triton kernel for tpu:v5e" in message
    assert (
        "- absent: the plug-in absent (silo.no_such_module:DECLARATION) does not load: ModuleNotFoundError" in message
    )
    assert "- broken: the plug-in broken failed when asked: RuntimeError: out of order" in message
    assert "- exploding: " in message
    assert "OSError: no licence" in message
    assert "- fake: compiles for fake, not for tpu:v5e" in message
    assert "AttributeError" in message


ANY = declare("any", "make_any", sources=())
LOUD = declare("loud", "make_loud", before=("alpha",))
ALPHA = declare("alpha", "make_alpha")
BETA = declare("beta", "make_beta")


def make_any():
    return Compiler(ANY)


def make_loud():
    return Compiler(LOUD)


def make_alpha():
    return Compiler(ALPHA)


def make_beta():
    return Compiler(BETA)


def chosen(*names):
    return Toolchain({name: f"{__name__}:{name.upper()}" for name in names}).choose("triton", Target.parse("tpu:v5e"))


def test_of_two_compilers_the_more_specific_is_chosen_and_the_decision_says_so():
    name, decision = chosen("any", "beta")
    assert name == "beta"
    assert decision.reason == (
        "beta: as told; it comes before any: it names the kinds of sources and targets that it is for"
    )


def test_then_the_one_that_declares_to_stand_before_the_other():
    name, decision = chosen("alpha", "loud")
    assert name == "loud"
    assert decision.reason == "loud: as told; it comes before alpha: its declaration says so"


def test_the_alphabet_chooses_nothing():
    with pytest.raises(TargetError, match=r"alpha and beta both compile a triton kernel for tpu:v5e, .*before="):
        chosen("alpha", "beta")


def test_silos_own_compiler_comes_before_a_strangers():
    name, decision = Toolchain({"cpu": shipped_places(COMPILERS)["cpu"], "other": f"{__name__}:OTHER"}).choose(
        "triton", host_target()
    )
    assert name == "cpu"
    assert decision.reason.endswith("it comes before other: it is Silo's own")


OTHER = declare("other", "make_other", targets=("cpu",))


def make_other():
    return Compiler(OTHER)


def test_a_compiler_is_imported_only_where_its_declaration_takes_source_and_target():
    chain = Toolchain({"any": f"{__name__}:ANY", "gone": f"{__name__}:GONE"})
    assert chain.choose("triton", Target.parse("tpu:v5e"))[0] == "any"
    with pytest.raises(TargetError, match="no_such_module"):
        Toolchain({"gone": f"{__name__}:GONE"}).choose("triton", Target.parse("metal:3.1"))


GONE = CompilerDeclaration("gone", "silo.no_such_module:Gone", ("triton",), ("metal",), (), (), ())


def test_declarations_are_asked_once_and_tools_each_time(monkeypatch):
    """What a declaration says never changes; a C compiler may go away."""
    target, asked = Target.parse("fake:one"), []
    chain = Toolchain(PLUGINS)
    first = chain.decisions("triton", target)
    declaration = chain.declaration
    monkeypatch.setattr(chain, "declaration", lambda name: asked.append(name) or declaration(name))
    assert chain.decisions("triton", target) == first
    assert asked == []
    (name,) = [name for name, decision in first.items() if isinstance(decision, Accepted)]
    monkeypatch.setattr(chain.load(name), "accepts", lambda *_: Rejected("it went away"), raising=False)
    assert chain.decisions("triton", target)[name] == Rejected("it went away")
    with pytest.raises(TargetError, match="it went away"):
        chain.select("triton", target)


def test_what_a_compiler_makes_is_what_it_declares():
    class Sly(Compiler):
        def compile(self, job):
            return Compiled(LaunchInfo("k", ()), CompiledBlob("cubin", b"x"))

    chain = Toolchain({"alpha": f"{__name__}:ALPHA"})
    chain._loaded["alpha"] = Sly(ALPHA)
    with pytest.raises(CompileError, match="alpha made a blob of kind 'cubin', and declares"):
        chain.compile(CompileJob("alpha", "k", Target.parse("tpu:v5e"), "", {}))


def test_a_compiler_has_the_declaration_of_its_entry_point():
    refused = Toolchain({"liar": f"{__name__}:LIAR"}).load("liar")
    assert isinstance(refused, Rejected)
    assert "another declaration" in refused.reason


LIAR = declare("liar", "make_alpha")


def test_a_broken_plugin_is_a_reason():
    loaded = Toolchain(PLUGINS).load("absent")
    assert isinstance(loaded, Rejected)
    with pytest.raises(CompileError, match="does not load"):
        Toolchain(PLUGINS).compiler("absent")


def test_an_unknown_plugin_lists_the_installed():
    with pytest.raises(CompileError, match=r"no compiler plug-in is called nobody; installed: absent, .*fake"):
        Toolchain(PLUGINS).compiler("nobody")
    with pytest.raises(CompileError, match="installed: none"):
        Toolchain({}).compiler("nobody")


def test_no_plugin_at_all_says_so():
    with pytest.raises(TargetError, match=r"no compiler plug-in is installed \(entry-point group silo.compilers\)"):
        Toolchain({}).select("triton", Target.parse("fake:one"))


def test_select_compiler_uses_the_installed_ones(monkeypatch):
    monkeypatch.setattr(toolchain, "installed_places", lambda group: {"fake": FAKE})
    toolchain._installed.cache_clear()
    try:
        assert select_compiler("triton", Target.parse("fake:one")).declaration.name == "fake"
    finally:
        toolchain._installed.cache_clear()


def test_entry_points_are_read():
    plugins = installed_places(COMPILERS)
    assert all(":" in place for place in plugins.values())
    assert list(plugins) == sorted(plugins)


@pytest.mark.parametrize("group", ["silo.compilers", "silo.loaders", "silo.sources"])
def test_the_table_of_what_silo_ships_is_that_of_its_project_file(group):
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert dict(shipped_places(group)) == project["entry-points"][group]


def test_what_silo_ships_is_found_without_looking_through_what_is_installed():
    code = """if True:
    import sys
    from silo.core.plugins import load_place, place_of
    assert callable(load_place(place_of("silo.devices", "cuda")))
    print("importlib.metadata" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_nobody_takes_the_name_of_what_silo_ships(tmp_path, monkeypatch):
    info = tmp_path / "stranger-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[silo.compilers]\ncpu = stranger:Compiler\nstranger = stranger:Compiler\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    installed_places.cache_clear()
    try:
        found = installed_places(COMPILERS)
    finally:
        installed_places.cache_clear()
    assert found["cpu"] == shipped_places(COMPILERS)["cpu"]
    assert found["stranger"] == "stranger:Compiler"
