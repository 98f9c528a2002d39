"""Which backend of scaled_dot_product_attention runs, and what the result looks like. Math runs everywhere."""

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import torch_backend


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    """Fails a test that leaves PyTorch's settings changed."""
    order, flash = torch._C._get_sdp_priority_order(), torch._C._get_flash_sdp_enabled()
    yield
    assert (torch._C._get_sdp_priority_order(), torch._C._get_flash_sdp_enabled()) == (order, flash)


@pytest.fixture
def fused(name: str) -> None:
    """Skips on devices without a fused kernel: the host cannot access their memory, and they compile none."""
    plugin = torch_backend.active()
    assert plugin is not None
    if "HOST_ACCESS" not in plugin.device_properties(0).capabilities and not torch_backend._C.has_modules():
        pytest.skip(f"{name} does not let the host access its memory, and compiles no kernels")


def backend_of(query: Tensor, **options: object) -> str:
    """Which kind of kernel computes the attention of ``query`` with itself."""
    result = F.scaled_dot_product_attention(query, query, query, **options)  # type: ignore[arg-type]
    assert result.grad_fn is not None
    return "fused" if "FusedAttentionOverrideable" in result.grad_fn.name() else "math"


@pytest.fixture
def query(name: str) -> Tensor:
    return torch.linspace(-1, 1, 128, device=name).reshape(1, 2, 8, 8).requires_grad_()


def test_math_on_demand(query: Tensor) -> None:
    with sdpa_kernel(SDPBackend.MATH):
        assert backend_of(query) == "math"
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.OVERRIDEABLE], set_priority=True):
        assert backend_of(query) == "math"


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize(
    "allowed", [SDPBackend.OVERRIDEABLE, SDPBackend.FLASH_ATTENTION, [SDPBackend.MATH, SDPBackend.OVERRIDEABLE]]
)
def test_fused_by_both_of_its_names(query: Tensor, allowed: SDPBackend | list[SDPBackend]) -> None:
    assert backend_of(query) == "fused"
    with sdpa_kernel(allowed):
        assert backend_of(query) == "fused"


@pytest.mark.usefixtures("fused")
def test_fused_first(query: Tensor) -> None:
    with sdpa_kernel([SDPBackend.OVERRIDEABLE, SDPBackend.MATH], set_priority=True):
        assert backend_of(query) == "fused"
        assert backend_of(query.double()) == "math"


def test_nothing_that_is_enabled_fits(query: Tensor, name: str) -> None:
    for allowed, asked in ((SDPBackend.EFFICIENT_ATTENTION, query), (SDPBackend.OVERRIDEABLE, query.double())):
        with (
            sdpa_kernel(allowed),
            pytest.raises(RuntimeError, match=r"(?i)no (enabled|viable|available) (backend|kernel)"),
        ):
            backend_of(asked)


@pytest.mark.parametrize("layout", [(0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3)])
@pytest.mark.parametrize("value_width", [8, 16])
def test_strides_are_those_that_tracing_promises(name: str, layout: tuple[int, ...], value_width: int) -> None:
    def tensor(width: int) -> Tensor:
        sizes = [2, 3, 5, width]
        dense = torch.linspace(-1, 1, 30 * width).reshape([sizes[dim] for dim in layout])
        return dense.to(name).permute([layout.index(dim) for dim in range(4)]).requires_grad_()

    query, key, value = tensor(8), tensor(8), tensor(value_width)
    inputs = (query, key, value)
    result = F.scaled_dot_product_attention(*inputs)
    gradients = torch.autograd.grad(result.square().sum(), inputs)
    expected = F.scaled_dot_product_attention(*(x.detach().cpu() for x in inputs))
    torch.testing.assert_close(result.cpu(), expected)
    if backend_of(query.detach().requires_grad_()) == "fused" and value_width == 8:
        assert result.stride() == query.stride()
        assert [gradient.stride() for gradient in gradients] == [x.stride() for x in inputs]


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("layout", [(0, 1, 2, 3), (0, 2, 1, 3)])
def test_what_is_saved_is_what_tracing_promises(name: str, layout: tuple[int, ...]) -> None:
    operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    dense = torch.linspace(-1, 1, 240).reshape([(2, 3, 5, 8)[dim] for dim in layout])
    query = dense.to(name).permute([layout.index(dim) for dim in range(4)])
    actual = operator(query, query, query)
    promised = operator(*[query.to("meta")] * 3)
    for one, other in zip(actual, promised, strict=True):
        assert (one is None) == (other is None)
        if isinstance(one, Tensor):
            assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())
            assert one.device.type == name


@pytest.mark.usefixtures("fused")
def test_double_precision_is_not_saved_in_single(name: str) -> None:
    query = torch.linspace(-1, 1, 128, device=name, dtype=torch.float64).reshape(1, 2, 8, 8).requires_grad_()
    assert backend_of(query) == "math"
    assert torch.autograd.gradcheck(lambda q: F.scaled_dot_product_attention(q, q, q), (query,))


@pytest.mark.usefixtures("fused")
def test_choosing_leaves_the_settings_alone(query: Tensor) -> None:
    """Another thread sees, at any time, what the user has set."""
    seen: set[bool] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.add(torch._C._get_flash_sdp_enabled())

    with sdpa_kernel(SDPBackend.OVERRIDEABLE):
        watcher = threading.Thread(target=watch)
        watcher.start()
        for _ in range(3000):
            F.scaled_dot_product_attention(query, query, query)
        done.set()
        watcher.join()
    assert seen == {False}
