import ast
import gc
import threading

import pytest

from silo.core.python_syntax import parse_python

TEXT = "\n".join(f"def f{i}(a, b=({i}, [{i}])):\n    return [x for x in (a + b, {{'k': a}})]" for i in range(300))


def test_threads_that_parse_at_once_get_the_tree():
    """With a callback of the collector, which lets threads take turns within a parse, as jax has one."""
    gc.callbacks.append(callback := lambda *_: None)
    failed: list[BaseException] = []
    expected = ast.dump(ast.parse(TEXT))

    def work():
        try:
            for _ in range(3):
                assert ast.dump(parse_python(TEXT)) == expected
        except BaseException as error:  # noqa: BLE001  # reported by the test
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    try:
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    finally:
        gc.callbacks.remove(callback)
    assert not failed


def test_a_mismatch_of_the_interpreter_is_parsed_again_and_other_faults_are_not(monkeypatch):
    calls = []
    own = ast.parse

    def parse(text):
        calls.append(text)
        if len(calls) < 3:
            raise SystemError("AST constructor recursion depth mismatch (before=63, after=59)")
        return own(text)

    monkeypatch.setattr(ast, "parse", parse)
    assert len(parse_python("x = 1").body) == 1
    assert len(calls) == 3
    monkeypatch.setattr(ast, "parse", lambda text: (_ for _ in ()).throw(SystemError("another")))
    with pytest.raises(SystemError, match="another"):
        parse_python("x")
    monkeypatch.undo()
    with pytest.raises(SyntaxError):
        parse_python("x =")
