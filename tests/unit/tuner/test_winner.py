import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from fake_backend.measure import fake_study
from silo.core.config import Config
from silo.tuner.trial import Stage, Status
from silo.tuner.winner import choose_winner, finalists, standings, undecided

STUDY = fake_study()
A, B, C, D = (Config.of(BLOCK=block, num_warps=4) for block in (128, 256, 512, 1024))


def ok(config, *samples, stage=Stage.SEARCH, **resources):
    trial = STUDY.trial(config, Status.OK, samples, resources=tuple(sorted(resources.items())))
    return dataclasses.replace(trial, stage=stage)


def test_no_trial_no_winner():
    assert choose_winner([]) is None
    assert choose_winner([STUDY.failed(A, Status.RUN, "no")]) is None


def test_the_fastest_wins_and_the_others_follow():
    winner = choose_winner([ok(A, 300, 301, 302), ok(B, 100, 101, 102), ok(C, 200, 201, 202)])
    assert winner is not None
    assert winner.config == B
    assert winner.median_ns == 101
    assert winner.reason == "fastest of 3 configs"
    assert [standing.config for standing in winner.runners_up] == [C, A]


def test_only_ok_trials_count():
    trials = [ok(A, 300), STUDY.failed(B, Status.COMPILE, "x"), STUDY.failed(C, Status.TIMEOUT, "x")]
    winner = choose_winner(trials)
    assert winner is not None
    assert winner.config == A
    assert winner.reason == "the only one of 3 configs that works"


def test_a_config_without_rivals_is_not_said_to_have_beaten_any():
    winner = choose_winner([ok(A, 300), ok(A, 301)])
    assert winner is not None
    assert winner.reason == "the only config that was tried"


def test_a_config_once_wrong_or_crashed_never_wins():
    for status in (Status.WRONG, Status.RUN):
        winner = choose_winner([ok(A, 300), ok(B, 100), STUDY.failed(B, status, "x")])
        assert winner is not None
        assert winner.config == A


def test_a_compile_failure_elsewhere_is_forgiven():
    winner = choose_winner([ok(A, 300), ok(B, 100), STUDY.failed(B, Status.TIMEOUT, "busy machine")])
    assert winner is not None
    assert winner.config == B


def test_samples_are_pooled():
    winner = choose_winner([ok(A, 100), ok(A, 900, 901), ok(B, 500)])
    assert winner is not None
    assert winner.config == B  # A's median is 900, not 100


def test_ties_go_by_threads_then_shared_bytes_then_registers_then_name():
    noisy = (1000, 990, 1010, 995, 1005, 1001, 999, 1002, 998)
    faster = tuple(sample - 3 for sample in noisy)

    def pick(*trials):
        winner = choose_winner(trials)
        assert winner is not None
        return winner.config

    assert pick(ok(A, *faster, threads=256), ok(B, *noisy, threads=128)) == B
    assert pick(ok(A, *faster, threads=128, shared_bytes=2), ok(B, *noisy, threads=128, shared_bytes=1)) == B
    assert (
        pick(
            ok(A, *faster, threads=128, shared_bytes=1, registers=40),
            ok(B, *noisy, threads=128, shared_bytes=1, registers=32),
        )
        == B
    )
    # Known beats unknown.
    assert pick(ok(A, *faster, threads=128), ok(B, *noisy, threads=128, shared_bytes=4096)) == B
    # Without resources, warps are all there is to go by; then the lexical order of the canonical form ("128" < "256").
    assert pick(ok(Config.of(BLOCK=1, num_warps=8), *faster), ok(Config.of(BLOCK=2, num_warps=4), *noisy)) == Config.of(
        BLOCK=2, num_warps=4
    )
    assert pick(ok(B, *faster), ok(A, *noisy)) == A


def test_a_tie_says_so():
    winner = choose_winner([ok(A, 1000, 1001, threads=256), ok(B, 1000, 1001, threads=128), ok(C, 9000)])
    assert winner is not None
    assert "equally fast" in winner.reason
    assert [standing.tied for standing in winner.runners_up] == [True, False]


def test_finalists_compared_side_by_side_decide():
    # Alone, A looked better; compared, B is. D, measured alone on a machine in a better mood, was no finalist.
    trials = [ok(A, 100), ok(B, 105), ok(C, 160), ok(D, 119)]
    trials += [ok(A, 130, stage=Stage.FINAL), ok(B, 120, stage=Stage.FINAL)]
    winner = choose_winner(trials)
    assert winner is not None
    assert winner.config == B
    assert [standing.config for standing in winner.runners_up] == [A]


def test_a_config_measured_later_wins_where_it_leaves_all_that_were_compared_far_behind():
    trials = [ok(A, 1000), ok(B, 1050), ok(A, 1300, stage=Stage.FINAL), ok(B, 1200, stage=Stage.FINAL)]
    for time_ns, wins in ((950, B), (908, C)):  # within 10 % they are to be compared first
        winner = choose_winner([*trials, ok(C, time_ns)])
        assert winner is not None
        assert winner.config == wins


def test_where_every_finalist_turned_out_wrong_the_rest_decides():
    trials = [ok(A, 100), ok(A, 100, stage=Stage.FINAL), STUDY.failed(A, Status.WRONG, "x"), ok(B, 200)]
    winner = choose_winner(trials)
    assert winner is not None
    assert winner.config == B


def test_equal_values_of_other_types_are_other_configs():
    one, true = Config.of(FLAG=1), Config.of(FLAG=True)
    assert one != true  # though Python has 1 == True
    assert len(standings([ok(one, 100), ok(true, 100)])) == 2


def test_who_is_a_finalist():
    trials = [ok(A, 1000), ok(B, 1050), ok(C, 1099), ok(D, 1101)]
    assert finalists(trials, 4) == (A, B, C)
    assert finalists(trials, 2) == (A, B)
    assert finalists(trials, 1) == ()
    assert finalists([*trials, ok(D, 1, stage=Stage.FINAL)], 4) == (A, B, C)
    assert finalists([], 4) == ()


def test_more_are_finalists_where_the_search_cannot_tell_them_apart():
    steady = [ok(A, *[1000, 1001] * 30), ok(B, *[1002, 1003] * 30), ok(C, *[1004, 1005] * 30)]
    assert finalists(steady, 2) == (A, B)
    noisy = [ok(A, *[1000, 1100] * 30), ok(B, *[1010, 1110] * 30), ok(C, *[1020, 1120] * 30), ok(D, *[1600] * 60)]
    assert finalists(noisy, 2) == (A, B, C)


def test_what_noise_would_decide_is_undecided():
    noisy = [ok(A, *[1000, 1100] * 30), ok(B, *[1030, 1130] * 30), ok(C, *[1300, 1400] * 30)]
    compared = [dataclasses.replace(trial, stage=Stage.FINAL) for trial in noisy]
    assert undecided(noisy) == (), "they were not compared yet"
    assert undecided(compared) == (A, B)
    tied = [ok(one, *[1000, 1001] * 30, stage=Stage.FINAL) for one in (A, B)]
    assert undecided(tied) == (), "the rule for ties decides"
    assert undecided([]) == ()


def test_what_is_deployed_is_a_finalist_if_it_works():
    near = [ok(A, 100), ok(B, 105), ok(C, 300)]
    assert finalists(near, 4, C) == (A, B, C)
    assert finalists(near, 4, B) == (A, B)
    assert finalists(near, 2, C) == (A, B, C)
    assert finalists(near[::2], 4, C) == (A, C), "although A alone needs no comparison"
    assert finalists(near[:1], 4, A) == ()
    assert finalists(near, 4, D) == (A, B), "it was never measured"
    assert finalists(near, 0, C) == ()
    wrong = dataclasses.replace(ok(C, 300), status=Status.WRONG, samples_ns=(), message="differs")
    assert finalists([*near, wrong], 4, C) == (A, B)


CONFIGS = st.builds(
    lambda block, warps: Config.of(BLOCK=block, num_warps=warps),
    st.sampled_from([64, 128, 256]),
    st.sampled_from([2, 4, 8]),
)


@st.composite
def some_trials(draw):
    config = draw(CONFIGS)
    status = draw(st.sampled_from([Status.OK] * 4 + [Status.COMPILE, Status.RUN, Status.WRONG]))
    if status is not Status.OK:
        return STUDY.failed(config, status, draw(st.sampled_from(["x", "y"])))
    samples = draw(st.lists(st.integers(990, 1015), min_size=1, max_size=12))
    resources = draw(st.dictionaries(st.sampled_from(["threads", "shared_bytes", "registers"]), st.integers(0, 3)))
    trial = ok(config, *samples, **resources)
    return dataclasses.replace(trial, stage=draw(st.sampled_from(Stage)))


@given(st.lists(some_trials(), max_size=14), st.data())
def test_the_winner_depends_on_the_set_of_trials_alone(trials, data):
    extra = data.draw(st.lists(st.sampled_from(trials), max_size=8)) if trials else []
    other = data.draw(st.permutations(trials + extra))
    assert choose_winner(other) == choose_winner(trials)
    assert choose_winner(iter(other)) == choose_winner(trials)


@given(st.lists(some_trials(), max_size=14))
def test_the_winner_is_usable_and_within_the_noise_limit_of_the_fastest(trials):
    winner = choose_winner(trials)
    if winner is None:
        return
    statuses = {trial.status for trial in trials if trial.config == winner.config}
    assert Status.OK in statuses
    assert not statuses & {Status.WRONG, Status.RUN}
    fastest = min([winner.time.median_ns, *(standing.time.median_ns for standing in winner.runners_up)])
    assert winner.median_ns * 1000 <= fastest * 1010
