// Fourier transforms, dimension by dimension: where the host cannot reach the memory.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/WrapDimUtils.h>

#include "csrc/core/DType.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/composed/Compositions.h"
#include "csrc/ops/compiled/engine/Enqueue.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Part.h"
#include "csrc/ops/compiled/engine/Support.h"

namespace torch_backend::compiled::spectral {
namespace {

constexpr int64_t kMostPasses = 24;   // radices of the skeleton
constexpr int64_t kLargestRadix = 31; // sizes with larger prime factors are transformed as convolutions
constexpr int64_t kMostLanes = 64;

/// What elements are and what becomes of them: the skeleton's names.
enum Flag : uint32_t {
  kRealIn = 1,
  kHermitianIn = 2,
  kFilterIn = 4,
  kSwapIn = 8,
  kChirpIn = 16,
  kSwapResult = 32,
  kTwistOut = 64,
  kFactorsOut = 128,
  kChirpOut = 256,
  kSwapOut = 512,
  kRealOut = 1024,
  kOfReal = 2048,
};
constexpr uint32_t kIns = kRealIn | kHermitianIn | kFilterIn | kSwapIn | kChirpIn;
constexpr const char* kFlagNames[] = {"REAL_IN",   "HERMITIAN_IN", "FILTER_IN", "SWAP_IN",  "CHIRP_IN", "SWAP_RESULT",
                                      "TWIST_OUT", "FACTORS_OUT",  "CHIRP_OUT", "SWAP_OUT", "REAL_OUT", "OF_REAL"};

/// In the order of the skeleton's operands.
struct RowStrides {
  int64_t in, out, number = 0, in_place = 0, out_place = 0;
};

/// Transforms of `size` elements of rows that are `whole` wide: one launch, or several.
struct Transform {
  const void* in;
  void* out;
  const void* factors = nullptr;
  std::vector<int64_t> sizes; // of what tells rows apart
  std::vector<RowStrides> strides;
  int64_t size, whole, period = 1;
  int64_t given, kept;
  int64_t in_stride, out_stride;
  int64_t in_step = 1, out_step = 1;
  double scale = 1;
  uint32_t flags = 0;

  void add_dim(int64_t count, RowStrides of_dim) {
    sizes.push_back(count);
    strides.push_back(of_dim);
  }
};

class Fourier {
 public:
  explicit Fourier(const at::Tensor& like)
      : options_(like.options().dtype(c10::toRealValueType(like.scalar_type()))),
        device_(like.device().index()),
        type_(value_type(tb_dtype_or_none(c10::typeMetaToScalarType(options_.dtype())))),
        in_stretches_(runs_in_stretches(device_)) {
    const auto local = device_api().properties(device_).local_memory_bytes;
    capacity_ = (local >= 40000 ? 32768 : 8192) / (4 * static_cast<int64_t>(size_of(type_)));
    most_ = in_stretches_ ? 2048 : capacity_;
  }

  /// Of any size.
  void run(const Transform& transform) {
    if (largest_factor(transform.size) <= kLargestRadix) {
      run_smooth(transform);
    } else {
      run_as_convolution(transform);
    }
  }

 private:
  static int64_t largest_factor(int64_t n) {
    int64_t largest = 1;
    for (int64_t factor = 2; factor * factor <= n; ++factor) {
      for (; n % factor == 0; n /= factor) {
        largest = factor;
      }
    }
    return std::max(largest, n);
  }

  at::Tensor memory(int64_t num_complex) const {
    return at::empty({2 * num_complex}, options_);
  }

  void run_smooth(const Transform& transform) {
    if (transform.size <= most_) {
      launch(transform);
      return;
    }
    auto first_size = static_cast<int64_t>(std::sqrt(static_cast<double>(transform.size)));
    first_size = std::min(first_size, most_);
    while (transform.size % first_size != 0) {
      --first_size;
    }
    run_in_two(transform, first_size, transform.size / first_size);
  }

  /// Element a * columns + b of a row is in column b: first each column's `rows` elements are transformed, then each row of
  /// those, whose outputs are `rows` apart.
  void run_in_two(const Transform& transform, int64_t rows, int64_t columns) {
    int64_t batches = 1;
    for (const auto size : transform.sizes) {
      batches *= size;
    }
    const auto between = memory(batches * rows * columns);
    Transform first = transform, second = transform;
    first.flags = (transform.flags & kIns) | kTwistOut;
    first.out = between.mutable_data_ptr();
    first.size = first.kept = rows;
    first.period = transform.size;
    first.in_step = transform.in_step * columns;
    first.out_stride = columns;
    first.out_step = 1;
    first.scale = 1;
    second.flags = transform.flags & ~kIns;
    second.in = between.const_data_ptr();
    second.size = second.given = columns;
    second.in_stride = second.in_step = 1;
    second.out_step = transform.out_step * rows;
    int64_t batch_stride = rows * columns;
    for (std::size_t d = transform.sizes.size(); d-- > 0;) {
      first.strides[d].out = second.strides[d].in = batch_stride;
      first.strides[d].number = first.strides[d].out_place = 0;
      second.strides[d].number = second.strides[d].in_place = 0;
      batch_stride *= transform.sizes[d];
    }
    first.add_dim(columns, {0, 1, 1, transform.in_step, 0});
    second.add_dim(rows, {columns, 0, 0, 0, transform.out_step});
    launch(first);
    run_smooth(second);
  }

  /// With a chirp, whose powers are whole squares (Bluestein): the sizes of the transforms of it are powers of two.
  void run_as_convolution(const Transform& transform) {
    const int64_t size = transform.size;
    const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * size - 1)));
    int64_t batches = 1;
    for (const auto each : transform.sizes) {
      batches *= each;
    }
    const auto factors = memory(padded), between = memory(batches * padded);
    Transform filter{};
    filter.in = filter.out = factors.mutable_data_ptr();
    filter.size = filter.given = filter.kept = padded;
    filter.whole = size;
    filter.in_stride = filter.out_stride = filter.in_step = filter.out_step = filter.period = 1;
    filter.scale = 1;
    filter.flags = kFilterIn;
    run_smooth(filter);
    Transform first = transform, second = transform;
    first.flags = (transform.flags & kIns) | kChirpIn | kFactorsOut;
    first.factors = factors.const_data_ptr();
    first.out = between.mutable_data_ptr();
    first.size = first.kept = padded;
    first.out_stride = 1;
    first.scale = 1.0 / static_cast<double>(padded);
    second.flags = (transform.flags & ~kIns) | kSwapIn | kSwapResult | kChirpOut;
    second.in = between.const_data_ptr();
    second.size = second.given = padded;
    second.in_stride = 1;
    int64_t stride = padded;
    for (std::size_t d = transform.sizes.size(); d-- > 0;) {
      first.strides[d].out = second.strides[d].in = stride;
      stride *= transform.sizes[d];
    }
    run_smooth(first);
    run_smooth(second);
  }

  /// Dimensions in the order of their steps in the input.
  static Part parted(const Transform& transform) {
    std::vector<std::size_t> order(transform.sizes.size());
    std::iota(order.begin(), order.end(), 0);
    const auto step = [&](std::size_t d) {
      const auto& strides = transform.strides[d];
      return std::abs(strides.in + strides.in_place * transform.in_stride);
    };
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return step(a) > step(b); });
    Part part;
    for (const auto d : order) {
      const auto& strides = transform.strides[d];
      part.sizes.push_back(transform.sizes[d]);
      int operand = 0;
      for (const auto stride : {strides.in, strides.out, strides.number, strides.in_place, strides.out_place}) {
        part.strides[static_cast<std::size_t>(operand++)].push_back(stride);
      }
    }
    part.collapse(5, {});
    return part;
  }

  void launch(const Transform& transform) {
    const Part rows = parted(transform);
    const int64_t count = rows.geometry.count, size = transform.size;
    const int64_t most_lanes = in_stretches_ ? (count < 4                 ? 1
                                                : type_ == ValueType::f64 ? 8
                                                                          : 16)
                                             : std::clamp<int64_t>(capacity_ / size, 1, kMostLanes);
    const auto lanes = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most_lanes)));
    const int64_t widest = std::max({transform.whole, transform.given, transform.kept, transform.period});
    const int64_t reach =
        std::max({rows.reach(0) + widest * std::abs(transform.in_stride),
                  rows.reach(1) + widest * std::abs(transform.out_stride), (4 * lanes + 2) * size, count});
    const bool fits_32 = reach < Geometry::kLimit32 / 4;
    static constexpr Skeleton kTransform{"fft", "fft"};
    Specialization wanted(kTransform);
    wanted.compute_in(type_)
        .index_of(fits_32)
        .number("KEPT", rows.geometry.rank_class())
        .number("LANES", in_stretches_ ? lanes : kMostLanes)
        .number("CAPACITY", capacity_)
        .parameters(4);
    for (std::size_t bit = 0; bit < std::size(kFlagNames); ++bit) {
      wanted.flag(kFlagNames[bit], (transform.flags >> bit & 1) != 0);
    }
    const auto& function = find_function(device_, wanted);
    const int64_t groups = (count + lanes - 1) / lanes;
    const int64_t items =
        in_stretches_ ? std::min<int64_t>(groups, std::max(device_api().properties(device_).multiprocessor_count, 1))
                      : 0;
    const auto buffers = in_stretches_ ? memory(items * (2 * lanes + 1) * size) : at::Tensor();
    enqueue(at::empty({0}, options_), "aten::_fft", [&](Launch& call) {
      call.pointer(transform.out);
      call.pointer(transform.in);
      call.pointer(transform.factors ? transform.factors : transform.in);
      call.pointer(in_stretches_ ? buffers.const_data_ptr() : transform.in);
      const ArgsStruct args = arguments(transform, rows, lanes);
      args.pass(call);
      if (in_stretches_) {
        call.run(function, groups, lanes * size * 8);
      } else {
        call.run_blocks(function, groups, block_items(device_));
      }
    });
  }

  ArgsStruct arguments(const Transform& transform, const Part& rows, int64_t lanes) const {
    const int64_t in_row = std::abs(rows.inner_stride(0) + rows.inner_stride(3) * transform.in_stride);
    const int64_t out_row = std::abs(rows.inner_stride(1) + rows.inner_stride(4) * transform.out_stride);
    ArgsStruct args;
    args.add({rows.geometry.count, transform.size, transform.whole, transform.period, transform.given, transform.kept,
              transform.in_stride, transform.out_stride, transform.in_step, transform.out_step,
              std::countr_zero(static_cast<uint64_t>(lanes)),
              std::abs(transform.in_stride * transform.in_step) < in_row || in_row == 0,
              std::abs(transform.out_stride * transform.out_step) < out_row || out_row == 0});
    std::array<int64_t, kMostPasses> radices{};
    int64_t passes = 0;
    for (int64_t rest = transform.size, radix = 4; rest > 1;) {
      if (rest % radix == 0) {
        radices[static_cast<std::size_t>(passes++)] = radix;
        rest /= radix;
      } else {
        radix = radix == 4 ? 2 : radix == 2 ? 3 : radix + 2;
      }
    }
    args.add(passes);
    args.add(radices);
    args.add_dims(rows.geometry);
    args.add(scalar_of(transform.scale, type_));
    return args;
  }

  at::TensorOptions options_;
  int device_;
  ValueType type_;
  bool in_stretches_;
  int64_t capacity_, most_;
};

// ---- tensors ----

using Dimensions = std::vector<int64_t>;

/// The last dimension of `dims` may stay the last.
Dimensions by_stride(const at::Tensor& self, at::IntArrayRef dims, bool except_last = false) {
  Dimensions sorted(dims.begin(), dims.end());
  std::stable_sort(sorted.begin(), sorted.end() - except_last,
                   [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
  return sorted;
}

/// Laid out as PyTorch does with MKL, which its meta kernels say: what is transformed comes last, in the order of `dims`.
at::Tensor result_for(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef dims, at::ScalarType type) {
  if (!at::hasMKL()) {
    return at::empty(sizes, self.options().dtype(type));
  }
  Dimensions order;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) {
      order.push_back(d);
    }
  }
  order = by_stride(self, order);
  order.insert(order.end(), dims.begin(), dims.end());
  Dimensions strides(sizes.size());
  int64_t stride = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[static_cast<std::size_t>(order[i])] = stride;
    stride *= sizes[static_cast<std::size_t>(order[i])];
  }
  return at::empty_strided(sizes, strides, self.options().dtype(type));
}

/// PyTorch's numbers: 0 is none, 1 by the root.
double scale_of(int64_t normalization, int64_t count) {
  const auto size = static_cast<double>(count);
  return normalization == 0 ? 1 : 1 / (normalization == 1 ? std::sqrt(size) : size);
}

int64_t count_of(const at::Tensor& tensor, at::IntArrayRef dims) {
  int64_t count = 1;
  for (const auto d : dims) {
    count *= tensor.size(d);
  }
  return count;
}

/// Along one dimension, whose size of the whole transform is `whole`; `in` and `out` may be the same.
void transform(const at::Tensor& in, const at::Tensor& out, int64_t dim, int64_t whole, uint32_t flags, double scale) {
  if (out.numel() == 0) {
    return;
  }
  if (in.dim() >= Geometry::kMaxRank && !(in.is_contiguous() && out.is_contiguous())) {
    const auto dense = at::empty(out.sizes(), out.options()); // dimensions of which can be put together
    transform(in.contiguous(), dense, dim, whole, flags, scale);
    out.copy_(dense);
    return;
  }
  Transform all{};
  all.in = in.const_data_ptr();
  all.out = out.mutable_data_ptr();
  all.size = all.whole = whole;
  all.given = in.size(dim);
  all.kept = out.size(dim);
  all.in_stride = in.stride(dim);
  all.out_stride = out.stride(dim);
  all.in_step = all.out_step = all.period = 1;
  all.scale = scale;
  all.flags = flags;
  if ((flags & kHermitianIn) != 0) {
    all.given = whole; // the other half is made of this one
  }
  for (int64_t d = 0; d < in.dim(); ++d) {
    if (d != dim) {
      all.add_dim(in.size(d), {in.stride(d), out.stride(d)});
    }
  }
  Fourier(in).run(all);
}

bool is_taken(const at::Tensor& self) {
  const auto type = c10::toRealValueType(self.scalar_type());
  return type != at::kDouble || computes(self.device().index(), ValueType::f64);
}

void check_dtype(const at::Tensor& self, bool is_complex) {
  TORCH_CHECK(is_complex ? self.is_complex() : self.is_floating_point(), "Only supports ",
              is_complex ? "complex" : "floating-point", " dtypes, but found: ", self.scalar_type());
  const auto type = c10::toRealValueType(self.scalar_type());
  TORCH_CHECK(type == at::kFloat || type == at::kDouble, "MKL FFT doesn't support tensors of type: ", type);
}

at::Tensor complex_to_complex(const at::Tensor& self, c10::SymIntArrayRef symbolic_dims, int64_t normalization,
                              bool forward) {
  check_dtype(self, /*is_complex=*/true);
  if (!is_taken(self)) {
    return AtenKernel<at::_ops::_fft_c2c>::call_boxed(self, symbolic_dims, normalization, forward);
  }
  const auto given = C10_AS_INTARRAYREF_SLOW(symbolic_dims);
  if (given.empty()) {
    return self.clone();
  }
  const auto dims = by_stride(self, given);
  const auto out = result_for(self, self.sizes(), dims, self.scalar_type());
  const double scale = scale_of(normalization, count_of(self, dims));
  for (std::size_t i = dims.size(); i-- > 0;) {
    transform(i == dims.size() - 1 ? self : out, out, dims[i], self.size(dims[i]), forward ? 0U : kSwapIn | kSwapOut,
              i == 0 ? scale : 1);
  }
  return out;
}

at::Tensor real_to_complex(const at::Tensor& self, at::IntArrayRef given, int64_t normalization, bool onesided) {
  check_dtype(self, /*is_complex=*/false);
  if (!is_taken(self)) {
    return AtenKernel<at::_ops::_fft_r2c>::call_boxed(self, given, normalization, onesided);
  }
  const auto dims = by_stride(self, given, /*except_last=*/true);
  const int64_t last = dims.back(), size = self.size(last);
  auto sizes = self.sizes().vec();
  if (onesided) {
    sizes[static_cast<std::size_t>(last)] = size / 2 + 1;
  }
  const auto out = result_for(self, sizes, dims, c10::toComplexType(self.scalar_type()));
  const double scale = scale_of(normalization, count_of(self, dims));
  for (std::size_t i = dims.size(); i-- > 0;) {
    const bool is_first = i == dims.size() - 1;
    transform(is_first ? self : out, out, dims[i], self.size(dims[i]), is_first ? kRealIn | kOfReal : 0U,
              i == 0 ? scale : 1);
  }
  return out;
}

at::Tensor complex_to_real(const at::Tensor& self, at::IntArrayRef dims, int64_t normalization,
                           c10::SymInt last_dim_size) {
  check_dtype(self, /*is_complex=*/true);
  if (!is_taken(self)) {
    return AtenKernel<at::_ops::_fft_c2r>::call_boxed(self, dims, normalization, last_dim_size);
  }
  const int64_t last = dims.back(), size = last_dim_size.guard_int(__FILE__, __LINE__);
  TORCH_CHECK(self.size(last) == size / 2 + 1 || self.size(last) == size, "_fft_c2r: dimension ", last, " is of size ",
              self.size(last), "; it must be ", size / 2 + 1, " for ", size, " elements");
  auto input = self;
  if (dims.size() > 1) {
    const auto others = c10::fromIntArrayRefSlow(dims.slice(0, dims.size() - 1));
    input = complex_to_complex(self, others, normalization, /*forward=*/false);
  }
  auto sizes = self.sizes().vec();
  sizes[static_cast<std::size_t>(last)] = size;
  const auto out = result_for(input, sizes, last, c10::toRealValueType(self.scalar_type()));
  transform(input, out, last, size, kHermitianIn | kSwapIn | kSwapOut | kRealOut, scale_of(normalization, size));
  return out;
}

/// Into outputs of any dtype.
template <auto kFormula>
constexpr auto kInto = Into<kFormula, convert_result>::call;

} // namespace

void add(Registrar& m) {
  TB_COMPOSITION(m, "_fft_c2c", _fft_c2c, complex_to_complex);
  TB_COMPOSITION(m, "_fft_c2c.out", _fft_c2c_out, kInto<complex_to_complex>);
  TB_COMPOSITION(m, "_fft_r2c", _fft_r2c, real_to_complex);
  TB_COMPOSITION(m, "_fft_r2c.out", _fft_r2c_out, kInto<real_to_complex>);
  TB_COMPOSITION(m, "_fft_c2r", _fft_c2r, complex_to_real);
  TB_COMPOSITION(m, "_fft_c2r.out", _fft_c2r_out, kInto<complex_to_real>);
}

} // namespace torch_backend::compiled::spectral
