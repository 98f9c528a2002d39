"""A schema that changed under a hand-written kernel is a build error that names the operator."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from codegen import parse, schemas, typed  # noqa: E402


@pytest.fixture(scope="module")
def functions():
    return parse.native_functions()[0]


def registered_in_csrc():
    names = set()
    for path in (ROOT / "csrc" / "aten").glob("*.cpp"):
        names.update(re.findall(r'm\.impl\("([^"]+)"', path.read_text()))
    return names


def test_the_installed_torch_fits(functions):
    listed = parse.read_names(ROOT / "codegen" / "own_schemas.txt")
    assert schemas.check_schemas(functions, ROOT / "codegen" / "own_schemas.txt") > 0.9 * len(listed)


def test_every_hand_written_kernel_is_listed():
    listed = {line.split("(", 1)[0] for line in parse.read_names(ROOT / "codegen" / "own_schemas.txt")}
    assert registered_in_csrc() == listed


def test_a_changed_schema_is_named(functions, tmp_path):
    path = tmp_path / "schemas.txt"
    path.write_text(
        "zero_(Tensor(a!) self) -> Tensor(a!)\nview(Tensor(a) self, SymInt[] size, bool strict) -> Tensor(a)\n"
    )
    with pytest.raises(typed.CodegenError) as error:
        schemas.check_schemas(functions, path)
    message = str(error.value)
    assert "  view\n    written for: view(Tensor(a) self, SymInt[] size, bool strict)" in message
    assert "installed:   view(Tensor(a) self, SymInt[] size) -> Tensor(a)" in message
    assert "zero_" not in message


def test_an_overload_that_torch_does_not_have_is_no_fault(functions, tmp_path):
    path = tmp_path / "schemas.txt"
    path.write_text("no_such_op(Tensor self) -> Tensor\nzero_(Tensor(a!) self) -> Tensor(a!)\n")
    assert schemas.check_schemas(functions, path) == 1
