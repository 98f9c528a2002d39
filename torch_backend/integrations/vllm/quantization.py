"""Checkpoints of eight bits: weights and activations in int8 or float8, whose products are scaled afterwards.

Activations are rounded as they come: with a scale for each token, one for all of a step, or the checkpoint's own.
"""

from typing import Any

import torch
from vllm.model_executor.kernels.linear import register_linear_kernel
from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
    FP8ScaledMMLinearKernel,
    FP8ScaledMMLinearLayerConfig,
    Int8ScaledMMLinearKernel,
    Int8ScaledMMLinearLayerConfig,
)
from vllm.model_executor.layers.quantization.utils.w8a8_utils import convert_to_channelwise
from vllm.model_executor.utils import replace_parameter
from vllm.platforms import PlatformEnum, current_platform

_LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: torch.finfo(torch.float8_e4m3fn).max}
_TINY = torch.finfo(torch.float32).tiny  # a row of zeros is divided by a scale, too
_METHODS = ("compressed-tensors", "fp8_per_channel")
_FORMATS = ("int-quantized", "float-quantized", "naive-quantized")  # a byte for each weight
_SERVED = (
    f"it serves {' and '.join(_METHODS)}, of dense models, with weights and activations in int8 or float8 and scales "
    "by tensor, channel or token"
)
_library = torch.library.Library("_C", "FRAGMENT")
_STATIC = "static_scaled_fp8_quant(Tensor(a!) result, Tensor input, Tensor scale, int[]? group_shape=None) -> ()"


def register() -> None:
    """Give vLLM the products, and its operator that rounds weights to float8 a kernel for the device."""
    from vllm.model_executor.kernels import linear

    for kind, kernel, possible in (
        ("int8", Int8Linear, linear._POSSIBLE_INT8_KERNELS),
        ("fp8", Float8Linear, linear._POSSIBLE_FP8_KERNELS),
    ):
        if kernel not in possible.get(PlatformEnum.OOT, ()):
            register_linear_kernel(kernel, PlatformEnum.OOT, kind)
    if not hasattr(torch.ops._C, "static_scaled_fp8_quant"):
        _library.define(_STATIC)
    if not torch._C._dispatch_has_kernel_for_dispatch_key("_C::static_scaled_fp8_quant", "PrivateUse1"):
        _library.impl("static_scaled_fp8_quant", _static_scaled_fp8_quant, "PrivateUse1")


def check_method(method: str) -> None:
    """Refuse a method of quantization, by vLLM's name for it, that has no kernels here."""
    if method not in _METHODS:
        raise _refusal(f"the quantization {method}")


def check(config: Any) -> None:
    """Refuse what a quantization has no kernels for: ``config`` is vLLM's of all, with one."""
    quantization, method = config.quant_config, config.model_config.quantization
    check_method(method)
    if config.model_config.get_num_experts():
        raise _refusal(f"{method} in mixtures of experts")
    if getattr(quantization, "transform_config", None):
        raise _refusal(f"{method} with transforms")
    for scheme in getattr(quantization, "target_scheme_map", {}).values():
        weights, activations = scheme["weights"], scheme["input_activations"]
        kinds = [_kind(weights), _kind(activations)]
        is_served = (
            kinds in (["int8"] * 2, ["float8"] * 2)
            and weights.strategy in ("tensor", "channel")
            and activations.strategy in ("tensor", "token")
            and (scheme.get("format") or quantization.quant_format) in _FORMATS
        )
        if not is_served:
            by = "" if activations is None else f" by {_word(activations.strategy)}"
            what = f"weights in {kinds[0]} by {_word(weights.strategy)} and activations in {kinds[1]}{by}"
            raise _refusal(f"{method} with {what}")


def _refusal(what: str) -> NotImplementedError:
    return NotImplementedError(f"torch_backend has no kernels for {what}: {_SERVED}.")


def _word(value: Any) -> str:
    return str(getattr(value, "value", value))


def _kind(arguments: Any) -> str:
    """The dtype of what compressed-tensors describes."""
    if arguments is None:
        return "the model's dtype"
    kind = f"{_word(arguments.type)}{arguments.num_bits}"
    return kind if arguments.symmetric else f"{kind} with zero points"


def _static_scaled_fp8_quant(
    result: torch.Tensor, input: torch.Tensor, scale: torch.Tensor, group_shape: list[int] | None = None
) -> None:
    if scale.numel() != 1:
        raise NotImplementedError(f"torch_backend rounds to float8 with one scale, not with {tuple(scale.shape)}.")
    result.copy_(_rounded(input, result.dtype, scale.view(1, 1))[0])


def _rounded(
    x: torch.Tensor, dtype: torch.dtype, scale: torch.Tensor | None = None, is_by_token: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """``x / scale`` in ``dtype``, the nearest value where there is none, and the scale.

    Args:
        scale: (1, 1); None: one, or one for each token, with which the largest value is ``dtype``'s largest.
    """
    if scale is not None:
        quotient = (x / scale).clamp_(-_LARGEST[dtype], _LARGEST[dtype])
    else:
        largest = x.abs().amax(-1, keepdim=True) if is_by_token else x.abs().amax().view(1, 1)
        scale = (largest.float() / _LARGEST[dtype]).clamp_(min=_TINY)
        quotient = x / scale
    return (quotient if dtype.is_floating_point else quotient.round_()).to(dtype), scale


def _supports(dtype: torch.dtype) -> tuple[bool, str | None]:
    if dtype in current_platform.dtypes():
        return True, None
    return False, f"needs {dtype}, which the device has not"


class Int8Linear(Int8ScaledMMLinearKernel):
    """``aten::_int_mm``: sums are integers."""

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        """Whether the device has int8."""
        return _supports(torch.int8)

    @classmethod
    def can_implement(cls, c: Int8ScaledMMLinearLayerConfig) -> tuple[bool, str | None]:
        """Not with zero points."""
        return c.input_symmetric, None if c.input_symmetric else "has no activations with zero points"

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """The weight becomes (inputs, outputs), a view; its scale (1, outputs)."""
        weight, scale, input_scale, *_ = self._get_layer_params(layer)
        if not self.config.is_channelwise:
            scale = convert_to_channelwise(scale, layer.logical_widths)
        replace_parameter(layer, self.layer_param_names[0], weight.data.t())
        replace_parameter(layer, self.layer_param_names[1], scale.data.float().view(1, -1))
        if input_scale is not None:
            replace_parameter(layer, self.layer_param_names[2], input_scale.data.max().float().view(1, 1))

    def apply_weights(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """``x`` is (..., inputs)."""
        weight, scale, input_scale, *_ = self._get_layer_params(layer)
        rows = x.view(-1, x.shape[-1])
        rounded, input_scale = _rounded(rows, torch.int8, input_scale, is_by_token=True)
        result = torch._int_mm(rounded, weight) * input_scale * scale
        if bias is not None:
            result += bias
        return result.to(x.dtype).view(*x.shape[:-1], -1)


class Float8Linear(FP8ScaledMMLinearKernel):
    """``aten::_scaled_mm``: with a scale of each side, or one of each row and column."""

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        """Whether the device has float8."""
        return _supports(torch.float8_e4m3fn)

    @classmethod
    def can_implement(cls, c: FP8ScaledMMLinearLayerConfig) -> tuple[bool, str | None]:
        """Not with scales by group."""
        weights, inputs = c.weight_quant_key.scale.group_shape, c.activation_quant_key.scale.group_shape
        can = (weights.is_per_tensor() or weights.is_per_channel() or weights.is_per_token()) and (
            inputs.is_per_tensor() or inputs.is_per_token()
        )
        return can, None if can else "has scales by tensor, channel and token alone"

    @property
    def _inputs(self) -> Any:
        return self.config.activation_quant_key.scale

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """The weight is (inputs, outputs), a view, already; its scale becomes (1, 1) or (1, outputs)."""
        weight, scale, input_scale, _ = self._get_layer_params(layer)
        scale = scale.data.float().view(1, -1)
        if self._inputs.group_shape.is_per_token():  # PyTorch scales both sides alike
            scale = scale.expand(1, weight.shape[1]).contiguous()
        replace_parameter(layer, self.layer_param_names[1], scale)
        if input_scale is not None:
            replace_parameter(layer, self.layer_param_names[2], input_scale.data.float().view(1, 1))

    def apply_weights(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """``x`` is (..., inputs)."""
        weight, scale, input_scale, _ = self._get_layer_params(layer)
        rows = x.view(-1, x.shape[-1])
        rounded, input_scale = _rounded(rows, weight.dtype, input_scale, self._inputs.group_shape.is_per_token())
        return self.apply_scaled_mm(
            A=rounded,
            B=weight,
            out_dtype=x.dtype,
            As=input_scale,
            Bs=scale,
            bias=bias,
            output_shape=[*x.shape[:-1], weight.shape[1]],
        )

    def apply_scaled_mm(
        self,
        *,
        A: torch.Tensor,
        B: torch.Tensor,
        out_dtype: torch.dtype,
        As: torch.Tensor,
        Bs: torch.Tensor,
        bias: torch.Tensor | None,
        output_shape: list[int],
    ) -> torch.Tensor:
        """``A`` and ``B`` are in float8, ``As`` and ``Bs`` their scales."""
        if Bs.numel() > 1:
            As = As.expand(A.shape[0], 1).contiguous()
        result = torch._scaled_mm(A, B, scale_a=As, scale_b=Bs, bias=bias, out_dtype=out_dtype)
        return result.view(output_shape)
