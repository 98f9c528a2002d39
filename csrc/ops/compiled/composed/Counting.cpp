// Operators that search, count and choose, made of others: where the host cannot reach the memory.

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/Resize.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/DType.h"
#include "csrc/ops/compiled/composed/Compositions.h"
#include "csrc/ops/compiled/composed/Ranges.h"
#include "csrc/ops/compiled/engine/Enqueue.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Support.h"

namespace torch_backend::compiled::counting {
namespace {

const void* address_of(const at::Tensor& tensor) {
  return tensor.const_data_ptr();
}

/// The device raises `message`, of static storage, unless all of `flags` are set.
void expect_on_device(const at::Tensor& flags, const char* message) {
  const auto contiguous = flags.contiguous();
  const c10::DeviceGuard guard(flags.device());
  report_unless(context_of(flags), address_of(contiguous), contiguous.numel(), message);
}

// ---- places in sorted rows ----

void write_places(const at::Tensor& out, const at::Tensor& rows, const at::Tensor& values, const at::Tensor& sorter,
                  bool right) {
  const int device = values.device().index();
  const auto type = value_type(tb_dtype_or_none(rows.scalar_type()));
  const auto compute = compute_type(type);
  TORCH_CHECK_NOT_IMPLEMENTED(is_common(type) && computes(device, compute), "searchsorted of ", rows.scalar_type(),
                              " is not implemented for device ", device_api().name());
  const bool fits = std::max(values.numel(), rows.numel()) < Geometry::kLimit32;
  const bool wide = out.scalar_type() == at::kLong;
  static constexpr Skeleton kSearch{"search", "search"};
  Specialization wanted(kSearch);
  wanted.compute_in(compute)
      .index_of(fits)
      .type("VALUE", type)
      .type("PLACE", wide ? ValueType::i64 : ValueType::i32)
      .flag("RIGHT", right)
      .flag("SORTER", sorter.defined())
      .parameters(4);
  const auto& function = find_function(device, wanted);
  const int64_t size = rows.size(-1);
  const int64_t num_rows = rows.dim() == 1 ? 1 : rows.numel() / std::max<int64_t>(size, 1);
  const int64_t args[] = {values.numel(), values.dim() > 0 ? values.size(-1) : 1, size, num_rows};
  const int64_t cost = 2 * static_cast<int64_t>(std::log2(static_cast<double>(size + 2)));
  enqueue(values, "aten::searchsorted", [&](Launch& launch) {
    launch.pointer(address_of(out));
    launch.pointer(address_of(values));
    launch.pointer(address_of(size > 0 ? rows : values));
    launch.pointer(address_of(sorter.defined() && size > 0 ? sorter : values));
    launch.value(args, sizeof args);
    launch.run(function, values.numel(), cost);
  });
}

at::Tensor places_in(const at::Tensor& rows, const at::Tensor& values, bool out_int32, bool right,
                     std::optional<c10::string_view> side, const std::optional<at::Tensor>& sorter) {
  const auto order = sorter.value_or(at::Tensor());
  auto out = at::empty(values.sizes(), values.options().dtype(out_int32 ? at::kInt : at::kLong).device(rows.device()));
  at::native::searchsorted_pre_check(rows, values, out, out_int32, right, side, order);
  if (out.numel() == 0) {
    return out;
  }
  const auto common = at::result_type(rows, values);
  write_places(out, rows.to(common).contiguous(), values.to(common).contiguous(),
               order.defined() ? order.contiguous() : order, right || side == "right");
  return out;
}

at::Tensor& places_out(const at::Tensor& rows, const at::Tensor& values, bool out_int32, bool right,
                       std::optional<c10::string_view> side, const std::optional<at::Tensor>& sorter, at::Tensor& out) {
  at::native::searchsorted_pre_check(rows, values, out, out_int32, right, side, sorter.value_or(at::Tensor()));
  return Into<places_in>::call(rows, values, out_int32, right, side, sorter, out);
}

at::Tensor searchsorted_number(const at::Tensor& rows, const at::Scalar& value, bool out_int32, bool right,
                               std::optional<c10::string_view> side, const std::optional<at::Tensor>& sorter) {
  return places_in(rows, at::native::searchsorted_scalar_tensor(value, rows.device()), out_int32, right, side, sorter);
}

at::Tensor buckets_of(const at::Tensor& values, const at::Tensor& boundaries, bool out_int32, bool right) {
  TORCH_CHECK(boundaries.dim() == 1, "bucketize: boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(),
              ")");
  return places_in(boundaries, values, out_int32, right, std::nullopt, std::nullopt);
}

at::Tensor& buckets_out(const at::Tensor& values, const at::Tensor& boundaries, bool out_int32, bool right,
                        at::Tensor& out) {
  TORCH_CHECK(boundaries.dim() == 1, "bucketize: boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(),
              ")");
  return places_out(boundaries, values, out_int32, right, std::nullopt, std::nullopt, out);
}

at::Tensor bucketize_number(const at::Scalar& value, const at::Tensor& boundaries, bool out_int32, bool right) {
  return buckets_of(at::native::searchsorted_scalar_tensor(value, boundaries.device()), boundaries, out_int32, right);
}

void check_sortable(c10::ScalarType type) {
  TORCH_CHECK(type != at::kBool && !at::isComplexType(type), "Unsupported input type encountered for isin(): ", type);
}

at::Tensor isin(const at::Tensor& elements, const at::Tensor& test_elements, bool /*assume_unique*/, bool invert) {
  check_sortable(elements.scalar_type());
  check_sortable(test_elements.scalar_type());
  if (test_elements.numel() == 0 || elements.numel() == 0) {
    return at::full(elements.sizes(), invert, elements.options().dtype(at::kBool));
  }
  const auto common = at::result_type(elements, test_elements);
  auto values = elements.to(common);
  auto sorted = std::get<0>(test_elements.to(common).flatten().sort(-1, /*descending=*/at::isFloatingType(common)));
  if (at::isFloatingType(common)) { // NaN goes first, where the search leaves it behind
    values = values.neg();
    sorted = sorted.neg();
  }
  const auto nearest = sorted.take(places_in(sorted, values, false, false, {}, {}).clamp_max_(sorted.numel() - 1));
  return invert ? nearest.ne(values) : nearest.eq(values);
}

at::Tensor isin_number(const at::Tensor& elements, const at::Scalar& test_element, bool /*assume_unique*/,
                       bool invert) {
  check_sortable(elements.scalar_type());
  check_sortable(test_element.type());
  return invert ? elements.ne(test_element) : elements.eq(test_element);
}

at::Tensor is_number_in(const at::Scalar& element, const at::Tensor& test_elements, bool /*assume_unique*/,
                        bool invert) {
  check_sortable(element.type());
  check_sortable(test_elements.scalar_type());
  const auto found = test_elements.eq(element).any();
  return invert ? found.logical_not() : found;
}

// ---- counts ----

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights, c10::SymInt minlength) {
  const auto least = minlength.guard_int(__FILE__, __LINE__);
  TORCH_CHECK(least >= 0, "minlength should be >= 0");
  TORCH_CHECK(at::isIntegralType(self.scalar_type(), /*includeBool=*/false) && self.dim() == 1,
              "bincount only supports 1-d non-negative integral inputs.");
  const bool weighs = weights.has_value() && weights->defined();
  TORCH_CHECK(!weighs || (weights->dim() == 1 && weights->size(0) == self.numel()),
              "weights should be 1-d and have the same length as input");
  const auto type = !weighs ? at::kLong : weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  if (self.numel() == 0) {
    return at::zeros({least}, self.options().dtype(at::kLong));
  }
  const auto [low, high] = self.aminmax();
  const auto ends = at::stack({low, high}).to(at::kLong).cpu();
  TORCH_CHECK(ends[0].item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
  const auto largest = ends[1].item<int64_t>();
  constexpr auto kLimit = std::numeric_limits<int64_t>::max();
  TORCH_CHECK(largest < kLimit, "maximum value of input overflowed, it should be < ", kLimit, " but got ", largest);
  const auto result = at::zeros({std::max(largest + 1, least)}, self.options().dtype(type));
  const auto added = weighs ? weights->to(type) : at::ones({}, result.options()).expand(self.sizes());
  return result.index_add(0, self.to(at::kLong), added);
}

at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<c10::SymInt> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeats has to be Long or Int tensor");
  if (repeats.size(0) == 0) {
    return at::empty_like(repeats);
  }
  const auto ends = repeats.cumsum(0);
  expect_on_device(repeats.ge(0), "aten::repeat_interleave: repeats can not be negative");
  const int64_t total = output_size ? output_size->guard_int(__FILE__, __LINE__) : ends[-1].item<int64_t>();
  if (output_size) {
    expect_on_device(ends[-1].eq(total), "aten::repeat_interleave: allocated size does not match required size");
  }
  const auto places = at::arange(total, ends.options());
  return places_in(ends, places, false, /*right=*/true, {}, {}).to(repeats.scalar_type());
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(),
              " and ", other.device());
  if (self.scalar_type() != other.scalar_type()) { // which not all versions of PyTorch compare
    at::equal(at::empty({0}, self.options().device(at::kCPU)), at::empty({0}, other.options().device(at::kCPU)));
  }
  if (self.sizes() != other.sizes()) {
    return false;
  }
  const bool is_same = self.scalar_type() == other.scalar_type() && self.is_alias_of(other) &&
                       self.storage_offset() == other.storage_offset() && self.strides() == other.strides() &&
                       self.is_neg() == other.is_neg() && self.is_conj() == other.is_conj();
  return self.numel() == 0 || is_same || self.eq(other).all().item<bool>();
}

at::Tensor unfold_backward(const at::Tensor& grad, c10::SymIntArrayRef input_sizes, int64_t dim, int64_t size,
                           int64_t step) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(input_sizes);
  auto result = at::zeros(sizes, grad.options());
  if (sizes.empty()) {
    return result.copy_(grad.squeeze(0));
  }
  dim = at::maybe_wrap_dim(dim, static_cast<int64_t>(sizes.size()));
  const auto places = at::arange(sizes[static_cast<std::size_t>(dim)], grad.options().dtype(at::kLong));
  return result.index_add_(dim, places.unfold(0, size, step).flatten(),
                           grad.movedim(-1, dim + 1).flatten(dim, dim + 1));
}

at::Tensor indices_of(const at::Tensor& mask, std::optional<at::ScalarType> dtype) {
  return mask.nonzero().t().to(dtype.value_or(at::kLong)).contiguous();
}

at::Tensor tril_indices(int64_t row, int64_t col, int64_t offset, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                        std::optional<bool> /*pin_memory*/) {
  TORCH_CHECK(row >= 0 && col >= 0, "row and col must be non-negative, got ", row, " and ", col);
  const int64_t most = offset < col - row ? std::max<int64_t>(row + offset, 0) : col; // columns that have some
  return indices_of(at::ones({row, most}, at::TensorOptions().device(device).dtype(at::kBool)).tril(offset), dtype);
}

at::Tensor triu_indices(int64_t row, int64_t col, int64_t offset, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                        std::optional<bool> /*pin_memory*/) {
  TORCH_CHECK(row >= 0 && col >= 0, "row and col must be non-negative, got ", row, " and ", col);
  const int64_t most = offset > col - row ? std::max<int64_t>(col - offset, 0) : row; // rows that have some
  return indices_of(at::ones({most, col}, at::TensorOptions().device(device).dtype(at::kBool)).triu(offset), dtype);
}

at::Tensor& logspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base, at::Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) {
    at::native::resize_output(out, {steps});
  }
  const bool is_whole = !at::isFloatingType(out.scalar_type());
  if (!is_whole && steps > 1) {
    ranges::check_fits(start, out.scalar_type());
    ranges::check_fits(end, out.scalar_type());
  }
  const auto number = [&](const at::Scalar& x) { return is_whole ? at::Scalar(x.toLong()) : x; };
  const auto wide = computes(out.device().index(), ValueType::f64) ? at::kDouble : at::kFloat;
  const auto exponents = at::linspace(number(start), number(end), steps, out.options().dtype(wide));
  return out.copy_(at::pow(base, exponents).view(out.sizes()));
}

// ---- the most frequent element ----

/// Of those that are, the least: the last of it, as the CPU does for rows that it leaves in order.
std::tuple<at::Tensor, at::Tensor> most_frequent(const at::Tensor& self, int64_t dim, bool keepdim) {
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), "\"mode_cpu\" not implemented for '", self.scalar_type(), "'");
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (self.dim() == 0) {
    return {self.clone(), at::zeros({}, self.options().dtype(at::kLong))};
  }
  const int64_t size = self.size(dim);
  TORCH_CHECK_INDEX(size > 0, "mode(): Expected reduction dim ", dim, " to have non-zero size.");
  const auto [values, indices] = self.sort(/*stable=*/true, dim, /*descending=*/false);
  const auto begins = at::ones(values.sizes(), self.options().dtype(at::kBool));
  begins.narrow(dim, 1, size - 1).copy_(values.narrow(dim, 1, size - 1).ne(values.narrow(dim, 0, size - 1)));
  std::vector<int64_t> along_dim(static_cast<std::size_t>(self.dim()), 1);
  along_dim[static_cast<std::size_t>(dim)] = size;
  const auto places = at::arange(size, indices.options()).view(along_dim).expand(values.sizes());
  const auto starts = std::get<0>(places.masked_fill(begins.logical_not(), 0).cummax(dim));
  const auto last =
      places.sub(starts).argmax(dim, /*keepdim=*/true); // of the longest run the end, of the first of them
  const auto chosen = [&](const at::Tensor& from) {
    const auto found = from.gather(dim, last);
    return keepdim ? found : found.squeeze(dim);
  };
  return {chosen(values), chosen(indices)};
}

std::tuple<at::Tensor&, at::Tensor&> most_frequent_out(const at::Tensor& self, int64_t dim, bool keepdim,
                                                       at::Tensor& values, at::Tensor& indices) {
  const auto [found, places] = most_frequent(self, dim, keepdim);
  return {write_result(values, found), write_result(indices, places)};
}

// ---- random choices ----

at::Tensor multinomial(const at::Tensor& self, c10::SymInt num_samples, bool replacement,
                       std::optional<at::Generator> generator) {
  const auto samples = num_samples.guard_int(__FILE__, __LINE__);
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(replacement || samples <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(self.size(-1) < (int64_t{1} << 24), "number of categories cannot exceed 2^24");
  if (self.numel() == 0) {
    auto sizes = self.sizes().vec();
    sizes.back() = samples;
    return at::empty(sizes, self.options().dtype(at::kLong));
  }
  const bool draws_again = replacement && samples > 1;
  const auto is_positive = self.ge(0), is_finite = self.lt(std::numeric_limits<double>::infinity());
  if (draws_again) {
    expect_on_device(is_positive.all(-1),
                     "aten::multinomial: invalid multinomial distribution (encountering probability entry < 0)");
    expect_on_device(
        is_finite.all(-1),
        "aten::multinomial: invalid multinomial distribution (encountering probability entry = infinity or NaN)");
  } else {
    expect_on_device(is_positive.logical_and_(is_finite).all(-1),
                     "aten::multinomial: probability tensor contains either `inf`, `nan` or element < 0");
  }
  const auto wide = self.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto total = self.sum(-1, /*keepdim=*/true, wide);
  expect_on_device(total.gt(0), "aten::multinomial: invalid multinomial distribution (sum of probabilities <= 0)");
  if (!draws_again) {
    // The greatest of p / q, q exponentially distributed, is drawn with probability p; so are those after it.
    const auto keys = at::div(self, at::empty_like(self).exponential_(1, generator));
    return samples == 1 ? keys.argmax(-1, /*keepdim=*/true) : std::get<1>(keys.topk(samples));
  }
  const auto ends = self.cumsum(-1, wide);
  auto sizes = self.sizes().vec();
  sizes.back() = samples;
  const auto drawn = at::empty(sizes, self.options().dtype(wide)).uniform_(0, 1, generator);
  return places_in(ends, drawn.mul_(ends.narrow(-1, -1, 1)), false, /*right=*/true, {}, {})
      .clamp_max_(self.size(-1) - 1);
}

at::Tensor& multinomial_out(const at::Tensor& self, c10::SymInt num_samples, bool replacement,
                            std::optional<at::Generator> generator, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong, "multinomial expects Long tensor out, got: ", out.scalar_type());
  return Into<multinomial>::call(self, std::move(num_samples), replacement, std::move(generator), out);
}

// ---- distinct ones ----

std::tuple<at::Tensor, at::Tensor> unique(const at::Tensor& self, bool sorted, bool return_inverse) {
  auto found = at::_unique2(self, sorted, return_inverse, /*return_counts=*/false);
  return {std::get<0>(found), std::get<1>(found)};
}

at::Tensor as_matrix(const at::Tensor& rows) {
  return rows.reshape({rows.size(0), rows.numel() / rows.size(0)});
}

/// Of neighbours along `rows`'s first dimension; `order` names the place of each row.
std::tuple<at::Tensor, at::Tensor, at::Tensor> distinct_rows(const at::Tensor& rows, const at::Tensor& order) {
  const auto long_options = rows.options().dtype(at::kLong);
  const int64_t count = rows.size(0);
  const auto flat = as_matrix(rows);
  auto begins = at::ones({count}, rows.options().dtype(at::kBool));
  if (count > 1) {
    begins.narrow(0, 1, count - 1).copy_(flat.narrow(0, 1, count - 1).ne(flat.narrow(0, 0, count - 1)).any(1));
  }
  const auto group = begins.cumsum(0).sub_(1);
  const auto first = begins.nonzero().flatten();
  const auto inverse = order.defined() ? at::empty({count}, long_options).index_copy_(0, order, group) : group;
  const auto counts = at::zeros({first.size(0)}, long_options).index_add_(0, group, at::ones({count}, long_options));
  return {rows.index_select(0, first), inverse, counts};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> along(int64_t dim,
                                                     const std::tuple<at::Tensor, at::Tensor, at::Tensor>& found,
                                                     bool return_inverse, bool return_counts) {
  const auto nothing = at::empty({0}, std::get<1>(found).options());
  return {std::get<0>(found).movedim(0, dim).contiguous(), return_inverse ? std::get<1>(found) : nothing,
          return_counts ? std::get<2>(found) : nothing};
}

/// Of no rows; else that there are elements in each.
std::optional<std::tuple<at::Tensor, at::Tensor, at::Tensor>> distinct_of_none(const at::Tensor& self, int64_t dim) {
  const auto zeros = std::count(self.sizes().begin(), self.sizes().end(), 0);
  if (self.size(dim) > 0) {
    TORCH_CHECK(zeros == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
    return std::nullopt;
  }
  TORCH_CHECK(zeros == 1, "Number of zero sized dimensions is more than one, so unique cannot be applied ");
  const auto nothing = at::empty({0}, self.options().dtype(at::kLong));
  return {{at::empty(self.sizes(), self.options()), nothing, nothing}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> unique_dim(const at::Tensor& self, int64_t dim, bool /*sorted*/,
                                                          bool return_inverse, bool return_counts) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (auto none = distinct_of_none(self, dim)) {
    return *none;
  }
  const auto rows = self.movedim(dim, 0).contiguous();
  const auto flat = as_matrix(rows);
  auto order = at::arange(rows.size(0), self.options().dtype(at::kLong));
  for (int64_t column = flat.size(1) - 1; column >= 0; --column) {
    order = order.index_select(
        0, std::get<1>(flat.select(1, column).index_select(0, order).sort(/*stable=*/true, 0, false)));
  }
  return along(dim, distinct_rows(rows.index_select(0, order), order), return_inverse, return_counts);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> consecutive_rows(const at::Tensor& self, int64_t dim,
                                                                bool return_inverse, bool return_counts) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (auto none = distinct_of_none(self, dim)) {
    return *none;
  }
  return along(dim, distinct_rows(self.movedim(dim, 0).contiguous(), {}), return_inverse, return_counts);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> unique_consecutive(const at::Tensor& self, bool return_inverse,
                                                                  bool return_counts, std::optional<int64_t> dim) {
  if (dim) {
    return consecutive_rows(self, *dim, return_inverse, return_counts);
  }
  const auto nothing = at::empty({0}, self.options().dtype(at::kLong));
  if (self.numel() == 0) {
    return {at::empty({0}, self.options()), return_inverse ? at::empty(self.sizes(), nothing.options()) : nothing,
            nothing};
  }
  auto found = distinct_rows(self.flatten(), {});
  std::get<1>(found) = std::get<1>(found).view(self.sizes());
  return along(0, found, return_inverse, return_counts);
}

} // namespace

void add(Registrar& m) {
  TB_COMPOSITION(m, "searchsorted.Tensor", searchsorted_Tensor, places_in);
  TB_COMPOSITION(m, "searchsorted.Tensor_out", searchsorted_Tensor_out, places_out);
  TB_COMPOSITION(m, "searchsorted.Scalar", searchsorted_Scalar, searchsorted_number);
  TB_COMPOSITION(m, "bucketize.Tensor", bucketize_Tensor, buckets_of);
  TB_COMPOSITION(m, "bucketize.Tensor_out", bucketize_Tensor_out, buckets_out);
  TB_COMPOSITION(m, "bucketize.Scalar", bucketize_Scalar, bucketize_number);
  TB_COMPOSITION(m, "isin.Tensor_Tensor", isin_Tensor_Tensor, isin);
  TB_COMPOSITION(m, "isin.Tensor_Tensor_out", isin_Tensor_Tensor_out, Into<isin>::call);
  TB_COMPOSITION(m, "isin.Tensor_Scalar", isin_Tensor_Scalar, isin_number);
  TB_COMPOSITION(m, "isin.Tensor_Scalar_out", isin_Tensor_Scalar_out, Into<isin_number>::call);
  TB_COMPOSITION(m, "isin.Scalar_Tensor", isin_Scalar_Tensor, is_number_in);
  TB_COMPOSITION(m, "isin.Scalar_Tensor_out", isin_Scalar_Tensor_out, Into<is_number_in>::call);
  TB_COMPOSITION(m, "bincount", bincount, bincount);
  TB_COMPOSITION(m, "repeat_interleave.Tensor", repeat_interleave_Tensor, repeat_interleave);
  TB_COMPOSITION(m, "equal", equal, equal);
  TB_COMPOSITION(m, "unfold_backward", unfold_backward, unfold_backward);
  TB_COMPOSITION(m, "tril_indices", tril_indices, tril_indices);
  TB_COMPOSITION(m, "triu_indices", triu_indices, triu_indices);
  TB_COMPOSITION(m, "logspace.out", logspace_out, logspace_out);
  TB_COMPOSITION(m, "mode", mode, most_frequent);
  TB_COMPOSITION(m, "mode.values", mode_values, most_frequent_out);
  TB_COMPOSITION(m, "multinomial", multinomial, multinomial);
  TB_COMPOSITION(m, "multinomial.out", multinomial_out, multinomial_out);
  TB_COMPOSITION(m, "_unique", _unique, unique);
  TB_COMPOSITION(m, "unique_dim", unique_dim, unique_dim);
  TB_COMPOSITION(m, "unique_dim_consecutive", unique_dim_consecutive, consecutive_rows);
  TB_COMPOSITION(m, "unique_consecutive", unique_consecutive, unique_consecutive);
}

} // namespace torch_backend::compiled::counting
