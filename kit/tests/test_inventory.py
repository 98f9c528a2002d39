"""The list of tests, and which of them every device has to pass."""

import pytest
from torch_conformance import inventory
from torch_conformance.inventory import Entry
from torch_conformance.levels import LEVELS
from torch_conformance.routes.pytorch import InPyTorch


def test_a_test_that_needs_what_devices_may_be_without_is_not_for_all() -> None:
    assert Entry("tensor/test_a.py::test_b", "", ()).must_pass
    assert Entry("tensor/test_a.py::test_b", "", (("dtype", "float64"),)).must_pass
    assert not Entry("tensor/test_a.py::test_b", "", (("dtype", "float64"), ("feature", "nested"))).must_pass
    assert not Entry("tensor/test_a.py::test_b", "", (("devices", 2),)).must_pass


def test_the_list_is_of_the_suite() -> None:
    async_level = LEVELS[4]
    found = inventory.of_suite(InPyTorch("cpu"), [async_level])
    assert {entry.level for entry in found} == {async_level}
    assert {entry.test.split("::")[0] for entry in found} <= {f"async_/{file.name}" for file in async_level.files()}
    assert all(entry.proves for entry in found)
    assert any(entry.needs for entry in found)
    with pytest.raises(ValueError, match="The tests cannot be loaded on 'nothing'"):
        inventory.of_suite(InPyTorch("nothing"), [async_level])
