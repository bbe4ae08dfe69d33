"""A store stays below its limit: losing configs lose their code and keep their trials; no process loses anything."""

import logging
import os
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

import pruned_stores
from pruned_stores import age, keep_kernel, key_of, ledger_study
from silo.settings import override
from silo.store import upkeep, usage
from silo.store.store import Store
from silo.store.upkeep import COUNTS_FILE, KEPT_RIVALS, SIZE_FILE, Counts, counted, kept_artifacts, losing_artifacts
from silo.store.usage import PruneRule, code_bytes, kernel_usage, prune, store_bytes
from silo.tuner.ledger import read_trials
from silo.tuner.trial import Status

KERNELS = 4
PROCESSES = 4


def has_code(store, kernel, number):
    return store.artifacts.get(key_of(kernel, number)) is not None


def test_the_winner_its_rivals_and_no_other_config_are_needed(tmp_path):
    store = Store(tmp_path)
    keep_kernel(store, "k", 12)
    trials = read_trials(ledger_study("k"), store.records)
    needed = {key_of("k", number) for number in range(1 + KEPT_RIVALS)}
    assert kept_artifacts(trials) == needed
    assert losing_artifacts(store.records) == {key_of("k", number) for number in range(12)} - needed
    assert kept_artifacts([ledger_study("k").failed(trials[0].config, Status.RUN, "it crashed", artifact="a")]) == set()


def test_losing_configs_lose_their_code_and_keep_trials_and_description(tmp_path):
    store = Store(tmp_path)
    keep_kernel(store, "k", 12)
    age(tmp_path, 7200)
    before = read_trials(ledger_study("k"), store.records)
    found = prune(tmp_path, PruneRule(losers=losing_artifacts(store.records), losers_alone=True))
    assert (found.blobs, found.entries) == (12 - 1 - KEPT_RIVALS,) * 2
    assert [has_code(store, "k", number) for number in range(12)] == [number <= KEPT_RIVALS for number in range(12)]
    assert read_trials(ledger_study("k"), store.records) == before
    assert store.artifacts.described(key_of("k", 11)) is not None, "a later compiler's code is compared with it"


def test_code_that_a_winner_shares_with_a_losing_config_stays(tmp_path):
    store = Store(tmp_path)
    keep_kernel(store, "k", 12)
    age(tmp_path, 7200)
    losers = losing_artifacts(store.records) | {key_of("k", 0)}
    prune(tmp_path, PruneRule(losers=losers, losers_alone=True))
    # each has the same text beside its code; the text stays for those that are left
    assert has_code(store, "k", 1)
    assert not has_code(store, "k", 0)


def test_a_limit_takes_losing_configs_before_winners(tmp_path):
    store = Store(tmp_path)
    for kernel in ("old", "new"):
        keep_kernel(store, kernel, 12, size=5000)
        age(tmp_path, 7200)
    limit = store_bytes(tmp_path) - 12 * 5000
    found = prune(tmp_path, PruneRule(limit, losers=losing_artifacts(store.records)))
    assert found.left_bytes <= limit
    assert found.left_bytes == store_bytes(tmp_path)
    for kernel in ("old", "new"):
        assert all(has_code(store, kernel, number) for number in range(1 + KEPT_RIVALS))


def test_an_age_spares_what_was_used_since(tmp_path):
    store = Store(tmp_path)
    keep_kernel(store, "k", 12)
    age(tmp_path, 3 * 86400)
    assert has_code(store, "k", 0)
    artifact = store.artifacts.get(key_of("k", 0))
    assert store.blobs.map(artifact.blob.sha256) is not None, "it is used: today"
    prune(tmp_path, PruneRule(older_s=2 * 86400))
    assert [number for number in range(12) if store.artifacts.described(key_of("k", number))] == [0]


def test_a_rule_that_would_remove_everything_is_refused():
    with pytest.raises(ValueError, match="would remove all code"):
        PruneRule()


def test_the_store_stays_below_its_limit_while_kernels_are_tuned(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(usage, "LOSERS_GRACE_S", 0)  # a project is not tuned within a minute
    limit = KERNELS * 36 * 4000
    with override(store_bytes=limit):
        store = Store(tmp_path)
        for number in range(KERNELS):
            keep_kernel(store, f"k{number}", 36, size=6000)
        age(tmp_path, 7200)
        store.tidy()
        assert store_bytes(tmp_path) <= limit
    lost = [n for n in range(KERNELS) for rank in range(1 + KEPT_RIVALS) if not has_code(store, f"k{n}", rank)]
    assert not lost, "what is needed would be compiled twice"
    assert all(len(read_trials(ledger_study(f"k{number}"), store.records)) == 36 for number in range(KERNELS))


def test_descriptions_of_losing_configs_go_before_code_that_is_needed(tmp_path):
    store = Store(tmp_path)
    for kernel in ("old", "new"):
        keep_kernel(store, kernel, 12, size=5000)
        age(tmp_path, 7200)
    losers = losing_artifacts(store.records)
    prune(tmp_path, PruneRule(losers=losers, losers_alone=True))
    limit = store_bytes(tmp_path) - 10 * 4096
    assert prune(tmp_path, PruneRule(limit, losers=losers)).left_bytes <= limit
    described = [number for number in range(12) if store.artifacts.described(key_of("old", number))]
    assert all(has_code(store, kernel, number) for kernel in ("old", "new") for number in range(1 + KEPT_RIVALS))
    assert len(described) < 12


def test_what_other_processes_wrote_counts(tmp_path):
    with override(store_bytes=1 << 20):
        others = Store(tmp_path), Store(tmp_path)
        for number in range(30):  # each alone would stay below the limit
            others[number % 2].blobs.put(bytes([number]) * 20_000)
        noted = int((tmp_path / SIZE_FILE).read_text())
    actual = store_bytes(tmp_path)
    assert actual - 2 * (1 << 20) // 256 - 8192 <= noted <= actual + 8192


@pytest.mark.all
@pytest.mark.timeout(1200)  # three minutes on ten cores
def test_sixteen_processes_keep_a_thousand_kernels_below_the_limit(tmp_path):
    kernels, processes, configs = int(os.environ.get("SILO_TEST_KERNELS", "1000")), 16, 36
    limit = kernels * configs * 4000
    each = -(-kernels // processes)
    program = [sys.executable, pruned_stores.__file__, str(tmp_path / "home")]
    with ExitStack() as ended:
        started = [
            subprocess.Popen([*program, str(each * number), str(each), str(configs), str(limit)])
            for number in range(processes)
        ]
        for process in started:
            ended.callback(process.wait)
            ended.callback(process.kill)  # a test that is stopped leaves none of them behind
        highest = 0
        while any(process.poll() is None for process in started):
            highest = max(highest, store_bytes(tmp_path / "home"))
            time.sleep(5)
    assert [process.returncode for process in started] == [0] * processes
    assert highest <= limit
    store = Store(tmp_path / "home")
    assert store_bytes(tmp_path / "home") <= limit
    for number in range(each * processes):
        kernel = f"kernel_{number}"
        assert len(read_trials(ledger_study(kernel), store.records)) == configs
        assert all(has_code(store, kernel, rank) for rank in range(1 + KEPT_RIVALS)), "it would be compiled twice"


def test_without_a_limit_nothing_is_removed_for_size(tmp_path):
    with override(store_bytes=0):
        store = Store(tmp_path)
        keep_kernel(store, "k", 12)
        age(tmp_path, 7200)
        store.tidy()  # younger than a day
        assert all(has_code(store, "k", number) for number in range(12))


def test_losing_configs_lose_their_code_a_day_later_once_a_day(tmp_path):
    store = Store(tmp_path)
    keep_kernel(store, "k", 12)
    age(tmp_path, 2 * 86400)
    store.tidy()
    assert not has_code(store, "k", 11)
    assert has_code(store, "k", 0)
    keep_kernel(store, "other", 12)
    age(tmp_path / "blobs", 2 * 86400)
    store.tidy()
    assert has_code(store, "other", 11), "it was done a moment ago"


def test_a_store_full_of_code_in_use_says_which_setting_to_raise(tmp_path, caplog):
    with override(store_bytes=1 << 20), caplog.at_level(logging.WARNING):
        store = Store(tmp_path)
        for number in range(40):
            store.blobs.put(bytes([number]) * 40_000)
    assert "SILO_STORE_BYTES" in caplog.text


def test_processes_that_prune_and_keep_at_once_lose_nothing(tmp_path):
    program = [sys.executable, pruned_stores.__file__, str(tmp_path / "home")]
    started = [
        subprocess.Popen([*program, str(3 * number), "3", "8"], stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    assert [process.communicate(timeout=300)[0] != "" for process in started] == [True] * PROCESSES
    assert [process.returncode for process in started] == [0] * PROCESSES
    store = Store(tmp_path / "home")
    for number in range(3 * PROCESSES):
        assert len(read_trials(ledger_study(f"kernel_{number}"), store.records)) == 8
        assert all(has_code(store, f"kernel_{number}", rank) for rank in range(1 + KEPT_RIVALS))


def test_the_size_by_kernel_adds_up(tmp_path):
    store = Store(tmp_path)
    keep_kernel(store, "small", 6)
    keep_kernel(store, "large", 12, size=5000)
    store.blobs.put(b"stray")
    rows = kernel_usage(tmp_path, losing_artifacts(store.records))
    large = rows[0]
    assert large.kernel == "large"
    assert (large.artifacts, large.present) == (12, 12)
    assert 8 * 4000 <= large.losing_bytes <= large.size_bytes
    assert sum(row.size_bytes for row in rows) == code_bytes(tmp_path)


def test_look_ups_are_counted_at_the_end_of_a_process(tmp_path):
    store = Store(tmp_path)
    keep_kernel(store, "k", 1)
    counts = Counts(tmp_path)
    for found in (True, True, False):
        counts.note(found=found)
    counts.write()
    counts.write()  # nothing new
    with (tmp_path / COUNTS_FILE).open("ab") as file:
        file.write(b"torn 1")
    seen = counted(tmp_path)
    assert (seen.hits, seen.misses, seen.processes) == (2, 1, 1)
    assert seen.since_s > 0
    assert counted(tmp_path / "absent").processes == 0


def test_another_process_at_it_is_not_waited_for(tmp_path, monkeypatch):
    store = Store(tmp_path)
    keep_kernel(store, "k", 12)
    age(tmp_path, 2 * 86400)
    (tmp_path / upkeep.UPKEEP_FILE).touch(mode=0o600)
    import fcntl

    with (tmp_path / upkeep.UPKEEP_FILE).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        store.tidy()
    assert has_code(store, "k", 11)
