"""Attention over a cache in blocks, in PyTorch's operators.

Where the device has a kernel for PyTorch's attention of sequences, which reads a cache in blocks, that is all. Else
rows of keys and values are gathered, then attended to: requests that decode, one token each, come first in a batch and
are computed together; each of the others by itself, with PyTorch's causal attention where it begins at its first token.
Nothing waits for the device.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, ClassVar

import torch
from torch.nn import functional
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
    MultipleOf,
)
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
from vllm.v1.kv_cache_interface import KVCacheLayout

from torch_backend import _C

SEQUENCES = "_flash_attention_forward_no_dropout_inplace"


@cache
def has_kernel_for_sequences() -> bool:
    """Whether a kernel of the device serves attention of sequences, which can read a cache in blocks."""
    operator = getattr(torch.ops.aten, SEQUENCES, None)
    return (
        operator is not None
        and any(argument.name == "block_table" for argument in operator.default._schema.arguments)
        and _C.operator_sources().get(f"aten::{SEQUENCES}") in ("plugin", "generated")
    )


@register_backend(AttentionBackendEnum.CUSTOM)
class PagedBackend(AttentionBackend):
    """What vLLM asks of a kind of attention."""

    forward_includes_kv_cache_update = False
    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "float16", "bfloat16"]

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[MultipleOf]:
        return [MultipleOf(8)]

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        """In memory [layers, blocks, block size, heads, key and value], so that a token's are one row of a layer."""
        return (KVCacheLayout.LBNHC,)

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @staticmethod
    def get_impl_cls() -> type["PagedAttention"]:
        return PagedAttention

    @staticmethod
    def get_builder_cls() -> type["PagedBuilder"]:
        return PagedBuilder


@dataclass
class Group:
    """Requests that are computed together, all with as many queries.

    Attributes:
        tokens: theirs, among those of the batch.
        blocks: (requests * blocks of the longest,), of the cache; of no meaning past a request's last.
        keys: as many as the longest request has, or more.
        positions: (requests, queries), each query's place in its request.
        is_whole: one request from its first token on: every query sees all keys up to its own.
        masks: by the window and the dtype, what is added to scores: (requests, 1, queries, keys).
    """

    tokens: slice
    blocks: torch.Tensor
    keys: int
    positions: torch.Tensor
    is_whole: bool
    masks: dict[tuple[int | None, torch.dtype], torch.Tensor] = field(default_factory=dict)

    @cached_property
    def distances(self) -> torch.Tensor:
        """(requests, queries, keys), how far before each query a key is; negative after it."""
        keys = torch.arange(self.keys, device=self.blocks.device)
        return self.positions[..., None] - keys

    def mask(self, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """0 where a query sees a key, else -inf: made once, where PyTorch would make it of booleans for each layer.

        ``window``: how many keys a query sees at most, its own included; None: all before it.
        """
        if (window, dtype) not in self.masks:
            is_hidden = self.distances < 0
            if window is not None:
                is_hidden |= self.distances >= window
            mask = torch.zeros(is_hidden.shape, dtype=dtype, device=is_hidden.device)
            self.masks[window, dtype] = mask.masked_fill_(is_hidden, float("-inf"))[:, None]
        return self.masks[window, dtype]


@dataclass
class PagedMetadata:
    """What all layers of a step share.

    Attributes:
        num_actual_tokens: of the batch.
        slot_mapping: (tokens,), where each token's key and value go.
        starts: (requests + 1,), where each request's queries begin.
        lengths: (requests,), how many keys each has.
        blocks: (requests, most blocks), of the cache.
        longest: the queries and keys of one request at most.
        make_groups: what `groups` is, where that is asked for.
    """

    num_actual_tokens: int
    slot_mapping: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor
    blocks: torch.Tensor
    longest: tuple[int, int]
    make_groups: Callable[[], list[Group]]

    @cached_property
    def groups(self) -> list[Group]:
        return self.make_groups()


class PagedBuilder(AttentionMetadataBuilder[PagedMetadata]):
    """Makes a step's metadata of what vLLM has: lengths and blocks."""

    reorder_batch_threshold = 1

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> PagedMetadata:
        batch = common_attn_metadata
        if batch.causal is not True:
            raise NotImplementedError("torch_backend serves decoders: attention that is not causal has no kernel yet.")
        count = batch.num_reqs
        return PagedMetadata(
            batch.num_actual_tokens,
            batch.slot_mapping,
            batch.query_start_loc[: count + 1],
            batch.seq_lens[:count],
            batch.block_table_tensor[:count],
            (batch.max_query_len, batch.max_seq_len),
            lambda: self._groups(batch),
        )

    def _groups(self, batch: Any) -> list[Group]:
        starts = batch.query_start_loc_cpu[: batch.num_reqs + 1].tolist()
        lengths = [after - start for start, after in itertools.pairwise(starts)]
        keys = batch.seq_lens_cpu_upper_bound
        keys = [batch.max_seq_len] * batch.num_reqs if keys is None else keys[: batch.num_reqs].tolist()
        decodes = next((i for i, length in enumerate(lengths) if length != 1), len(lengths))
        bounds = [*([(0, decodes)] if decodes else []), *((i, i + 1) for i in range(decodes, len(lengths)))]
        return [
            self._group(batch, first, last, slice(starts[first], starts[last]), max(keys[first:last]))
            for first, last in bounds
            if starts[first] != starts[last]
        ]

    def _group(self, batch: Any, first: int, last: int, tokens: slice, keys: int) -> Group:
        """``keys``: at least as many as the longest request has."""
        table, lengths = batch.block_table_tensor[first:last], batch.seq_lens[first:last]
        blocks = table[:, : -(-keys // self.kv_cache_spec.block_size)]
        queries = (tokens.stop - tokens.start) // (last - first)
        ends = torch.arange(-queries, 0, device=table.device)
        return Group(
            tokens=tokens,
            blocks=blocks.flatten(),
            keys=keys,
            positions=lengths[:, None] + ends,
            is_whole=last - first == 1 and queries == keys,
        )


class PagedAttention(AttentionImpl[PagedMetadata]):
    """One layer's attention."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: AttentionType = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
        **_: Any,
    ) -> None:
        if sinks is not None:
            raise NotImplementedError("torch_backend has no attention with sinks yet.")
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(
                f"torch_backend serves decoders: attention of kind {attn_type} has no kernel yet."
            )
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.head_size, self.scale = head_size, float(scale)
        self.sliding_window, self.kv_cache_dtype = sliding_window, kv_cache_dtype
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.soft_cap = logits_soft_cap
        self.slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes)

    def _rows(self, kv_cache: torch.Tensor) -> torch.Tensor:
        """(slots, heads, key and value) of (blocks, heads, block size, key and value)."""
        return kv_cache.transpose(1, 2).view(-1, self.num_kv_heads, 2 * self.head_size)

    def do_kv_cache_update(
        self,
        layer: torch.nn.Module,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        count = slot_mapping.shape[0]
        slots = slot_mapping.clamp(min=0)  # -1 is padding: block 0 is nobody's in vLLM
        self._rows(kv_cache).index_copy_(0, slots, torch.cat((key[:count], value[:count]), -1))

    def forward(
        self,
        layer: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: PagedMetadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """``query`` is (tokens, heads, head size), as ``output``, which is written. Keys are read from the cache."""
        if attn_metadata is None:  # vLLM measures how much memory a step needs
            return output.zero_()
        if has_kernel_for_sequences() and not self.soft_cap and self.slopes is None:
            return self._attend_to_sequences(query, kv_cache, attn_metadata, output)
        cache = kv_cache.transpose(1, 2)  # as it lies in memory
        for group in attn_metadata.groups:
            shape = (*group.positions.shape, self.num_heads, self.head_size)
            queries = query[group.tokens].view(shape).transpose(1, 2)
            gathered = cache.index_select(0, group.blocks).view(shape[0], -1, *cache.shape[2:])[:, : group.keys]
            keys, values = gathered.transpose(1, 2).split(self.head_size, -1)
            result = self._attend(queries, keys, values, group)
            output[group.tokens].view(shape).copy_(result.transpose(1, 2))
        return output

    def _attend_to_sequences(
        self, query: torch.Tensor, kv_cache: torch.Tensor, batch: PagedMetadata, output: torch.Tensor
    ) -> torch.Tensor:
        keys, values = kv_cache.transpose(1, 2).split(self.head_size, -1)
        getattr(torch.ops.aten, SEQUENCES)(
            output,
            query,
            keys,
            values,
            batch.starts,
            None,
            *batch.longest,
            0.0,
            True,
            False,
            scale=self.scale,
            window_size_left=None if self.sliding_window is None else self.sliding_window - 1,
            window_size_right=0,
            seqused_k=batch.lengths,
            block_table=batch.blocks,
        )
        return output

    def _attend(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, group: Group) -> torch.Tensor:
        """(requests, heads, queries, head size)."""
        if self.soft_cap or self.slopes is not None:
            return self._attend_with_more(queries, keys, values, group)
        is_causal = group.is_whole and (self.sliding_window is None or self.sliding_window >= keys.shape[2])
        return functional.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=None if is_causal else group.mask(self.sliding_window, queries.dtype),
            is_causal=is_causal,
            scale=self.scale,
            enable_gqa=self.num_heads != self.num_kv_heads,
        )

    def _attend_with_more(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, group: Group
    ) -> torch.Tensor:
        """What PyTorch's attention has no argument for: capped scores, and slopes (ALiBi)."""
        repeats = self.num_heads // self.num_kv_heads
        keys, values = keys.repeat_interleave(repeats, 1), values.repeat_interleave(repeats, 1)
        scores = (queries @ keys.transpose(2, 3)).float() * self.scale
        if self.soft_cap:
            scores = torch.tanh(scores / self.soft_cap) * self.soft_cap
        if self.slopes is not None:
            self.slopes = self.slopes.to(scores.device)
            scores = scores - self.slopes[:, None, None] * group.distances[:, None]
        scores = scores + group.mask(self.sliding_window, scores.dtype)
        return scores.softmax(-1).to(values.dtype) @ values
