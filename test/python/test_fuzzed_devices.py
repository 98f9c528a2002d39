"""Device libraries with mistakes of chance: each is refused with an error that can be read, or can be used."""

import json
import os
from pathlib import Path

import pytest
from fixtures import BuildPlugin, run_program

COUNT = int(os.environ.get("FUZZED_DEVICES", "60"))
"""How many seeds; a run of a thousand takes some minutes."""


@pytest.mark.long
def test_fuzzed_devices_do_no_harm(build_plugin: BuildPlugin) -> None:
    library = build_plugin(name="fuzzed", source="fuzzed.c", over="fake")
    program = Path(__file__).with_name("fuzzed_devices.py")
    process = run_program("python", program, library, "0", str(COUNT), TORCH_BACKEND="none")
    ends = json.loads(process.stdout.splitlines()[-1])["ends"]
    assert sum(ends.values()) == COUNT
    # Were nothing refused, or everything, nothing would have been tested.
    assert min(ends.get(end, 0) for end in ("works", "errors", "refused")) > 0, ends
