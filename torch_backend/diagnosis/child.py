"""Runs of :mod:`torch_backend.diagnosis.steps` in processes of their own, which may crash or never end."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch_backend.files import modules, patience

_IMPORTS_TAKE = 6  # times the limit of a step: torch, on a busy machine
_TAIL_LINES = 5
_TAIL_CHARACTERS = 1000


@dataclass
class Outcome:
    """How a run ended.

    Attributes:
        step: the last that was announced.
        facts: what was learned.
        faults: what was reported as wrong, each with the step it happened in.
        ending: how the process ended before its time: "crashed with SIGSEGV", "did not return within 20 s"; else None.
        output: the last lines that it wrote.
    """

    step: str = "starting Python"
    facts: dict[str, Any] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)
    is_done: bool = False
    ending: str | None = None
    output: str = ""

    def take(self, event: Mapping[str, Any]) -> None:
        """Note what the process has reported."""
        if "step" in event:
            self.step = event["step"]
        elif "fact" in event:
            name, value = event["fact"]
            self.facts[name] = value
        elif "fault" in event:
            self.faults.append((self.step, event["fault"]))
        else:
            self.is_done = True


def run(name: str, subject: str, environment: Mapping[str, str], step_seconds: float) -> Outcome:
    """Take the steps ``name`` about ``subject``, each within ``step_seconds``; imports have some times as much.

    That is on an idle machine; on a busy one all have longer.
    """
    outcome = Outcome()
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as output, os.fdopen(reader, "rb", buffering=0) as pipe:
        process = subprocess.Popen(
            modules.command("torch_backend.diagnosis.steps", name, subject, str(writer)),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(writer,),
            start_new_session=True,
        )
        os.close(writer)
        has_ended = _listen(pipe.fileno(), outcome, step_seconds) and _wait(process, step_seconds)
        if not has_ended:
            outcome.ending = f"did not return within {_limit(outcome, step_seconds):g} s"
            _end(process)
        elif process.returncode:
            outcome.ending = _ending(process.returncode)
        output.seek(0)
        outcome.output = _tail(output.read().decode("utf-8", errors="replace"))
    return outcome


def _limit(outcome: Outcome, step_seconds: float) -> float:
    is_import = outcome.step.startswith(("import", "starting")) and not outcome.is_done
    return _IMPORTS_TAKE * step_seconds if is_import else step_seconds


def _listen(file_descriptor: int, outcome: Outcome, step_seconds: float) -> bool:
    """Take events until the other end is closed; False if the process takes too long for a step."""
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(file_descriptor, selectors.EVENT_READ)
        while not outcome.is_done:
            if not selector.select(patience.seconds(_limit(outcome, step_seconds))):
                return False
            data = os.read(file_descriptor, 1 << 16)
            if not data:
                break
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                outcome.take(json.loads(line))
    return True


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        process.wait(patience.seconds(seconds))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # A process that waits inside a driver of the kernel's may outlive this; the diagnosis goes on without it.
    deadline = time.monotonic() + 5
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


def _ending(code: int) -> str:
    if code > 0:
        return f"ended the process with exit code {code}"
    try:
        return f"crashed with {signal.Signals(-code).name}"
    except ValueError:
        return f"crashed with signal {-code}"


def _tail(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-_TAIL_LINES:])[-_TAIL_CHARACTERS:]
