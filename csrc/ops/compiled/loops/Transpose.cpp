#include "csrc/ops/compiled/loops/Transpose.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Part.h"

namespace torch_backend::compiled {
namespace {

constexpr Skeleton kTranspose{"transpose", "transpose"};
constexpr int64_t kLeastElements = 16384;

/// Moves dimension d behind those that follow it, but for the last one.
void move_before_last(Geometry& geometry, int d) {
  const auto rotate = [&](auto& numbers) {
    std::rotate(numbers.begin() + d, numbers.begin() + d + 1, numbers.begin() + geometry.rank - 1);
  };
  rotate(geometry.sizes);
  rotate(geometry.strides[0]);
  rotate(geometry.strides[1]);
}

} // namespace

bool transpose(const tb_kernel_context& context, const Geometry& geometry, const tb_tensor& dst, const tb_tensor& src,
               ValueType type) {
  const auto inner = static_cast<std::size_t>(geometry.rank - 1);
  const int64_t edge = size_of(type) < 4 ? 64 : 32;
  const int64_t least = edge / 2;
  if (geometry.count < kLeastElements || geometry.sizes[inner] < least || geometry.strides[0][inner] != 1 ||
      geometry.strides[1][inner] == 1) {
    return false;
  }
  const auto* const steps = geometry.strides[1].data();
  const auto* const along = std::find(steps, steps + inner, 1);
  if (along == steps + inner || geometry.sizes[static_cast<std::size_t>(along - steps)] < least) {
    return false;
  }
  Geometry turned = geometry;
  move_before_last(turned, static_cast<int>(along - steps));
  const int64_t rows = turned.sizes[inner - 1], columns = turned.sizes[inner];
  const int64_t batches = turned.count / (rows * columns);
  const bool side_by_side = !runs_in_stretches(context.device);
  Specialization wanted(kTranspose);
  wanted.index_of(turned.fits_32)
      .type("TYPE", type)
      .number("RANK", turned.rank_class())
      .number("EDGE", edge)
      .number("ITEMS", side_by_side ? block_items(context.device) : 1)
      .parameters(2);
  const auto& function = find_function(context.device, wanted);
  ArgsStruct args;
  args.add(batches);
  args.add_dims(turned);
  Launch launch(context);
  launch.pointer(dst);
  launch.pointer(src);
  args.pass(launch);
  const int64_t squares = batches * ((rows + edge - 1) / edge) * ((columns + edge - 1) / edge);
  if (side_by_side) {
    launch.run_blocks(function, squares, block_items(context.device));
  } else {
    launch.run(function, squares, edge * edge);
  }
  return true;
}

} // namespace torch_backend::compiled
