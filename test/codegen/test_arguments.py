"""The places of operators' arguments (codegen/arguments.py)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from codegen import arguments, parse


@pytest.fixture(scope="module")
def places():
    """Arguments by overload."""
    functions, _ = parse.native_functions()
    everything = {function.func.name.unambiguous_name() for function in functions}
    return {overload.name: overload.arguments for overload in arguments.overloads(functions, everything)}


def test_that_only_overloads_that_a_source_names_have_places(tmp_path):
    source = tmp_path / "Sorting.cpp"
    source.write_text("args[op::sort::self]; run<op::put_>(); op::no_such_operator; op::name##_out; RUN(index_select)")
    functions, _ = parse.native_functions()
    found = arguments.overloads(functions, arguments.named_in([source]))
    assert [overload.identifier for overload in found] == ["index_select_out", "put_", "sort"]


def test_that_outputs_come_last_whether_they_are_given_or_made(places):
    assert places["index_select.out"] == ("self", "dim", "index", "out")
    assert places["index_select"] == ("self", "dim", "index", "result")
    assert places["native_dropout"] == ("input", "p", "train", "result0", "result1")
    assert places["sort"] == ("self", "dim", "descending", "values", "indices")


def test_that_what_is_written_in_place_is_no_second_argument(places):
    assert places["put_"] == ("self", "index", "source", "accumulate")
    assert places["_cummax_helper"] == ("self", "values", "indices", "dim")


def test_that_no_argument_is_called_like_its_overload(places):
    assert "threshold_" in places["threshold"]
