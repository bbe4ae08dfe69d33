"""``function.run`` while Silo serves Triton's launches: what a bound method is, and what its calls are given."""

import pytest

from triton_programs import program

pytest.importorskip("torch", reason="Triton's driver for NVIDIA's GPUs asks torch for dtypes here")


def test_run_is_an_ordinary_method():
    program("""
import copy, functools, pickle

class Keyword(str):
    pass

given = dict(grid=(4,), warmup=False, BLOCK=256)
with silo.accelerate():
    k.run(x, y, z, 1000, 2.0, **given)
    run = k.run
    assert run == k.run and not run != k.run and hash(run) == hash(k.run) and run != k and len({run, k.run}) == 1
    assert run.__self__ is k and run.__name__ == type(k).run.__name__ == "run"
    assert type(k).run is type(k).run and callable(type(k).run) and copy.deepcopy(run) is run and copy.copy(run) is run
    assert pickle.loads(pickle.dumps(type(k).run)) is type(k).run
    getter, about = run.__reduce_ex__(4)
    assert getter(*about) == run
    more = {str(b"num_warps", "ascii"): 4, "num_" + "stages".lower(): 3}  # no interned strings
    launched = S.last("k").count
    calls = [
        lambda: run(x, y, z, 1000, 2.0, **given),
        lambda: k.run(x, y, z, 1000, 2.0, grid=(4,), warmup=False, BLOCK=256),
        lambda: k.run(x, y, z, 1000, 2.0, **given, **more),
        lambda: type(k).run(k, x, y, z, 1000, 2.0, **given),
        lambda: type(k).run(k, *(x, y, z, 1000), scale=2.0, **given),
        lambda: functools.partial(k.run, x, y, z, **given)(1000, 2.0),
        lambda: k.run(**{Keyword(name): one for name, one in zip(k.arg_names, (x, y, z, 1000, 2.0))}, **given),
    ]
    for call in calls:
        for _ in range(3):
            call()
    assert S.last("k").count == launched + 3 * len(calls), S.last("k").count
    assert kernel().launches[0] >= 3 * len(calls) - 2, kernel().launches

    # The call's own dictionary is changed by a grid that is asked meanwhile.
    values = dict(given)
    values["grid"] = lambda meta: (values.clear(), (4,))[1]
    functools.partial(k.run, x, y, z, 1000, 2.0, **values)()
    kept = functools.partial(k.run, x, y, z, 1000, 2.0)
    kept.keywords.update(given, grid=lambda meta: (kept.keywords.clear(), (4,))[1])
    kept()
    assert S.last("k").count == launched + 3 * len(calls) + 2

    # Others at once: the grid of one call launches itself.
    def within(meta):
        k.run(x, y, z, 1000, 2.0, **given)
        return (4,)
    k.run(x, y, z, 1000, 2.0, **(given | {"grid": within}))
    assert S.last("k").count == launched + 3 * len(calls) + 4

    wide = {f"none{i}": i for i in range(200)}
    for wrong in (lambda: k.run(x, y, z, 1000, 2.0, **given, **wide), lambda: k.run(x, y, **{1: 2}),
                  lambda: type(k).run(**given), lambda: type(k).run(3, **given)):
        try:
            wrong()
        except (TypeError, KeyError) as error:
            assert str(error)
        else:
            raise AssertionError(wrong)

    references = sys.getrefcount(k), sys.getrefcount(given["grid"])
    for _ in range(1000):
        k.run(x, y, z, 1000, 2.0, **given)
        k.run
    assert references == (sys.getrefcount(k), sys.getrefcount(given["grid"]))
""")
