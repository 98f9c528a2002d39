"""torch-backend codegen: the extension that it writes does what the same declarations do when they are loaded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import CliRunner
from fixtures import RunPython

import torch_backend
from torch_backend.cli.app import app
from torch_backend.custom_ops import DeclarationError, cpp
from torch_backend.operators import rerouting

DECLARATIONS = """
- func: "tbgen::scale(Tensor x, float factor=2.0, *, int offset=0) -> Tensor"
  kernel: own.kernels:scale
  meta: {like: x}
  backward: {operator: "tbgen::scale_backward", arguments: {g: grad}, gradients: [x]}
  autocast: lower_precision_fp
- func: "tbgen::scale_backward(Tensor g, float factor, bool twice=False) -> Tensor"
  kernel: own.kernels:scale_backward
  meta: own.kernels:scale_backward_meta
- func: "tbgen::pair(Tensor x, Tensor? weight, SymInt[] shape, str? mode=None) -> (Tensor, Tensor)"
  kernel: own.kernels:pair
  meta: {like: [x, x]}
  backward:
    operator: tbgen::pair_backward
    arguments: {grad_sin: grad.0, grad_cos: grad.1, sin: output, cos: output.1, form: shape}
    gradients: [x, weight]
- func: "tbgen::pair_backward(Tensor grad_sin, Tensor grad_cos, Tensor sin, Tensor cos, Tensor? weight, SymInt[] form,
    str? mode) -> (Tensor, Tensor)"
  kernel: own.kernels:pair_backward
  meta: {like: [sin, sin]}
- func: "tbgen::sigmoid_gelu(Tensor self, *, str approximate='none') -> Tensor"
  kernel: own.kernels:sigmoid_gelu
  meta: {like: self}
  backward: {function: "own.kernels:sigmoid_gelu_backward", save: [self]}
  reroute: aten::gelu
- func: "tbgen::classes.of(Tensor x, int n) -> Tensor"
  kernel: own.kernels:classes
  meta: {like: x, dtype: int64}
  autocast: fp32
- func: "tbgen::join(Tensor[] parts, Tensor other) -> Tensor"
  kernel: own.kernels:join
  meta: own.kernels:join
  autocast: promote
- {func: "tbgen::bump(Tensor(a!) x) -> ()", kernel: "own.kernels:bump", autocast: fallthrough}
"""

KERNELS = """
#include "ops.h"
#include <ATen/ATen.h>

namespace own::kernels {

at::Tensor scale(const at::Tensor& x, double factor, int64_t offset) { return x * factor + offset; }
at::Tensor scale_backward(const at::Tensor& g, double factor, bool twice) { return g * factor * (twice ? 2 : 1); }
at::Tensor scale_backward_meta(const at::Tensor& g, double, bool) { return at::empty_like(g); }

std::tuple<at::Tensor, at::Tensor> pair(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                                        c10::SymIntArrayRef, std::optional<std::string_view>) {
  const auto by = weight ? *weight : at::ones({}, x.options());
  return {x.sin() * by, x.cos() * by};
}
std::tuple<at::Tensor, at::Tensor> pair_backward(
    const at::Tensor& grad_sin, const at::Tensor& grad_cos, const at::Tensor& sin, const at::Tensor& cos,
    const std::optional<at::Tensor>& weight, c10::SymIntArrayRef form, std::optional<std::string_view> mode) {
  TORCH_CHECK(form.size() == 2 && mode.value_or("a mode") == "a mode");
  const auto by = weight ? *weight : at::ones({}, sin.options());
  return {grad_sin * cos - grad_cos * sin, (grad_sin * sin + grad_cos * cos) / by};
}

at::Tensor sigmoid_gelu(const at::Tensor& self, std::string_view) { return self * at::sigmoid(self * 1.702); }
torch::autograd::variable_list sigmoid_gelu_backward(torch::autograd::AutogradContext* ctx,
                                                     torch::autograd::variable_list grads) {
  const auto x = ctx->get_saved_variables()[0];
  const auto gate = at::sigmoid(x * 1.702);
  return {grads[0] * gate * (1 + 1.702 * x * (1 - gate))};
}

at::Tensor classes(const at::Tensor& x, int64_t n) { return (x * n).to(at::kLong); }
at::Tensor join(at::TensorList parts, const at::Tensor& other) { return at::cat(parts) + other; }
void bump(at::Tensor& x) { x.add_(1); }

}  // namespace own::kernels
"""


def pair(x: Any, weight: Any, shape: Any, mode: Any) -> Any:
    by = 1 if weight is None else weight
    return x.sin() * by, x.cos() * by


def pair_backward(grad_sin: Any, grad_cos: Any, sin: Any, cos: Any, weight: Any, form: Any, mode: Any) -> Any:
    assert len(form) == 2
    by = torch.ones((), device=sin.device) if weight is None else weight
    return grad_sin * cos - grad_cos * sin, (grad_sin * sin + grad_cos * cos) / by


def sigmoid_gelu_backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    (x,) = ctx.saved_tensors
    gate = torch.sigmoid(x * 1.702)
    return grad * gate * (1 + 1.702 * x * (1 - gate))


FUNCTIONS = {
    "scale": lambda x, factor, *, offset: x * factor + offset,
    "scale_backward": lambda g, factor, twice: g * factor * (2 if twice else 1),
    "scale_backward_meta": lambda g, factor, twice: torch.empty_like(g),
    "pair": pair,
    "pair_backward": pair_backward,
    "sigmoid_gelu": lambda self, *, approximate: self * torch.sigmoid(self * 1.702),
    "sigmoid_gelu_backward": sigmoid_gelu_backward,
    "classes": lambda x, n: (x * n).to(torch.int64),
    "join": lambda parts, other: torch.cat(parts) + other,
    "bump": lambda x: x.add_(1) and None,
}


def as_python(value: Any) -> Any:
    """The declarations with another namespace and Python's functions, for load_operators."""
    if isinstance(value, dict):
        return {key: as_python(inner) for key, inner in value.items() if key != "reroute"}
    if isinstance(value, list):
        return [as_python(inner) for inner in value]
    if isinstance(value, str) and value.startswith("own.kernels:"):
        return FUNCTIONS[value.partition(":")[2]]
    return value.replace("tbgen::", "tbpy::") if isinstance(value, str) else value


@pytest.fixture(scope="module")
def extension(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Both, in one process, in which no official operator is rerouted; the built library. Building takes a minute."""
    from torch.utils import cpp_extension

    folder = tmp_path_factory.mktemp("extension")
    (folder / "ops.yaml").write_text(DECLARATIONS)
    (folder / "kernels.cpp").write_text(KERNELS)
    result = CliRunner().invoke(app, ["codegen", str(folder / "ops.yaml"), "-o", str(folder / "src")])
    assert result.exit_code == 0, result.output
    header, source = result.stdout.split()
    (folder / "build").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(rerouting.SWITCH, "0")  # read once: later tests of this process have PyTorch's operators
        cpp_extension.load(
            name="tbgen_ops",
            sources=[source, str(folder / "kernels.cpp")],
            extra_include_paths=[str(Path(header).parent)],
            extra_cflags=["-O1"],
            build_directory=str(folder / "build"),
            is_python_module=False,
        )
    with torch_backend.load_operators(as_python(yaml.safe_load(DECLARATIONS))):
        yield folder / "build" / "tbgen_ops.so"


@pytest.fixture
def device(name: str, extension: Path) -> str:
    return name


def cases(device: str, dtype: torch.dtype = torch.float32) -> dict[str, tuple[list[Any], dict[str, Any]]]:
    generator = torch.Generator().manual_seed(0)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    return {
        "scale": ([tensor(3, 4), 1.5], {"offset": 1}),
        "scale without defaults": ([tensor(3, 4)], {}),
        "pair": ([tensor(2, 3), tensor(2, 3).abs() + 1, [2, 3]], {"mode": "a mode"}),
        "pair without a weight": ([tensor(2, 3), None, [2, 3], None], {}),
        "sigmoid_gelu": ([tensor(5, 2)], {"approximate": "tanh"}),
        "classes": ([tensor(3), 4], {}),
        "join": ([[tensor(2, 3), tensor(1, 3)], tensor(3, 3)], {}),
        "empty": ([tensor(0, 4)], {}),
    }


def overload(namespace: str, case: str) -> Any:
    name = {"empty": "scale"}.get(case, case.split()[0])
    return getattr(getattr(torch.ops, namespace), name)


def outcome(namespace: str, case: str, device: str, **autocast: Any) -> list[Any]:
    """Results, then gradients of what can have any."""
    args, kwargs = cases(device)[case]
    differentiates = case not in ("classes", "join")  # those have no backward
    leaves = [a.requires_grad_() for a in args if isinstance(a, torch.Tensor) and differentiates]
    with torch.autocast(device, **autocast, enabled=bool(autocast)):
        found = overload(namespace, case)(*args, **kwargs)
    results = list(found) if isinstance(found, tuple) else [found]
    differentiable = [r for r in results if r.requires_grad]
    if differentiable:
        sum((i + 1) * r.float().sum() for i, r in enumerate(differentiable)).backward()
    return [*(r.detach() for r in results), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("case", list(cases("cpu")))
@pytest.mark.parametrize("autocast", [{}, {"dtype": torch.bfloat16}], ids=["plain", "autocast"])
def test_as_loaded(device: str, case: str, autocast: dict[str, Any]) -> None:
    written, loaded = (outcome(namespace, case, device, **autocast) for namespace in ("tbgen", "tbpy"))
    assert [w is None for w in written] == [value is None for value in loaded]
    torch.testing.assert_close(written, loaded)


def test_a_write(device: str) -> None:
    x = torch.zeros(3, device=device)
    with torch.autocast(device):
        assert torch.ops.tbgen.bump(x) is None
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize("case", [case for case in cases("cpu") if case != "join"])
def test_without_a_device(extension: Path, case: str) -> None:
    args, kwargs = cases("meta")[case]
    written, loaded = (overload(namespace, case)(*args, **kwargs) for namespace in ("tbgen", "tbpy"))
    for ours, theirs in zip(*([r] if isinstance(r, torch.Tensor) else r for r in (written, loaded)), strict=True):
        assert (ours.shape, ours.dtype, ours.device) == (theirs.shape, theirs.dtype, theirs.device)


@pytest.mark.parametrize("case", ["scale", "pair", "classes"])
def test_opcheck(device: str, case: str) -> None:
    args, kwargs = cases(device)[case]
    overload_ = overload("tbgen", case)
    checked = getattr(overload_, overload_.overloads()[0])
    checks = ["test_schema", "test_faketensor", "test_aot_dispatch_dynamic"]
    assert torch.library.opcheck(checked, args, kwargs, test_utils=checks) == dict.fromkeys(checks, "SUCCESS")


@pytest.mark.parametrize("case", ["scale", "pair", "sigmoid_gelu"])
def test_compiled(device: str, case: str) -> None:
    args, kwargs = cases(device)[case]
    args[0].requires_grad_()
    called = overload("tbgen", case)

    def run(*args: Any) -> Any:
        found = called(*args, **kwargs)
        return found[0] + found[1] if isinstance(found, tuple) else found * 2

    expected = run(*args)
    (wanted,) = torch.autograd.grad(expected.sum(), args[0])
    found = torch.compile(run, backend="aot_eager", fullgraph=True)(*args)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), args[0])[0], wanted)


def test_reroute(name: str, extension: Path, run_python: RunPython) -> None:
    run_python(
        f"""
        import torch, torch_backend
        torch_backend.activate("{name}")
        torch.ops.load_library("{extension}")
        x = torch.linspace(-2, 2, 9, device="{name}", requires_grad=True)
        y = torch.nn.functional.gelu(x)
        (ours,) = torch.autograd.grad(y.sum(), x)
        written = torch.ops.tbgen.sigmoid_gelu(x)
        torch.testing.assert_close(y, written)
        torch.testing.assert_close(ours, torch.autograd.grad(written.sum(), x)[0])
        with torch.no_grad():
            torch.testing.assert_close(torch.nn.functional.gelu(x), written)
        """
    )
    x = torch.ones(3, device=name)
    assert not torch.equal(torch.nn.functional.gelu(x), torch.ops.tbgen.sigmoid_gelu(x))


def test_threads(device: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(seed: int) -> bool:
        x = torch.full((64,), float(seed), device=device, requires_grad=True)
        for _ in range(20):
            (gradient,) = torch.autograd.grad(torch.ops.tbgen.scale(x, float(seed)).sum(), x)
            if gradient.unique().tolist() != [seed]:
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 9)))


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"kernel": "plugin"}, "the device library has the kernel"),
        ({"vmap": "own:rule"}, "a rule of torch.vmap is a Python function"),
        ({"backward": {"function": "own:b", "setup_context": "own:s"}}, "setup_context is a Python function"),
        ({"reroute": "aten::relu6"}, "whose gradients are lost without a backward"),
        ({"kernel": None}, "there is no kernel"),
        (
            {"func": "tbbad::f(Tensor[] x, Tensor?[] y) -> Tensor", "autocast": "fp32", "meta": "own:m"},
            "cast by load_operators",
        ),
        ({"func": "tbbad::f(Tensor x) -> ()", "backward": "own:b", "meta": None}, "nothing to have gradients of"),
        (
            {
                "func": "tbbad::f(Tensor x, Device d) -> Tensor",
                "backward": {"operator": "tbbad::g", "gradients": ["x"]},
            },
            "'d' is a Device, which a C\\+\\+ backward cannot hold",
        ),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, declaration: dict[str, Any], message: str) -> None:
    whole = {"func": "tbbad::f(Tensor x) -> Tensor", "kernel": "own:f", "meta": {"like": "x"}} | declaration
    backward = {"func": "tbbad::g(Tensor grad, Device d) -> Tensor", "kernel": "own:g", "meta": {"like": "grad"}}
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump([whole, backward], sort_keys=False))
    with pytest.raises(DeclarationError, match=message) as raised:
        cpp.write(file, tmp_path / "out")
    assert "bad.yaml:" in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_an_unchanged_file_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "ops.yaml").write_text(DECLARATIONS)
    first = [path.stat().st_mtime_ns for path in cpp.write(tmp_path / "ops.yaml", tmp_path)]
    assert [path.stat().st_mtime_ns for path in cpp.write(tmp_path / "ops.yaml", tmp_path)] == first


def test_command_says_what_is_wrong(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["codegen", str(tmp_path / "none.yaml")])
    assert result.exit_code == 1
    assert "none.yaml" in result.output
