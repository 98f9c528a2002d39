"""Write generated sources: split over a fixed number of files, so that they build in parallel.

A kernel's name alone tells its file: one that comes or goes changes one file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .kernel_texts import PointwiseEntry, ReductionEntry
from .structured import StructuredKernel
from .typed import TypedKernel

# How the shards' functions are declared and called.
_ALL = {
    "TypedKernels": {"group": "typed_kernels", "parameters": "Registrar& m", "arguments": "m"},
    "StructuredKernels": {
        "group": "structured_kernels",
        "parameters": "Registrar& m, StructuredPass pass",
        "arguments": "m, pass",
    },
}
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def write_if_changed(path: Path, text: str) -> None:
    """An unchanged file keeps its time stamp, so that nothing is rebuilt."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def emit_typed_kernels(kernels: Sequence[TypedKernel], out_dir: Path, num_shards: int) -> list[Path]:
    """``RegisterTypedKernels_<i>.cpp`` for every shard, and ``RegisterTypedKernelsAll.cpp``. Returns their paths."""
    return _emit("TypedKernels", kernels, out_dir, num_shards)


def emit_structured_kernels(kernels: Sequence[StructuredKernel], out_dir: Path, num_shards: int) -> list[Path]:
    """``RegisterStructuredKernels_<i>.cpp`` for every shard, and ``RegisterStructuredKernelsAll.cpp``."""
    return _emit("StructuredKernels", kernels, out_dir, num_shards)


def emit_facts(facts: Mapping[str, Sequence[str]], out_dir: Path) -> Path:
    """``OperatorFacts.cpp``; the names of each fact are sorted. Returns its path."""
    path = out_dir / "OperatorFacts.cpp"
    write_if_changed(path, TEMPLATES.get_template("OperatorFacts.cpp.jinja").render(facts=facts))
    return path


def emit_kernel_texts(
    texts: Mapping[str, str],
    pointwise: Sequence[PointwiseEntry],
    reductions: Sequence[ReductionEntry],
    out_dir: Path,
) -> Path:
    """``KernelText.cpp``. Returns its path."""
    path = out_dir / "KernelText.cpp"
    template = TEMPLATES.get_template("KernelText.cpp.jinja")
    write_if_changed(path, template.render(texts=texts, pointwise=pointwise, reductions=reductions))
    return path


def _literal(text: str | None) -> str:
    return "nullptr" if text is None else json.dumps(text)


def _literals(text: str) -> str:
    """A line each: compilers limit the length of one literal."""
    return "\n     ".join(json.dumps(line) for line in text.splitlines(keepends=True))


TEMPLATES.filters.update(literal=_literal, literals=_literals)


def _emit(
    what: str, kernels: Sequence[TypedKernel] | Sequence[StructuredKernel], out_dir: Path, num_shards: int
) -> list[Path]:
    template = TEMPLATES.get_template(f"Register{what}.cpp.jinja")
    paths = []
    for shard in range(num_shards):
        part = [kernel for kernel in kernels if zlib.crc32(kernel.name.encode()) % num_shards == shard]
        headers = sorted({header for kernel in part for header in kernel.headers})
        path = out_dir / f"Register{what}_{shard}.cpp"
        write_if_changed(path, template.render(shard=shard, headers=headers, kernels=part))
        paths.append(path)
    path = out_dir / f"Register{what}All.cpp"
    write_if_changed(path, TEMPLATES.get_template("RegisterAll.cpp.jinja").render(num_shards=num_shards, **_ALL[what]))
    return [*paths, path]
