#include "csrc/ops/compiled/families/Matmul.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/op_registration/adaption.h>

#include "csrc/core/DType.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/Enqueue.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Overloads.h"
#include "csrc/ops/compiled/engine/Support.h"
#include "csrc/ops/compiled/engine/ValueType.h"
#include "csrc/ops/compiled/families/Pointwise.h"
#include "csrc/ops/compiled/loops/Reduce.h"

namespace torch_backend::compiled::matmul {
namespace {

/// [batch, row, column] of any strides.
struct Matrix {
  const char* data = nullptr; // its first element
  bool is_there = false;
  ValueType type = ValueType::none;
  std::array<int64_t, 3> sizes{1, 1, 1};
  std::array<int64_t, 3> strides{};

  Matrix() = default;
  /// The dimensions of `of`, the last one being `last` (2: columns, 1: rows), and those before it those before that one.
  explicit Matrix(const View& of, int last = 2) : data(of.data), is_there(true), type(of.type()) {
    for (int d = of.dim() - 1; d >= 0 && last >= 0; --d, --last) {
      sizes[static_cast<std::size_t>(last)] = of.size(d);
      strides[static_cast<std::size_t>(last)] = of.stride(d);
    }
  }
  explicit Matrix(const tb_arg& of, int last = 2) : Matrix(View(tensor_in(of)), last) {}
  explicit Matrix(const at::Tensor& of) {
    if (of.defined()) {
      View view(of.const_data_ptr(), tb_dtype_or_none(of.scalar_type()), of.sizes());
      view.strides.assign(of.strides().begin(), of.strides().end());
      *this = Matrix(view);
    }
  }

  View view() const {
    View view(data, type, sizes);
    view.strides.assign(strides.begin(), strides.end());
    return view;
  }
  /// The real or the imaginary parts.
  Matrix part(int which) const {
    return is_there ? Matrix(view().half(which)) : *this;
  }

  void expand_to(const Matrix& other) {
    for (std::size_t d = 0; d < 3; ++d) {
      strides[d] = sizes[d] == 1 ? 0 : strides[d];
      sizes[d] = other.sizes[d];
    }
  }
  void transpose() {
    std::swap(sizes[1], sizes[2]);
    std::swap(strides[1], strides[2]);
  }
  /// Whether elements can be moved 16 bytes at a time along a dimension, and are there or not together.
  bool is_wide(std::size_t along) const {
    const std::size_t other = 3 - along; // the rows', or the columns'
    const auto elements = static_cast<int64_t>(kWideBytes / size_of(type));
    return strides[along] == 1 && sizes[along] % elements == 0 &&
           is_of_vectors(data, size_of(type), elements, {strides[0], strides[other]}, {sizes[0], sizes[other]});
  }
  int64_t last() const {
    int64_t offset = 0;
    for (std::size_t d = 0; d < 3; ++d) {
      offset += (sizes[d] - 1) * std::abs(strides[d]);
    }
    return offset;
  }
};

const tb_arg kOne = [] {
  tb_arg one{};
  one.tag = TB_ARG_INT;
  one.v.i = 1;
  return one;
}();

struct Product {
  Matrix out, left, right, self;
  const tb_arg* alpha = &kOne;
  const tb_arg* beta = &kOne;
  bool conjugates_left = false;
  std::array<Matrix, 2> factors; // of the product
  const char* divisor = nullptr; // of the result, in f32
  enum class Groups : uint8_t { kNone, kOfRows, kOfDepth } grouped = Groups::kNone;
  const char* ends = nullptr; // of groups
  int64_t groups = 0;
  int64_t int4 = 0, group_size = 0; // of a right side that is packed: as Call has them
};

/// Whether values of these dtypes are multiplied: of one, or of eight bits.
bool are_multiplied(const Product& product) {
  const auto out = product.out.type, left = product.left.type, right = product.right.type;
  if (product.int4) {
    return left == out && is_floating(out);
  }
  if (is_float8(left) && is_float8(right)) {
    return is_floating(out) || is_float8(out);
  }
  const bool are_common = left == out && (right == out || (product.factors[0].is_there && right == ValueType::i8));
  const bool are_integers = out == ValueType::i32 && left == ValueType::i8 && right == ValueType::i8;
  return (are_common || are_integers) && (!product.self.is_there || product.self.type == out);
}

/// The struct Args of the skeleton.
struct Args {
  int64_t batches, rows, columns, depth, tile_rows, tile_columns, tiles_down, groups, group_size;
  std::array<int64_t, 3> out, left, right, self, factor_0, factor_1;
  int64_t alpha, beta;
};

/// What a block computes at once, and how much of the depth it takes at a time.
struct Tile {
  int64_t rows, columns, depth;
  uint32_t items = 1;    // of the block
  int64_t edge = 0;      // an item computes a square of elements
  bool matrices = false; // units for them multiply
};

int64_t tiles_in(const Matrix& out, int64_t rows, int64_t columns) {
  return out.sizes[0] * ((out.sizes[1] + rows - 1) / rows) * ((out.sizes[2] + columns - 1) / columns);
}

/// Where items run side by side.
Tile tile_of_items(int device, const Matrix& out, ValueType type, int64_t size_bytes, int64_t depth) {
  const auto& properties = device_api().properties(device);
  const auto processors = std::max<int64_t>(properties.multiprocessor_count, 1);
  if (has_matrices(device) && is_floating(type) && size_of(type) == 2 && depth >= 16) {
    const int64_t edge = tiles_in(out, 128, 128) >= processors ? 128 : 64;
    return {.rows = edge, .columns = edge, .depth = 32, .items = 256, .matrices = true};
  }
  // Items in a square, or in a rectangle of twice as many columns. Larger squares read less of what is near.
  const auto items = block_items(device);
  const auto bits = std::bit_width(items) - 1;
  const int64_t down = int64_t{1} << bits / 2, across = int64_t{1} << (bits + 1) / 2;
  constexpr int64_t kLarge = 8, kSmall = 4;
  const bool is_large = size_bytes == 4 && tiles_in(out, kLarge * down, kLarge * across) >= processors &&
                        out.sizes[1] >= kLarge * down && out.sizes[2] >= kLarge * across;
  const int64_t edge = is_large ? kLarge : kSmall;
  return {.rows = edge * down, .columns = edge * across, .depth = 16, .items = items, .edge = edge};
}

constexpr int64_t kFewRows = 8;

Tile tile_of_few(int device, int64_t rows, int64_t size_bytes) {
  const auto most = static_cast<int64_t>(device_api().properties(device).local_memory_bytes);
  const auto few = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min(rows, kFewRows))));
  int64_t each = 1024; // columns and elements of a row
  while (most > 0 && 2 * (few + 2) * each * size_bytes > most && each > 128) {
    each /= 2;
  }
  return {few, each, each};
}

Tile tile_of_stretch(int device, int64_t size_bytes) {
  const auto most = static_cast<int64_t>(device_api().properties(device).local_memory_bytes);
  Tile tile{132, 192, 480 / size_bytes}; // one of 128 rows too, in strips of 12: what fits into 256 KiB
  while (most > 0 && tile.depth > 16 &&
         (tile.rows * tile.columns + tile.depth * (tile.rows + tile.columns)) * size_bytes > most) {
    tile = {tile.columns > 64 ? tile.rows : 60, tile.columns > 64 ? tile.columns - 64 : tile.columns, tile.depth / 2};
  }
  return tile;
}

/// alpha and beta as four real numbers; without `self` beta is not there.
constexpr PointwiseEntry kScaledSum{
    "aten::addmm.out",
    nullptr,
    "T product, int has_self, T self, T alpha, T alpha_i, T beta, T beta_i, TB_PRIVATE T* out",
    nullptr,
    nullptr,
    nullptr,
    "",
    "",
    1,
    "tTnnnn",
    "*out = tb_c_mul(tb_c_complex(alpha, alpha_i), product);"
    "if (has_self) *out = tb_c_add(*out, tb_c_mul(tb_c_complex(beta, beta_i), self));"};

tb_status run(Product product, const tb_kernel_context& context);

/// Two products of real matrices for each part of the result.
tb_status run_parts(const Product& product, const tb_kernel_context& context) {
  const auto alpha = complex_of(*product.alpha), beta = complex_of(*product.beta);
  const auto& out = product.out;
  if (alpha.imag() != 0 || (product.self.is_there && beta.imag() != 0)) {
    const int64_t count = out.sizes[0] * out.sizes[1] * out.sizes[2];
    const View plain(workspace(context, count * static_cast<int64_t>(size_of(out.type))), out.type, out.sizes);
    const auto status = run_parts({Matrix(plain), product.left, product.right, {}}, context);
    Matrix self = beta == 0.0 ? Matrix() : product.self;
    if (self.is_there) {
      self.expand_to(out);
    }
    const View operands[] = {plain, self.is_there ? self.view() : View()};
    const double numbers[] = {alpha.real(), alpha.imag(), beta.real(), beta.imag()};
    return status != TB_STATUS_OK ||
                   pointwise::compute_elements(context, kScaledSum, out.view(), operands, numbers, out.type)
               ? status
               : TB_STATUS_UNSUPPORTED;
  }
  const double sign = product.conjugates_left ? -1 : 1;
  for (const int which : {0, 1}) {
    for (const int left : {0, 1}) { // which part of it
      Product part{out.part(which), product.left.part(left), product.right.part(left ^ which), {}};
      tb_arg factor{TB_ARG_FLOAT, 0, {}}, real_beta = factor;
      factor.v.f = alpha.real() * (left == 0 ? 1 : which == 0 ? -sign : sign);
      real_beta.v.f = beta.real();
      part.alpha = &factor;
      part.beta = left == 0 ? &real_beta : &kOne;
      part.self = left == 0 ? product.self.part(which) : part.out;
      if (const auto status = run(part, context); status != TB_STATUS_OK) {
        return status;
      }
    }
  }
  return TB_STATUS_OK;
}

void derive(const Specialization& facts, SourceText& text) {
  for (const char* name : {"OUT", "LEFT", "RIGHT"}) {
    if (is_float8(facts.type_of(name))) {
      define_float8(text);
      return;
    }
  }
}
constexpr Skeleton kMatmul{"strips matmul", "matmul", derive};

tb_status run(Product product, const tb_kernel_context& context) {
  auto &out = product.out, &left = product.left, &right = product.right, &self = product.self;
  const ValueType compute = compute_type(out.type);
  if (out.sizes[0] * out.sizes[1] * out.sizes[2] == 0) {
    return TB_STATUS_OK;
  }
  if (!are_multiplied(product) || !(is_common(out.type) || is_complex(out.type) || is_float8(out.type)) ||
      out.type == ValueType::b8 || !computes(context.device, compute)) {
    return TB_STATUS_UNSUPPORTED;
  }
  if (is_complex(out.type)) { // of halves each product would be rounded
    return out.type == compute ? run_parts(product, context) : TB_STATUS_UNSUPPORTED;
  }
  const bool is_zero = product.beta->tag == TB_ARG_FLOAT ? product.beta->v.f == 0 : product.beta->v.i == 0;
  if (self.is_there && is_zero) {
    self = Matrix(); // not even its NaN
  }
  auto& factors = product.factors;
  for (auto* each : {&self, factors.data(), &factors[1]}) {
    if (each->is_there && !product.int4) {
      each->expand_to(out);
    }
  }
  const bool of_rows = product.grouped == Product::Groups::kOfRows;
  const bool of_depth = product.grouped == Product::Groups::kOfDepth;
  // Vectors of columns: at least as many columns as rows, if there are few.
  if (out.sizes[2] < out.sizes[1] && out.sizes[2] < 32 && !of_rows && !product.int4) {
    for (auto* each : {&out, &left, &right, &self, factors.data(), &factors[1]}) {
      each->transpose();
    }
    std::swap(left, right);
  }
  Matrix part = out; // about what is multiplied with one right side
  if (of_rows) {
    part.sizes[0] = std::max<int64_t>(product.groups, 1);
    part.sizes[1] = (out.sizes[1] + part.sizes[0] - 1) / part.sizes[0];
  }
  const int64_t size_bytes = compute == ValueType::f64 || compute == ValueType::i64 ? 8 : 4;
  const bool left_along_k = std::abs(left.strides[2]) <= std::abs(left.strides[1]);
  // Also of one column, whose sum is then made of many.
  const bool right_along_k = out.sizes[2] == 1 || std::abs(right.strides[1]) < std::abs(right.strides[2]);
  const std::array<bool, 3> unit{left.strides[2] == 1, right.strides[1] == 1, right.strides[2] == 1};
  const bool in_place =
      left.type == compute && right.type == compute && unit[0] && unit[1] && right_along_k && !product.int4;
  const bool in_stretches = runs_in_stretches(context.device);
  // Two tiles of a few rows read what lies in place faster than it is packed for one of twelve.
  const bool few = in_stretches && part.sizes[1] <= (in_place ? 2 * kFewRows : kFewRows);
  const Tile tile = few            ? tile_of_few(context.device, part.sizes[1], size_bytes)
                    : in_stretches ? tile_of_stretch(context.device, size_bytes)
                                   : tile_of_items(context.device, part, left.type == right.type ? left.type : compute,
                                                   size_bytes, left.sizes[2]);
  // Groups begin anywhere.
  const bool left_wide = tile.matrices && !(left_along_k ? of_depth : of_rows) && left.is_wide(left_along_k ? 2 : 1);
  const bool right_wide = tile.matrices && !(right_along_k && of_depth) && right.is_wide(right_along_k ? 1 : 2);
  const bool fits_32 = std::max({out.last(), left.last(), right.last(), self.last()}) < Geometry::kLimit32 &&
                       std::max(out.sizes[0] * out.sizes[1] * out.sizes[2], left.sizes[2]) < Geometry::kLimit32;
  const bool has_more = factors[0].is_there || factors[1].is_there || product.divisor || of_rows || of_depth;

  Specialization wanted(kMatmul);
  wanted.compute_in(compute)
      .index_of(fits_32)
      .type("OUT", out.type)
      .type("LEFT", left.type)
      .type("RIGHT", right.type)
      .type("SELF", self.type)
      .type("FACTOR_0", factors[0].type)
      .type("FACTOR_1", factors[1].type)
      .type("DIVISOR", product.divisor ? ValueType::f32 : ValueType::none)
      .number("GROUPS", static_cast<int64_t>(product.grouped))
      .number("INT4", product.int4)
      .number("CONVERTS", right.type != compute)
      .number("FEW", few ? tile.rows : 0)
      .number("IN_PLACE", in_place)
      .number("T_BYTES", size_bytes)
      .number("ROWS_MOST", tile.rows)
      .number("COLUMNS_MOST", tile.columns)
      .number("DEPTH", tile.depth)
      .number("EDGE", tile.edge)
      .number("FUSES", is_floating(compute))
      .number("MATRICES", tile.matrices)
      .number("ITEMS", tile.items)
      .number("LEFT_WIDE", left_wide)
      .number("RIGHT_WIDE", right_wide)
      .number("LEFT_ALONG_K", left_along_k)
      .number("RIGHT_ALONG_K", right_along_k)
      .text("LEFT_STEP_K", unit[0] ? "1" : "args.left[2]")
      .text("RIGHT_STEP_K", unit[1] ? "1" : "args.right[1]")
      .text("RIGHT_STEP_COLUMN", unit[2] ? "1" : "args.right[2]")
      .parameters(has_more        ? 8
                  : self.is_there ? 4
                                  : 3);
  const auto& function = find_function(context.device, wanted);
  Args args{of_rows ? 1 : out.sizes[0],
            out.sizes[1],
            out.sizes[2],
            left.sizes[2],
            tile.rows,
            tile.columns,
            0,
            product.groups,
            product.group_size,
            out.strides,
            left.strides,
            right.strides,
            self.strides,
            factors[0].strides,
            factors[1].strides,
            scalar_of(*product.alpha, compute),
            scalar_of(*product.beta, compute)};
  const auto tiles = [&] {
    // Each group may have one that is not full, and those that are not empty have a row.
    args.tiles_down = of_rows ? std::min(args.rows / args.tile_rows + args.groups + 1, args.rows)
                              : (args.rows + args.tile_rows - 1) / args.tile_rows;
    return args.batches * args.tiles_down * ((args.columns + args.tile_columns - 1) / args.tile_columns);
  };
  Launch launch(context);
  launch.pointer(out.data);
  const bool is_deep = left.sizes[2] > 0; // else there is nothing to multiply
  const auto pointer = [&](const char* data) { launch.pointer(data ? data : out.data); };
  pointer(is_deep ? left.data : nullptr);
  pointer(is_deep ? right.data : nullptr);
  if (self.is_there || has_more) {
    pointer(self.data);
  }
  if (has_more) {
    pointer(factors[0].data);
    pointer(factors[1].data);
    pointer(product.divisor);
    pointer(product.ends);
  }
  launch.value(&args, sizeof(args));
  if (in_stretches) {
    // Smaller ones where processors would be idle.
    const auto processors = std::max(device_api().properties(context.device).multiprocessor_count, 1);
    while (tiles() < 2 * processors && processors > 1 && (args.tile_columns > 64 || args.tile_rows > 12) &&
           args.rows * args.columns * args.depth * args.batches > 1 << 20) {
      if (args.tile_columns > 64) {
        args.tile_columns = std::max<int64_t>(64, args.tile_columns / 2 / 32 * 32);
      } else {
        args.tile_rows = args.tile_rows / 2;
      }
    }
    const int64_t cost = std::min(args.rows, args.tile_rows) * std::min(args.columns, args.tile_columns) * args.depth;
    launch.run(function, tiles(), cost);
  } else {
    launch.run_blocks(function, tiles(), tile.items);
  }
  return TB_STATUS_OK;
}

tb_status product(const void* /*entry*/, const tb_kernel_context& context, const tb_arg* args, int32_t /*num_args*/) {
  using Op = op::mm_out;
  static_assert(agree<Op, op::bmm_out, op::_int_mm_out>());
  Product all;
  all.left = Matrix(args[Op::self]);
  all.right = Matrix(args[Op::mat2]);
  all.out = Matrix(args[Op::out]);
  return run(all, context);
}

tb_status sum_with_product(const void* /*entry*/, const tb_kernel_context& context, const tb_arg* args,
                           int32_t /*num_args*/) {
  using Op = op::addmm_out;
  static_assert(agree<Op, op::baddbmm_out>("self beta alpha out"));
  static_assert(+Op::mat1 == +op::baddbmm_out::batch1 && +Op::mat2 == +op::baddbmm_out::batch2);
  Product all;
  all.self = Matrix(args[Op::self]);
  all.left = Matrix(args[Op::mat1]);
  all.right = Matrix(args[Op::mat2]);
  all.beta = &args[Op::beta];
  all.alpha = &args[Op::alpha];
  all.out = Matrix(args[Op::out]);
  return run(all, context);
}

/// (input [m, k], weight [n, k] of 8-bit integers, scales [n])
tb_status product_with_scaled_weight(const void* /*entry*/, const tb_kernel_context& context, const tb_arg* args,
                                     int32_t /*num_args*/) {
  using Op = op::_weight_int8pack_mm;
  Product all;
  all.left = Matrix(args[Op::self]);
  all.right = Matrix(args[Op::mat2]);
  all.right.transpose();
  all.factors[0] = Matrix(args[Op::scales]);
  all.out = Matrix(args[Op::result]);
  return run(all, context);
}

/// Vectors are columns.
tb_status sum_with_vector(const void* /*entry*/, const tb_kernel_context& context, const tb_arg* args,
                          int32_t /*num_args*/) {
  using Op = op::addmv_out;
  Product all;
  all.self = Matrix(args[Op::self], 1);
  all.left = Matrix(args[Op::mat]);
  all.right = Matrix(args[Op::vec], 1);
  all.beta = &args[Op::beta];
  all.alpha = &args[Op::alpha];
  all.out = Matrix(args[Op::out], 1);
  return run(all, context);
}

/// With an entry the first vector is conjugated. Where items run side by side, all of them add.
tb_status dot(const void* conjugates, const tb_kernel_context& context, const tb_arg* args, int32_t /*num_args*/) {
  using Op = op::dot;
  static_assert(agree<Op, op::vdot>("self result") && +Op::tensor == +op::vdot::other);
  if (!runs_in_stretches(context.device)) {
    std::array<View, 2> vectors;
    View out;
    if (!view_of(args[Op::self], vectors.data()) || !view_of(args[Op::tensor], &vectors[1]) ||
        !view_of(args[Op::result], &out)) {
      return TB_STATUS_UNSUPPORTED;
    }
    const char* entry = !is_complex(out.type()) ? "dot" : conjugates ? "complex_vdot" : "complex_dot";
    return reduce(context, reduction(entry), out, vectors, all_dims(1), compute_type(out.type()));
  }
  Product all;
  all.left = Matrix(args[Op::self]);
  all.right = Matrix(args[Op::tensor], 1);
  all.out = Matrix(args[Op::result]);
  all.conjugates_left = conjugates != nullptr;
  return run(all, context);
}

} // namespace

void multiply(const char* name, const Call& call) {
  std::optional<c10::Device> device = call.out.device();
  for (const auto& [tensor, argument] : {std::pair<const at::Tensor&, const char*>{call.left, "self"},
                                         {call.right, "mat2"},
                                         {call.factors[0], "the first scale"},
                                         {call.factors[1], "the second scale"},
                                         {call.self, "bias"},
                                         {call.divisor, "scale_result"}}) {
    c10::impl::check_and_update_common_device(device, tensor, name, argument);
  }
  Product all;
  all.out = Matrix(call.out);
  all.left = Matrix(call.left);
  all.right = Matrix(call.right);
  all.self = Matrix(call.self);
  std::transform(call.factors.begin(), call.factors.end(), all.factors.begin(),
                 [](const at::Tensor& each) { return Matrix(each); });
  all.divisor = Matrix(call.divisor).data;
  if (call.ends.defined()) {
    all.grouped = call.out.dim() == 2 ? Product::Groups::kOfRows : Product::Groups::kOfDepth;
    all.ends = Matrix(call.ends).data;
    all.groups = call.ends.size(0);
  }
  if (call.int4_tiles != 0) {
    all.int4 = call.int4_tiles;
    all.group_size = call.group_size;
    all.right.sizes = {1, call.left.size(1), call.out.size(1)};
    all.right.strides = {0, 1, call.left.size(1)};
  }
  enqueue_kernel(call.out, name, [&](const tb_kernel_context& context) {
    TORCH_INTERNAL_ASSERT(run(all, context) == TB_STATUS_OK, name, ": no kernel for ", call.left.scalar_type(), " and ",
                          call.right.scalar_type());
  });
}

void add(Kernels& kernels) {
  static const char kConjugates = 0;
  const auto add = [&](const char* overload, KernelFunction function, const char* entry = nullptr) {
    kernels.add(overload, function, kTakesEmpty, entry, kAllTypes);
  };
  add(op::mm_out::kName, guarded<product>);
  add(op::bmm_out::kName, guarded<product>);
  add(op::addmm_out::kName, guarded<sum_with_product>);
  add(op::baddbmm_out::kName, guarded<sum_with_product>);
  add(op::addmv_out::kName, guarded<sum_with_vector>);
  add(op::_int_mm_out::kName, guarded<product>);
  add(op::_weight_int8pack_mm::kName, guarded<product_with_scaled_weight>);
  add(op::dot::kName, guarded<dot>);
  add(op::vdot::kName, guarded<dot>, &kConjugates);
}

} // namespace torch_backend::compiled::matmul
