"""An operator and its backward as ``torch-backend codegen`` writes them (device) against C++ by hand (native).

Both run on the device. The first run compiles them, which takes a minute.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from benchmarks.result import Row, time_row
from benchmarks.timer import Work, compare
from torch_backend.custom_ops import cpp

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "benchmarks" / "cpp" / "custom_operators"


def run(device: torch.device) -> list[Row]:
    """Microseconds of one call."""
    _build(ROOT / "build" / "benchmarks" / f"custom_operators-{torch.__version__}")
    written, by_hand = torch.ops.bench.written, torch.ops.bench.by_hand
    sides = zip(_calls(device, written).items(), _calls(device, by_hand).values(), strict=True)
    return [time_row(name, compare(ours, theirs), "us") for (name, ours), theirs in sides]


def _build(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _, source = cpp.write(SOURCES / "ops.yaml", folder)
    cpp_extension.load(
        name="bench_custom_operators",
        sources=[str(source), str(SOURCES / "by_hand.cpp")],
        extra_include_paths=[str(folder)],
        extra_cflags=["-O2"],
        build_directory=str(folder),
        is_python_module=False,
    )


def _calls(device: torch.device, operator: Callable[..., torch.Tensor]) -> dict[str, Work]:
    x, weight, grad = (torch.ones(4, device=device) for _ in range(3))
    leaves = tuple(torch.ones(4, device=device, requires_grad=True) for _ in range(2))
    forward: Any = partial(operator, *leaves, 2.0)

    def step() -> None:
        torch.autograd.grad(forward(), leaves, grad)

    def cast() -> None:
        with torch.autocast(device.type):
            operator(x, weight, 2.0)

    return {
        "without gradients": partial(operator, x, weight, 2.0),
        "forward": forward,
        "forward and backward": step,
        "autocast": cast,
    }
