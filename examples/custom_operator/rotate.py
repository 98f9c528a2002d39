"""Use the custom operators: eagerly, with gradients, under autocast and torch.compile, and behind torch's own gelu."""

import inspect
from pathlib import Path

import torch

import torch_backend

DEVICE = "xcpu"


def main() -> None:
    """Print what happens."""
    torch_backend.activate(DEVICE)
    torch.manual_seed(0)
    torch_backend.load_operators(Path(__file__).with_name("ops.yaml"))
    from torch_backend.ops.acme import rotary

    print(f"rotary{inspect.signature(rotary)}")
    angles = torch.arange(6.0).reshape(3, 2)
    cos, sin = angles.cos().to(DEVICE), angles.sin().to(DEVICE)
    x = torch.randn(2, 3, 4, device=DEVICE, requires_grad=True)

    y = rotary(x, cos, sin)
    y.square().sum().backward()
    print("a rotation keeps lengths:", torch.allclose(x.grad, 2 * x))
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        print("dtype under autocast:", rotary(x.bfloat16(), cos, sin).dtype)
    compiled = torch.compile(rotary, backend="aot_eager", fullgraph=True)
    print("compiled, it is the same:", torch.equal(compiled(x, cos, sin), y))

    (route,) = torch_backend.reroutes()
    ours = torch.nn.functional.gelu(x)
    route.disable()
    exact = torch.nn.functional.gelu(x)
    print(f"{route}: off by {(ours - exact).abs().max().item():.3f} while it was enabled")


if __name__ == "__main__":
    main()
