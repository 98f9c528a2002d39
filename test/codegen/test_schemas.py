"""A schema that changed under a hand-written kernel is a build error that names the operator."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from codegen import operators, parse, schemas, typed  # noqa: E402


@pytest.fixture(scope="module")
def functions():
    return parse.native_functions()[0]


def registered_in_csrc():
    names = set()
    for path in (ROOT / "csrc" / "ops" / "native").glob("*.cpp"):
        names.update(re.findall(r'm\.impl\("([^"]+)"', path.read_text()))
    return names


def test_the_installed_torch_fits(functions):
    listed = operators.read().hand_written
    assert schemas.check_schemas(functions, listed) > 0.9 * len(listed)


def test_every_hand_written_kernel_is_listed():
    assert registered_in_csrc() == operators.read().hand_written_overloads


def test_a_changed_schema_is_named(functions):
    listed = [
        "zero_(Tensor(a!) self) -> Tensor(a!)",
        "view(Tensor(a) self, SymInt[] size, bool strict) -> Tensor(a)",
    ]
    with pytest.raises(typed.CodegenError) as error:
        schemas.check_schemas(functions, listed)
    message = str(error.value)
    assert "  view\n    written for: view(Tensor(a) self, SymInt[] size, bool strict)" in message
    assert "installed:   view(Tensor(a) self, SymInt[] size) -> Tensor(a)" in message
    assert "zero_" not in message


def test_an_overload_that_torch_does_not_have_is_no_fault(functions):
    listed = ["no_such_op(Tensor self) -> Tensor", "zero_(Tensor(a!) self) -> Tensor(a!)"]
    assert schemas.check_schemas(functions, listed) == 1
