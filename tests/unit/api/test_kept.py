"""Studies found again: reports of them, moving them between stores, other tuners' results as configs to try first."""
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

from silo.commands.build_bundle import build_bundle
from silo.commands.report_pages import write_reports
from silo.commands.tune_cases import tune_path
from silo.core.config import Config
from silo.core.recipes import Work
from silo.errors import SourceError, StoreError, TuneError
from silo.kernels.collection import collect_kernels
from silo.machine.device_plugins import device_named
from silo.machine.process_session import session
from silo.measuring.case_session_options import imported_seeds
from silo.report.least_time import speed_of_light
from silo.settings import override
from silo.tuner.formats.foreign import ForeignResults, ForeignTrial
from silo.tuner.seeds import MOST_SEEDS, seeds_from_records, seeds_to_record, spoken_of
from silo.tuner.trial import Stage, Status
from silo.tuning import device_limits as ceilings
from silo.tuning.explanation import explain_tuning
from silo.tuning.foreign_results import export_results, import_results
from silo.tuning.stored_studies import kept_studies

KERNELS = """
import numpy as np
import silo
import triton
import triton.language as tl


@silo.kernel(
    space={"BLOCK": [128, 256, 512, 1024], "num_warps": [4]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),)
)
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@scale.cases(n=[5000, 300])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 2}, bytes=8 * n, flops=n)
"""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A file of kernels, and a store where its cases are tuned."""
    folder = tmp_path_factory.mktemp("importing")
    path = folder / "kernels.py"
    path.write_text(KERNELS)
    with override(home=folder / "store"):
        rows = tune_path(path)
        assert [row.measured for row in rows] == [4, 4]
    return path, folder / "store", rows


def test_studies_are_found_again(tuned):
    path, home, _ = tuned
    with override(home=home):
        large, small = kept_studies(path)
    assert (large.cases, small.cases) == (("n=5000",), ("n=300",))
    assert large.work == Work(40_000, 5000)
    assert large.default == Config.of(BLOCK=128, num_warps=4)
    assert large.study.bucket == (8192,)
    assert {trial.config.as_dict()["BLOCK"] for trial in large.trials} == {128, 256, 512, 1024}


def test_a_case_belongs_to_the_study_that_assumes_what_holds_of_it(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS.replace("n=[5000, 300]", "n=[1000, 1008, 1009, 1024]"))
    with override(home=tmp_path / "store"):
        tune_path(path, evaluations=1)
        cases = {kept.cases for kept in kept_studies(path)}
    assert cases == {("n=1000", "n=1009"), ("n=1008", "n=1024")}  # one bucket; multiples of 16 apart


@pytest.mark.parametrize("space", ["", "space=heuristics.space('pointwise', {'x': 'n'}), "])
def test_where_a_heuristic_makes_the_space_nobody_says_what_the_default_is(tmp_path, space):
    path = tmp_path / "kernels.py"
    given = re.search(r"space=.*?\}, ", KERNELS, re.DOTALL).group()
    text = KERNELS.replace(given, space).replace("BLOCK", "XBLOCK").replace("n=[5000, 300]", "n=[5000]")
    path.write_text("from silo import heuristics\n" + text)
    with override(home=tmp_path / "store"):
        tune_path(path, evaluations=1)
        (kept,) = kept_studies(path)
        assert (kept.default, kept.cases) == (None, ("n=5000",))
        (row,) = write_reports(path, tmp_path)
        assert (
            "config tried first" in Path(row.page).read_text()
            or "the default is the winner" in Path(row.page).read_text()
        )


def test_t4_moves_measurements_to_another_store(tuned, tmp_path):
    path, home, rows = tuned
    with override(home=home):
        files = export_results(path, tmp_path / "out", "t4")
        before = kept_studies(path)
    assert [Path(row.path).parent for row in files] == [tmp_path / "out"] * 2
    with override(home=tmp_path / "other"):
        took = [row for file in files for row in import_results(Path(file.path))]
        assert [(row.tool, row.kernel, row.known, row.seeds) for row in took] == [("T4", "scale", 0, 0)] * 2
        assert sum(row.trials for row in took) == sum(len(kept.trials) for kept in before)
        again = [row for file in files for row in import_results(Path(file.path))]
        assert [row.trials for row in again] == [0, 0]
        assert sum(row.known for row in again) == sum(row.trials for row in took)
        assert kept_studies(path) == before
        second = tune_path(path)
    assert [(row.winner, row.measured) for row in second] == [(row.winner, 0) for row in rows]


def test_a_bundle_moves_them_too(tuned, tmp_path):
    path, home, _ = tuned
    bundle = tmp_path / "k.silo"
    with override(home=home):
        build_bundle([path], bundle, targets=["cpu"], tune="cached")
        before = kept_studies(path)
        large, small = kept_studies(bundle)
    assert (large.cases, small.cases, large.work) == (("n=5000",), ("n=300",), Work(40_000, 5000))
    assert large.default is None  # a bundle does not say
    assert [sorted(trial.identity for trial in kept.trials) for kept in (large, small)] == [
        sorted(trial.identity for trial in kept.trials) for kept in before
    ]
    with override(home=tmp_path / "other"):
        (row,) = import_results(bundle)
        assert (row.tool, row.kernel, row.known) == ("bundle", "scale", 0)
        assert [one.measured for one in tune_path(path)] == [0, 0]
    with override(home=home), pytest.raises(SourceError, match="no kernel called nope; there are scale"):
        kept_studies(bundle, None, ["nope"])


def foreign(tmp_path, order=(512, 1024, 128, 256)):
    """A Kernel Tuner cache in which these blocks are fast, in this order."""
    trials = [
        ForeignTrial(Config.of(BLOCK=block, num_warps=4), Status.OK, (1000 * (place + 1),))
        for place, block in enumerate(order)
    ]
    rows = {
        str(trial.config): {**trial.config.as_dict(), "time": trial.samples_ns[0] / 1e6, "times": [1.0 + place]}
        for place, trial in enumerate(trials)
    }
    path = tmp_path / "cache.json"
    document = {
        "kernel_name": "scale_kernel",
        "device_name": "some GPU",
        "tune_params_keys": ["BLOCK", "num_warps"],
        "tune_params": {},
        "cache": rows,
    }
    path.write_text(json.dumps(document))
    return path


def test_results_of_other_tuners_are_tried_first_and_measured_again(tuned, tmp_path):
    path, _, _ = tuned
    with override(home=tmp_path / "store"):
        (row,) = import_results(foreign(tmp_path), kernel="scale")
        assert (row.tool, row.kernel, row.trials, row.seeds) == ("Kernel Tuner", "scale", 0, 4)
        assert [config.as_dict()["BLOCK"] for config in imported_seeds("scale", session().store.records)] == [
            512,
            1024,
            128,
            256,
        ]
        import_results(foreign(tmp_path), kernel="scale")
        assert len(imported_seeds("scale", session().store.records)) == 4
        explained = explain_tuning(path)[0][1]
        assert [(str(seed.config), seed.reason) for seed in explained.seeds][:2] == [
            ("BLOCK=512, num_warps=4", "best in an imported file"),
            ("BLOCK=1024, num_warps=4", "best in an imported file"),
        ]
        rows = tune_path(path, evaluations=1)
        assert [one.winner for one in rows] == ["BLOCK=512, num_warps=4"] * 2
        assert [one.measured for one in rows] == [1, 1]
        # The space's first config stays the default.
        assert kept_studies(path)[0].default == Config.of(BLOCK=128, num_warps=4)


def test_first_calls_try_them_first_too(tuned, tmp_path):
    path, _, _ = tuned
    orders = {}
    for imported in (False, True):
        with override(home=tmp_path / str(imported), tune="auto", tune_budget_s=60.0):
            if imported:
                import_results(foreign(tmp_path), kernel="scale")
            (made,) = collect_kernels([path])
            x, out = np.arange(5000, dtype=np.float32), np.zeros(5000, dtype=np.float32)
            made.launcher(x, out, 5000)
            assert (out == 2 * x).all()
            (kept,) = kept_studies(path)
            measured = [trial.config.as_dict()["BLOCK"] for trial in kept.trials if trial.stage is Stage.SEARCH]
            orders[imported] = list(dict.fromkeys(measured))
    assert orders[True] == [512, 1024, 128, 256]
    assert sorted(orders[False]) == sorted(orders[True])
    assert orders[False] != orders[True]


def test_other_formats_are_written_by_study(tuned, tmp_path):
    path, home, _ = tuned
    with override(home=home):
        files = export_results(path, tmp_path / "kt", "kernel-tuner")
        triton = export_results(path, tmp_path / "triton", "triton")
        with pytest.raises(TuneError, match="no format 'csv'; there are t4, kernel-tuner, triton"):
            export_results(path, tmp_path, "csv")
    cache = json.loads(Path(files[0].path).read_text())
    assert (cache["kernel_name"], cache["problem_size"], len(cache["cache"])) == ("scale", [8192], 4)
    assert [Path(row.path).name for row in triton] == ["scale.autotune.json"] * 2
    assert json.loads(Path(triton[0].path).read_text())["key"] == [8192, "torch.float32", "torch.float32"]


def test_nothing_to_export_or_import(tuned, tmp_path):
    path, _, _ = tuned
    with override(home=tmp_path / "empty"):
        with pytest.raises(TuneError, match=r"nothing was measured yet; run silo tune"):
            export_results(path, tmp_path, "t4")
        nameless = tmp_path / "nameless.json"
        nameless.write_text(json.dumps({"schema_version": "1.0.0", "results": []}))
        with pytest.raises(TuneError, match=r"does not say which kernel it is about; name it"):
            import_results(nameless)
        with pytest.raises(TuneError, match="no config in it worked"):
            import_results(nameless, kernel="scale")


def test_reports_of_a_file_and_of_a_bundle(tuned, tmp_path):
    path, home, rows = tuned
    with override(home=home):
        large, small = write_reports(path, tmp_path / "pages")
        assert large.page == small.page == str(tmp_path / "pages" / "scale.html")
        assert [(row.kernel, row.case, row.configs) for row in (large, small)] == [
            ("scale", "n=5000", 4),
            ("scale", "n=300", 4),
        ]
        assert [(row.winner, row.time_ns) for row in (large, small)] == [(row.winner, row.time_ns) for row in rows]
        assert large.ratio >= 1.0 - 1e-9
        assert large.reached is None  # no ceilings are known
        text = Path(large.page).read_text()
        assert text.count("<h2>") == 3  # both cases, and the sizes that were not measured
        assert "silo report --ceilings" in text
        build_bundle([path], tmp_path / "k.silo", targets=["cpu"], tune="cached")
        again = write_reports(tmp_path / "k.silo", tmp_path / "bundle", kernels=["scale"])
        assert [(row.case, row.winner) for row in again] == [(row.case, row.winner) for row in (large, small)]
    with override(home=tmp_path / "empty"), pytest.raises(TuneError, match="nothing was measured yet"):
        write_reports(path, tmp_path / "pages")
    (tmp_path / "file").write_text("")
    with override(home=home), pytest.raises(StoreError, match="cannot write to"):
        write_reports(path, tmp_path / "file")


def counts():
    """How many records the store has of each key."""
    records = session().store.records
    return [(key, len(list(records.read(key)))) for key in sorted(records.keys())]  # no dict


def test_ceilings_are_measured_once_and_set_beside_the_kernels(tuned, tmp_path, monkeypatch):
    path, home, _ = tuned
    monkeypatch.setattr(ceilings, "_COPIED", (1 << 10, 1 << 13))
    monkeypatch.setattr(ceilings, "_DOT_SIZES", {"cpu": (64, 128)})
    monkeypatch.setattr(ceilings, "_COPY_SPACES", {"cpu": [{"BLOCK": 1024}]})
    monkeypatch.setattr(ceilings, "_DOT_SPACES", {"cpu": [{"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32}]})
    device = device_named("cpu")
    shutil.copytree(home, tmp_path / "store")
    with override(home=tmp_path / "store"):
        assert ceilings.known_ceilings(device.model) is None
        rows = write_reports(path, tmp_path / "pages", ceilings=True)
        found = ceilings.known_ceilings(device.model)
        assert [size for size, _ in found.copies] == [8 << 10, 8 << 13]
        assert [name for name, _ in found.dots] == ["float16", "float32"]
        assert all(rate > 10**6 for _, rate in (*found.copies, *found.dots))
        (large, _) = kept_studies(path)
        light = speed_of_light(large.work, found, "float32")
        assert rows[0].reached == pytest.approx(light.reached(rows[0].time_ns), abs=1e-4)
        assert f"{round(100 * rows[0].reached)} %" in (tmp_path / "pages" / "scale.html").read_text()
        kept = counts()
        assert ceilings.measure_ceilings(device) == found  # all of it is known
        assert counts() == kept


def record(*configs):
    trials = tuple(ForeignTrial(config, Status.OK, (place + 1,)) for place, config in enumerate(configs))
    return seeds_to_record(ForeignResults("test", "k", "d", trials))


def test_seeds_of_several_files_take_turns_the_latest_first():
    a, b, c, d = (Config.of(B=block) for block in (1, 2, 3, 4))
    assert seeds_from_records([record(a, b), record(c, a, d)]) == (c, a, b, d)
    assert len(record(*(Config.of(B=block) for block in range(1000)))["configs"]) == MOST_SEEDS
    with pytest.raises(ValueError, match="another schema"):
        seeds_from_records([{**record(a), "schema": "seeds/2"}])


def test_seeds_speak_of_configs_that_say_no_more_than_they_do():
    configs = [Config.of(B=block, FAST=True) for block in (1, 2, 3)]
    assert spoken_of(configs, []) == ()
    seeds = [Config.of(B=9, FAST=True), Config.of(B=3, FAST=1), Config.of(B=3), Config.of(B=2, FAST=True, num_stages=3)]
    assert spoken_of(configs, seeds) == (configs[1],)
