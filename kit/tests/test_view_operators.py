"""The conformance kit knows every operator of the installed PyTorch that returns a view."""

import torch
from torch_conformance.suite.tensor._views import VIEWS

# Operators whose schema promises a view, and that are not views of strided tensors one can write to.
NOT_VIEWS = {
    # the tensor itself if there is nothing to do, else a copy
    *("contiguous", "positive", "resolve_conj", "resolve_neg", "_grad_sum_to_size", "lift_fresh", "pin_memory"),
    *("_autocast_to_full_precision", "_autocast_to_reduced_precision", "coalesce"),
    *("to.device", "to.dtype", "to.dtype_layout", "to.other"),
    # sparse and nested layouts
    *("_indices", "_values", "indices", "values", "_sparse_broadcast_to"),
    *("ccol_indices", "col_indices", "crow_indices", "row_indices"),
    *("_nested_get_values", "_nested_view_from_buffer", "_nested_view_from_jagged"),
    # parts of forward differentiation, of the dispatcher's tests and of distributed tensors
    *("_fw_primal", "_make_dual", "_unpack_dual", "_test_autograd_multiple_dispatch_view", "slice_inverse"),
}


def test_no_view_operator_is_left_out() -> None:
    registered = set(torch._C._dispatch_get_all_op_names())
    promised = {
        f"{schema.name}.{schema.overload_name}".rstrip(".").removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        and f"{schema.name}.{schema.overload_name}".rstrip(".") in registered
        and schema.name.startswith("aten::")
        and not any("str" in str(argument.type) for argument in schema.arguments)  # dimensions' names, up to torch 2.12
    }
    assert promised - NOT_VIEWS - set(VIEWS) == set()
