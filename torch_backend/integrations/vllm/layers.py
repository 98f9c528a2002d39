"""vLLM's layers where PyTorch has one operator for them, or fewer than vLLM's own code in PyTorch takes."""

import torch
from torch.nn import functional
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding


@RMSNorm.register_oot(name="RMSNorm")
class Norm(RMSNorm):
    """One operator, after the sum with the residual."""

    def forward_oot(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """The norm of ``x``, or of the sum with ``residual`` and that sum."""
        if self.variance_size_override is not None:
            return self.forward_native(x, residual)
        if residual is not None:
            x = residual = x + residual
        weight = self.weight if self.has_weight else None
        result = functional.rms_norm(x, x.shape[-1:], weight, self.variance_epsilon)
        return result if residual is None else (result, residual)


@SiluAndMul.register_oot(name="SiluAndMul")
class GatedSilu(SiluAndMul):
    """Two operators on halves."""

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        """(..., size) of ``x``, which is (..., 2 * size)."""
        gate, up = x.chunk(2, -1)
        return functional.silu(gate).mul_(up)


@RotaryEmbedding.register_oot(name="RotaryEmbedding")
class Rotation(RotaryEmbedding):
    """Three operators for queries and keys: halves change places, and each is a sum of two products."""

    _factors: torch.Tensor | None = None

    def forward_oot(
        self, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """``query`` and ``key`` are (tokens, heads * head size)."""
        if not self.is_neox_style or self.rotary_dim != self.head_size:
            return self.forward_native(positions, query, key)
        positions = positions if positions.dim() == 1 else positions.flatten()
        cos, sin = self._factors_for(query).index_select(0, positions).chunk(2, -1)
        if key is None:
            return self._turned(query, cos, sin), None
        if not _are_neighbors(query, key):
            return self._turned(query, cos, sin), self._turned(key, cos, sin)
        sizes = [query.shape[1], key.shape[1]]
        both = query.as_strided((query.shape[0], sum(sizes)), query.stride())
        query, key = self._turned(both, cos, sin).split(sizes, -1)
        return query, key

    def _turned(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        heads = x.view(cos.shape[0], -1, self.head_size)
        return torch.addcmul(heads * cos, heads.roll(self.head_size // 2, -1), sin).view(x.shape)

    def _factors_for(self, x: torch.Tensor) -> torch.Tensor:
        """(positions, 1, 2 * head size): cosines of both halves, then the sines that each half has, signs included."""
        if self._factors is None or (self._factors.dtype, self._factors.device) != (x.dtype, x.device):
            cos, sin = self._match_cos_sin_cache_dtype(x).chunk(2, -1)
            self._factors = torch.cat((cos, cos, -sin, sin), -1).unsqueeze(1)
        return self._factors


def _are_neighbors(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether rows of ``right`` begin where those of ``left`` end, as when both are parts of one product."""
    return (
        left.dim() == right.dim() == 2
        and left.stride() == right.stride()
        and left.stride(1) == 1
        and left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
        and left.storage_offset() + left.shape[1] == right.storage_offset()
    )
