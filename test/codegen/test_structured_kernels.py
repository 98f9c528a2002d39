"""What codegen writes for structured operators: which groups, how their classes are called, in which files."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from torchgen.model import DispatchKey  # noqa: E402

from codegen import emit, operators, parse, structured  # noqa: E402


@pytest.fixture(scope="module")
def kernels():
    functions, backends = parse.native_functions()
    known = replace(operators.read(), typed={"some": ["mm", "add", "cat", "isin", "max", "mse_loss"]})
    groups = parse.structured_groups(functions)
    return {kernel.name: kernel for kernel in structured.structured_kernels(groups, backends, known)}


def test_a_group_has_all_its_forms(kernels):
    assert [form.overload for form in kernels["add_Tensor"].forms] == ["add.Tensor", "add_.Tensor", "add.out"]
    assert [form.overload for form in kernels["mm"].forms] == ["mm", "mm.out"]


def test_every_structured_operator_of_the_installed_torch_is_there(kernels):
    functions, backends = parse.native_functions()
    cpu = backends[DispatchKey.CPU]
    # A few have a kernel for another device and none for the CPU: there is no class to derive from.
    only_elsewhere = {str(f.func.name) for f in functions if f.structured and not cpu.has_kernel(f)}
    structured_functions = {
        str(function.func.name)
        for function in functions
        if (function.structured or function.structured_delegate is not None)
        and str(function.structured_delegate or function.func.name) not in only_elsewhere
    }
    assert len(only_elsewhere) < 5
    # Variants that torchgen itself adds (functional forms of what only mutates) have no kernel class.
    served = {form.overload for kernel in kernels.values() for form in kernel.forms}
    assert served == {name for name in structured_functions if not name.endswith("_functional")}


def test_a_group_is_known_by_its_out_form(kernels):
    assert kernels["add_Tensor"].out_overload == "add.out"
    assert kernels["_softmax"].out_overload == "_softmax.out"


def test_only_pointwise_operators_run_on_their_iterator(kernels):
    assert kernels["add_Tensor"].pointwise
    assert kernels["add_Tensor"].iterates
    assert not kernels["mm"].pointwise
    assert not kernels["mm"].iterates
    assert kernels["gelu"].pointwise
    assert not kernels["gelu"].iterates
    assert not kernels["index_Tensor"].pointwise  # a TensorIterator, but its inputs are not broadcast


def test_precomputed_values_replace_arguments(kernels):
    (functional, out) = kernels["max_dim"].forms
    assert functional.meta == "self, dim, keepdim"
    assert functional.impl.startswith("aliases.tensor(self), precompute.dim, keepdim, ")
    assert out.written == "max, max_values"


def test_inputs_are_the_arguments_without_outputs(kernels):
    assert [form.inputs for form in kernels["add_Tensor"].forms] == ["self, other, alpha"] * 3
    assert kernels["add_Tensor"].forms[2].arguments == "self, other, alpha, out"


def test_forms_that_write_may_need_no_meta_function(kernels):
    assert [form.plain for form in kernels["add_Tensor"].forms] == [False, True, True]
    assert not any(form.plain for form in kernels["clamp"].forms)  # optional numbers
    assert not any(form.plain for form in kernels["mm"].forms)


def test_hot_functional_forms_run_on_aliases(kernels):
    functional, out = kernels["mm"].forms
    assert functional.aliased
    assert not out.aliased
    assert functional.impl == "aliases.tensor(self), aliases.tensor(mat2), aliases.output(op.result(0))"
    assert not kernels["bmm"].forms[0].aliased
    assert not kernels["mse_loss"].forms[0].aliased  # an iterator over the device's tensors
    assert kernels["isin_Tensor_Scalar"].forms[0].aliased
    assert not kernels["isin_Scalar_Tensor"].forms[0].aliased  # whose kernel resizes its output


def test_hot_operators_call_atens_kernel_typed(kernels):
    assert kernels["mm"].forms[0].aten_call == "0>::call"
    assert kernels["bmm"].forms[0].aten_call == "0>::call_boxed"
    assert kernels["add_Tensor"].forms[0].aten_call == "0>::call_boxed"  # the typed kernel is the iterator's


def test_generated_text(kernels, tmp_path):
    some = [kernels["add_Tensor"], kernels["max_dim"]]
    paths = emit.emit_structured_kernels(some, tmp_path, num_shards=1)
    assert [path.name for path in paths] == ["RegisterStructuredKernels_0.cpp", "RegisterStructuredKernelsAll.cpp"]
    for path in paths:
        assert path.read_text() == (HERE / "golden" / path.name).read_text()


def test_every_overload_is_registered_once(kernels, tmp_path):
    emit.emit_structured_kernels(list(kernels.values()), tmp_path, num_shards=3)
    text = "".join(path.read_text() for path in tmp_path.glob("*_[0-9].cpp"))
    registered = re.findall(r'register_structured_kernel\(m, "([^"]+)"', text)
    assert sorted(registered) == sorted(form.overload for kernel in kernels.values() for form in kernel.forms)
