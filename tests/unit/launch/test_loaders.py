"""Loaders: plug-ins that load a kind of code which a library runs, with consent where it runs in this process."""
# pyright: reportAssignmentType=false, reportAttributeAccessIssue=false

import hashlib
import sys

import numpy as np
import pytest

from fake_backend.device import FAKE_TARGET, FakeDevice
from silo.artifacts.artifact import Artifact, BlobRef
from silo.core import plugins
from silo.core.config import Config
from silo.core.consent import require_consent
from silo.core.decisions import Rejected
from silo.core.declaration import LoaderDeclaration
from silo.core.device import HOST_MEMORY, Memory
from silo.core.launch_info import LaunchInfo
from silo.core.plugins import is_blob_kind, is_host_code, loader_of
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.variant import Variant
from silo.errors import DeviceError, TrustError
from silo.launch.runtime import VouchedCode, bind, load_code, make_launcher
from silo.store.trust_ledger import consent_to_compiled

DECLARATIONS = """
from silo.core.declaration import LoaderDeclaration
from silo.core.device import HOST_MEMORY, Memory

def loader(kind, host_code=False, load="sums_loader:load"):
    return LoaderDeclaration(kind, host_code, load)

SUMS = loader("sums")
SPELLS = loader("spells", host_code=True)
BROKEN = loader("broken", load="sums_loader:broken")
NOTHING = loader("nothing", load="sums_loader:nothing")
REFUSING = loader("refusing", load="sums_loader:refusing")
OTHER = loader("sums")
SO = loader("so")
PLAIN = print
"""

LOADER = """
from silo.errors import DeviceError

loaded = []

def load(device, launch, blob, name):
    loaded.append((str(device.target), launch.entry, blob, name))
    def call(arguments, grid, stream):
        x, out = arguments
        out[:] = x + int(blob)
    return call

def broken(device, launch, blob, name):
    raise ZeroDivisionError("not today")

def refusing(device, launch, blob, name):
    raise DeviceError(f"{name}: too new")

def nothing(device, launch, blob, name):
    return 3
"""

NAMES = {
    **{name: name.upper() for name in ("sums", "spells", "broken", "nothing", "refusing", "other", "so", "plain")},
    "missing": "MISSING",
}
SIGNATURE = Signature((Parameter("x", ParameterKind.POINTER), Parameter("out", ParameterKind.POINTER)))
VARIANT = Variant("add", "f" * 64, SIGNATURE, Specialization(), Config.of(), FAKE_TARGET)
LAUNCH = LaunchInfo("add", ())


class HostDevice(FakeDevice):
    memory = Memory((HOST_MEMORY,))


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """The loaders of the text above are installed; the module that they lie in."""
    (tmp_path / "sums_declarations.py").write_text(DECLARATIONS)
    (tmp_path / "sums_loader.py").write_text(LOADER)
    info = tmp_path / "sums-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sums\nVersion: 1\n")
    lines = [f"{name} = sums_declarations:{attribute}\n" for name, attribute in NAMES.items()]
    (info / "entry_points.txt").write_text("[silo.loaders]\n" + "".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield
    for name in ("sums_declarations", "sums_loader"):
        sys.modules.pop(name, None)
    forget()


def forget():
    for one in vars(plugins).values():
        if hasattr(one, "cache_clear"):
            one.cache_clear()


def artifact(kind, blob=b"3"):
    ref = BlobRef(hashlib.sha256(blob).hexdigest(), kind, len(blob))
    return Artifact(VARIANT, LAUNCH, ref, (), "sums 1", "j" * 64)


def code(kind, blob=b"3", consent=None):
    return VouchedCode(artifact(kind, blob), blob, consent)


def launcher(loaded):
    misses = []

    def on_miss(_):
        misses.append(bind(loaded, LAUNCH, SIGNATURE, Specialization(), Config.of()))
        return misses[-1]

    return make_launcher("add", SIGNATURE, on_miss=on_miss), misses


def test_code_of_its_kind_is_loaded_and_launched_through_it():
    loaded = load_code(HostDevice(), code("sums"))
    assert (loaded.entry, loaded.name, loaded.driver) == ("add", "add", "fake")
    assert sys.modules["sums_loader"].loaded == [(str(FAKE_TARGET), "add", b"3", "add")]
    launch, misses = launcher(loaded)
    x, out = np.arange(8.0), np.zeros(8)
    for _ in range(100):
        launch[1](x, out)
    np.testing.assert_array_equal(out, x + 3)
    assert len(misses) == 1


def test_the_loader_is_not_imported_before_it_is_needed():
    assert loader_of("sums") == LoaderDeclaration("sums", host_code=False, load="sums_loader:load")
    assert not is_host_code("sums")
    assert is_host_code("spells")
    assert "sums_loader" not in sys.modules


def test_host_code_is_loaded_with_consent_alone():
    with pytest.raises(TrustError, match="without consent"):
        load_code(HostDevice(), code("spells"))
    assert "sums_loader" not in sys.modules  # nothing of it was asked
    consent = consent_to_compiled(artifact("spells").host_code(), "a test made it")
    with pytest.raises(TrustError, match="which these bytes are not"):
        load_code(HostDevice(), code("spells", b"4", consent))
    assert "sums_loader" not in sys.modules
    assert load_code(HostDevice(), code("spells", consent=consent)).entry == "add"


def test_kinds_that_nobody_declares_are_refused():
    assert not is_blob_kind("riddles")
    assert is_blob_kind("sums")
    for ask in (lambda: is_host_code("riddles"), lambda: require_consent(None, LAUNCH, b"", "riddles", "add")):
        with pytest.raises(TrustError, match="no compiler or loader that is installed here declares"):
            ask()
    with pytest.raises(TrustError, match="MISSING"):  # the reason why its loader cannot be used
        is_host_code("missing")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("broken", "ZeroDivisionError: not today"),
        ("refusing", "add: too new"),
        ("nothing", "gave nothing that can be called, but int"),
        ("other", "declares that it loads sums"),
        ("plain", "is no LoaderDeclaration"),
        ("missing", "MISSING"),
    ],
)
def test_what_cannot_be_loaded_says_why(kind, reason):
    with pytest.raises(DeviceError, match=reason) as caught:
        load_code(HostDevice(), code(kind))
    assert str(caught.value).startswith("add: ")


def test_others_loaders_take_no_kind_of_silos_own():
    assert loader_of("so") is None
    assert is_host_code("so")
    assert isinstance(loader_of("missing"), Rejected)
    assert loader_of("riddles") is None
    with pytest.raises(DeviceError, match="the fake device loads blobs of kind fake"):
        load_code(HostDevice(), code("riddles"))  # a device may load kinds of its own
