"""The formulas of codegen/kernels/pointwise.yaml, which eager operators compute, over values of compiled graphs."""

import re
from functools import cache
from typing import Any

import torch

from torch_backend import _C
from torch_backend.compile.modules.dtypes import type_of
from torch_backend.compile.modules.loop_ir import Expression

_TOKEN = re.compile(r"\bTC\(([^()]*)\)|\b[A-Za-z_]\w*")
_IN_GRAPHS = {name: f"tb_graph_{name}" for name in ("exp", "log", "log1p", "tanh", "erf")}
"""Functions of functions/graph.h: of float32 in vectors where drivers have none."""


@cache
def _form(overload: str, dtype: torch.dtype) -> tuple[str, tuple[str, ...]]:
    """The formula for ``dtype``, and the texts that it needs."""
    parameters, floating, integral, boolean, texts = _C.pointwise_formula(f"aten::{overload}")
    is_float = dtype.is_floating_point
    body = floating if is_float else boolean if dtype == torch.bool and boolean else integral
    if body is None:
        raise NotImplementedError(f"{overload} of {dtype} in kernels that a device compiles")
    names = [parameter.split()[-1] for parameter in parameters.split(", ")]
    known = {name: f"{{{place}}}" for place, name in enumerate(names)}
    known |= {"T": type_of(dtype), "TB_V_BITS": str(8 * dtype.itemsize), "TB_V_SIGNED": str(int(dtype.is_signed))}
    if dtype != torch.float64:
        known |= _IN_GRAPHS

    def written(token: re.Match[str]) -> str:
        constant = token[1]
        if constant is not None:
            return str(constant) if dtype == torch.float64 else f"{constant}f"
        return str(known.get(token[0], token[0]))

    form = _TOKEN.sub(written, body.removeprefix("*out = ").removesuffix(";"))
    return form, tuple(texts.split()) if is_float else ()


def formula(overload: str, *values: Any) -> Expression:
    """That of ``overload`` over ``values``, in their dtype: a float's, if one of them has one."""
    dtypes = [getattr(value, "dtype", torch.float32 if isinstance(value, float) else torch.int64) for value in values]
    dtype = next((dtype for dtype in dtypes if dtype.is_floating_point), dtypes[0])
    form, texts = _form(overload, dtype)
    return Expression(form, values, texts)
