"""An agent whose every byte may be wrong: it is refused or lost, its answers are answers, and nothing hangs.

``SILO_TEST_LIES=2000`` makes more of them up.
"""

# pyright: reportAttributeAccessIssue=false

import contextlib
import random
import shlex
import time

import pytest

import agent_program
from repetitions import repetitions
from silo.compile.wire import encode
from silo.errors import DeviceError
from silo.tuning.agents.agent_serving import START
from silo.tuning.agents.connection import AgentLostError, PipeConnection, exchange

LIES = repetitions("SILO_TEST_LIES", 20, 100)


def altered(chance, data):
    data = bytearray(data)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data))
        match chance.randrange(5):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                del data[at:]
                data += b"x"
            case 2:
                data[at:at] = chance.randbytes(chance.randrange(40))
            case 3:
                data[at : at + 1] = chance.choice([b"\xff" * 4, b"[" * 2000, b"null", b'"', b"\n", b"1e999", b"NaN"])
            case _:
                del data[at : at + chance.randrange(20)]
                data += b"x"
    return bytes(data)


@pytest.mark.parametrize("seed", range(0, LIES, 20))
def test_garbage_is_no_agent_and_no_answer(tmp_path, seed):
    for number in range(seed, seed + 20):
        chance = random.Random(number)
        hello = START + encode({"outcome": "ready", "agent": agent_program.FACTS.to_json()})
        answers = [{"outcome": "done", "id": 1}, {"outcome": "alive"}, {"outcome": "missing", "missing": ["ab" * 32]}]
        said = altered(chance, hello) if chance.random() < 0.6 else hello
        said += b"".join(altered(chance, encode(chance.choice(answers))) for _ in range(chance.randrange(5)))
        path = tmp_path / str(number)
        path.write_bytes(said)
        begin = time.monotonic()
        connection, told = None, ""
        try:
            connection = PipeConnection(f"cat {shlex.quote(str(path))}", 20.0)
        except DeviceError as error:
            told = str(error)
        if connection is None:
            assert "cat " in told
            assert len(told) < 4000
        else:
            assert isinstance(connection.facts.refusal(agent_program.FACTS), str)
            with contextlib.suppress(AgentLostError):
                answer = exchange(connection, {"do": "open", "case": "0" * 64}, lambda name: None, 20.0)
                assert answer["id"] > 0
            connection.close()
        assert time.monotonic() - begin < 60
