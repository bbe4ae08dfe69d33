"""Code of programs that tune, in the store: a later process with an empty cache of Triton's compiles nothing.

The programs run on the stub driver, and count Triton's compiles by the stages of its backend.
"""

import ast
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from silo.kinds.triton.front.adapter import CacheEntry, put_back_files
from triton_programs import TUNED, program, store_after

pytest.importorskip("torch", reason="Triton's driver for NVIDIA's GPUs asks torch for dtypes here")

COUNTED = """
import os, tempfile
from pathlib import Path
import triton.backends.nvidia.compiler as nvidia
staged = []
own_stages = nvidia.CUDABackend.add_stages
def add_stages(self, stages, options, *more):
    staged.append(options.num_warps)
    return own_stages(self, stages, options, *more)
nvidia.CUDABackend.add_stages = add_stages
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
def digests():
    import hashlib
    folder = os.environ["TRITON_CACHE_DIR"]
    found = {str(one.relative_to(folder)): one.read_bytes() for one in Path(folder).glob("*/*") if one.is_file()}
    return {name: hashlib.sha256(data.replace(folder.encode(), b"")).hexdigest() for name, data in found.items()
            if not name.endswith(".so")}
"""
CALLS = """
with silo.accelerate():
    for n in (100, 256):
        t[(1,)](x, z, n)
    k[(1,)](x, y, z, 64, 2.0, BLOCK=64)
print("staged", len(staged), len(measured), t.best_config.kwargs["BLOCK"])
print("files", sorted(digests().items()))
"""
WHOLE = TUNED + COUNTED + CALLS


def line(said, begin="staged"):
    return next(one for one in said.splitlines() if one.startswith(f"{begin} "))


def files(said):
    return dict(ast.literal_eval(line(said, "files").removeprefix("files ")))


@pytest.fixture
def home(tmp_path):
    return str(tmp_path / "home")


def entries(home):
    """The store's entries of kernels; the hash of Triton's files is stored beside each entry."""
    return [one for one in Path(home, "files").rglob("*.json") if '"cubin"' in one.read_text()]


def blobs(home):
    """The blobs that the entries name."""
    texts = [one.read_text() for one in entries(home)]
    return [one for one in Path(home, "blobs").rglob("*") if any(one.name in text for text in texts) and one.is_file()]


def test_a_second_process_with_an_empty_cache_compiles_and_measures_nothing(home):
    first = store_after(WHOLE, home)
    assert line(first) == "staged 5 4 128"  # two configs for each of two variants, and a kernel without a tuner
    second = program(WHOLE, SILO_HOME=home)
    assert line(second) == "staged 0 0 128"
    made, found = files(first), files(second)
    assert found.items() <= made.items()
    # The winner's two variants and the other kernel, each with eight stages' files and the list of them.
    assert {name.partition("/")[2] for name in found} >= {"t.cubin", "__grp__t.json", "k.cubin", "t.source"}
    assert len({name.partition("/")[0] for name in found}) == 3


def test_what_workers_compiled_is_kept_as_well(home):
    two = TUNED + COUNTED.replace(
        "staged = []",
        "staged = []\nimport silo.kinds.triton.programs.searches.ahead_compiles as ahead_compiles\n"
        "ahead_compiles.available_cpus = lambda: 3",
    )
    first = program(two + CALLS, SILO_HOME=home, SILO_COMPILE_AHEAD="1")
    assert line(first).endswith(" 4 128")
    second = program(two + CALLS, SILO_HOME=home, SILO_COMPILE_AHEAD="1")
    assert line(second) == "staged 0 0 128"
    assert files(second).items() <= files(first).items()


def test_the_place_of_a_compile_is_worked_out_once_for_all_that_watch_it(home):
    said = program(
        TUNED
        + COUNTED
        + """
import silo.kinds.triton.programs.searches.ahead_compiles as ahead_compiles
import triton.runtime.cache as cache
ahead_compiles.available_cpus = lambda: 3
own_place = cache.get_cache_key
places = []
def get_cache_key(*given, **more):
    places.append(1)
    return own_place(*given, **more)
cache.get_cache_key = get_cache_key  # Triton's compiler has its own reference
with silo.accelerate():
    t[(1,)](x, z, 100)
print("places", len(places), len(measured))
""",
        SILO_HOME=home,
        SILO_COMPILE_AHEAD="1",
    )
    assert line(said, "places") == "places 4 2"  # of two requested configs, and of their compiles


@pytest.mark.parametrize(
    ("change", "variables", "staged"),
    [
        (("num_warps=8", "num_warps=2"), {}, 2),  # measured anew: the code of the config that stays is there
        (("tl.load(a + i, mask=i < n), mask=i < n)", "tl.load(a + i, mask=i < n) + 1, mask=i < n)"), {}, 4),
        (("", ""), {"TRITON_DEFAULT_FP_FUSION": "0"}, 3),
        (("", ""), {"DISABLE_PTXAS_OPT": "1"}, 3),
        (("", ""), {"SILO_KEEP_DECISIONS": "0"}, 5),
        (("", ""), {"SILO_TUNE": "frozen"}, 0),
        (("", ""), {"SILO_TUNE": "off"}, 0),
        (("", ""), {"TRITON_KERNEL_DUMP": "1"}, 3),
        (("", ""), {"TRITON_ALWAYS_COMPILE": "1"}, 3),
    ],
    ids=["configs", "kernel", "fusion", "ptxas", "off", "frozen", "first", "dump", "always"],
)
def test_other_code_is_compiled(home, tmp_path, change, variables, staged):
    store_after(WHOLE, home)
    before, after = change
    changed = WHOLE.replace(before, after, 1)
    assert (changed != WHOLE) == (before != after)
    given = {"SILO_HOME": home, "TRITON_DUMP_DIR": str(tmp_path), **variables}
    assert int(line(program(changed, **given)).split()[1]) == staged


def test_switched_off_nothing_is_kept_and_nothing_stays_on_tritons_classes(home):
    program(
        TUNED
        + COUNTED
        + """
from triton.runtime.jit import JITFunction
from triton.runtime.autotuner import Autotuner
before = dict(vars(JITFunction)), dict(vars(Autotuner))
with silo.accelerate():
    t[(1,)](x, z, 100)
    assert ("compile" in vars(JITFunction)) == (os.environ.get("SILO_KEEP_DECISIONS") != "0")
assert (dict(vars(JITFunction)), dict(vars(Autotuner))) == before
count = len(staged)
k[(1,)](x, y, z, 64, 2.0, BLOCK=64)  # Triton's own launch: not kept
assert len(staged) == count + 1
""",
        SILO_HOME=home,
    )
    assert len(blobs(home)) == 1
    program(WHOLE, SILO_HOME=home + "2", SILO_KEEP_DECISIONS="0")
    assert not blobs(home + "2")


def test_a_program_that_tunes_nothing_keeps_nothing(home):
    program(
        COUNTED + "with silo.accelerate():\n    k[(1,)](x, y, z, 64, 2.0, BLOCK=64)\nassert len(staged) == 1\n",
        SILO_HOME=home,
    )
    assert not blobs(home)


@pytest.mark.parametrize("damage", ["flipped", "shorter", "gone", "entry"])
def test_damaged_and_missing_code_is_compiled_and_kept_anew(home, damage):
    one = TUNED + COUNTED + CALLS.replace("(100, 256)", "(100,)").replace("    k[(1,)]", "    0 and k[(1,)]")
    store_after(one, home)
    (blob,) = blobs(home)
    if damage == "gone":
        blob.unlink()
    elif damage == "entry":
        (entry,) = entries(home)
        entry.write_bytes(entry.read_bytes().replace(b"ptx", b"ptz"))
    else:
        data = bytearray(blob.read_bytes())
        data[len(data) // 2] ^= 1
        blob.write_bytes(data if damage == "flipped" else data[:-1])
    second = program(one, SILO_HOME=home)
    assert line(second) == "staged 1 0 128"
    said = [text for text in second.splitlines() if "in the store" in text or "is damaged" in text]
    assert len(said) == 1, second
    third = program(one, SILO_HOME=home)
    assert line(third) == "staged 0 0 128"
    assert not [text for text in third.splitlines() if "in the store" in text or "is damaged" in text]


def test_files_of_another_key_are_not_put_back(home):
    """Each entry of the store contains its own key."""
    store_after(WHOLE, home)
    said = program(
        TUNED
        + COUNTED
        + """
from silo.store.artifacts import KeptFiles
own = KeptFiles.get
def other(self, key):
    files = dict(own(self, key))
    CHANGE
    return files
KeptFiles.get = other
""".replace(
            "CHANGE",
            """if "json" in files: files["json"] = files["json"].replace(b'"hash": "', b'"hash": "0')""",
        )
        + CALLS,
        SILO_HOME=home,
    )
    assert line(said) == "staged 3 0 128"


def test_a_cache_that_takes_no_files_is_said_once(home):
    store_after(WHOLE, home)
    failing = """
from triton.runtime.cache import FileCacheManager
own_put = FileCacheManager.put
def put(self, data, filename, binary=True):
    if not refused:
        refused.append(filename)
        raise OSError(28, "No space left on device")
    return own_put(self, data, filename, binary)
refused = []
FileCacheManager.put = put
"""
    said = program(TUNED + COUNTED + failing + CALLS, SILO_HOME=home)
    assert line(said) == "staged 1 0 128"  # the first; there is room for the others
    assert said.count("stays in the store, and Triton compiles it") == 1


def test_what_prints_while_it_is_compiled_is_not_kept(home):
    printing = WHOLE.replace("    i = tl", '    tl.static_print("compiled")\n    i = tl', 1)
    for expected in ("staged 5 4 128", "staged 2 0 128"):
        said = program(printing, SILO_HOME=home)
        assert line(said) == expected
        assert said.count("compiled") >= 2


def test_a_listener_hears_that_the_cache_had_the_code(home):
    heard = WHOLE.replace(
        "staged = []",
        "from triton import knobs\nheard = []\nstaged = []\n"
        'knobs.compilation.listener = lambda **given: heard.append(given["cache_hit"])',
    ).replace('print("files"', 'print("heard", heard)\nprint("files"')
    store_after(WHOLE, home)
    assert line(program(heard, SILO_HOME=home), "heard") == "heard [True, True, True]"


def test_a_lock_decides_and_the_code_is_the_stores(home, tmp_path):
    lock = tmp_path / "lock.json"
    recorded = """
from silo.kinds.triton.programs.records.capture_activation import recording
from silo.kinds.triton.programs.records.decision_sources import write_lock
with recording(sys.argv[0] + ".silo"):
    with silo.accelerate():
        t[(1,)](x, z, 100)
        t[(1,)](x, z, 256)
write_lock(Path(sys.argv[0] + ".silo"), Path(LOCK))
""".replace("LOCK", repr(str(lock)))
    program(TUNED + COUNTED + recorded, SILO_HOME=home + "2")
    for expected in ("staged 3 0 128", "staged 0 0 128"):
        assert line(program(WHOLE, SILO_HOME=home, SILO_LOCK=str(lock))) == expected


def test_processes_share_a_store_at_once(home):
    """Two processes tune, each with its own cache, and then two processes find the code."""
    for tuned in (True, False):
        with ThreadPoolExecutor(2) as threads:
            said = list(threads.map(lambda _: program(WHOLE, SILO_HOME=home), range(2)))
        for one in said:
            assert line(one).endswith(" 128")
            assert tuned or line(one) == "staged 0 0 128"


WHOLE_FILES = {"source": b"s", "ttir": b"t", "cubin": b"c", "json": b'{"hash": "k"}'}


@pytest.mark.parametrize(
    "change",
    [
        {"so": b"\x7fELF"},
        {"py": b"print()"},
        {"../x.cubin": b"c"},
        {"json": b'{"hash": "other"}'},
        {"json": b"[]"},
        {"json": b"{"},
        {"cubin": None},
        {"source": None},
    ],
    ids=str,
)
def test_files_for_the_host_and_halves_are_never_put_into_tritons_cache(change):
    """The files are refused before a place in Triton's cache is requested."""
    files = {name: data for name, data in {**WHOLE_FILES, **change}.items() if data is not None}
    assert not put_back_files(CacheEntry("k", "n", {}, None, None), files)
