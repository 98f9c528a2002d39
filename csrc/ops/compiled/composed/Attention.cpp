#include "csrc/ops/compiled/composed/Attention.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iterator>

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "csrc/core/DType.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/Dropout.h"
#include "csrc/ops/compiled/engine/Enqueue.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Support.h"

namespace torch_backend::compiled::attention {
namespace {

constexpr int64_t kMostElements = 256; // of a head

enum class Pass : uint8_t { kForward, kGradQuery, kGradKeys };

ValueType type_of(const at::Tensor& tensor) {
  return value_type(tb_dtype_or_none(tensor.scalar_type()));
}

bool takes_dtype(c10::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

/// The struct Args of the skeleton.
struct Args {
  int64_t batches, heads, shared, rows, places;
  std::array<int64_t, 4> query{}, key{}, value{}, out{}, bias{}, grad_out{}, grad_query{}, grad_key{}, grad_value{};
  std::array<int64_t, 2> logarithms{};
  int64_t below = 0;
  int64_t parts = 1, part_size = 0;
  int64_t earliest = 0, latest = 0;
  int64_t pages = 0, page = 1;
  int64_t scale = 0, keep_scale = 0;
};

/// What one launch is of.
struct Operands {
  at::Tensor query, key, value, bias, logarithms, out, seed, offset, grad_out, delta, grad_query, grad_key, grad_value;
  const Sequences* sequences = nullptr;
};

/// What a block has at once.
struct Tile {
  int64_t own, others;
  uint32_t items = 1;
  int64_t side = 1, rows_each = 1; // of items that are side by side
  bool matrices = false;           // units for them multiply
  int64_t stages = 1;              // tiles of the other side that are near
};

constexpr int64_t kOthersEach = 4, kDepth = 16;
constexpr int64_t kLanes = 32; // the most own rows that a panel has
constexpr int64_t kStrip = 12; // of the other side, or a half of it

/// Where items run one after the other: what is near, as the skeleton declares it.
int64_t near_bytes(const Tile& tile, int64_t width, bool is_backward) {
  const int64_t pitch = (width + kStrip - 1) / kStrip * kStrip;
  const int64_t own = is_backward ? 2 * width + 2 * pitch : width + pitch;
  return 4 * (tile.own * (own + 2) + 2 * tile.others * pitch + (is_backward ? 2 : 1) * tile.own * tile.others);
}

/// Where matrix units multiply: 16 own rows for each warp. What is fastest on an H200, of what fits into registers and near.
Tile matrix_tile(Pass pass, int64_t width) {
  constexpr int64_t kNarrow = 64;
  const bool is_narrow = width <= kNarrow;
  Tile tile{};
  tile.matrices = true;
  tile.items = !is_narrow && pass == Pass::kGradQuery ? 64 : 128;
  tile.side = 4;
  tile.rows_each = 2;
  tile.own = tile.items / 4 * tile.rows_each;
  tile.others = pass == Pass::kForward ? (is_narrow ? 64 : 32) : is_narrow || pass == Pass::kGradQuery ? 32 : 16;
  tile.stages = is_narrow && pass == Pass::kGradQuery ? 2 : 1;
  return tile;
}

Tile tile_of(int device, Pass pass, int64_t rows, int64_t blocks, ValueType type, int64_t width) {
  const auto& properties = device_api().properties(device);
  Tile tile{};
  if (runs_in_stretches(device)) {
    constexpr int64_t kElements = 8192, kMostRows = 128;
    tile.own = std::clamp(kElements / width / kLanes * kLanes, kLanes, kMostRows);
    tile.others = 5 * kStrip;
    const auto most = static_cast<int64_t>(properties.local_memory_bytes);
    while (most > 0 && near_bytes(tile, width, pass != Pass::kForward) > most &&
           tile.own + tile.others > kLanes + kStrip) {
      tile.own > kLanes ? tile.own -= kLanes : tile.others -= kStrip;
    }
    return tile;
  }
  constexpr int64_t kLeastRows = 16, kMostWidth = 128;
  if (has_matrices(device) && size_of(type) == 2 && rows >= kLeastRows && width <= kMostWidth) {
    return matrix_tile(pass, width);
  }
  tile.items = block_items(device);
  const auto bits = std::bit_width(tile.items) - 1;
  tile.side = int64_t{1} << bits / 2;
  tile.others = tile.side * kOthersEach;
  // As many as registers hold sums for, and fewer where there are no more rows, or processors would be idle.
  const int64_t down = tile.items / tile.side, sums = (width + tile.side - 1) / tile.side;
  const auto processors = std::max<int64_t>(properties.multiprocessor_count, 1);
  tile.rows_each = pass == Pass::kForward ? 8 : 4;
  const int64_t most_sums = pass == Pass::kGradKeys ? 32 : 64;
  while (tile.rows_each > 1 && (tile.rows_each * sums > most_sums || down * tile.rows_each / 2 >= rows ||
                                blocks * ((rows + down * tile.rows_each - 1) / (down * tile.rows_each)) < processors)) {
    tile.rows_each /= 2;
  }
  tile.own = down * tile.rows_each;
  return tile;
}

std::array<int64_t, 4> strides_of(const at::Tensor& tensor) {
  std::array<int64_t, 4> strides{};
  if (tensor.defined()) {
    std::copy_n(tensor.strides().begin(), 4, strides.begin());
  }
  return strides;
}

/// Whether offsets within a head fit into 32 bits, with those of a tile that is not full.
bool fits_32(const at::Tensor& tensor) {
  return !tensor.defined() || (std::abs(tensor.stride(2)) * (tensor.size(2) + 1) +
                               std::abs(tensor.stride(3)) * (tensor.size(3) + 1)) < Geometry::kLimit32;
}

/// Whether heads are pieces of 16 bytes that are aligned.
bool is_aligned(const at::Tensor& tensor) {
  constexpr int64_t kBytes = 16;
  const int64_t size = tensor.element_size();
  const auto strides = strides_of(tensor);
  return strides[3] == 1 && tensor.size(3) * size % kBytes == 0 &&
         reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kBytes == 0 &&
         std::all_of(strides.begin(), strides.begin() + 3, [&](int64_t each) { return each * size % kBytes == 0; });
}

/// Parts of `places` that blocks of their own have, so that each processor has a block: of a size that `part_size` gets.
int64_t parts_of(int device, int64_t blocks, int64_t places, int64_t others, int64_t* part_size) {
  constexpr int64_t kLeastPart = 128;
  if (runs_in_stretches(device)) {
    return 1;
  }
  const auto processors = std::max<int64_t>(device_api().properties(device).multiprocessor_count, 1);
  const int64_t wanted =
      std::clamp<int64_t>((processors + blocks - 1) / blocks, 1, std::max<int64_t>(places / kLeastPart, 1));
  *part_size = ((places + wanted - 1) / wanted + others - 1) / others * others;
  return (places + *part_size - 1) / *part_size;
}

/// Puts together what the parts of the places have.
void join(const Args& args, const at::Tensor& numbers, const at::Tensor& results, const at::Tensor& logarithms,
          const at::Tensor& out) {
  static constexpr Skeleton kJoin{"attention_join", "attention_join"};
  const int64_t count = args.batches * args.heads * args.rows * out.size(3);
  Specialization wanted(kJoin);
  wanted.compute_in(ValueType::f32)
      .index_of(count * args.parts < Geometry::kLimit32)
      .number("WIDTH", out.size(3))
      .type("TYPE", type_of(out))
      .parameters(4);
  const auto& function = find_function(out.device().index(), wanted);
  std::array<int64_t, 10> values{args.batches, args.heads, args.rows, args.parts};
  std::copy_n(out.strides().begin(), 4, values.begin() + 4);
  std::copy_n(logarithms.strides().begin(), 2, values.begin() + 8);
  enqueue(out, "aten::scaled_dot_product_attention", [&](Launch& launch) {
    for (const auto* each : {&numbers, &results, &logarithms, &out}) {
      launch.pointer(each->const_data_ptr());
    }
    launch.value(values.data(), sizeof(values));
    launch.run(function, count, args.parts);
  });
}

void run(Pass pass, const Call& call, const Operands& of) {
  const int device = of.query.device().index();
  const bool is_forward = pass == Pass::kForward, is_of_keys = pass == Pass::kGradKeys;
  const Sequences* const sequences = of.sequences;
  const bool has_pages = sequences && sequences->pages.defined();
  Args args{sequences ? sequences->first_rows.size(0) - 1 : of.query.size(0), of.query.size(1),
            of.query.size(1) / std::max<int64_t>(of.key.size(1), 1), sequences ? sequences->rows : of.query.size(2),
            sequences ? sequences->places : of.key.size(2)};
  if (sequences) {
    args.earliest = -sequences->before;
    args.latest = sequences->after;
  }
  if (has_pages) {
    args.pages = sequences->pages.size(1);
    args.page = of.key.size(2);
  }
  const int64_t own = is_of_keys ? args.places : args.rows;
  const int64_t blocks = args.batches * (is_of_keys ? of.key.size(1) : args.heads);
  if (own * blocks == 0) {
    return;
  }
  const at::Tensor bias =
      of.bias.defined() ? of.bias.expand({args.batches, args.heads, args.rows, args.places}) : of.bias;
  const ValueType type = type_of(of.query);
  const int64_t width_a = of.query.size(3), width_b = of.value.size(3);
  const Tile tile = tile_of(device, pass, own, blocks, type, std::max(width_a, width_b));
  int64_t count = blocks * ((own + tile.own - 1) / tile.own);
  if (is_forward && !sequences) {
    args.parts = parts_of(device, count, args.places, tile.others, &args.part_size);
  }
  const bool has_parts = args.parts > 1;
  const auto of_parts = [&](int64_t width) {
    return at::empty({args.batches * args.parts, args.heads, args.rows, width}, of.query.options().dtype(at::kFloat));
  };
  const at::Tensor out = has_parts ? of_parts(width_b) : of.out;
  const at::Tensor logarithms = has_parts ? of_parts(2) : of.logarithms; // or the two numbers that they are made of
  count *= args.parts;
  const bool drops = call.dropout_p > 0;
  const bool has_vectors =
      is_aligned(of.query) && is_aligned(of.key) && is_aligned(of.value) && (is_forward || is_aligned(of.grad_out));
  const auto all = {of.query, of.key, of.value, out, bias, of.grad_out, of.grad_query, of.grad_key, of.grad_value};
  const auto step = [](const at::Tensor& tensor, const char* other) {
    return tensor.defined() && tensor.stride(3) == 1 ? "1" : other;
  };

  static constexpr Skeleton kAttention{"philox strips attention", "attention"};
  Specialization wanted(kAttention);
  wanted.compute_in(ValueType::f32)
      .called(is_forward   ? "forward"
              : is_of_keys ? "backward_of_keys"
                           : "backward_of_query")
      .index_of(count < Geometry::kLimit32 && std::max(args.rows, args.places) < Geometry::kLimit32 &&
                std::all_of(all.begin(), all.end(), fits_32) &&
                (!has_pages || std::max(of.key.numel(), of.value.numel()) < Geometry::kLimit32))
      .number("FORWARD", is_forward)
      .number("GRAD_QUERY", pass == Pass::kGradQuery)
      .number("GRAD_KEYS", is_of_keys)
      .type("TYPE", type)
      .number("TYPE_BYTES", static_cast<int64_t>(size_of(type)))
      .type("BIAS", bias.defined() ? type_of(bias) : ValueType::none)
      .number("BIAS_SELECTS", bias.defined() && bias.scalar_type() == at::kBool)
      .number("BIAS_BYTES", bias.defined() ? bias.element_size() : 0)
      .number("CAUSAL", call.is_causal || (sequences && sequences->after >= 0))
      .number("WINDOW", sequences && sequences->before >= 0)
      .number("VARLEN", sequences != nullptr)
      .number("USED", sequences && sequences->used.defined())
      .number("PAGED", has_pages)
      .number("DROPOUT", drops)
      .number("WIDTH_A", width_a)
      .number("WIDTH_B", width_b)
      .text("STEP_query", step(of.query, "args.query[3]"))
      .text("STEP_key", step(of.key, "args.key[3]"))
      .text("STEP_value", step(of.value, "args.value[3]"))
      .text("STEP_out", step(out, "args.out[3]"))
      .text("STEP_grad_out", step(of.grad_out, "args.grad_out[3]"))
      .text("STEP_grad_query", step(of.grad_query, "args.grad_query[3]"))
      .text("STEP_grad_key", step(of.grad_key, "args.grad_key[3]"))
      .text("STEP_grad_value", step(of.grad_value, "args.grad_value[3]"))
      .number("VECTORS", has_vectors)
      .number("T_BYTES", 4)
      .number("OWN_MOST", tile.own)
      .number("OTHERS_MOST", tile.others)
      .number("ITEMS", tile.items)
      .number("SIDE", tile.side)
      .number("ROWS_EACH", tile.rows_each)
      .number("DEPTH", kDepth)
      .number("PARTS", has_parts)
      .number("MATRICES", tile.matrices)
      .number("STAGES", tile.stages)
      .parameters(sequences    ? 16
                  : is_forward ? 8
                               : 12);
  const auto& function = find_function(device, wanted);

  args.query = strides_of(of.query);
  args.key = strides_of(of.key);
  args.value = strides_of(of.value);
  args.out = strides_of(out);
  args.bias = strides_of(bias);
  args.grad_out = strides_of(of.grad_out);
  args.grad_query = strides_of(of.grad_query);
  args.grad_key = strides_of(of.grad_key);
  args.grad_value = strides_of(of.grad_value);
  args.logarithms = {logarithms.stride(0), logarithms.stride(1)};
  args.below = below_with_probability(1 - call.dropout_p);
  args.scale = scalar_of(call.scale, ValueType::f32);
  args.keep_scale = scalar_of(call.dropout_p < 1 ? 1 / (1 - call.dropout_p) : 0.0, ValueType::f32);
  static_assert(sizeof(Args) == 52 * sizeof(int64_t));
  enqueue(of.query, "aten::scaled_dot_product_attention", [&](Launch& launch) {
    const void* spare = (of.query.numel() > 0 ? of.query : of.key).const_data_ptr();
    const auto pointer = [&](const at::Tensor& tensor) {
      launch.pointer(tensor.defined() && tensor.numel() > 0 ? tensor.const_data_ptr() : spare);
    };
    for (const auto* each : {&of.query, &of.key, &of.value, &bias, &logarithms, &out, &of.seed, &of.offset}) {
      pointer(*each);
    }
    if (!is_forward || sequences) {
      pointer(of.grad_out);
      pointer(of.delta);
      pointer(is_of_keys ? of.grad_key : of.grad_query);
      pointer(of.grad_value);
    }
    if (sequences) {
      for (const auto* each : {&sequences->first_rows, &sequences->first_places, &sequences->used, &sequences->pages}) {
        pointer(*each);
      }
    }
    launch.value(&args, sizeof(args));
    if (runs_in_stretches(device)) {
      launch.run(function, count, tile.own * (is_of_keys ? args.rows : args.places) * (width_a + width_b));
    } else {
      launch.run_blocks(function, count, tile.items);
    }
  });
  if (has_parts) {
    join(args, logarithms, out, of.logarithms, of.out);
  }
}

void run_backward(const Call& call, Operands all) {
  const auto& sizes = call.query.sizes();
  constexpr int64_t kMostOthers = 256; // of a tile, which may be read beyond the last row
  all.delta = at::empty({sizes[0] * sizes[1] * sizes[2] + kMostOthers, 2}, call.query.options().dtype(at::kFloat));
  rehearsed(call.query.device().index(), [&] {
    run(Pass::kGradQuery, call, all);
    run(Pass::kGradKeys, call, all);
  });
}

} // namespace

bool is_offered() {
  return has_modules() && !device_api().host_access();
}

bool takes(const sdp::sdp_params& params) {
  constexpr bool (*constraints[])(const sdp::sdp_params&, bool) = {
      sdp::check_nested_tensor,
      sdp::check_tensor_shapes,
      sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/true>,
      sdp::check_attn_mask_shape,
  };
  const auto &query = params.query, &key = params.key, &value = params.value;
  return is_offered() &&
         std::all_of(std::begin(constraints), std::end(constraints),
                     [&](auto constraint) { return constraint(params, /*debug=*/false); }) &&
         takes_dtype(query.scalar_type()) && key.scalar_type() == query.scalar_type() &&
         value.scalar_type() == query.scalar_type() && key.sym_size(1) == value.sym_size(1) && query.sym_size(1) > 0 &&
         query.sym_size(3) == key.sym_size(3) && query.sym_size(3) > 0 && query.sym_size(3) <= kMostElements &&
         value.sym_size(3) > 0 && value.sym_size(3) <= kMostElements && key.sym_size(2) == value.sym_size(2);
}

bool takes(const Call& call) {
  const auto &query = call.query, &key = call.key, &value = call.value, &bias = call.bias;
  const bool has_dims = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  if (!is_offered() || !has_dims || query.size(1) == 0 || key.size(1) == 0) {
    return false;
  }
  const auto type = query.scalar_type();
  const std::array<int64_t, 4> scores{query.size(0), query.size(1), query.size(2), key.size(2)};
  return takes_dtype(type) && key.scalar_type() == type && value.scalar_type() == type &&
         query.size(0) == key.size(0) && key.sizes().slice(0, 3) == value.sizes().slice(0, 3) &&
         query.size(1) % key.size(1) == 0 && query.size(3) == key.size(3) && query.size(3) > 0 &&
         query.size(3) <= kMostElements && value.size(3) > 0 && value.size(3) <= kMostElements &&
         (!bias.defined() || ((takes_dtype(bias.scalar_type()) || bias.scalar_type() == at::kBool) &&
                              at::is_expandable_to(bias.sizes(), scores)));
}

bool takes(const Call& call, const Sequences& sequences) {
  const auto &query = call.query, &key = call.key, &value = call.value;
  const auto type = query.scalar_type();
  return is_offered() && takes_dtype(type) && key.scalar_type() == type && value.scalar_type() == type &&
         key.sizes().slice(0, 3) == value.sizes().slice(0, 3) && query.size(1) > 0 && key.size(1) > 0 &&
         query.size(1) % key.size(1) == 0 && query.size(3) == key.size(3) && query.size(3) > 0 &&
         query.size(3) <= kMostElements && value.size(3) > 0 && value.size(3) <= kMostElements &&
         std::max(sequences.rows, sequences.places) < Geometry::kLimit32;
}

Drawn draw(const at::Tensor& like) {
  const auto numbers = draw_for_dropout(context_of(like));
  const auto number = [&](uint64_t value) {
    return at::full({}, static_cast<int64_t>(value), like.options().dtype(at::kLong));
  };
  return {number(numbers.seed), number(numbers.offset)};
}

void forward(const Call& call, const Drawn& drawn, const at::Tensor& out, const at::Tensor& logarithms) {
  run(Pass::kForward, call,
      {call.query, call.key, call.value, call.bias, logarithms, out, drawn.seed, drawn.offset, {}, {}, {}, {}, {}});
}

void forward_of_sequences(const Call& call, const Sequences& sequences, const at::Tensor& out,
                          const at::Tensor& logarithms) {
  run(Pass::kForward, call,
      {call.query, call.key, call.value, {}, logarithms, out, {}, {}, {}, {}, {}, {}, {}, &sequences});
}

void backward_of_sequences(const Call& call, const Sequences& sequences, const at::Tensor& grad_out,
                           const at::Tensor& out, const at::Tensor& logarithms, const at::Tensor& grad_query,
                           const at::Tensor& grad_key, const at::Tensor& grad_value) {
  run_backward(call, {call.query,
                      call.key,
                      call.value,
                      {},
                      logarithms,
                      out,
                      {},
                      {},
                      grad_out,
                      {},
                      grad_query,
                      grad_key,
                      grad_value,
                      &sequences});
}

void backward(const Call& call, const Drawn& drawn, const at::Tensor& grad_out, const at::Tensor& out,
              const at::Tensor& logarithms, const at::Tensor& grad_query, const at::Tensor& grad_key,
              const at::Tensor& grad_value) {
  run_backward(call, {call.query,
                      call.key,
                      call.value,
                      call.bias,
                      logarithms,
                      out,
                      drawn.seed,
                      drawn.offset,
                      grad_out,
                      {},
                      grad_query,
                      grad_key,
                      grad_value});
}

} // namespace torch_backend::compiled::attention
