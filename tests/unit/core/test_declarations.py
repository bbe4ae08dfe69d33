"""What compilers declare: options and kinds of blobs, Silo's own by a table, others by their entry points."""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

import subprocess
import sys
from pathlib import Path

import pytest

from silo.artifacts.artifact import Artifact, BlobRef
from silo.builtin_plugins import BLOB_KINDS, LAUNCH_OPTIONS, OPTIONS
from silo.core import plugins
from silo.core.config import Config
from silo.core.consent import require_consent
from silo.core.decisions import Rejected
from silo.core.declaration import BlobKind, CompilerDeclaration, Option
from silo.core.launch_info import LaunchInfo
from silo.core.plugins import (
    COMPILERS,
    is_blob_kind,
    is_host_code,
    is_launch_option,
    is_option,
    load_declaration,
    option_names,
    shipped_places,
)
from silo.errors import CompileError, TrustError

SOURCES = Path(plugins.__file__).parents[1]

STRANGER = """
from silo.core.declaration import BlobKind, CompilerDeclaration, Option

STRANGER = CompilerDeclaration(
    "stranger", "stranger:Compiler", ("poem",), ("tpu",),
    options=(Option("stranger_depth", int, 0, "how deep", launch=True), Option("stranger_mood", str, "calm", "how")),
    blobs=(BlobKind("verse"), BlobKind("spell", host_code=True)),
    code=(),
)
THIEF = CompilerDeclaration("thief", "x:X", ("poem",), (), (Option("BLOCK".lower(), int, 0, "theirs"),), (), ())
SLY = CompilerDeclaration("sly", "x:X", ("poem",), (), (), (BlobKind("so"),), ())
WORSE = CompilerDeclaration("worse", "x:X", ("poem",), (), (), (BlobKind("spell"),), ())
"""


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A plug-in is installed that Silo does not ship."""
    (tmp_path / "stranger_declaration.py").write_text(STRANGER)
    info = tmp_path / "stranger-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1\n")
    names = ("stranger", "thief", "sly", "worse")
    lines = [f"{name} = stranger_declaration:{name.upper()}\n" for name in names]
    (info / "entry_points.txt").write_text("[silo.compilers]\n" + "".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield
    sys.modules.pop("stranger_declaration", None)
    forget()


def forget():
    for one in vars(plugins).values():
        if hasattr(one, "cache_clear"):
            one.cache_clear()


def shipped():
    return [load_declaration(name, place) for name, place in shipped_places(COMPILERS).items()]


def test_the_table_of_words_is_that_of_the_declarations():
    options = {option.name: option for declared in shipped() for option in declared.options}
    assert set(OPTIONS) == set(options)
    assert set(LAUNCH_OPTIONS) == {name for name, option in options.items() if option.launch}
    kinds = {kind.name: (kind.host_code, kind.checked_text) for declared in shipped() for kind in declared.blobs}
    assert kinds == BLOB_KINDS
    for declared in shipped():
        for kind in declared.blobs:
            assert (kind.host_code, kind.checked_text) == kinds[kind.name], (declared.name, kind.name)
        for option in declared.options:
            same = (option.kind, option.default, option.launch, option.arithmetic)
            others = options[option.name]
            assert same == (others.kind, others.default, others.launch, others.arithmetic)


@pytest.mark.parametrize("file", ["core/config.py", "core/variant.py", "core/launch_info.py", "bundle/reader.py"])
def test_the_core_names_no_compilers_options_and_no_kinds(file):
    text = (SOURCES / file).read_text()
    words = {*OPTIONS, *BLOB_KINDS} - {"num_warps", "debug", "c"}
    assert not [word for word in words if f'"{word}"' in text or f" {word}:" in text]


def test_declared_words_are_read_without_any_compiler():
    code = """if True:
    import sys
    from silo.core.plugins import is_host_code, is_option, option_names, declarations
    assert is_option("num_warps") and is_host_code("so")
    assert "importlib.metadata" not in sys.modules and "silo.kinds.triton.cpu" not in sys.modules
    option_names()
    compilers = {"silo.kinds.triton.cpu.cpu_compiler", "silo.kinds.triton.gpu.gpu_compiler"}
    assert not {"triton", "numpy", *compilers} & {*sys.modules}
    """
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.usefixtures("stranger")
def test_an_installed_plugin_adds_options_and_kinds():
    config = Config.of(stranger_depth=3, BLOCK=4, num_warps=8, block_size=2)
    assert config.options == (("num_warps", 8), ("stranger_depth", 3))
    assert config.values == (("BLOCK", 4), ("block_size", 2))
    assert option_names()[-2:] == ("stranger_depth", "stranger_mood")
    assert is_blob_kind("verse")
    assert not is_host_code("verse")
    assert is_host_code("spell")


@pytest.mark.usefixtures("stranger")
def test_launch_info_carries_declared_launch_options_only():
    launch = LaunchInfo("k", (), options=(("stranger_depth", 3), ("cpu_chunk", 0)))
    assert launch.to_json()["stranger_depth"] == 3
    assert "cpu_chunk" not in launch.to_json()
    assert LaunchInfo.from_json(launch.to_json()) == launch
    assert is_launch_option("cpu_chunk")
    assert not is_launch_option("stranger_mood")
    for name, value in (("stranger_mood", 1), ("num_stages", 3), ("nobody_knows", 1), ("stranger_depth", 0)):
        with pytest.raises(ValueError, match="launch info"):
            LaunchInfo.from_json({**launch.to_json(), name: value})
    with pytest.raises(ValueError, match="stranger_depth"):
        LaunchInfo.from_json({**launch.to_json(), "stranger_depth": "3"})


def test_no_plugin_no_option():
    assert not is_option("stranger_depth")
    with pytest.raises(ValueError, match="launch info"):
        LaunchInfo.from_json({**LaunchInfo("k", ()).to_json(), "stranger_depth": 3})


def test_a_kind_that_nobody_declares_is_an_error_and_not_harmless():
    with pytest.raises(TrustError, match=r"'verse' is not used: no compiler or loader that is installed here declares"):
        is_host_code("verse")
    with pytest.raises(TrustError, match="install the plug-in that makes or loads it"):
        require_consent(None, LaunchInfo("k", ()), b"x", "verse", "k")
    artifact = Artifact(None, LaunchInfo("k", ()), BlobRef("ab" * 32, "verse", 1), (), "", "")
    with pytest.raises(TrustError):
        _ = artifact.runs_on_host


@pytest.mark.usefixtures("stranger")
def test_host_code_of_a_plugin_asks_for_consent():
    require_consent(None, LaunchInfo("k", ()), b"x", "verse", "k")
    with pytest.raises(TrustError, match="consent"):
        require_consent(None, LaunchInfo("k", ()), b"x", "spell", "k")


@pytest.mark.usefixtures("stranger")
def test_a_plugin_takes_no_words_of_others():
    thief = load_declaration("thief", "stranger_declaration:THIEF")
    assert isinstance(thief, Rejected)
    assert "its name must begin with thief_" in thief.reason
    sly = load_declaration("sly", "stranger_declaration:SLY")
    assert isinstance(sly, Rejected)
    assert "declares the kind so of blobs to be other than Silo does" in sly.reason
    assert is_host_code("so")
    assert is_host_code("spell")  # though another plug-in says that it is none
    mistaken = load_declaration("other", "stranger_declaration:STRANGER")
    assert isinstance(mistaken, Rejected)
    assert "is called stranger" in mistaken.reason


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Option("Depth", int, 0, ""),
        lambda: Option("depth", str, "", "", launch=True),
        lambda: Option("depth", int, 3, "", launch=True),
        lambda: BlobKind("so "),
        lambda: CompilerDeclaration("my_compiler", "", (), (), (), (), ()),
        lambda: CompilerDeclaration("mine", "", (), (), (), (BlobKind("a"), BlobKind("a")), ()),
    ],
)
def test_what_cannot_be_declared(declare):
    with pytest.raises(ValueError, match=r"not the name|a natural number|twice"):
        declare()


@pytest.mark.parametrize("value", [9, -1, 2.0, True, "2", None])
def test_values_that_an_option_does_not_have(value):
    option = Option("mine_depth", int, 0, "how deep", allowed=range(9))
    assert option.read(2) == 2
    with pytest.raises(CompileError, match=f"mine_depth={value} means nothing; it is an integer: how deep"):
        option.read(value)


def test_a_bundle_cannot_say_that_host_code_is_none():
    """What a file says plays no part but by the name of a kind: here is every caller of the one question."""
    asking = sorted(
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if "is_host_code(" in path.read_text() and path.name != "plugins.py"
    )
    records = [f"kinds/triton/programs/records/{name}.py" for name in ("cache_files", "capture", "replayer")]
    assert asking == sorted(
        [
            "kernels/bundle_kernels.py",
            "artifacts/artifact.py",
            "core/consent.py",
            *records,
            "store/artifacts.py",
        ]
    )
