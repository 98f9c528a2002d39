// Many tensors in few launches: what optimizers and the scaling of gradients do, see skeletons/multi.c.

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <c10/util/FunctionRef.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/KernelHost.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/Arguments.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/Kernels.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/engine/Overloads.h"
#include "csrc/ops/compiled/engine/Support.h"
#include "csrc/ops/compiled/families/Pointwise.h"

namespace torch_backend::compiled::multi_tensor {
namespace {

constexpr std::size_t kMaxLists = 6;
constexpr std::size_t kMaxExtras = 3;
constexpr std::size_t kMaxNumbers = 8;
/// Of one launch: more would not fit beside their numbers.
constexpr std::size_t kMostTensors = 40;
constexpr std::size_t kFewTensors = 4;

const char* first_element(const tb_tensor& tensor) {
  return static_cast<const char*>(tensor.data) + tensor.byte_offset;
}

/// Without gaps and repetitions.
bool is_dense(const tb_tensor& tensor) {
  int64_t expected = 1;
  bool contiguous = true;
  for (int d = tensor.ndim - 1; d >= 0 && contiguous; --d) {
    contiguous = tensor.shape[d] == 1 || tensor.strides[d] == expected;
    expected *= tensor.shape[d];
  }
  if (contiguous) {
    return true;
  }
  std::array<int, 16> dims;
  int num_dims = 0;
  for (int d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] != 1) {
      if (num_dims == static_cast<int>(dims.size())) {
        return false;
      }
      dims[static_cast<std::size_t>(num_dims++)] = d;
    }
  }
  std::sort(dims.begin(), dims.begin() + num_dims, [&](int a, int b) { return tensor.strides[a] < tensor.strides[b]; });
  expected = 1;
  for (int i = 0; i < num_dims; ++i) {
    const int d = dims[static_cast<std::size_t>(i)];
    if (tensor.strides[d] != expected) {
      return false;
    }
    expected *= tensor.shape[d];
  }
  return true;
}

bool laid_out_alike(const tb_tensor& a, const tb_tensor& b) {
  if (a.ndim != b.ndim) {
    return false;
  }
  for (int d = 0; d < a.ndim; ++d) {
    if (a.shape[d] != b.shape[d] || (a.shape[d] > 1 && a.strides[d] != b.strides[d])) {
      return false;
    }
  }
  return true;
}

/// What becomes of a list's tensors.
enum class Use : uint8_t { kRead, kWritten, kNumber };

/// One operator's call: lists of tensors that belong together one by one.
struct Work {
  std::size_t num_lists = 0;
  std::array<const tb_tensor* const*, kMaxLists> lists{};
  std::array<Use, kMaxLists> uses{}; // of numbers: tensors of one element, beside those of the other lists
  std::size_t num_tensors = 0;
  std::size_t num_extras = 0;
  std::array<const tb_tensor*, kMaxExtras> extras{};
  std::array<const char*, kMaxExtras> extra_names{}; // in the skeleton
  std::size_t num_numbers = 0;
  std::array<double, kMaxNumbers> numbers{};
  const tb_arg* each = nullptr; // a number for each tensor
  ValueType compute = ValueType::none;

  /// False: not a list, or of another length.
  bool add_list(const tb_arg& argument, Use use = Use::kRead) {
    if (argument.tag != TB_ARG_TENSOR_LIST || (num_lists > 0 && argument.length != num_tensors)) {
      return false;
    }
    num_tensors = argument.length;
    uses[num_lists] = use;
    lists[num_lists++] = static_cast<const tb_tensor* const*>(argument.v.p);
    return true;
  }
  void add_extra(const char* name, const tb_arg& argument) {
    extra_names[num_extras] = name;
    extras[num_extras++] = &tensor_in(argument);
  }
  void add_number(double number) {
    numbers[num_numbers++] = number;
  }
  const tb_tensor& tensor(std::size_t list, std::size_t index) const {
    return *lists[list][index];
  }
  ValueType type(std::size_t list, std::size_t index) const {
    return value_type(tensor(list, index).dtype);
  }
  uint64_t types_of(std::size_t index) const {
    uint64_t types = 0;
    for (std::size_t list = 0; list < num_lists; ++list) {
      types = types << 4 | static_cast<uint64_t>(type(list, index));
    }
    return types;
  }
  bool is_number(std::size_t list) const {
    return uses[list] == Use::kNumber;
  }
  /// Elements that items which run side by side move at once, in tensors of the dtypes that those at `index` have.
  int64_t vector(std::size_t index) const {
    std::size_t least = 8; // bytes of an element
    for (std::size_t list = 0; list < num_lists; ++list) {
      least = is_number(list) ? least : std::min(least, static_cast<std::size_t>(size_of(type(list, index))));
    }
    return kWideBytes / static_cast<int64_t>(least);
  }
  /// Whether a launch can do it; sets what is computed in.
  bool check(int device);
};

bool Work::check(int device) {
  compute = ValueType::f32;
  for (std::size_t i = 0; i < num_tensors; ++i) {
    for (std::size_t list = 0; list < num_lists; ++list) {
      if (!lists[list][i]) {
        return false;
      }
      const tb_tensor& its = tensor(list, i);
      const ValueType type = value_type(its.dtype);
      if (!is_floating(type) || (is_number(list) ? elements_of(its) != 1
                                 : list == 0     ? !is_dense(its)
                                                 : !laid_out_alike(its, tensor(0, i)))) {
        return false;
      }
      compute = type == ValueType::f64 && !is_number(list) ? type : compute;
    }
  }
  for (std::size_t n = 0; n < num_extras; ++n) {
    if (elements_of(*extras[n]) != 1 || !is_floating(value_type(extras[n]->dtype))) {
      return false;
    }
  }
  if (each) {
    if ((each->tag != TB_ARG_FLOAT_LIST && each->tag != TB_ARG_INT_LIST) || each->length != num_tensors) {
      return false;
    }
  }
  return computes(device, compute);
}

/// The tensors of one launch: of the same dtypes.
struct Batch {
  std::array<std::size_t, kMostTensors> tensors;
  std::size_t size = 0;
  std::size_t places = 0; // at least `size`
  std::array<int64_t, kMostTensors> sizes;
  int64_t part = 0; // elements of one tensor that a block does; 0: items have stretches of all elements
  int64_t count() const {
    return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(places), int64_t{0});
  }
  /// Chooses `part`, with work for all processors. `vector`: elements that an item moves at once; at most so many times that.
  void divide(int device, int64_t vector, int64_t most_vectors);
  /// Where each tensor's elements end, or if there is a `part`, its parts.
  std::array<int64_t, kMostTensors> stops() const {
    std::array<int64_t, kMostTensors> stops{};
    int64_t stop = 0;
    for (std::size_t i = 0; i < places; ++i) {
      stops[i] = stop += part == 0 ? sizes[i] : (sizes[i] + part - 1) / part;
    }
    return stops;
  }
};

void Batch::divide(int device, int64_t vector, int64_t most_vectors) {
  constexpr int64_t kPartsPerProcessor = 32; // several times what one holds, as not all take the same time
  if (runs_in_stretches(device)) {
    part = 0;
    return;
  }
  const int64_t unit = block_items(device) * vector;
  const int64_t parts = kPartsPerProcessor * std::max(device_api().properties(device).multiprocessor_count, 1);
  part = unit * std::clamp<int64_t>(count() / parts / unit, 1, most_vectors);
}

/// Calls `launch` for every batch. `most_pointers` beside those of lists.
void for_each_batch(const Work& work, std::size_t pointers_of_each, std::size_t other_pointers, bool with_empty,
                    c10::function_ref<void(Batch&)> launch) {
  const std::size_t most = std::min((static_cast<std::size_t>(most_pointers()) - other_pointers) / pointers_of_each,
                                    most_pointers() < 64 ? std::size_t{16} : kMostTensors);
  std::vector<bool> done(work.num_tensors, false);
  Batch batch;
  for (std::size_t first = 0; first < work.num_tensors; ++first) {
    if (done[first]) {
      continue;
    }
    const uint64_t types = work.types_of(first);
    const auto flush = [&] {
      if (batch.size > 0) {
        batch.places = batch.size <= kFewTensors ? kFewTensors : most;
        for (std::size_t i = batch.size; i < batch.places; ++i) {
          batch.tensors[i] = batch.tensors[0];
          batch.sizes[i] = 0;
        }
        launch(batch);
        batch.size = 0;
      }
    };
    for (std::size_t i = first; i < work.num_tensors; ++i) {
      if (done[i] || work.types_of(i) != types) {
        continue;
      }
      done[i] = true;
      const int64_t count = elements_of(work.tensor(0, i));
      if (count == 0 && !with_empty) {
        continue;
      }
      batch.sizes[batch.size] = count;
      batch.tensors[batch.size++] = i;
      if (batch.size == most) {
        flush();
      }
    }
    flush();
  }
}

void derive_multi(const Specialization& facts, SourceText& text) {
  const auto lists = facts.number_of("LISTS"), extras = facts.number_of("EXTRAS"), tensors = facts.number_of("TENSORS");
  std::string declarations, cases, aligned = "((";
  std::vector<WideOperand> wide;
  for (int list = 0; list < lists; ++list) {
    const auto name = c10::str("q", list);
    const auto use = static_cast<Use>(facts.number_of("USE", list));
    declarations += c10::str("TB_GLOBAL char* ", name, " = p", list, "; (void)", name, "; ");
    if (use != Use::kNumber) {
      aligned += c10::str(wide.empty() ? "(u64)" : " | (u64)", name);
      wide.push_back({list, facts.type_of("TYPE", list), true, use == Use::kWritten});
    }
  }
  for (int64_t tensor = 1; tensor < tensors; ++tensor) {
    cases += c10::str("case ", tensor, ": ");
    for (int64_t list = 0; list < lists; ++list) {
      cases += c10::str("q", list, " = p", tensor * lists + list, "; ");
    }
    cases += "break; ";
  }
  text.define("CHOOSE_LISTS", c10::str(declarations, "switch (t) { ", cases, "}"));
  text.define("ALIGNED", c10::str(aligned, ") % ", kWideBytes, " == 0)"));
  define_wide(text, "q", wide, facts.number_of("VECTOR"), facts.number_of("AHEAD"));
  for (int n = 0; n < extras; ++n) {
    const std::string name = facts.text_of("EXTRA", n), pointer = c10::str("p", lists * tensors + n);
    text.define(name + "_AT", pointer);
    text.define(name, c10::str("((T)TB_LOAD_", name_of(facts.type_of("EXTRA_TYPE", n)), "(", pointer, ", 0))"));
  }
  text.define("PARTS", c10::str("p", lists * tensors + extras));
}
constexpr Skeleton kMulti{"multi", "multi", derive_multi};

/// What every text of one of the skeletons is told.
Specialization specialize(const Skeleton& skeleton, const Work& work, const Batch& batch, int more_pointers = 0) {
  constexpr int64_t kReads = 4; // vectors of all lists, as many as an item has place for
  const std::size_t num_pointers = work.num_lists * batch.places + work.num_extras;
  Specialization wanted(skeleton);
  wanted.compute_in(work.compute)
      .index_of(batch.count() < Geometry::kLimit32)
      .number("LISTS", static_cast<int64_t>(work.num_lists))
      .number("TENSORS", static_cast<int64_t>(batch.places))
      .number("NUMBERS", static_cast<int64_t>(std::max<std::size_t>(work.num_numbers, 1)))
      .number("EXTRAS", static_cast<int64_t>(work.num_extras))
      .number("VECTOR", work.vector(batch.tensors[0]))
      .number("AHEAD", std::max<int64_t>(kReads / static_cast<int64_t>(work.num_lists), 1))
      .flag("EACH", work.each != nullptr)
      .parameters(static_cast<int>(num_pointers) + more_pointers);
  for (std::size_t list = 0; list < work.num_lists; ++list) {
    const int at = static_cast<int>(list);
    wanted.type("TYPE", at, work.type(list, batch.tensors[0])).number("USE", at, static_cast<int64_t>(work.uses[list]));
  }
  for (std::size_t n = 0; n < work.num_extras; ++n) {
    const int at = static_cast<int>(n);
    wanted.text("EXTRA", at, work.extra_names[n]).type("EXTRA_TYPE", at, value_type(work.extras[n]->dtype));
  }
  return wanted;
}

void add_pointers(Launch& launch, const Work& work, const Batch& batch) {
  for (std::size_t i = 0; i < batch.places; ++i) {
    for (std::size_t list = 0; list < work.num_lists; ++list) {
      launch.pointer(work.tensor(list, batch.tensors[i]));
    }
  }
  for (std::size_t n = 0; n < work.num_extras; ++n) {
    launch.pointer(*work.extras[n]);
  }
}

/// The struct Args of the skeleton: eight bytes each.
struct Arguments {
  Arguments(const Work& work, const Batch& batch) {
    const auto stops = batch.stops();
    for (std::size_t i = 0; i < batch.places; ++i) {
      words[size++] = stops[i];
    }
    if (batch.part != 0) {
      for (std::size_t i = 0; i < batch.places; ++i) {
        words[size++] = batch.sizes[i];
      }
      words[size++] = batch.part;
    }
    for (std::size_t i = 0; i < batch.places; ++i) {
      double number = 0;
      if (work.each) {
        number = work.each->tag == TB_ARG_FLOAT_LIST
                     ? static_cast<const double*>(work.each->v.p)[batch.tensors[i]]
                     : static_cast<double>(static_cast<const int64_t*>(work.each->v.p)[batch.tensors[i]]);
      }
      words[size++] = scalar_of(number, work.compute);
    }
    for (std::size_t n = 0; n < std::max<std::size_t>(work.num_numbers, 1); ++n) {
      words[size++] = scalar_of(work.numbers[n], work.compute);
    }
  }
  std::array<int64_t, 3 * kMostTensors + 1 + kMaxNumbers> words;
  std::size_t size = 0;
};

/// `add_facts` are those of the kind, which the skeleton has by the name KIND.
tb_status run(Work& work, const tb_kernel_context& context, const Skeleton& skeleton,
              c10::function_ref<void(Specialization&)> add_facts) {
  constexpr int64_t kMostVectors = 4;
  if (!work.check(context.device)) {
    return TB_STATUS_UNSUPPORTED;
  }
  for_each_batch(work, work.num_lists, work.num_extras, /*with_empty=*/false, [&](Batch& batch) {
    batch.divide(context.device, work.vector(batch.tensors[0]), kMostVectors);
    auto wanted = specialize(skeleton, work, batch);
    add_facts(wanted);
    const auto& function = find_function(context.device, wanted);
    const Arguments arguments(work, batch);
    Launch launch(context);
    add_pointers(launch, work, batch);
    launch.value(arguments.words.data(), arguments.size * sizeof(int64_t));
    if (batch.part != 0) {
      launch.run_blocks(function, batch.stops()[batch.places - 1], block_items(context.device));
    } else {
      launch.run(function, batch.count(), static_cast<int64_t>(work.num_lists));
    }
  });
  return TB_STATUS_OK;
}

// ---- optimizers ----

bool is_set(const tb_arg& argument) {
  return argument.tag != TB_ARG_NONE && argument.v.i != 0;
}

/// The learning rate is the first number, where it is one.
void add_extras(Work& work, const tb_arg& rate, const tb_arg& scale, const tb_arg& found_inf) {
  if (rate.tag == TB_ARG_TENSOR) {
    work.add_extra("RATE", rate);
    work.add_number(0);
  } else {
    work.add_number(double_of(rate));
  }
  if (scale.tag == TB_ARG_TENSOR) {
    work.add_extra("SCALE", scale);
  }
  if (found_inf.tag == TB_ARG_TENSOR) {
    work.add_extra("FOUND_INF", found_inf);
  }
}

/// They are written back without the scale.
Use use_of_gradients(const tb_arg& scale) {
  return scale.tag == TB_ARG_TENSOR ? Use::kWritten : Use::kRead;
}

tb_status fused_sgd(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::_fused_sgd_;
  static_assert(agree<Op, op::_fused_sgd__tensor_lr>());
  Work work;
  const bool has_momentum = args[Op::momentum_buffer_list].length > 0;
  if (!work.add_list(args[Op::self], Use::kWritten) ||
      !work.add_list(args[Op::grads], use_of_gradients(args[Op::grad_scale])) ||
      (has_momentum && !work.add_list(args[Op::momentum_buffer_list], Use::kWritten))) {
    return TB_STATUS_UNSUPPORTED;
  }
  add_extras(work, args[Op::lr], args[Op::grad_scale], args[Op::found_inf]);
  work.add_number(double_of(args[Op::weight_decay]));
  work.add_number(double_of(args[Op::momentum]));
  work.add_number(1 - double_of(args[Op::dampening]));
  return run(work, context, kMulti, [&](Specialization& wanted) {
    wanted.text("KIND", "sgd")
        .called("sgd")
        .number("MAXIMIZE", is_set(args[Op::maximize]))
        .number("NESTEROV", is_set(args[Op::nesterov]))
        .number("FIRST_STEP", is_set(args[Op::is_first_step]))
        .flag("MOMENTUM", has_momentum);
  });
}

template <bool kDecoupled>
tb_status fused_adam(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::_fused_adam_;
  static_assert(agree<Op, op::_fused_adam__tensor_lr, op::_fused_adamw_, op::_fused_adamw__tensor_lr>());
  Work work;
  const bool amsgrad = is_set(args[Op::amsgrad]);
  if (!work.add_list(args[Op::self], Use::kWritten) ||
      !work.add_list(args[Op::grads], use_of_gradients(args[Op::grad_scale])) ||
      !work.add_list(args[Op::exp_avgs], Use::kWritten) || !work.add_list(args[Op::exp_avg_sqs], Use::kWritten) ||
      !work.add_list(args[Op::state_steps], Use::kNumber) ||
      (amsgrad && !work.add_list(args[Op::max_exp_avg_sqs], Use::kWritten))) {
    return TB_STATUS_UNSUPPORTED;
  }
  const double beta1 = double_of(args[Op::beta1]), beta2 = double_of(args[Op::beta2]);
  add_extras(work, args[Op::lr], args[Op::grad_scale], args[Op::found_inf]);
  for (const double number : {double_of(args[Op::weight_decay]), double_of(args[Op::eps]), beta2, 1 - beta1, 1 - beta2,
                              std::log(beta1), std::log(beta2)}) {
    work.add_number(number);
  }
  return run(work, context, kMulti, [&](Specialization& wanted) {
    wanted.text("KIND", "adam")
        .called("adam")
        .number("MAXIMIZE", is_set(args[Op::maximize]))
        .number("DECOUPLED", kDecoupled)
        .flag("AMSGRAD", amsgrad);
  });
}

tb_status fused_adagrad(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::_fused_adagrad_;
  static_assert(agree<Op, op::_fused_adagrad__tensor_lr>());
  Work work;
  if (!work.add_list(args[Op::self], Use::kWritten) ||
      !work.add_list(args[Op::grads], use_of_gradients(args[Op::grad_scale])) ||
      !work.add_list(args[Op::state_sums], Use::kWritten) || !work.add_list(args[Op::state_steps], Use::kNumber)) {
    return TB_STATUS_UNSUPPORTED;
  }
  add_extras(work, args[Op::lr], args[Op::grad_scale], args[Op::found_inf]);
  work.add_number(double_of(args[Op::weight_decay]));
  work.add_number(double_of(args[Op::eps]));
  work.add_number(double_of(args[Op::lr_decay]));
  return run(work, context, kMulti, [&](Specialization& wanted) {
    wanted.text("KIND", "adagrad").called("adagrad").number("MAXIMIZE", is_set(args[Op::maximize]));
  });
}

// ---- scaled gradients ----

tb_status unscale(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::_amp_foreach_non_finite_check_and_unscale_;
  Work work;
  if (!work.add_list(args[Op::self], Use::kWritten) ||
      value_type(tensor_in(args[Op::found_inf]).dtype) != ValueType::f32) {
    return TB_STATUS_UNSUPPORTED;
  }
  work.add_extra("FOUND_INF", args[Op::found_inf]);
  work.add_extra("INVERSE", args[Op::inv_scale]);
  return run(work, context, kMulti, [](Specialization& wanted) { wanted.text("KIND", "unscale").called("unscale"); });
}

tb_status amp_update_scale(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::_amp_update_scale_;
  static constexpr Skeleton kAmpScale{"amp_scale", "amp_scale"};
  const tb_tensor* const operands[] = {tensor_of(args[Op::self]), tensor_of(args[Op::growth_tracker]),
                                       tensor_of(args[Op::found_inf])};
  if (value_type(operands[0]->dtype) != ValueType::f32 || value_type(operands[1]->dtype) != ValueType::i32 ||
      value_type(operands[2]->dtype) != ValueType::f32) {
    return TB_STATUS_UNSUPPORTED;
  }
  Specialization wanted(kAmpScale);
  wanted.compute_in(ValueType::f32).index_of(true).parameters(3);
  const int64_t words[] = {scalar_of(args[Op::scale_growth_factor], ValueType::f32),
                           scalar_of(args[Op::scale_backoff_factor], ValueType::f32), args[Op::growth_interval].v.i};
  Launch launch(context);
  for (const auto* operand : operands) {
    launch.pointer(*operand);
  }
  launch.value(words, sizeof(words));
  launch.run(find_function(context.device, wanted), 1);
  return TB_STATUS_OK;
}

// ---- one expression ----

/// `arguments`, one letter each: 'l' a list, 't' a tensor of one number, 's' a number, 'a' one that
/// must not be a bool, 'e' a number for each tensor, '-' what does not matter.
struct Each {
  std::string name; // without "_foreach_"
  const char* overload;
  const char* arguments;
  const char* formula;  // of codegen/kernels/pointwise.yaml
  const char* operands; // what that takes: elements A, B, C of the lists, the tensor's number x, the number s
  bool in_place = false;
};

void derive_each(const Specialization& facts, SourceText& text) {
  const auto& entry = facts.entry<Each>();
  pointwise::write_apply(text, *find_pointwise(c10::str("aten::", entry.formula).c_str()), facts.computes_in());
  text.define("APPLY", c10::str("apply(", entry.operands, ", &result)"));
  derive_multi(facts, text);
}
constexpr Skeleton kEach{"multi", "multi", derive_each};

tb_status each(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t num_args) {
  const auto& entry = *static_cast<const Each*>(data);
  Work work;
  int32_t i = 0;
  for (const char* kind = entry.arguments; *kind != '\0'; ++kind, ++i) {
    const bool is_number = args[i].tag == TB_ARG_FLOAT || args[i].tag == TB_ARG_INT || args[i].tag == TB_ARG_BOOL;
    if (*kind == 'l'   ? !work.add_list(args[i])
        : *kind == 't' ? args[i].tag != TB_ARG_TENSOR
                       : (*kind == 's' && !is_number) || (*kind == 'a' && (!is_number || args[i].tag == TB_ARG_BOOL))) {
      return TB_STATUS_UNSUPPORTED;
    }
    if (*kind == 't') {
      work.add_extra("X", args[i]);
    } else if (*kind == 's' || *kind == 'a') {
      work.add_number(double_of(args[i]));
    } else if (*kind == 'e') {
      work.each = &args[i];
    }
  }
  const bool converts = entry.name == "copy_";
  if (!entry.in_place && (i >= num_args || !work.add_list(args[i]))) {
    return TB_STATUS_UNSUPPORTED;
  }
  const std::size_t output = entry.in_place ? 0 : work.num_lists - 1;
  work.uses[output] = Use::kWritten;
  for (std::size_t t = 0; t < work.num_tensors; ++t) {
    for (std::size_t list = 1; list < work.num_lists && !converts; ++list) { // else PyTorch promotes
      if (!work.lists[0][t] || !work.lists[list][t] || work.type(0, t) != work.type(list, t)) {
        return TB_STATUS_UNSUPPORTED;
      }
    }
    if (work.num_extras > 0 && work.type(0, t) != ValueType::f64 &&
        value_type(work.extras[0]->dtype) == ValueType::f64 && work.extras[0]->ndim > 0) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  return run(work, context, kEach, [&](Specialization& wanted) {
    wanted.entry(&entry).text("KIND", "each").called(entry.name.c_str()).number("OUTPUT", static_cast<int64_t>(output));
  });
}

std::vector<Each> each_entries() {
  const std::vector<Each> table{
      {"add", "Scalar", "ls", "add.out", "A, s, 1"},
      {"add", "List", "lla", "add.out", "A, B, s"},
      {"add", "ScalarList", "le", "add.out", "A, s, 1"},
      {"add", "Tensor", "lta", "add.out", "A, x, s"},
      {"sub", "Scalar", "ls", "sub.out", "A, s, 1"},
      {"sub", "List", "lla", "sub.out", "A, B, s"},
      {"sub", "ScalarList", "le", "sub.out", "A, s, 1"},
      {"mul", "Scalar", "ls", "mul.out", "A, s"},
      {"mul", "List", "ll", "mul.out", "A, B"},
      {"mul", "ScalarList", "le", "mul.out", "A, s"},
      {"mul", "Tensor", "lt", "mul.out", "A, x"},
      {"div", "Scalar", "ls", "div.out", "A, s"},
      {"div", "List", "ll", "div.out", "A, B"},
      {"div", "ScalarList", "le", "div.out", "A, s"},
      {"div", "Tensor", "lt", "div.out", "A, x"},
      {"addcmul", "Scalar", "llls", "addcmul.out", "A, B, C, s"},
      {"addcmul", "ScalarList", "llle", "addcmul.out", "A, B, C, s"},
      {"addcdiv", "Scalar", "llls", "addcdiv.out", "A, B, C, s"},
      {"addcdiv", "ScalarList", "llle", "addcdiv.out", "A, B, C, s"},
      {"lerp", "Scalar", "lls", "lerp.Scalar_out", "A, B, s"},
      {"lerp", "ScalarList", "lle", "lerp.Scalar_out", "A, B, s"},
      {"maximum", "Scalar", "ls", "maximum.out", "A, s"},
      {"maximum", "List", "ll", "maximum.out", "A, B"},
      {"minimum", "Scalar", "ls", "minimum.out", "A, s"},
      {"minimum", "List", "ll", "minimum.out", "A, B"},
      {"clamp_min", "Scalar", "ls", "clamp_min.out", "A, s"},
      {"clamp_max", "Scalar", "ls", "clamp_max.out", "A, s"},
      {"sqrt", "", "l", "sqrt.out", "A"},
      {"neg", "", "l", "neg.out", "A"},
      {"abs", "", "l", "abs.out", "A"},
      {"reciprocal", "", "l", "reciprocal.out", "A"},
  };
  std::vector<Each> entries;
  for (const auto& row : table) {
    entries.push_back(row);
    entries.push_back(row);
    entries.back().name += '_';
    entries.back().in_place = true;
  }
  entries.push_back({"copy_", "", "ll-", "fill_.Tensor", "B, B", true});
  entries.push_back({"zero_", "", "l", "fill_.Tensor", "0, 0", true});
  entries.push_back({"pow", "ScalarAndTensor", "sl", "pow.Scalar_out", "s, A"});
  return entries;
}

void add_each(Kernels& kernels) {
  static const auto* entries = new std::vector<Each>(each_entries());
  for (const auto& entry : *entries) {
    const std::string overload =
        c10::str("aten::_foreach_", entry.name, *entry.overload == '\0' ? "" : ".", entry.overload);
    kernels.add(overload.c_str(), each, kTakesEmpty, &entry);
  }
}

// ---- norms ----

void derive_norm_end(const Specialization& facts, SourceText& text) {
  std::string cases;
  for (int64_t i = 1; i < facts.number_of("TENSORS"); ++i) {
    cases += c10::str("case ", i, ": result = p", i + 1, "; break; ");
  }
  text.define("CHOOSE_RESULT", c10::str("TB_GLOBAL char* result = p1; switch (t) { ", cases, "}"));
}
constexpr Skeleton kNormEnd{"multi_norm_end", "multi_norm_end", derive_norm_end};

tb_status norm(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  using Op = op::_foreach_norm_Scalar;
  const auto& order = args[Op::ord];
  Work work;
  if (args[Op::dtype].tag != TB_ARG_NONE || (order.tag != TB_ARG_INT && order.tag != TB_ARG_FLOAT) ||
      !work.add_list(args[Op::self])) {
    return TB_STATUS_UNSUPPORTED;
  }
  const double ord = double_of(order);
  const bool is_max = std::isinf(ord) && ord > 0;
  if (ord != 1 && ord != 2 && !is_max) {
    return TB_STATUS_UNSUPPORTED;
  }
  const int kind = is_max ? 0 : static_cast<int>(ord);
  const auto* const* results = static_cast<const tb_tensor* const*>(args[Op::result].v.p);
  for (std::size_t i = 0; i < work.num_tensors; ++i) {
    // The maximum of nothing is an error.
    if (!work.lists[0][i] || !results[i] || (is_max && elements_of(work.tensor(0, i)) == 0) ||
        value_type(results[i]->dtype) != work.type(0, i)) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  if (!work.check(context.device)) {
    return TB_STATUS_UNSUPPORTED;
  }
  constexpr int64_t kMostVectors = 64;
  const uint32_t items = block_items(context.device);
  tb_status status = TB_STATUS_OK;
  for_each_batch(work, 1, 1, /*with_empty=*/true, [&](Batch& batch) {
    if (status != TB_STATUS_OK) {
      return;
    }
    batch.divide(context.device, work.vector(batch.tensors[0]), kMostVectors);
    auto stops = batch.stops();
    const int64_t processors = std::max(device_api().properties(context.device).multiprocessor_count, 1);
    // Items that run alone leave a part of every tensor's, one after the other.
    const int64_t blocks =
        batch.part != 0 ? stops[batch.places - 1] : std::clamp<int64_t>(batch.count() / 32768, 1, processors);
    for (std::size_t i = 0; i < batch.places && batch.part == 0; ++i) {
      stops[i] = blocks * static_cast<int64_t>(i + 1);
    }
    // One more, for the results of spare places.
    const int64_t num_parts = stops[batch.places - 1];
    void* parts = nullptr;
    status = context.host->alloc_workspace(static_cast<uint64_t>(num_parts + 1) * sizeof(double), &parts);
    if (status != TB_STATUS_OK) {
      return;
    }
    auto wanted = specialize(kMulti, work, batch, /*more_pointers=*/1);
    wanted.text("KIND", "norm").called("norm").number("NORM", kind).number("BLOCK", items);
    if (blocks > 0) {
      const auto& function = find_function(context.device, wanted);
      const Arguments arguments(work, batch);
      Launch launch(context);
      add_pointers(launch, work, batch);
      launch.pointer(parts);
      launch.value(arguments.words.data(), arguments.size * sizeof(int64_t));
      launch.run_blocks(function, blocks, items);
    }

    Specialization end(kNormEnd);
    end.compute_in(work.compute)
        .index_of(true)
        .number("NORM", kind)
        .number("BLOCK", items)
        .number("TENSORS", static_cast<int64_t>(batch.places))
        .type("RESULT", work.type(0, batch.tensors[0]))
        .parameters(static_cast<int>(batch.places) + 1);
    Launch second(context);
    second.pointer(parts);
    for (std::size_t i = 0; i < batch.places; ++i) {
      second.pointer(i < batch.size ? first_element(*results[batch.tensors[i]])
                                    : static_cast<const char*>(parts) + num_parts * sizeof(double));
    }
    second.value(stops.data(), batch.places * sizeof(int64_t));
    second.run_blocks(find_function(context.device, end), static_cast<int64_t>(batch.places), items);
  });
  return status;
}

} // namespace

void add(Kernels& kernels) {
  kernels.add(op::_fused_adagrad_::kName, fused_adagrad, kTakesEmpty);
  kernels.add(op::_fused_adagrad__tensor_lr::kName, fused_adagrad, kTakesEmpty);
  kernels.add(op::_fused_adam_::kName, fused_adam<false>, kTakesEmpty);
  kernels.add(op::_fused_adam__tensor_lr::kName, fused_adam<false>, kTakesEmpty);
  kernels.add(op::_fused_adamw_::kName, fused_adam<true>, kTakesEmpty);
  kernels.add(op::_fused_adamw__tensor_lr::kName, fused_adam<true>, kTakesEmpty);
  kernels.add(op::_fused_sgd_::kName, fused_sgd, kTakesEmpty);
  kernels.add(op::_fused_sgd__tensor_lr::kName, fused_sgd, kTakesEmpty);
  kernels.add(op::_amp_foreach_non_finite_check_and_unscale_::kName, unscale, kTakesEmpty);
  kernels.add(op::_amp_update_scale_::kName, amp_update_scale, kTakesEmpty);
  add_each(kernels);
  kernels.add(op::_foreach_norm_Scalar::kName, norm, kTakesEmpty);
}

} // namespace torch_backend::compiled::multi_tensor
