"""Every sentence of device.h has tests of the kit that break with it, or a reason, and the tests faulty devices."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from broken_operators import BROKEN_OPERATORS
from faulty_devices import FAULTY_DEVICES
from torch_conformance import promises
from torch_conformance.levels import SUITE

ROOT = Path(__file__).parents[2]

# Tests that stand for no sentence: what every use of a device needs.
WITHOUT_A_PROMISE = {
    "abi/test_processes.py::test_a_forked_process_ends",
    "abi/test_slots.py::test_a_capability_comes_with_what_it_is_about",
    "abi/test_streams.py::test_a_stream_takes_much_work",
}


def without_parameters(test: str) -> str:
    return test.partition("[")[0]


def suite_tests(folder: str) -> set[str]:
    return {
        f"{path.relative_to(SUITE).as_posix()}::{node.name}"
        for path in (SUITE / folder).glob("test_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


CAUGHT = {without_parameters(fault.caught_by) for fault in (*FAULTY_DEVICES, *BROKEN_OPERATORS)}
MARKED = {test for tests in promises.tests().values() for test in tests}


def test_every_sentence_of_the_header_is_tested_or_there_is_a_reason() -> None:
    tested, untested = set(promises.tests()), set(promises.untested())
    said = "\n".join(f"{name}: {text}" for name, text in promises.in_header().items() if name not in tested | untested)
    assert not said, f"mark the tests that break with these, or say in untested.py why none can:\n{said}"
    assert (tested | untested) - promises.in_header().keys() == set(), "device.h does not say these any more"
    assert tested & untested == set(), "these are tested"


def test_no_sentence_is_said_twice() -> None:
    counts = Counter((name.rpartition(" ")[0], text) for name, text in promises.in_header().items())
    assert max(counts.values()) == 1, counts.most_common(1)


def test_files_that_are_named_exist() -> None:
    named = {file for reason in promises.UNTESTED for file in re.findall(r"test/\S+\.py", reason)}
    assert named
    assert [file for file in named if not (ROOT / file).is_file()] == []


def test_every_test_of_a_promise_has_a_faulty_device() -> None:
    assert sorted(MARKED - CAUGHT) == [], "no faulty device is caught by these"


def test_every_test_of_device_libraries_stands_for_a_promise() -> None:
    assert sorted(suite_tests("abi") - MARKED - WITHOUT_A_PROMISE) == []
    assert sorted(WITHOUT_A_PROMISE & MARKED) == []


@pytest.mark.parametrize(
    ("comment", "sentences"),
    [
        (
            "One. Two, e.g. this.\n  - Three: x.\n  - Four",
            {"1.1": "One.", "1.2": "Two, e.g. this.", "2.1": "Three: x.", "3.1": "Four"},
        ),
        ("Enqueue. Required. Since 1.0.", {"1": "Enqueue."}),
        ("It is. out_x is not. slot_x fails.", {"1": "It is.", "2": "out_x is not.", "3": "slot_x fails."}),
    ],
)
def test_sentences(tmp_path: Path, comment: str, sentences: dict[str, str]) -> None:
    lines = "\n".join(f" * {line}" for line in comment.splitlines())
    header = tmp_path / "device.h"
    header.write_text(f"/* Opening.\n */\n\n/* ===== things ===== */\n\n/*{lines[2:]} */\n#define TB_X 1\n")
    expected = {"all calls 1": "Opening.", **{f"TB_X {number}": text for number, text in sentences.items()}}
    assert promises.in_header(header) == expected


def test_names() -> None:
    written = "all calls 2.1-3 5.1, tb_kernel.op, initialize 2 3"
    expected = ["all calls 2.1", "all calls 2.2", "all calls 2.3", "all calls 5.1", "tb_kernel.op 1"]
    assert list(promises.named(written)) == [*expected, "initialize 2", "initialize 3"]
    with pytest.raises(AssertionError, match="'a b' names no sentence"):
        list(promises.named("a b"))


def test_a_failure_knows_what_was_promised() -> None:
    test = "abi/test_fills.py::test_the_pattern_is_read_before_the_call_returns"
    assert list(promises.of_test(f"somewhere/{test}[x]")) == [
        "memory_fill: `pattern` is host memory and is read before the call returns."
    ]
    assert list(promises.of_test("upstream/test_ops.py::TestOps::test_add")) == []
