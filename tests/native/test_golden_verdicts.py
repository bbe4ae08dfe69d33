"""The verdicts that are kept of 20,000 mutants of bundles and of 20,000 calls are today's.

A tenth of the blocks in each run, all of them with SILO_TEST_GOLDEN=all. ``python -m tests.fuzz.golden --write`` writes
the verdicts anew where a text was meant to change.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz import golden, golden_calls, golden_mutants
from fuzz.bundle_lister import digest_of, listing
from fuzz.readers import judge

MAKERS = {"mutants": golden_mutants.reader_mutants, "calls": golden_calls.calls}


@pytest.mark.parametrize("name", MAKERS)
def test_verdicts_are_those_that_are_kept(name):
    differences = golden.compare(name, MAKERS[name], golden.blocks_of_this_run())
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("name", MAKERS)
def test_every_kind_of_verdict_is_kept(name):
    kept = golden.read(name)
    assert len(kept.verdicts) == golden.CASES
    assert len(kept.head["blocks"]) == golden.CASES // golden.BLOCK
    if name == "mutants":
        codes = {one[0] if isinstance(one, list) else "taken" for one in kept.verdicts}
        assert codes == {2, 3, 4, 5, 6, "taken"}  # of enum silo_code; 7 is for machines without libzstd
    else:
        outcomes = [one[0] for one in kept.verdicts]
        assert sum(isinstance(one, int) for one in outcomes) > golden.CASES // 3
        assert {"NoVariantError", "ArgumentError"} < {*outcomes}


@pytest.mark.parametrize("name", MAKERS)
def test_another_verdict_is_named_with_both(name):
    block = list(MAKERS[name](golden.BLOCK, 2 * golden.BLOCK))
    block[7] = replace(block[7], verdict=lambda: "another")
    said = golden.read(name).difference(block)
    assert f"case {golden.BLOCK + 7} (seed {golden.BLOCK + 7}" in said
    assert "was: " in said
    assert 'is:  "another"' in said


def test_another_case_is_told_from_another_verdict():
    block = list(golden_mutants.reader_mutants(0, golden.BLOCK))
    block[3] = replace(block[3], content=b"something else")
    assert "their generator has changed" in golden.read("mutants").difference(block)


def test_accepted_mutants_are_listed_to_the_same_digests():
    """The lister knows the page on the format, and no code of Silo's."""
    kept, found = golden.read("mutants"), 0
    for case in golden_mutants.reader_mutants(0, 4 * golden.BLOCK):
        if isinstance(kept.verdicts[case.number], str):
            assert digest_of(listing(case.content[8:]).digests) == kept.verdicts[case.number], case.words
            found += 1
    assert found > 30


@pytest.mark.parametrize("lie", ["0" * 12, (99, "manifest", 0, "text"), (4, "manifest", 0, ""), (4, "", 0, "text")])
def test_a_false_verdict_is_found_by_the_fuzzer(monkeypatch, lie):
    data = next(iter(golden_mutants.golden_corpus()))
    monkeypatch.setattr("fuzz.readers.verdict_on", lambda *_: lie)
    assert judge(data, 0)[0] == "different"
