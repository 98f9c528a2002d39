"""torch_backend.explain: what an operator runs on, and what to write for it."""

import re

import pytest
import torch
from fixtures import RunPython

import torch_backend
from torch_backend import operators
from torch_backend.operators import derivatives, dispatch, forms, target

pytestmark = pytest.mark.usefixtures("backend")


def one(op: str) -> operators.OverloadExplanation:
    (found,) = torch_backend.explain(op)
    return found


@pytest.mark.parametrize(
    "op",
    ["aten::softmax.int", "softmax.int", " softmax.int ", "torch.ops.aten.softmax.int", torch.ops.aten.softmax.int],
)
def test_ways_to_name_an_overload(op: torch._ops.OpOverload | str) -> None:
    assert [entry.op for entry in torch_backend.explain(op)] == ["aten::softmax.int"]


@pytest.mark.parametrize("op", ["relu.default", "aten::relu.default", torch.ops.aten.relu.default])
def test_overload_without_a_name(op: torch._ops.OpOverload | str) -> None:
    assert [entry.op for entry in torch_backend.explain(op)] == ["aten::relu"]


@pytest.mark.parametrize("op", ["softmax", "aten::softmax", torch.ops.aten.softmax])
def test_an_operator_means_all_its_overloads(op: torch._ops.OpOverloadPacket | str) -> None:
    expected = sorted(name for name in operators.operator_sources() if name.split(".")[0] == "aten::softmax")
    assert [entry.op for entry in torch_backend.explain(op)] == expected
    assert len(expected) > 1


def test_unknown_operators() -> None:
    with pytest.raises(ValueError, match=r"no operator 'sofmax'\. Did you mean aten::softmax"):
        torch_backend.explain("sofmax")
    with pytest.raises(ValueError, match=r"no operator 'softmax\.nope'"):
        torch_backend.explain("softmax.nope")
    with pytest.raises(ValueError, match=r"no operator 'softmax\.default'"):
        torch_backend.explain("softmax.default")
    with pytest.raises(TypeError, match="expected an operator's name"):
        torch_backend.explain(torch.softmax)  # type: ignore[arg-type]


def test_without_a_device(run_python: RunPython) -> None:
    process = run_python("import torch_backend; torch_backend.explain('relu')", expect=1)
    assert "RuntimeError: No device of torch_backend is active" in process.stderr


def test_import_stays_light(run_python: RunPython) -> None:
    code = """
    import sys, torch_backend
    assert "torch" not in sys.modules
    torch_backend.explain
    assert "yaml" not in sys.modules and "torch_backend.declarations" not in sys.modules
    """
    run_python(code)


def test_sources_are_those_of_the_table() -> None:
    sources = operators.operator_sources()
    for op in ("relu", "softmax", "linalg_qr", "_cudnn_rnn", "c10d::allreduce_"):
        for entry in torch_backend.explain(op):
            assert entry.source == sources[entry.op]
            assert f"source:    {entry.source}" in str(entry)


def test_structured_operator() -> None:
    functional, inplace = one("add.Tensor"), one("add_.Tensor")
    assert functional.kernel is not None
    assert functional.kernel == inplace.kernel
    assert (functional.kernel.op, functional.kernel.serves) == (
        "aten::add.out",
        ("aten::add.Tensor", "aten::add_.Tensor"),
    )
    assert functional.composite == "CompositeExplicitAutogradNonFunctional"
    assert functional.derivative == operators.Derivative("formula")


def test_source_of_the_form_that_serves() -> None:
    entry = one("__lshift__.Tensor_out")
    assert (entry.source, entry.kernel_source) == ("composite", "fallback")
    kernel = "kernel:    aten::__lshift__.Tensor (now fallback), which also serves aten::__lshift__.Tensor_out"
    assert kernel in str(entry)


def test_composite_operator() -> None:
    entry = one("softmax.int")
    assert (entry.source, entry.composite, entry.kernel) == ("composite", "CompositeImplicitAutograd", None)
    assert entry.derivative.derivation == "composite"
    assert tuple(entry.made_of) == ("aten::_softmax",)
    assert "kernel:    none of its own needed: write aten::_softmax.out, of what it is made of" in str(entry)
    assert '@torch_backend.kernel("aten::_softmax.out")' in str(entry)


def test_composite_operators_of_several_and_of_unknown_parts() -> None:
    entry = one("linear.default")
    assert {"aten::t", "aten::mm"} <= set(entry.made_of)
    assert "write aten::mm.out, of what" in str(entry)  # not aten::t, which the core serves
    dropout = one("dropout.default")
    assert "aten::bernoulli_.float" in dropout.made_of
    assert "in Python" not in str(dropout)
    unknown = one("einsum.default")
    assert unknown.made_of == {}
    assert "explain() with example inputs" in str(unknown)


def test_matrix_products_with_a_dtype_are_made_of_others() -> None:
    entry = one("mm.dtype")
    assert entry.source == "composite"
    assert "source:    composite: made of other operators (by torch_backend)" in str(entry)


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        ("_softmax", "aten::_softmax.out"),
        ("abs_", "aten::abs.out"),  # PyTorch's default calls it
        ("native_layer_norm.out", "aten::native_layer_norm"),  # torchgen generates this out form
        ("resize", "aten::resize_"),
        ("convolution_overrideable", "aten::convolution_overrideable"),
        ("index_select", "aten::index_select.out"),  # not structured, and has both forms
        ("zeros.out", "aten::zeros.out"),
        ("__ilshift__.Scalar", "aten::__ilshift__.Scalar"),
    ],
)
def test_what_to_write(op: str, kernel: str) -> None:
    found = one(op if "." in op else f"{op}.default").kernel
    assert found is not None
    assert found.op == kernel


def test_registering_in_cpp_replaces_every_form_with_a_kernel() -> None:
    for op in ("add.Tensor", "index_select.default", "native_layer_norm.default"):
        kernel = one(op).kernel
        assert kernel is not None
        on_device = {form for form in kernel.serves if dispatch.has_kernel(form, "PrivateUse1")}
        assert on_device <= set(kernel.replaces) <= {kernel.op, *kernel.serves}
        assert all(f'm.impl("{form.removeprefix("aten::")}", ...);' in str(one(op)) for form in kernel.replaces)


def test_views_are_not_for_the_device_library() -> None:
    assert 'table "kernels.1"' not in str(one("as_strided.default"))
    assert 'table "kernels.1"' not in str(one("resize_"))
    assert 'table "kernels.1"' in str(one("relu.default"))


def test_backward_operators() -> None:
    entry = one("_softmax.default")
    assert entry.derivative == operators.Derivative("formula", ("aten::_softmax_backward_data",))
    sources = operators.operator_sources()
    assert entry.backward_sources == {"aten::_softmax_backward_data": sources["aten::_softmax_backward_data"]}
    assert one("native_layer_norm.default").derivative.operators == ("aten::native_layer_norm_backward",)
    assert one("argmax.default").derivative == operators.Derivative("none")
    assert one("c10d::allreduce_").derivative == operators.Derivative("none")


def test_derivation_agrees_with_autograd(name: str) -> None:
    x = torch.rand(2, 3, device=name, requires_grad=True)
    for op in ("exp", "relu", "argmax", "isnan", "sigmoid", "softplus", "floor", "logical_not"):
        has_grad = getattr(torch.ops.aten, op)(x).requires_grad
        assert (one(f"{op}.default").derivative.derivation != "none") == has_grad, op


def test_trace_of_a_composite(name: str) -> None:
    x = torch.rand(3, 4, device=name)
    found = torch_backend.explain("softmax", x, -1)
    assert [entry.op for entry in found] == ["aten::softmax.int"]
    assert found.trace is not None
    assert found.trace[0].op == "aten::softmax.int"
    leaf = next(entry for entry in found.trace if entry.op == "aten::_softmax")
    assert leaf.source == operators.operator_sources()["aten::_softmax"]
    assert leaf.kernel is not None
    assert re.search(rf"^aten::_softmax +{leaf.source} +1  {leaf.kernel.op}$", str(found), re.MULTILINE)


def test_trace_takes_keywords_and_overloads(name: str) -> None:
    found = torch_backend.explain(torch.ops.aten.sum.dim_IntList, torch.ones(2, 3, device=name), dim=[1], keepdim=True)
    assert found.trace is not None
    assert "aten::sum.dim_IntList" in {entry.op for entry in found.trace}
    assert torch_backend.explain("zeros.default", [2], device=name).trace


def test_trace_on_another_device(name: str) -> None:
    with pytest.raises(ValueError, match=f"ran nothing on {name}: pass example inputs that are on {name}"):
        torch_backend.explain("relu", torch.ones(2))


def test_errors_of_the_operator_come_through(name: str) -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch_backend.explain("mm.default", torch.ones(2, 3, device=name), torch.ones(2, 3, device=name))
    assert torch_backend.explain("relu", torch.ones(2, device=name)).trace  # counting has ended


def test_every_operator_can_be_explained() -> None:
    overloads = set(torch._C._dispatch_get_all_op_names())
    for overload in overloads:
        found = target.target_of(overload)
        assert found is None or found.op in overloads
        assert derivatives.derivative_of(overload).derivation in ("composite", "formula", "kernel", "none")


def test_forms_are_those_of_torchgen() -> None:
    pytest.importorskip("yaml")
    for declaration in torch_backend.declarations.installed():
        if declaration.structured_delegate is not None:
            assert forms.forms_of(declaration.op).out == declaration.structured_delegate
        if declaration.reason == "structured":
            found = target.target_of(declaration.op)
            assert found is not None
            assert found.op == declaration.structured_delegate
            assert declaration.op in found.serves
