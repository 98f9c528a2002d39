// Rows in order: sort, topk, kthvalue, median, unique.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include <c10/util/Exception.h>

#include "csrc/core/KernelHost.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Overloads.h"
#include "csrc/ops/compiled/engine/Support.h"
#include "csrc/ops/compiled/families/Pointwise.h"
#include "csrc/ops/compiled/loops/Compaction.h"

namespace torch_backend::compiled::sorting {
namespace {

constexpr int64_t kRun = 16; // as RUN in sort.c, where items run one after the other
/// Up to so many a row's first places are found without sorting it, where rows are walked along.
constexpr int64_t kMaxTop = 64;
/// Places are 32-bit numbers.
constexpr int64_t kMaxSize = Geometry::kLimit32;

enum class Step : uint8_t { kRuns, kMerge, kTop, kFinish, kMedian, kNanMedian, kKeys, kCounts };
constexpr const char* kStepNames[] = {"STEP_runs",   "STEP_merge",  "STEP_top",  "STEP_finish",
                                      "STEP_finish", "STEP_finish", "STEP_keys", "STEP_counts"};
constexpr Skeleton kSort{"keys sort", "sort"};
constexpr Skeleton kRadix{"keys adding radix", "radix"};

/// The bits that keys of a dtype may differ in, as digits of a radix sort.
struct Digits {
  static constexpr int64_t kBits = 8;
  int64_t first_bit;
  int64_t count;
};
Digits digits_of(ValueType type) {
  switch (type) { // keys of halves are those of floats
    case ValueType::bf16:
      return {16, 2};
    case ValueType::f16:
      return {8, 3};
    default:
      return {0, static_cast<int64_t>(size_of(type))};
  }
}
/// As BIAS in keys.h.
int64_t bias_of(ValueType type) {
  return type == ValueType::i8 ? 1 << 7 : type == ValueType::i16 ? 1 << 15 : 0;
}

ValueType sorted_in(ValueType type) {
  return type == ValueType::u64 ? ValueType::i64 : compute_type(type);
}

/// The work on one tensor's rows.
class Sorter {
 public:
  /// `elements` are `rows` contiguous rows.
  Sorter(const tb_kernel_context& context, const View& elements, int64_t rows, int64_t size, bool descending)
      : context_(context),
        elements_(elements),
        type_(value_type(elements.dtype)),
        rows_(rows),
        size_(size),
        descending_(descending) {
    const auto compute = sorted_in(type_);
    wide_ = compute == ValueType::f64 || compute == ValueType::i64;
    total_ = rows * size;
    stretches_ = runs_in_stretches(context.device);
    if (!stretches_) {
      items_ = block_items(context.device);
      tile_ = tile_of(context.device);
    }
  }

  void sort() {
    if (sorts_by_digits()) {
      sort_digits();
      return;
    }
    const int64_t run = sort_runs(size_);
    if (size_ <= run) {
      width_ = size_;
      return;
    }
    char* other_keys = workspace(context_, total_ * key_bytes());
    char* other_places = workspace(context_, total_ * 4);
    for (width_ = run; width_ < size_; width_ *= 2) {
      const int64_t pairs = rows_ * ((size_ + 2 * width_ - 1) / (2 * width_));
      launch(Step::kMerge, stretches_ ? pairs : total_, stretches_ ? 4 * width_ : 8,
             {keys_, places_, other_keys, other_places});
      std::swap(keys_, other_keys);
      std::swap(places_, other_places);
    }
    width_ = size_;
  }

  /// `kept` of each row from `first` on. Returns which of those that are there now is the first one.
  int64_t select(int64_t first, int64_t kept) {
    const bool is_one = kept == 1;
    if (selects_by_digits(is_one ? 1 : kept) && (first == 0 || is_one)) {
      select_digits(first + kept, is_one);
      return 0;
    }
    select_first(first + kept);
    return first;
  }

  /// The first `kept` of each row.
  void select_first(int64_t kept) {
    if (!stretches_ && size_ <= tile_) {
      sort_runs(kept);
      width_ = kept;
      return;
    }
    if (kept > kMaxTop || !stretches_ || kept * 4 > size_) {
      sort();
      return;
    }
    allocate(rows_ * kept);
    top_ = kept;
    launch(Step::kTop, rows_, size_, {elements_.data, elements_.data, keys_, places_});
    width_ = kept;
  }

  /// As they are.
  void number() {
    allocate(total_);
    launch(Step::kKeys, total_, 1, {elements_.data, elements_.data, keys_, places_});
  }

  /// Contiguous rows of values and int64 indices.
  void finish(Step step, int64_t first, int64_t kept, char* values, char* indices) {
    first_ = first;
    kept_ = kept;
    launch(step, rows_ * kept, 2, {elements_.data, places_, values, indices, keys_});
  }

  /// Work on the places where a value begins, as unique tells values apart.
  Compaction starts(const char* op) const {
    constexpr const char* kOther = "i == 0 || TB_LOAD_AS(MASK, p0, i - 1) != TB_LOAD_AS(MASK, p0, i)";
    constexpr const char* kOtherOrNaN =
        "i == 0 || TB_LOAD_AS(MASK, p0, i - 1) != TB_LOAD_AS(MASK, p0, i) || TB_LOAD_AS(MASK, p0, i) == ~(MASK)0";
    return Compaction(context_, op, View(keys_, key_type(), total_),
                      is_floating(sorted_in(type_)) ? kOtherOrNaN : kOther);
  }
  void write_unique(Compaction& starts, int64_t count, char* values, char* inverse, char* counts) {
    char* places = counts ? workspace(context_, count * 8) : nullptr;
    starts.unique(values, elements_.data, elements_.element_bytes(), places_, inverse, places);
    if (counts) {
      kept_ = count;
      launch(Step::kCounts, count, 1, {places, places, counts});
    }
  }

 private:
  ValueType key_type() const {
    return wide_ ? ValueType::u64 : ValueType::u32;
  }
  int64_t key_bytes() const {
    return static_cast<int64_t>(size_of(key_type()));
  }
  /// Elements that a block sorts: keys and their places of 16 bits lie near twice.
  int64_t tile_of(int device) const {
    constexpr int64_t kMost = 2048, kUsualLocalBytes = 32 << 10;
    const auto local = static_cast<int64_t>(device_api().properties(device).local_memory_bytes);
    int64_t tile = wide_ ? kMost / 2 : kMost;
    while (tile > items_ && tile * 2 * (key_bytes() + 2) > (local > 0 ? local : kUsualLocalBytes)) {
      tile /= 2;
    }
    return std::max<int64_t>(tile, items_);
  }
  /// Sorts stretches of each row, and returns how long they are. Of rows that are one stretch `kept` are kept.
  int64_t sort_runs(int64_t kept) {
    allocate(rows_ * kept);
    const std::initializer_list<const void*> pointers{elements_.data, elements_.data, keys_, places_};
    if (stretches_) {
      launch(Step::kRuns, total_ / kRun + rows_, kRun * kRun / 2, pointers);
      return kRun;
    }
    width_ = std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size_))), tile_);
    kept_ = kept;
    const int64_t runs = rows_ * ((size_ + width_ - 1) / width_), together = tile_ / width_;
    launch(Step::kRuns, (runs + together - 1) / together, 0, pointers);
    return width_;
  }
  /// A digit costs what merging all runs once does: keys are read twice, to count or to look for places, and moved with
  /// their places. But it has three launches.
  bool sorts_by_digits() const {
    if (stretches_ || items_ < 32) {
      return false;
    }
    int64_t merges = 0;
    for (int64_t width = tile_; width < size_; width *= 2) {
      ++merges;
    }
    return digits_of(type_).count + 1 < merges;
  }
  /// How rows are divided among blocks that go by digits.
  struct Parts {
    static constexpr int64_t kItems = 256, kEach = 8; // more of them would need too many registers
    int64_t items, count, size;
  };
  Parts parts_of_row() const {
    const auto items = std::min<int64_t>(items_, Parts::kItems), tile = items * Parts::kEach;
    const int64_t at_once = 4 * std::max(device_api().properties(context_.device).multiprocessor_count, 1);
    const int64_t most = std::clamp<int64_t>(at_once / rows_, 1, (size_ + tile - 1) / tile);
    const int64_t size = ((size_ + most - 1) / most + tile - 1) / tile * tile;
    return {items, (size_ + size - 1) / size, size};
  }
  /// A step of radix.c, of which each block has a part of a row, or the blocks that are told.
  struct DigitStep {
    const char* name;
    int64_t bit = 0;          // the lowest of the digit
    bool of_elements = false; // p0 are elements, not keys
    bool is_first = false;    // FIRST_DIGIT
    int64_t kept = 0;
    int64_t blocks = 0;
  };
  void launch(const DigitStep& step, const Parts& parts, std::initializer_list<const void*> pointers) {
    const bool selects = step.of_elements && step.kept > 0;
    const auto digits = selects ? digits_of(type_) : Digits{};
    Specialization wanted(kRadix);
    add_keys(wanted, step.of_elements ? type_ : wide_ ? ValueType::i64 : ValueType::i32);
    wanted.flag(step.name, true)
        .called(step.name + std::strlen("STEP_"))
        .flag("FIRST", step.of_elements)
        .flag("FIRST_DIGIT", step.is_first)
        .type("WORD", selects ? word_type(elements_.element_bytes()) : ValueType::none)
        .number("FIRST_BIT", digits.first_bit)
        .number("HIGHER_BITS", 8 * key_bytes() - digits.first_bit - digits.count * Digits::kBits)
        .number("GROUP", parts.items)
        .number("EACH", Parts::kEach)
        .parameters(static_cast<int>(pointers.size()));
    const auto& function = find_function(context_.device, wanted);
    const int64_t args[] = {rows_, size_, parts.count, parts.size, step.bit, step.kept};
    Launch launch(context_);
    for (const auto* pointer : pointers) {
      launch.pointer(pointer);
    }
    launch.value(args, sizeof args);
    launch.run_blocks(function, step.blocks ? step.blocks : rows_ * parts.count, static_cast<uint32_t>(parts.items));
  }
  void sort_digits() {
    const auto parts = parts_of_row();
    const auto [first_bit, count] = digits_of(type_);
    allocate(total_);
    char* other_keys = workspace(context_, total_ * key_bytes());
    char* other_places = workspace(context_, total_ * 4);
    const int64_t lines = rows_ << Digits::kBits;
    char* tallies = workspace(context_, lines * parts.count * 4);
    char* totals = workspace(context_, lines * 4);
    for (int64_t n = 0; n < count; ++n) {
      const bool is_first = n == 0;
      const char* from = is_first ? elements_.data : keys_;
      const int64_t bit = first_bit + n * Digits::kBits;
      launch({.name = "STEP_tally", .bit = bit, .of_elements = is_first}, parts, {from, tallies});
      launch({.name = "STEP_before", .blocks = lines}, parts, {tallies, totals});
      launch({.name = "STEP_move", .bit = bit, .of_elements = is_first}, parts,
             {from, places_, other_keys, other_places, tallies, totals});
      std::swap(keys_, other_keys);
      std::swap(places_, other_places);
    }
    width_ = size_;
  }
  /// Of `kept` places, which are sorted after that.
  bool selects_by_digits(int64_t kept) const {
    return !stretches_ && items_ >= 32 && size_ > tile_ && kept * 4 <= size_;
  }
  /// The first `kept` places of each row, in the order of the keys; if `only_last` the last one of them alone. The keys'
  /// digits from the highest on tell which key is the last one, and those before it are sorted.
  void select_digits(int64_t kept, bool only_last) {
    const auto parts = parts_of_row();
    const auto [first_bit, count] = digits_of(type_);
    const int64_t row_bytes = 4 << Digits::kBits, found = rows_ * (only_last ? 1 : kept);
    char* totals = workspace(context_, count * rows_ * row_bytes); // [digit, row, value of the digit]
    char* states = workspace(context_, (count + 1) * rows_ * 16);
    char* counts = workspace(context_, rows_ * parts.count * 8);
    fill_bytes(context_, totals, 0, count * rows_ * row_bytes);
    for (int64_t n = 0; n <= count; ++n) {
      const char* state = states + std::max<int64_t>(n - 1, 0) * rows_ * 16;
      const char* last = totals + std::max<int64_t>(n - 1, 0) * rows_ * row_bytes;
      DigitStep step{.name = n < count ? "STEP_narrow" : "STEP_count",
                     .bit = first_bit + (count - 1 - n) * Digits::kBits,
                     .of_elements = true,
                     .is_first = n == 0,
                     .kept = kept};
      launch(
          step, parts,
          {elements_.data, last, state, states + n * rows_ * 16, n < count ? totals + n * rows_ * row_bytes : counts});
    }
    const View chosen(workspace(context_, found * elements_.element_bytes()), elements_.dtype, found);
    char* places = workspace(context_, found * 4);
    launch({.name = only_last ? "STEP_last" : "STEP_gather", .of_elements = true, .kept = kept}, parts,
           {elements_.data, states + count * rows_ * 16, counts, chosen.data, places});
    if (found > rows_) {
      Sorter sorter(context_, chosen, rows_, kept, descending_);
      sorter.sort();
      places_ = sorter.places_;
      launch({.name = "STEP_locate", .kept = kept, .blocks = (found + 1023) / 1024}, parts, {places_, places});
    } else {
      places_ = places;
    }
    width_ = found / rows_;
  }
  void allocate(int64_t count) {
    keys_ = workspace(context_, count * key_bytes());
    places_ = workspace(context_, count * 4);
  }

  /// What keys.h says of elements of `type`.
  void add_keys(Specialization& wanted, ValueType type) const {
    const auto compute = sorted_in(type);
    wanted.compute_in(compute)
        .index_of(total_ < Geometry::kLimit32 / 2) // twice the width of a run, which is less than all
        .type("KEY", key_type())
        .flag("WIDE", wide_)
        .flag("FLOATING", is_floating(compute))
        .number("DESCENDING", descending_)
        .type("VALUE", type)
        .flag("UNSIGNED", type == ValueType::u64)
        .number("BIAS", bias_of(type));
  }
  /// `count`: of what is done, which costs so much each; of blocks where a tile is near.
  void launch(Step step, int64_t count, int64_t cost, std::initializer_list<const void*> pointers) {
    const char* median = step == Step::kMedian      ? "numbers"
                         : step == Step::kNanMedian ? "(numbers > 0 ? (numbers - 1) / 2 : 0)"
                                                    : nullptr;
    Specialization wanted(kSort);
    add_keys(wanted, type_);
    wanted.flag(kStepNames[static_cast<int>(step)], true)
        .called(kStepNames[static_cast<int>(step)] + std::strlen("STEP_"))
        .type("WORD", word_type(elements_.element_bytes()))
        .number("K", step == Step::kTop ? top_ : 1)
        .number("TILE", step == Step::kRuns ? tile_ : 0)
        .number("ITEMS", step == Step::kRuns ? items_ : 0)
        .text("MEDIAN", median)
        .parameters(static_cast<int>(pointers.size()));
    const auto& function = find_function(context_.device, wanted);
    const int64_t args[] = {rows_, size_, width_, kept_, first_, total_};
    Launch launch(context_);
    for (const auto* pointer : pointers) {
      launch.pointer(pointer);
    }
    launch.value(args, sizeof args);
    if (step == Step::kRuns && !stretches_) {
      launch.run_blocks(function, count, items_);
    } else {
      launch.run(function, count, cost);
    }
  }

  const tb_kernel_context& context_;
  const View elements_;
  ValueType type_;
  int64_t rows_;
  int64_t size_;
  bool descending_;
  bool wide_ = false;
  bool stretches_ = false;
  uint32_t items_ = 0;
  int64_t tile_ = 0;
  int64_t total_ = 0;
  int64_t width_ = 0;
  int64_t kept_ = 0;
  int64_t first_ = 0;
  int64_t top_ = 1;
  char* keys_ = nullptr;
  char* places_ = nullptr;
};

/// Dimension d as the last one.
View moved_last(const View& view, int d) {
  View moved = view;
  if (view.dim() == 0) {
    moved.add_dim(1, 1);
    return moved;
  }
  for (auto* numbers : {&moved.sizes, &moved.strides}) {
    std::rotate(numbers->begin() + d, numbers->begin() + d + 1, numbers->end());
  }
  return moved;
}

/// Sorts `self` along `dim`, and puts `kept` from `first` on of each row into `values` and `indices`, of which the dimension
/// has that size, or is not there.
tb_status sorted(const tb_kernel_context& context, const tb_tensor& self, int64_t dim, bool descending, Step step,
                 int64_t first, int64_t kept, const tb_tensor& values, const tb_tensor& indices) {
  const int d = wrap_dim(dim, self.ndim);
  const View moved = moved_last(View(self), d);
  if (value_type(self.dtype) == ValueType::none || moved.numel() >= kMaxSize) {
    return TB_STATUS_UNSUPPORTED;
  }
  const View elements = dense_like(context, moved);
  if (elements.data != moved.data && !pointwise::copy_views(context, elements, moved)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const int64_t size = moved.sizes.back();
  Sorter sorter(context, elements, moved.numel() / size, size, descending);
  if (step == Step::kFinish) {
    first = sorter.select(first, kept);
  } else {
    sorter.sort();
  }
  std::array<View, 2> results{View(values), View(indices)};
  std::array<View, 2> dense;
  for (std::size_t i = 0; i < 2; ++i) {
    if (results[i].dim() == self.ndim) {
      results[i] = moved_last(results[i], d);
    }
    dense[i] = dense_like(context, results[i]);
  }
  sorter.finish(step, first, kept, dense[0].data, dense[1].data);
  for (std::size_t i = 0; i < 2; ++i) {
    if (dense[i].data != results[i].data) {
      pointwise::copy_views(context, results[i], dense[i]);
    }
  }
  return TB_STATUS_OK;
}

int64_t size_of(const tb_tensor& self, int64_t dim) {
  return self.ndim == 0 ? 1 : self.shape[wrap_dim(dim, self.ndim)];
}

tb_status sort(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::sort_values_stable;
  const auto* self = tensor_of(args[Op::self]);
  return sorted(context, *self, args[Op::dim].v.i, args[Op::descending].v.i != 0, Step::kFinish, 0,
                size_of(*self, args[Op::dim].v.i), *tensor_of(args[Op::values]), *tensor_of(args[Op::indices]));
}

tb_status topk(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::topk_values;
  const auto* self = tensor_of(args[Op::self]);
  const int64_t kept = self->ndim == 0 ? 1 : args[Op::k].v.i; // a number has one result, even with k=0
  return sorted(context, *self, args[Op::dim].v.i, args[Op::largest].v.i != 0, Step::kFinish, 0, kept,
                *tensor_of(args[Op::values]), *tensor_of(args[Op::indices]));
}

tb_status kthvalue(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::kthvalue_values;
  const auto* self = tensor_of(args[Op::self]);
  const int64_t size = size_of(*self, args[Op::dim].v.i);
  TORCH_CHECK(args[Op::k].v.i >= 1 && args[Op::k].v.i <= size,
              "kthvalue(): selected number k out of range for dimension ", args[Op::dim].v.i);
  return sorted(context, *self, args[Op::dim].v.i, false, Step::kFinish, args[Op::k].v.i - 1, 1,
                *tensor_of(args[Op::values]), *tensor_of(args[Op::indices]));
}

Step median_step(const void* entry) {
  return std::strstr(static_cast<const char*>(entry), "nanmedian") ? Step::kNanMedian : Step::kMedian;
}

tb_status median_dim(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::median_dim_values;
  static_assert(agree<Op, op::nanmedian_dim_values>());
  return sorted(context, *tensor_of(args[Op::self]), args[Op::dim].v.i, false, median_step(entry), 0, 1,
                *tensor_of(args[Op::values]), *tensor_of(args[Op::indices]));
}

tb_status median(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::median;
  static_assert(agree<Op, op::nanmedian>());
  View self(*tensor_of(args[Op::self]));
  const auto* out = tensor_of(args[Op::result]);
  if (self.numel() == 0) {
    return TB_STATUS_UNSUPPORTED;
  }
  const int64_t count = self.numel();
  const View flat(self.data, self.dtype, count);
  const tb_tensor tensor = flat.tensor();
  const View index(workspace(context, 8), kInt64, {});
  return sorted(context, tensor, 0, false, median_step(entry), 0, 1, *out, index.tensor());
}

/// values, inverse, counts; `in_order`: values that follow each other are one, else all of them are.
tb_status unique(const tb_kernel_context& context, const char* op, const tb_tensor& self, bool wants_inverse,
                 bool wants_counts, bool in_order) {
  const View given(self);
  const int64_t total = given.numel();
  const auto allocate = [&](int32_t i, int ndim, const int64_t* shape, tb_dtype dtype, char** data) {
    tb_tensor out{};
    out.dtype = dtype;
    const auto status = context.host->alloc_output(i, ndim, shape, &out);
    *data = static_cast<char*>(out.data) + out.byte_offset;
    return status;
  };
  if (value_type(self.dtype) == ValueType::none || total >= kMaxSize) {
    return TB_STATUS_UNSUPPORTED;
  }
  const int64_t none = 0;
  char *values = nullptr, *inverse = nullptr, *counts = nullptr;
  const auto allocate_all = [&](int64_t count) {
    auto status = allocate(0, 1, &count, self.dtype, &values);
    status = status != TB_STATUS_OK
                 ? status
                 : allocate(1, wants_inverse ? self.ndim : 1, wants_inverse ? self.shape : &none, kInt64, &inverse);
    return status != TB_STATUS_OK ? status : allocate(2, 1, wants_counts ? &count : &none, kInt64, &counts);
  };
  if (total == 0) {
    return allocate_all(0);
  }
  Sorter sorter(context, View(given.data, given.dtype, total), 1, total, false);
  in_order ? sorter.number() : sorter.sort();
  Compaction starts = sorter.starts(op);
  const int64_t count = starts.count();
  const auto status = allocate_all(count);
  if (status == TB_STATUS_OK) {
    sorter.write_unique(starts, count, values, wants_inverse ? inverse : nullptr, wants_counts ? counts : nullptr);
  }
  return status;
}

tb_status unique2(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::_unique2;
  return unique(context, static_cast<const char*>(entry), *tensor_of(args[Op::self]), args[Op::return_inverse].v.i,
                args[Op::return_counts].v.i, false);
}

tb_status unique_consecutive(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::unique_consecutive;
  if (args[Op::dim].tag != TB_ARG_NONE) {
    return TB_STATUS_UNSUPPORTED;
  }
  return unique(context, static_cast<const char*>(entry), *tensor_of(args[Op::self]), args[Op::return_inverse].v.i,
                args[Op::return_counts].v.i, true);
}

struct Operator {
  const char* overload;
  KernelFunction function;
  uint32_t flags;
};

constexpr uint32_t kUniqueFlags = TB_KERNEL_NEEDS_CONTIGUOUS | TB_KERNEL_ALLOCATES_OUTPUT | kTakesEmpty;
constexpr Operator kOperators[] = {
    {op::sort_values_stable::kName, guarded<sort>, 0},
    {op::topk_values::kName, guarded<topk>, 0},
    {op::kthvalue_values::kName, guarded<kthvalue>, 0},
    {op::median::kName, guarded<median>, TB_KERNEL_NEEDS_CONTIGUOUS},
    {op::median_dim_values::kName, guarded<median_dim>, 0},
    {op::nanmedian::kName, guarded<median>, TB_KERNEL_NEEDS_CONTIGUOUS},
    {op::nanmedian_dim_values::kName, guarded<median_dim>, 0},
    {op::_unique2::kName, guarded<unique2>, kUniqueFlags},
    {op::unique_consecutive::kName, guarded<unique_consecutive>, kUniqueFlags},
};

} // namespace

void add(Kernels& kernels) {
  for (const auto& op : kOperators) {
    kernels.add(op.overload, op.function, op.flags, op.overload, kRealTypes);
  }
}

} // namespace torch_backend::compiled::sorting
