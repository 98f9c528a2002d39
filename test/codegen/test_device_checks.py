"""Which overloads compare the devices of their arguments before a kernel is called."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from codegen import device_checks, parse  # noqa: E402


@pytest.fixture(scope="module")
def installed():
    return parse.native_functions()


def test_what_iterators_compare_is_left_to_them(installed):
    checked = device_checks.checked_overloads(*installed)
    assert {"addmm", "bmm.out", "gather", "index_select"} <= set(checked)
    assert not {"add.Tensor", "where.self", "index.Tensor", "_index_put_impl_"} & set(checked)


def test_composites_compare_nothing(installed):
    assert "linear" not in device_checks.checked_overloads(*installed)
