// Matrix products: the floor for devices whose library has none.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "csrc/core/Runtime.h"
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
  bool self_scales = false; // self is multiplied with the product, not added to it
};

/// Whether values of these dtypes are multiplied: of one, or the weights are 8-bit integers, or both sides are.
bool are_multiplied(const Product& product) {
  const auto out = product.out.type, left = product.left.type, right = product.right.type;
  const bool are_common = left == out && (right == out || (product.self_scales && right == ValueType::i8));
  const bool are_integers = out == ValueType::i32 && left == ValueType::i8 && right == ValueType::i8;
  return (are_common || are_integers) && (!product.self.is_there || product.self.type == out);
}

/// The struct Args of the skeleton.
struct Args {
  int64_t batches, rows, columns, depth, tile_rows, tile_columns;
  std::array<int64_t, 3> out, left, right, self;
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

constexpr int64_t kFewRows = 4;
constexpr Tile kFewRowsTile{kFewRows, 1024, 512};

Tile tile_of_stretch(int device, int64_t rows, int64_t size_bytes) {
  if (rows <= kFewRows) {
    return kFewRowsTile;
  }
  Tile tile{120, 192, 512 / size_bytes};
  const auto most = static_cast<int64_t>(device_api().properties(device).local_memory_bytes);
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

tb_status run(Product product, const tb_kernel_context& context) {
  auto &out = product.out, &left = product.left, &right = product.right, &self = product.self;
  const ValueType compute = compute_type(out.type);
  if (out.sizes[0] * out.sizes[1] * out.sizes[2] == 0) {
    return TB_STATUS_OK;
  }
  if (!are_multiplied(product) || !(is_common(out.type) || is_complex(out.type)) || out.type == ValueType::b8 ||
      !computes(context.device, compute)) {
    return TB_STATUS_UNSUPPORTED;
  }
  if (is_complex(out.type)) { // of halves each product would be rounded
    return out.type == compute ? run_parts(product, context) : TB_STATUS_UNSUPPORTED;
  }
  const bool is_zero = product.beta->tag == TB_ARG_FLOAT ? product.beta->v.f == 0 : product.beta->v.i == 0;
  if (self.is_there && is_zero) {
    self = Matrix(); // not even its NaN
  }
  if (self.is_there) {
    self.expand_to(out);
  }
  // Vectors of columns: at least as many columns as rows, if there are few.
  if (out.sizes[2] < out.sizes[1] && out.sizes[2] < 32) {
    out.transpose();
    left.transpose();
    right.transpose();
    self.transpose();
    std::swap(left, right);
  }
  const int64_t size_bytes = compute == ValueType::f64 || compute == ValueType::i64 ? 8 : 4;
  const Tile tile = runs_in_stretches(context.device)
                        ? tile_of_stretch(context.device, out.sizes[1], size_bytes)
                        : tile_of_items(context.device, out, left.type == right.type ? left.type : compute, size_bytes,
                                        left.sizes[2]);
  const bool few = runs_in_stretches(context.device) && out.sizes[1] <= kFewRows;
  const bool left_along_k = std::abs(left.strides[2]) <= std::abs(left.strides[1]);
  // Also of one column, whose sum is then made of many.
  const bool right_along_k = out.sizes[2] == 1 || std::abs(right.strides[1]) < std::abs(right.strides[2]);
  const std::array<bool, 3> unit{left.strides[2] == 1, right.strides[1] == 1, right.strides[2] == 1};
  const bool fits_32 = std::max({out.last(), left.last(), right.last(), self.last()}) < Geometry::kLimit32 &&
                       std::max(out.sizes[0] * out.sizes[1] * out.sizes[2], left.sizes[2]) < Geometry::kLimit32;

  static constexpr Skeleton kMatmul{"strips matmul", "matmul"};
  Specialization wanted(kMatmul);
  wanted.compute_in(compute)
      .index_of(fits_32)
      .type("OUT", out.type)
      .type("LEFT", left.type)
      .type("RIGHT", right.type)
      .type("SELF", self.is_there ? out.type : ValueType::none)
      .number("SELF_SCALES", product.self_scales)
      .number("FEW", few ? kFewRows : 0)
      .number("T_BYTES", size_bytes)
      .number("ROWS_MOST", tile.rows)
      .number("COLUMNS_MOST", tile.columns)
      .number("DEPTH", tile.depth)
      .number("EDGE", tile.edge)
      .number("FUSES", is_floating(compute))
      .number("MATRICES", tile.matrices)
      .number("ITEMS", tile.items)
      .number("LEFT_WIDE", tile.matrices && left.is_wide(left_along_k ? 2 : 1))
      .number("RIGHT_WIDE", tile.matrices && right.is_wide(right_along_k ? 1 : 2))
      .number("LEFT_ALONG_K", left_along_k)
      .number("RIGHT_ALONG_K", right_along_k)
      .text("LEFT_STEP_K", unit[0] ? "1" : "args.left[2]")
      .text("RIGHT_STEP_K", unit[1] ? "1" : "args.right[1]")
      .text("RIGHT_STEP_COLUMN", unit[2] ? "1" : "args.right[2]")
      .parameters(self.is_there ? 4 : 3);
  const auto& function = find_function(context.device, wanted);
  Args args{out.sizes[0],
            out.sizes[1],
            out.sizes[2],
            left.sizes[2],
            tile.rows,
            tile.columns,
            out.strides,
            left.strides,
            right.strides,
            self.strides,
            scalar_of(*product.alpha, compute),
            scalar_of(*product.beta, compute)};
  const auto tiles = [&] {
    return args.batches * ((args.rows + args.tile_rows - 1) / args.tile_rows) *
           ((args.columns + args.tile_columns - 1) / args.tile_columns);
  };
  Launch launch(context);
  launch.pointer(out.data);
  const bool is_deep = left.sizes[2] > 0; // else there is nothing to multiply
  launch.pointer(is_deep ? left.data : out.data);
  launch.pointer(is_deep ? right.data : out.data);
  if (self.is_there) {
    launch.pointer(self.data);
  }
  launch.value(&args, sizeof(args));
  if (runs_in_stretches(context.device)) {
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
  all.self = Matrix(args[Op::scales]);
  all.self_scales = true;
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
