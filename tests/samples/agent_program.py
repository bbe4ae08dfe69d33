"""An agent of a made-up device: answers with made-up times, or misbehaves in the way that its first argument names."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from silo.compile.wire import encode
from silo.core.config import Config
from silo.core.device import DeviceModel, Target
from silo.tuner.trial import Status
from silo.tuning.agents.agent_documents import AgentFacts, SentCase
from silo.tuning.agents.agent_serving import START, serve_agent
from silo.version import __version__

MODEL = DeviceModel("made up", "Landscape One", "v1", 4, 1 << 30)
FACTS = AgentFacts(
    __version__, MODEL, Target("fake", "v1"), "driver 1", "landscape/1", {"sm_count": 4, "warp_size": 32}
)


def time_of(config: Config) -> int:
    """Return the made-up time of a config in nanoseconds; exactly one config is fastest."""
    x, y = config.as_dict()["x"], config.as_dict()["y"]
    return 1000 + 37 * abs(int(x) - 5) + 53 * abs(int(y) - 2)


class Landscape:
    """The agent: answers each request after ``pause_s`` seconds, and misbehaves by ``way``."""

    def __init__(self, pause_s: float = 0.0, way: str = "", mark: str = "") -> None:
        self.facts = FACTS
        self._pause_s, self._way, self._mark = pause_s, way, mark
        self._cases: dict[str, SentCase] = {}

    def answer(self, message):
        header, blobs = message
        for blob in blobs:
            case = SentCase.read(blob)
            self._cases[case.sha256] = case
        reply = self._do(header) if header["do"] != "give" else {"outcome": "done"}
        return encode({**reply, "id": header["id"]})

    def _do(self, header):
        case = self._cases.get(header["case"])
        if case is None or self._way == "asks again":
            wanted = "ab" * 32 if self._way == "asks for others" else header["case"]
            return {"outcome": "missing", "missing": [wanted]}
        if header["do"] == "open":
            return {"outcome": "done"}
        if header["do"] == "compare":
            configs = [Config.from_json(code["artifact"]["variant"]["config"]) for code in header["codes"]]
            return {"outcome": "done", "samples": [[time_of(config)] * 9 for config in configs]}
        config = Config.from_json(header["code"]["artifact"]["variant"]["config"])
        self._misbehave(config)
        time.sleep(self._pause_s)
        trial = case.study.trial(config, Status.OK, (time_of(config),) * 9)
        match self._way:
            case "other config":
                trial = replace(trial, config=Config.of(x=99, y=99))
            case "other study":
                trial = replace(trial, policy="another/1")
            case "no trial":
                return {"outcome": "done", "trial": {"status": "ok"}}
            case "full disk":
                return {"outcome": "error", "class": "LaunchError", "message": "[Errno 28] No space left on device"}
            case "fails":
                return {"outcome": "error", "class": "LaunchError", "message": "too much shared memory"}
            case "no outcome":
                return {"outcome": "maybe"}
            case _:
                pass
        return {"outcome": "done", "trial": trial.to_json()}

    def _misbehave(self, config):
        match self._way:
            case "dies":
                os._exit(7)
            case "dies once":  # dies when it first measures one certain config
                if config == Config.of(x=5, y=2) and not Path(self._mark).exists():
                    Path(self._mark).touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            case "dies twice":  # dies the first two times that it measures one certain config
                if config == Config.of(x=5, y=2):
                    for mark in (Path(f"{self._mark}-{number}") for number in range(2)):
                        with contextlib.suppress(FileExistsError):
                            mark.touch(exist_ok=False)
                            os.kill(os.getpid(), signal.SIGKILL)
            case "dies of one":
                if config == Config.of(x=5, y=2):
                    os.kill(os.getpid(), signal.SIGSEGV)
            case "stops":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "sleeps":
                time.sleep(600)
            case "garbage":
                os.write(self._out, b"\xff" * 40)
            case "gigabytes":
                os.write(self._out, (3 << 30).to_bytes(4, "big") + b"x" * 4096)
            case "deep":
                os.write(self._out, (1 << 20).to_bytes(4, "big") + b"[" * (1 << 20))
            case "blobs":
                os.write(self._out, encode({"outcome": "done"}, [b"x"]))
            case "other number":
                os.write(self._out, encode({"outcome": "done", "id": -1}))
            case "shouts":
                os.write(2, b"much ado\n" * (1 << 20))
            case _:
                pass

    _out = -1


def main() -> None:
    """Run ``agent_program.py WAY [PAUSE_S [MARK]]``; MARK is a file that records that the agent died."""
    way, pause_s, mark = [*sys.argv[1:], "", "", ""][:3]
    match way:
        case "greets wrongly":
            print("Welcome to this machine!\n" * 4000, flush=True)
            time.sleep(600)
        case "says nothing":
            time.sleep(600)
        case "ends":
            print("no such command", file=sys.stderr)
            sys.exit(127)
        case "no facts":
            os.write(1, START + encode({"outcome": "ready", "agent": {"silo": 1}}))
            time.sleep(600)
        case _:
            pass
    agent = Landscape(float(pause_s or 0), way, mark)
    match way:
        case "greets":
            print("Welcome to this machine!", flush=True)
        case "other device":
            agent.facts = replace(FACTS, model=replace(MODEL, name="Landscape Two"))
        case "other silo":
            agent.facts = replace(FACTS, silo="0.0.1")
        case "other driver":
            agent.facts = replace(FACTS, driver="driver 2")
        case _:
            pass
    Landscape._out = os.dup(1)
    sys.exit(serve_agent(lambda: agent))


if __name__ == "__main__":
    main()
