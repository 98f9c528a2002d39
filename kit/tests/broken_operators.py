"""Devices that are broken above their library: operators, views, generators and files that do the wrong thing.

Importing this module in a process with an active device breaks it in the way that TORCH_BACKEND_FAULTY names::

    TORCH_BACKEND_FAULTY="clone that aliases" PYTHONPATH=kit/tests pytest ... --import broken_operators

An entry is a function that breaks the device, the id of the test that has to catch it, and words that this test has to
say about it. The function's name plays no part.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
from faults import Fault
from torch import Tensor

from torch_backend import kernel

aten = torch.ops.aten


BROKEN_OPERATORS: list[Fault] = []
_INSTALL: dict[str, Callable[[], object]] = {}


def broken(
    name: str, op: str = "", *, caught_by: str, words: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate the kernel of a broken operator, or without ``op`` a function that breaks the active device."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        assert name not in _INSTALL, name
        _INSTALL[name] = (lambda: kernel(op)(function)) if op else function
        BROKEN_OPERATORS.append(Fault(name, caught_by, words, seconds=120.0, module=__name__))
        return function

    return add


def install(name: str) -> None:
    """Break the active device."""
    _INSTALL[name]()


# ---- views and storage ----


@broken(
    "view that loses writes",
    "aten::select.int",
    caught_by="tensor/test_views.py::test_view[select.int]",
    words="view 0 has memory of its own",
)
def _view_that_copies(self: Tensor, dim: int, index: int) -> Tensor:
    view = aten.select.int(self, dim, index)
    return torch.empty_strided(view.shape, view.stride(), dtype=view.dtype, device=view.device).copy_(view)


@broken(
    "copy that refuses what lies where it goes",
    "aten::_copy_from",
    caught_by="tensor/test_overlap.py::test_shared_places_are_read[column stored where it is]",
    words="the ranges overlap",
)
def _copy_that_refuses(self: Tensor, dst: Tensor, non_blocking: bool) -> Tensor:
    if self.device == dst.device and self.data_ptr() == dst.data_ptr():
        raise RuntimeError("the ranges overlap")
    return aten._copy_from(self, dst, non_blocking)


@broken(
    "copy that skips what lies next to it",
    "aten::_copy_from",
    caught_by="tensor/test_copies_of_any_kind.py::test_any_copy_within_a_tensor",
    words="Tensor-likes are not equal",
)
def _copy_that_skips(self: Tensor, dst: Tensor, non_blocking: bool) -> Tensor:
    apart = abs(self.data_ptr() - dst.data_ptr()) if self.device == dst.device else 0
    return dst if apart == self.element_size() else aten._copy_from(self, dst, non_blocking)


@broken(
    "copy that ignores the negative bit",
    "aten::_copy_from",
    caught_by="tensor/test_copies_of_any_kind.py::test_any_copy",
    words="in the storage are wrong",
)
def _copy_without_the_sign(self: Tensor, dst: Tensor, non_blocking: bool) -> Tensor:
    return aten._copy_from(torch._neg_view(self) if self.is_neg() else self, dst, non_blocking)


@broken(
    "set_ that ignores the offset",
    "aten::set_.source_Storage_storage_offset",
    caught_by="tensor/test_storage.py::test_set",
    words="a tensor set to part of a storage, from an offset",
)
def _set_without_offset(self: Tensor, source: Any, storage_offset: int, size: list[int], stride: list[int]) -> Tensor:
    return aten.set_.source_Storage_storage_offset(self, source, 0, size, stride)


@broken(
    "resize_ that forgets",
    "aten::resize_",
    caught_by="tensor/test_storage.py::test_resize[(10,)]",
    words="the first elements after resize_((10,))",
)
def _resize_that_forgets(self: Tensor, size: list[int], *, memory_format: torch.memory_format | None) -> Tensor:
    grows = torch.Size(size).numel() > self.numel() > 0
    aten.resize_(self, size, memory_format=memory_format)
    return self.zero_() if grows else self


@broken(
    "empty_strided that ignores strides",
    "aten::empty_strided",
    caught_by="tensor/test_empty.py::test_layout_of_empty[strided]",
    words="the new tensor has strides (3, 1), on the CPU it has (1, 2)",
)
def _empty_strided_that_is_contiguous(size: list[int], stride: list[int], **options: Any) -> Tensor:
    return aten.empty.memory_format(size, **options)


@broken(
    "channels_last that is not",
    "aten::empty.memory_format",
    caught_by="tensor/test_empty.py::test_layout_of_empty[channels_last]",
    words="the new tensor has strides (60, 20, 5, 1), on the CPU it has (60, 1, 15, 3)",
)
def _empty_without_memory_format(
    size: list[int], *, memory_format: torch.memory_format | None, **options: Any
) -> Tensor:
    return aten.empty.memory_format(size, **options)


# ---- writing ----


@broken(
    "in-place operator that works on a copy",
    "aten::mul_.Tensor",
    caught_by="tensor/test_in_place.py::test_in_place_operator[mul_]",
    words="the tensor after an in-place operator: element [0] is 0.25, not 0.5",
)
def _in_place_on_a_copy(self: Tensor, other: Tensor) -> Tensor:
    return self * other


@broken(
    "fill that ignores the last element",
    "aten::fill_.Scalar",
    caught_by="tensor/test_dtypes.py::test_constants[float32]",
    words="ones(1): element [0] is",
)
def _fill_that_stops_early(self: Tensor, value: float) -> Tensor:
    if self.is_contiguous():
        aten.fill_.Scalar(self.view(-1)[:-1], value)
    return self


@broken(
    "clone that aliases",
    "aten::clone",
    caught_by="tensor/test_moves.py::test_clone",
    words="a tensor after a write to a clone of it, whole: element [0, 0] is -1.0, not 0.0",
)
def _clone_that_aliases(self: Tensor, *, memory_format: torch.memory_format | None) -> Tensor:
    return aten.alias(self)


@broken(
    "copy_ that ignores strides",
    "aten::copy_",
    caught_by="tensor/test_copies.py::test_copies_of_every_layout[contiguous-D2D]",
    words="copy of torch.float32 [3, 4, 5] with strides [1, 3, 12]",
)
def _copy_without_strides(self: Tensor, src: Tensor, non_blocking: bool) -> Tensor:
    if self.device == src.device and self.shape == src.shape and not src.is_contiguous():
        src = src.as_strided(src.shape, torch.empty(src.shape, device="meta").stride())
    return aten.copy_(self, src, non_blocking)


@broken(
    "copies that land on the current device",
    "aten::_to_copy",
    caught_by="tensor/test_moves.py::test_moves_between_devices",
    words="a tensor moved to device 1 is on",
)
def _copies_without_index(self: Tensor, *, device: torch.device | None, **options: Any) -> Tensor:
    return aten._to_copy(self, device=None if device is None else torch.device(device.type), **options)


# ---- values ----


@broken(
    "item() of the wrong element",
    "aten::_local_scalar_dense",
    caught_by="tensor/test_dtypes.py::test_item[float32]",
    words="item() of element 1 is 0.0, not 1",
)
def _item_of_the_first_element(self: Tensor) -> float:
    return aten._local_scalar_dense(self.as_strided((), (), 0))


@broken(
    "quotients of integers that are integers",
    "aten::div.Tensor",
    caught_by="tensor/test_dtypes.py::test_division_of_integers[int32]",
    words="has dtype torch.int32, on the CPU it has torch.float32",
)
def _division_that_truncates(self: Tensor, other: Tensor) -> Tensor:
    return aten.div.Tensor_mode(self, other, rounding_mode="trunc")


@broken(
    "integers that saturate",
    "aten::_to_copy",
    caught_by="tensor/test_dtypes.py::test_integers_that_do_not_fit[int64]",
    words="torch.int64 to torch.int8",
)
def _conversion_that_saturates(self: Tensor, *, dtype: torch.dtype | None, **options: Any) -> Tensor:
    if dtype is torch.int8:
        self = self.clamp(-128, 127)
    return aten._to_copy(self, dtype=dtype, **options)


# ---- indexing ----


@broken(
    "negative indices that are taken for zero",
    "aten::index.Tensor",
    caught_by="tensor/test_indexing.py::test_reading[negative tensor]",
    words="x[index]: element [0, 0, 0] is 0.0, not 40.0",
)
def _index_that_clamps(self: Tensor, indices: list[Tensor | None]) -> Tensor:
    clamped = [i.clamp(min=0) if i is not None and i.dtype is torch.int64 else i for i in indices]
    return aten.index.Tensor(self, clamped)


@broken(
    "accumulation that keeps one value of each index",
    "aten::_index_put_impl_",
    caught_by="tensor/test_indexing.py::test_index_put_accumulates",
    words="index_put_ with a repeated index: element [0] is 1.0, not 3.0",
)
def _index_put_that_overwrites(
    self: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool, unsafe: bool
) -> Tensor:
    return aten._index_put_impl_(self, indices, values, False, unsafe)


@broken(
    "addition that reads the other half of a word",
    "aten::index_add.out",
    caught_by="tensor/test_indexing.py::test_narrow_elements_are_added_to[float16-index_add]",
    words="elements of float16 that were added to",
)
def _index_add_of_the_neighbour(
    self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: complex = 1, out: Tensor
) -> Tensor:
    start = self.clone()
    if start.element_size() < 4:
        start[1::2] = 0
    return out.copy_(aten.index_add(start, dim, index, source, alpha=alpha))


@broken(
    "sum in any order",
    "aten::sum.dim_IntList",
    caught_by="tensor/test_determinism.py::test_the_same_inputs_give_the_same_bits[sum]",
    words="sum: 1 of 1 elements differ between the first call and call",
)
def _sum_in_any_order(self: Tensor, dim: Any, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    whole = self.flatten()[torch.randperm(self.numel())].view_as(self) if not dim else self
    return aten.sum.dim_IntList(whole, dim, keepdim, dtype=dtype)


# ---- random numbers ----


@broken(
    "generator that repeats",
    "aten::uniform_",
    caught_by="tensor/test_random_operators.py::test_the_devices_generator_decides[rand]",
    words="drawing does not advance the generator's state",
)
def _generator_that_stands_still(self: Tensor, low: float, high: float, *, generator: torch.Generator | None) -> Tensor:
    module = torch.get_device_module(self.device)
    state = module.get_rng_state(self.device)
    aten.uniform_(self, low, high, generator=generator)
    module.set_rng_state(state, self.device)
    return self


@broken(
    "seed that is ignored",
    caught_by="tensor/test_random_state.py::test_seed_decides",
    words="the same seed gives other numbers",
)
def _uniform_without_seed() -> None:
    generator = torch.Generator().manual_seed(0)

    @kernel("aten::uniform_")
    def uniform_(self: Tensor, low: float, high: float, **_: Any) -> Tensor:
        return self.copy_(torch.empty(self.shape).uniform_(low, high, generator=generator))


@broken(
    "gamma numbers of the right mean and variance",
    "aten::_standard_gamma",
    caught_by="tensor/test_random_distributions.py::test_gamma_numbers_follow_their_distribution[3.0]",
    words="the distance to the distribution is",
)
def _gamma_that_is_normal(self: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.clamp(self + self.sqrt() * torch.randn_like(self), min=0)


@broken(
    "poisson numbers that are rounded normal ones",
    "aten::poisson",
    caught_by="tensor/test_random_distributions.py::test_whole_numbers_come_as_often_as_they_should[poisson]",
    words="standard errors too often or too seldom",
)
def _poisson_that_is_normal(self: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.clamp((self + self.sqrt() * torch.randn_like(self)).round(), min=0)


@broken(
    "wide integers of 32 bits",
    "aten::random_.from",
    caught_by="tensor/test_random_distributions.py::test_large_integers_are_uniform",
    words="a bit is 1 too often or too seldom",
)
def _narrow_integers(self: Tensor, low: int, high: int | None, *, generator: torch.Generator | None) -> Tensor:
    return aten.random_(self, low, min(high or 1 << 32, 1 << 32), generator=generator)


@broken(
    "halves of a draw that are equal",
    "aten::normal_",
    caught_by="tensor/test_random_distributions.py::test_neighbours_are_not_correlated",
    words="rows of one draw are correlated",
)
def _normal_in_equal_halves(self: Tensor, mean: float, std: float, *, generator: torch.Generator | None) -> Tensor:
    aten.normal_(self, mean, std, generator=generator)
    half = len(self) // 2
    self[half : 2 * half] = self[:half]
    return self


@broken(
    "counters that overlap",
    "aten::random_.from",
    caught_by="tensor/test_random_state.py::test_a_generator_never_repeats",
    words="the generator repeats",
)
def _integers_of_overlapping_counters(
    self: Tensor, low: int, high: int | None, *, generator: torch.Generator | None
) -> Tensor:
    aten.random_(self, low, high, generator=generator)
    half = len(self) // 2
    self[half : 2 * half] = self[:half]
    return self


@broken(
    "permutation that stays near",
    "aten::randperm.generator_out",
    caught_by="tensor/test_random_distributions.py::test_permutations",
    words="has an order",
)
def _permutation_that_stays_near(n: int, *, generator: torch.Generator | None, out: Tensor) -> Tensor:
    near = torch.arange(n, device=out.device) + torch.rand(n, device=out.device) * 10
    return out.resize_(n).copy_(near.argsort())


@broken(
    "numbers from the CPU's generator",
    "aten::normal_",
    caught_by="tensor/test_random_operators.py::test_the_hosts_generator_is_left_alone[randn]",
    words="a draw on the device has advanced the CPU's generator",
)
def _normal_from_the_host(self: Tensor, mean: float, std: float, **_: Any) -> Tensor:
    return self.copy_(torch.empty(self.shape).normal_(mean, std))


@broken(
    "torch.manual_seed that reaches one device",
    caught_by="tensor/test_random_state.py::test_torch_manual_seed_reaches_every_device",
    words="after torch.manual_seed(1234) the devices have seeds",
)
def _seed_of_one_device() -> None:
    module: Any = torch.get_device_module()
    module.manual_seed_all = module.manual_seed


# ---- the host's side ----


@broken(
    "files that forget the device's index",
    caught_by="tensor/test_serialization.py::test_load_remembers_the_device[weights_only]",
    words=":1 was loaded on",
)
def _save_without_index() -> None:
    name = torch.accelerator.current_accelerator(check_available=True)
    assert name is not None

    def tag(storage: torch.UntypedStorage) -> str | None:
        return name.type if storage.device.type == name.type else None

    def load(storage: torch.UntypedStorage, location: str) -> Any:
        return storage.to(device=location) if location == name.type else None

    torch.serialization.register_package(1, tag, load)


@broken(
    "is_pinned that lies",
    caught_by="tensor/test_pinned_memory.py::test_is_pinned",
    words="ordinary memory says that it is pinned",
)
def _is_pinned_always() -> None:
    library = torch.library.Library("aten", "IMPL")
    library.impl("is_pinned", lambda self, device=None: True, "CPU")
    globals()["_kept"] = library  # it removes what it registered when it goes


@broken(
    "operator that changes the current device",
    "aten::clone",
    caught_by="tensor/test_placement.py::test_results_are_on_the_inputs_device",
    words="operators on device 1 left device 1 current",
)
def _operator_that_stays_on_its_device(self: Tensor, *, memory_format: torch.memory_format | None) -> Tensor:
    torch.accelerator.set_device_index(self.device)
    return aten.clone(self, memory_format=memory_format)


# ---- operators against the CPU ----


@broken(
    "kernel that ignores strides",
    "aten::exp",
    caught_by="ops/test_noncontiguous.py::TestNoncontiguousXCPU::test_noncontiguous_exp_xcpu_float32",
    words="has values that differ from the CPU's",
)
def _exp_without_strides(self: Tensor) -> Tensor:
    strides = torch.empty(self.shape, device="meta").stride()
    return aten.exp(self.as_strided(self.shape, strides, 0))


@broken(
    "kernel that lays out another result than it says",
    "aten::replication_pad2d",
    caught_by="ops/test_noncontiguous.py::TestNoncontiguousXCPU::"
    "test_noncontiguous_nn_functional_pad_replicate_xcpu_float32",
    words="nn.functional.pad.replicate(",
)
def _pad_of_another_layout(self: Tensor, padding: list[int]) -> Tensor:
    out = aten.replication_pad2d(self, padding)
    return out.as_strided(out.shape, torch.empty(out.shape, device="meta").stride())


@broken(
    "kernel that changes the layout of its output",
    "aten::replication_pad2d.out",
    caught_by="tensor/test_memory_formats.py::test_out_of_another_layout[replication]",
    words="the padded image",
)
def _pad_out_of_another_layout(self: Tensor, padding: list[int], *, out: Tensor) -> Tensor:
    padded = aten.replication_pad2d(self, padding)
    return out.copy_(padded.as_strided(padded.shape, torch.empty(padded.shape, device="meta").stride()))


@broken(
    "kernel that is wrong for bfloat16",
    "aten::tanh",
    caught_by="ops/test_forward.py::TestForwardXCPU::test_forward_tanh_xcpu_bfloat16",
    words="has values that differ from the CPU's",
)
def _coarse_tanh(self: Tensor) -> Tensor:
    result = aten.tanh(self)
    return result * 0.9 if self.dtype is torch.bfloat16 else result


@broken(
    "kernel that cancels",
    "aten::asinh",
    caught_by="ops/test_special_values.py::TestSpecialValuesXCPU::test_special_values_asinh_xcpu_float32",
    words="special values have wrong results",
)
def _asinh_of_small_sums(self: Tensor) -> Tensor:
    return aten.log(self + aten.sqrt(self * self + 1))


@broken(
    "nextafter in float",
    "aten::nextafter",
    caught_by="ops/test_special_values.py::TestSpecialValuesXCPU::test_special_values_nextafter_xcpu_float16",
    words="special values have wrong results",
)
def _nextafter_of_floats(self: Tensor, other: Tensor) -> Tensor:
    return aten.nextafter(self.float(), other.float()).to(self.dtype)


@broken(
    "sort of the first row",
    "aten::sort",
    caught_by="tensor/test_large_sizes.py::test_exact[sort-3x5003]",
    words="dimension -1: element [1, 0] is",
)
def _sort_that_stops(self: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor]:
    values, indices = aten.sort(self, dim, descending)
    if self.shape[-1] > 4096 and dim == -1:
        values[1:] = self[1:]
    return values, indices


@broken(
    "softmax that takes the first element for the largest",
    "aten::_softmax",
    caught_by="tensor/test_large_sizes.py::test_the_largest_element_may_be_anywhere[softmax]",
    words="is nan, not",
)
def _softmax_that_overflows(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    exponentials = aten.exp(self - aten.select(self, dim, 0).unsqueeze(dim))
    return exponentials / exponentials.sum(dim, keepdim=True)


@broken(
    "gradient with a wrong factor",
    "aten::tanh_backward",
    caught_by="ops/test_backward.py::TestBackwardXCPU::test_backward_tanh_xcpu_float32",
    words="the gradient of differentiable argument 0 has values that differ from the CPU's",
)
def _steep_tanh(grad_output: Tensor, output: Tensor) -> Tensor:
    return 2 * aten.tanh_backward(grad_output, output)


@broken(
    "out= that gets other memory",
    "aten::exp.out",
    caught_by="ops/test_out.py::TestOutXCPU::test_out_exp_xcpu_float32",
    words="moved out= to other memory",
)
def _out_elsewhere(self: Tensor, *, out: Tensor) -> Tensor:
    return out.set_(aten.sinh(self) + aten.cosh(self))


@broken(
    "out= that is taken where it repeats an element",
    "aten::exp.out",
    caught_by="ops/test_out.py::TestOutXCPU::test_out_that_overlaps_exp_xcpu_float32",
    words="with out= that repeats an element raised None",
)
def _out_that_repeats(self: Tensor, *, out: Tensor) -> Tensor:
    result = aten.exp(self)
    out.as_strided(result.shape, result.stride(), out.storage_offset()).copy_(result)
    return out


@broken(
    "in-place operator that returns a copy",
    "aten::sigmoid_",
    caught_by="ops/test_in_place.py::TestInPlaceXCPU::test_in_place_sigmoid_xcpu_float32",
    words="has values that differ from the CPU's",
)
def _sigmoid_of_a_copy(self: Tensor) -> Tensor:
    return aten.sigmoid(self)


@broken(
    "in-place operator that writes into gaps",
    "aten::sigmoid_",
    caught_by="ops/test_in_place.py::TestInPlaceXCPU::test_in_place_with_gaps_sigmoid_xcpu_float32",
    words="wrote into the gaps between the input's elements",
)
def _sigmoid_of_all_memory(self: Tensor) -> Tensor:
    aten.sigmoid_(self)
    if not self.is_contiguous():
        self.as_strided((1,), (1,), 0).zero_()
    return self


@broken(
    "result on the CPU",
    "aten::exp",
    caught_by="ops/test_forward.py::TestForwardXCPU::test_forward_exp_xcpu_float32",
    words="is on cpu, expected it on xcpu:0",
)
def _exp_on_the_host(self: Tensor) -> Tensor:
    return aten.exp(self).cpu()


@broken(
    "result on the current device",
    "aten::exp",
    caught_by="ops/test_other_device.py::TestOtherDeviceXCPU::test_on_other_device_exp_xcpu_float32",
    words="is on xcpu:0, expected it on xcpu:1",
)
def _exp_on_the_current_device(self: Tensor) -> Tensor:
    return aten.exp(self).to(self.device.type)


@broken(
    "result with other strides",
    "aten::add.Tensor",
    caught_by="ops/test_forward.py::TestForwardXCPU::test_forward_add_xcpu_float32",
    words="has the strides [1, 5], on the CPU [5, 1]",
)
def _add_by_columns(self: Tensor, other: Tensor, *, alpha: float) -> Tensor:
    result = aten.add(self, other, alpha=alpha)
    return result.mT.contiguous().mT if result.dim() == 2 else result


@broken(
    "reduction that ignores its dimension",
    "aten::amax",
    caught_by="ops/test_forward.py::TestForwardXCPU::test_forward_amax_xcpu_float32",
    words="has the shape [], on the CPU [1]",
)
def _amax_of_everything(self: Tensor, dim: list[int], keepdim: bool) -> Tensor:
    return aten.amax(self)


@broken(
    "promotion to another dtype",
    "aten::sqrt",
    caught_by="ops/test_forward.py::TestForwardXCPU::test_forward_sqrt_xcpu_int64",
    words="has the dtype torch.float64, on the CPU torch.float32",
)
def _sqrt_in_double(self: Tensor) -> Tensor:
    return aten.sqrt(self.double() if self.dtype is torch.int64 else self)


@broken(
    "operator that draws on the host",
    "aten::bernoulli",
    caught_by="ops/test_forward.py::TestForwardXCPU::test_forward_bernoulli_xcpu_float32",
    words="drew random numbers from the CPU's generator",
)
def _bernoulli_of_the_host(self: Tensor, *, generator: torch.Generator | None) -> Tensor:
    return torch.bernoulli(self.cpu()).to(self.device)


@broken(
    "operator that changes its input",
    "aten::exp",
    caught_by="ops/test_forward.py::TestForwardXCPU::test_forward_exp_xcpu_complex64",
    words="tensor 0 of the arguments, after the call, has values that differ from the CPU's",
)
def _exp_in_place(self: Tensor) -> Tensor:
    return aten.exp_(self).clone()


@broken(
    "operator that takes any sizes",
    "aten::dot",
    caught_by="ops/test_errors.py::TestErrorsXCPU::test_errors_dot_xcpu_float32",
    words="raised nothing, on the CPU RuntimeError",
)
def _dot_of_anything(self: Tensor, tensor: Tensor) -> Tensor:
    return aten.sum(self)


@broken(
    "refusal in other words",
    "aten::dot",
    caught_by="ops/test_errors.py::TestErrorsXCPU::test_errors_dot_xcpu_float32",
    words="raised RuntimeError (sizes differ)",
)
def _dot_in_other_words(self: Tensor, tensor: Tensor) -> Tensor:
    if self.shape != tensor.shape:
        raise RuntimeError("sizes differ")
    return aten.dot(self, tensor)


if _chosen := os.environ.get("TORCH_BACKEND_FAULTY"):
    install(_chosen)
