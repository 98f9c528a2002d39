"""Write generated sources: split evenly over a fixed number of files, so that they build in parallel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .model import TypedKernel

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def _write_if_changed(path: Path, text: str) -> None:
    """An unchanged file keeps its time stamp, so that nothing is rebuilt."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def emit_typed_kernels(kernels: Sequence[TypedKernel], out_dir: Path, num_shards: int) -> list[Path]:
    """``RegisterTypedKernels_<i>.cpp`` for every shard, and ``RegisterTypedKernelsAll.cpp``. Returns their paths."""
    template = _TEMPLATES.get_template("RegisterTypedKernels.cpp.jinja")
    paths = []
    for shard in range(num_shards):
        part = kernels[shard::num_shards]
        headers = sorted({kernel.header for kernel in part})
        path = out_dir / f"RegisterTypedKernels_{shard}.cpp"
        _write_if_changed(path, template.render(shard=shard, headers=headers, kernels=part))
        paths.append(path)
    path = out_dir / "RegisterTypedKernelsAll.cpp"
    _write_if_changed(path, _TEMPLATES.get_template("RegisterTypedKernelsAll.cpp.jinja").render(num_shards=num_shards))
    return [*paths, path]
