"""What the reference device xcpu is to reach, by benchmark and row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.result import Row


@dataclass(frozen=True)
class Target:
    """A bound for the ratio of one row, or for the device's time in the row's unit."""

    benchmark: str
    row: str
    at_most: float | None = None
    at_least: float | None = None
    time_at_most: float | None = None

    def missed_by(self, row: Row) -> str:
        """What is so and what was expected, or nothing if the row is within the bound."""
        if self.at_most is not None and row.ratio > self.at_most:
            return f"{row.ratio:.2f}, expected at most {self.at_most}"
        if self.at_least is not None and row.ratio < self.at_least:
            return f"{row.ratio:.2f}, expected at least {self.at_least}"
        if self.time_at_most is not None and row.device is not None and row.device > self.time_at_most:
            return f"{row.device:.1f} {row.unit}, expected at most {self.time_at_most} {row.unit}"
        return ""


SMALL_OPS = (
    "add", "mul_", "relu", "matmul 4x4", "linear", "sum", "softmax", "layer_norm", "cat", "index_select", "view", "t",
    "copy_", "sort", "nonzero", "empty", "to(device), against clone", "cpu(), against clone",
)  # fmt: skip

TRAINING = ("tiny MLP with momentum", "LSTM", "GRU", "packed LSTM", "VAE", "bfloat16 autocast", "float16 autocast")

ROWS = ("softmax", "softmax, backward", "layer_norm", "layer_norm, backward")

CUSTOM_OPERATORS = ("without gradients", "forward", "forward and backward", "autocast")

TARGETS = (
    Target("small_ops", "geomean", at_most=1.08),
    *(Target("small_ops", row, at_most=1.25) for row in SMALL_OPS),
    Target("small_ops", "item", at_most=1.6),
    Target("training", "MLP", at_most=1.03),
    Target("training", "transformer encoder layer", at_most=1.03),
    Target("training", "CNN", at_most=1.03),
    *(Target("training", row, at_most=1.05) for row in TRAINING),
    *(Target("compiled", row, at_most=1.05) for row in ("chain of 10^3", "chain of 10^6", "transformer step")),
    Target("compiled", "chain of 10^6, over eager", at_most=0.52),
    *(Target("generation", row, at_most=1.05) for row in ("sampling", "beam search")),
    Target("copies", "host to device", at_least=0.9),
    Target("copies", "device to host", at_least=0.9),
    Target("copies", "device to device", at_least=0.9),
    Target("allocator", "empty 1 MiB", at_most=1.0),
    Target("asynchronous", "item, ready", time_at_most=2.0),
    Target("asynchronous", "item, after add", time_at_most=15.0),
    Target("asynchronous", "cpu(), after add", time_at_most=15.0),
    Target("asynchronous", "event, after add", time_at_most=15.0),
    Target("asynchronous", "add, enqueued", time_at_most=3.0),
    Target("asynchronous", "transformer encoder layer", at_most=1.1),
    *(Target("kernels", row, at_most=1 / 0.8) for row in ("add, 64 MiB", "exp, 64 MiB", "sum, 64 MiB")),
    *(Target("kernels", row, at_most=1 / 0.6) for row in ROWS),
    Target("kernels", "matmul 1024", at_most=1 / 0.3),
    Target("kernels", "CNN step", at_most=4.0),
    *(Target("kernels", row, at_most=2.0) for row in ("MLP step, SGD", "MLP step, AdamW")),
    *(Target("kernels", row, time_at_most=3.0) for row in ("add of 16, out=", "add of 16", "a + 2")),
    *(Target("custom_operators", row, at_most=1.1) for row in CUSTOM_OPERATORS),
    Target("distributed", "all_reduce 64 MiB", at_most=1.1),
    Target("distributed", "DDP step", at_most=1.1),
)


def missed(results: Mapping[str, Sequence[Row]]) -> list[str]:
    """A line for every target that the results do not reach; benchmarks that were not run count as reached."""
    lines = []
    for target in TARGETS:
        for row in results.get(target.benchmark, ()):
            if row.name == target.row and (missed_by := target.missed_by(row)):
                lines.append(f"{target.benchmark}, {target.row}: {missed_by}")
    return lines
