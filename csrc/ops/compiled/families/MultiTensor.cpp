// Many tensors in few launches: what optimizers and the scaling of gradients do, see skeletons/multi.c.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <c10/util/FunctionRef.h>
#include <c10/util/StringUtil.h>

#include "csrc/core/KernelHost.h"
#include "csrc/core/Runtime.h"
#include "csrc/ops/compiled/engine/Arguments.h"
#include "csrc/ops/compiled/engine/Geometry.h"
#include "csrc/ops/compiled/engine/Launch.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/compiled/families/Families.h"
#include "csrc/ops/compiled/families/Pointwise.h"

namespace torch_backend::compiled {
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

/// One operator's call: lists of tensors that belong together one by one.
struct Work {
  const void* kind = nullptr; // of the text, with `flags` and dtypes
  const char* name = "";      // KIND in the skeleton
  uint64_t flags = 0;
  std::size_t num_lists = 0;
  std::array<const tb_tensor* const*, kMaxLists> lists{};
  std::array<bool, kMaxLists> is_number{}; // tensors of one element, beside those of the other lists
  std::size_t num_tensors = 0;
  std::size_t num_extras = 0;
  std::array<const tb_tensor*, kMaxExtras> extras{};
  std::size_t num_numbers = 0;
  std::array<double, kMaxNumbers> numbers{};
  const tb_arg* each = nullptr; // a number for each tensor
  ValueType compute = ValueType::none;

  /// False: not a list, or of another length.
  bool add_list(const tb_arg& argument, bool numbers_only = false) {
    if (argument.tag != TB_ARG_TENSOR_LIST || (num_lists > 0 && argument.length != num_tensors)) {
      return false;
    }
    num_tensors = argument.length;
    is_number[num_lists] = numbers_only;
    lists[num_lists++] = static_cast<const tb_tensor* const*>(argument.v.p);
    return true;
  }
  void add_extra(const tb_arg& argument) {
    extras[num_extras++] = &tensor_in(argument);
  }
  void add_number(double number) {
    numbers[num_numbers++] = number;
  }
  const tb_tensor& tensor(std::size_t list, std::size_t index) const {
    return *lists[list][index];
  }
  uint64_t types_of(std::size_t index) const {
    uint64_t types = 0;
    for (std::size_t list = 0; list < num_lists; ++list) {
      types = types << 4 | static_cast<uint64_t>(value_type(tensor(list, index).dtype));
    }
    return types;
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
      if (!is_floating(type) || (is_number[list] ? elements_of(its) != 1
                                 : list == 0     ? !is_dense(its)
                                                 : !laid_out_alike(its, tensor(0, i)))) {
        return false;
      }
      compute = type == ValueType::f64 && !is_number[list] ? type : compute;
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
  std::array<int64_t, kMostTensors> stops;
  int64_t count() const {
    return stops[places - 1];
  }
};

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
          batch.stops[i] = batch.stops[batch.size - 1];
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
      const int64_t before = batch.size == 0 ? 0 : batch.stops[batch.size - 1];
      batch.stops[batch.size] = before + count;
      batch.tensors[batch.size++] = i;
      if (batch.size == most) {
        flush();
      }
    }
    flush();
  }
}

KernelKey key_of(const Work& work, const Batch& batch) {
  KernelKey key{work.kind};
  key.words[0] = work.types_of(batch.tensors[0]);
  for (std::size_t n = 0; n < work.num_extras; ++n) {
    key.words[0] = key.words[0] << 4 | static_cast<uint64_t>(value_type(work.extras[n]->dtype));
  }
  key.words[1] = work.flags;
  key.words[2] = static_cast<uint64_t>(batch.places) << 16 | static_cast<uint64_t>(work.num_lists) << 12 |
                 static_cast<uint64_t>(work.num_extras) << 8 | static_cast<uint64_t>(work.compute) << 4 |
                 static_cast<uint64_t>(work.each != nullptr) << 1 |
                 static_cast<uint64_t>(batch.count() < Geometry::kLimit32);
  return key;
}

void write_common(SourceText& text, const Work& work, const Batch& batch, std::size_t more_pointers) {
  text.compute_in(work.compute);
  text.index_of(batch.count() < Geometry::kLimit32);
  text.define("REAL_", work.compute == ValueType::f64 ? "f64_" : "f32_");
  text.define("LISTS", static_cast<int64_t>(work.num_lists));
  text.define("TENSORS", static_cast<int64_t>(batch.places));
  text.define("NUMBERS", static_cast<int64_t>(std::max<std::size_t>(work.num_numbers, 1)));
  text.define("KIND", work.name);
  const std::size_t num_pointers = work.num_lists * batch.places;
  std::string pointers, declarations;
  for (std::size_t i = 0; i < num_pointers; ++i) {
    pointers += c10::str(i == 0 ? "p" : ", p", i);
  }
  text.define("POINTERS", pointers);
  for (std::size_t list = 0; list < work.num_lists; ++list) {
    const char* type = name_of(value_type(work.tensor(list, batch.tensors[0]).dtype));
    declarations +=
        c10::str("TB_GLOBAL char* const q", list, " = pointers[t * LISTS + ", list, "]; (void)q", list, "; ");
    text.define(c10::str("LOAD_", list), c10::str("((T)TB_LOAD_", type, "(q", list, ", k))"));
    text.define(c10::str("LOAD_FIRST_", list), c10::str("((T)TB_LOAD_", type, "(q", list, ", 0))"));
    text.define(c10::str("STORE_", list, "(x)"), c10::str("TB_STORE_", type, "(q", list, ", k, x)"));
  }
  text.define("DECLARE_LISTS", declarations);
  for (std::size_t n = 0; n < work.num_extras; ++n) {
    text.define(c10::str("EXTRA_", n),
                c10::str("((T)TB_LOAD_", name_of(value_type(work.extras[n]->dtype)), "(p", num_pointers + n, ", 0))"));
    text.define(c10::str("p", n, "_EXTRA"), c10::str("p", num_pointers + n));
  }
  text.define("S", work.each ? "((T)args.each[t].REAL_)" : "NUMBER(0)");
  text.parameters(static_cast<int>(num_pointers + work.num_extras + more_pointers));
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
    for (std::size_t i = 0; i < batch.places; ++i) {
      words[size++] = batch.stops[i];
    }
    for (std::size_t i = 0; i < batch.places; ++i) {
      double number = 0;
      if (work.each) {
        number = work.each->tag == TB_ARG_FLOAT_LIST
                     ? static_cast<const double*>(work.each->v.p)[batch.tensors[i]]
                     : static_cast<double>(static_cast<const int64_t*>(work.each->v.p)[batch.tensors[i]]);
      }
      add(number, work.compute);
    }
    for (std::size_t n = 0; n < std::max<std::size_t>(work.num_numbers, 1); ++n) {
      add(work.numbers[n], work.compute);
    }
  }
  void add(double number, ValueType type) {
    words[size] = 0;
    const float narrow = static_cast<float>(number);
    if (type == ValueType::f64) {
      std::memcpy(&words[size++], &number, sizeof(number));
    } else {
      std::memcpy(&words[size++], &narrow, sizeof(narrow));
    }
  }
  std::array<int64_t, 2 * kMostTensors + kMaxNumbers> words;
  std::size_t size = 0;
};

/// `write` defines what the kind asks for.
tb_status run(Work& work, const tb_kernel_context& context, c10::function_ref<void(SourceText&)> write) {
  if (!work.check(context.device)) {
    return TB_STATUS_UNSUPPORTED;
  }
  for_each_batch(work, work.num_lists, work.num_extras, /*with_empty=*/false, [&](Batch& batch) {
    const auto& function = find_function(context.device, key_of(work, batch), "multi", "multi", [&](SourceText& text) {
      write_common(text, work, batch, 0);
      write(text);
    });
    const Arguments arguments(work, batch);
    Launch launch(context);
    add_pointers(launch, work, batch);
    launch.value(arguments.words.data(), arguments.size * sizeof(int64_t));
    launch.run(function, batch.count(), static_cast<int64_t>(work.num_lists));
  });
  return TB_STATUS_OK;
}

// ---- optimizers ----

constexpr uint64_t kHasScale = 1;
constexpr uint64_t kHasFoundInf = 2;
constexpr uint64_t kTensorRate = 4;
constexpr uint64_t kMaximize = 8;
constexpr uint64_t kNesterov = 16;
constexpr uint64_t kFirstStep = 32;
constexpr uint64_t kMomentum = 64;
constexpr uint64_t kDecoupled = 128;
constexpr uint64_t kAmsgrad = 256;

struct Optimizer {
  const char* overload;
  uint64_t flags; // those of every call
};

bool is_set(const tb_arg& argument) {
  return argument.tag != TB_ARG_NONE && argument.v.i != 0;
}

/// The learning rate, and grad_scale and found_inf at `scale` and after it: extras, in this order.
void add_extras(Work& work, const tb_arg& rate, const tb_arg* scale) {
  if (rate.tag == TB_ARG_TENSOR) {
    work.flags |= kTensorRate;
    work.add_extra(rate);
    work.add_number(0);
  } else {
    work.add_number(double_of(rate));
  }
  if (scale[0].tag == TB_ARG_TENSOR) {
    work.flags |= kHasScale;
    work.add_extra(scale[0]);
  }
  if (scale[1].tag == TB_ARG_TENSOR) {
    work.flags |= kHasFoundInf;
    work.add_extra(scale[1]);
  }
}

tb_status run_optimizer(Work& work, const tb_kernel_context& context) {
  return run(work, context, [&](SourceText& text) {
    int extra = 0;
    const auto has = [&](uint64_t flag) { return (work.flags & flag) != 0; };
    text.define("LR", has(kTensorRate) ? c10::str("EXTRA_", extra++) : "NUMBER(0)");
    text.define("SCALE", has(kHasScale) ? c10::str("EXTRA_", extra++) : "TC(1.0)");
    text.define("SKIP", has(kHasFoundInf) ? c10::str("if (EXTRA_", extra, " == TC(1.0)) return;") : "");
    text.define("FINISH", "");
    text.define("HAS_SCALE", has(kHasScale));
    text.define("MAXIMIZE", has(kMaximize));
    text.define("NESTEROV", has(kNesterov));
    text.define("FIRST_STEP", has(kFirstStep));
    text.define("DECOUPLED", has(kDecoupled));
    if (has(kMomentum)) {
      text.define("MOMENTUM", 1);
    }
    if (has(kAmsgrad)) {
      text.define("AMSGRAD", 1);
    }
  });
}

/// (self, grads, momentum_buffer_list, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step,
/// grad_scale, found_inf)
tb_status fused_sgd(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  Work work;
  work.kind = entry;
  work.name = "sgd";
  work.flags =
      (is_set(args[7]) ? kNesterov : 0) | (is_set(args[8]) ? kMaximize : 0) | (is_set(args[9]) ? kFirstStep : 0);
  if (!work.add_list(args[0]) || !work.add_list(args[1])) {
    return TB_STATUS_UNSUPPORTED;
  }
  if (args[2].length > 0) {
    work.flags |= kMomentum;
    if (!work.add_list(args[2])) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  add_extras(work, args[5], args + 10);
  work.add_number(double_of(args[3]));
  work.add_number(double_of(args[4]));
  work.add_number(1 - double_of(args[6]));
  return run_optimizer(work, context);
}

/// (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, amsgrad,
/// maximize, grad_scale, found_inf)
tb_status fused_adam(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  Work work;
  work.kind = entry;
  work.name = "adam";
  work.flags = static_cast<const Optimizer*>(entry)->flags | (is_set(args[12]) ? kMaximize : 0);
  if (!work.add_list(args[0]) || !work.add_list(args[1]) || !work.add_list(args[2]) || !work.add_list(args[3]) ||
      !work.add_list(args[5], /*numbers_only=*/true)) {
    return TB_STATUS_UNSUPPORTED;
  }
  if (is_set(args[11])) {
    work.flags |= kAmsgrad;
    if (!work.add_list(args[4])) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  const double beta1 = double_of(args[7]), beta2 = double_of(args[8]);
  add_extras(work, args[6], args + 13);
  for (const double number :
       {double_of(args[9]), double_of(args[10]), beta2, 1 - beta1, 1 - beta2, std::log(beta1), std::log(beta2)}) {
    work.add_number(number);
  }
  return run_optimizer(work, context);
}

/// (self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale, found_inf)
tb_status fused_adagrad(const void* entry, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  Work work;
  work.kind = entry;
  work.name = "adagrad";
  work.flags = is_set(args[8]) ? kMaximize : 0;
  if (!work.add_list(args[0]) || !work.add_list(args[1]) || !work.add_list(args[2]) ||
      !work.add_list(args[3], /*numbers_only=*/true)) {
    return TB_STATUS_UNSUPPORTED;
  }
  add_extras(work, args[4], args + 9);
  work.add_number(double_of(args[6]));
  work.add_number(double_of(args[7]));
  work.add_number(double_of(args[5]));
  return run_optimizer(work, context);
}

constexpr Optimizer kSgd[] = {{"aten::_fused_sgd_", 0}, {"aten::_fused_sgd_.tensor_lr", 0}};
constexpr Optimizer kAdam[] = {{"aten::_fused_adam_", 0},
                               {"aten::_fused_adam_.tensor_lr", 0},
                               {"aten::_fused_adamw_", kDecoupled},
                               {"aten::_fused_adamw_.tensor_lr", kDecoupled}};
constexpr Optimizer kAdagrad[] = {{"aten::_fused_adagrad_", 0}, {"aten::_fused_adagrad_.tensor_lr", 0}};

// ---- scaled gradients ----

const char kUnscale = 0;
const char kAmpScale = 0;

/// (self, found_inf, inv_scale)
tb_status unscale(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  Work work;
  work.kind = &kUnscale;
  work.name = "unscale";
  if (!work.add_list(args[0]) || value_type(tensor_in(args[1]).dtype) != ValueType::f32) {
    return TB_STATUS_UNSUPPORTED;
  }
  work.add_extra(args[1]);
  work.add_extra(args[2]);
  return run(work, context, [&](SourceText& text) {
    text.define("MOST", work.compute == ValueType::f64 ? "TC(1.7976931348623157e+308)" : "TC(3.4028234663852886e+38)");
    text.define("SKIP", "");
    text.define("FINISH", "END_unscale");
  });
}

/// (self, growth_tracker, found_inf, growth factor, backoff factor, interval)
tb_status amp_update_scale(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  if (value_type(tensor_in(args[0]).dtype) != ValueType::f32 ||
      value_type(tensor_in(args[1]).dtype) != ValueType::i32 ||
      value_type(tensor_in(args[2]).dtype) != ValueType::f32) {
    return TB_STATUS_UNSUPPORTED;
  }
  const auto& function =
      find_function(context.device, KernelKey{&kAmpScale}, "amp_scale", "amp_scale", [](SourceText& text) {
        text.compute_in(ValueType::f32);
        text.index_of(true);
        text.parameters(3);
      });
  std::array<int64_t, 3> words{};
  for (std::size_t i = 0; i < 2; ++i) {
    const float factor = static_cast<float>(double_of(args[3 + i]));
    std::memcpy(&words[i], &factor, sizeof(factor));
  }
  words[2] = args[5].v.i;
  Launch launch(context);
  for (int i = 0; i < 3; ++i) {
    launch.pointer(tensor_in(args[i]));
  }
  launch.value(words.data(), sizeof(words));
  launch.run(function, 1);
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
  const char* operands; // what that takes: elements A, B, C of the lists, the tensor's number X, the number s
  bool in_place = false;
};

tb_status each(const void* data, const tb_kernel_context& context, const tb_arg* args, int32_t num_args) {
  const auto& entry = *static_cast<const Each*>(data);
  Work work;
  work.kind = data;
  work.name = "each";
  int32_t i = 0;
  for (const char* kind = entry.arguments; *kind != '\0'; ++kind, ++i) {
    const bool is_number = args[i].tag == TB_ARG_FLOAT || args[i].tag == TB_ARG_INT || args[i].tag == TB_ARG_BOOL;
    if (*kind == 'l'   ? !work.add_list(args[i])
        : *kind == 't' ? args[i].tag != TB_ARG_TENSOR
                       : (*kind == 's' && !is_number) || (*kind == 'a' && (!is_number || args[i].tag == TB_ARG_BOOL))) {
      return TB_STATUS_UNSUPPORTED;
    }
    if (*kind == 't') {
      work.add_extra(args[i]);
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
  for (std::size_t t = 0; t < work.num_tensors; ++t) {
    for (std::size_t list = 1; list < work.num_lists && !converts; ++list) { // else PyTorch promotes
      if (!work.lists[0][t] || !work.lists[list][t] ||
          value_type(work.tensor(0, t).dtype) != value_type(work.tensor(list, t).dtype)) {
        return TB_STATUS_UNSUPPORTED;
      }
    }
    if (work.num_extras > 0 && value_type(work.tensor(0, t).dtype) != ValueType::f64 &&
        value_type(work.extras[0]->dtype) == ValueType::f64 && work.extras[0]->ndim > 0) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  return run(work, context, [&](SourceText& text) {
    write_apply(text, *find_pointwise(c10::str("aten::", entry.formula).c_str()), work.compute);
    text.define("A", "LOAD_0");
    text.define("B", "LOAD_1");
    text.define("C", "LOAD_2");
    text.define("X", "EXTRA_0");
    text.define("SKIP", "");
    text.define("FINISH", "");
    text.define("EXPRESSION", c10::str("T result; apply(", entry.operands, ", &result); STORE_", output, "(result);"));
  });
}

std::vector<Each> each_entries() {
  const std::vector<Each> table{
      {"add", "Scalar", "ls", "add.out", "A, s, 1"},
      {"add", "List", "lla", "add.out", "A, B, s"},
      {"add", "ScalarList", "le", "add.out", "A, s, 1"},
      {"add", "Tensor", "lta", "add.out", "A, X, s"},
      {"sub", "Scalar", "ls", "sub.out", "A, s, 1"},
      {"sub", "List", "lla", "sub.out", "A, B, s"},
      {"sub", "ScalarList", "le", "sub.out", "A, s, 1"},
      {"mul", "Scalar", "ls", "mul.out", "A, s"},
      {"mul", "List", "ll", "mul.out", "A, B"},
      {"mul", "ScalarList", "le", "mul.out", "A, s"},
      {"mul", "Tensor", "lt", "mul.out", "A, X"},
      {"div", "Scalar", "ls", "div.out", "A, s"},
      {"div", "List", "ll", "div.out", "A, B"},
      {"div", "ScalarList", "le", "div.out", "A, s"},
      {"div", "Tensor", "lt", "div.out", "A, X"},
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

const char kNorm = 0;
const char kNormEnd = 0;

/// (self, ord, dtype, out)
tb_status norm(const void*, const tb_kernel_context& context, const tb_arg* args, int32_t) {
  Work work;
  work.kind = &kNorm;
  work.name = "norm";
  if (args[2].tag != TB_ARG_NONE || (args[1].tag != TB_ARG_INT && args[1].tag != TB_ARG_FLOAT) ||
      !work.add_list(args[0])) {
    return TB_STATUS_UNSUPPORTED;
  }
  const double ord = double_of(args[1]);
  const bool is_max = std::isinf(ord) && ord > 0;
  if (ord != 1 && ord != 2 && !is_max) {
    return TB_STATUS_UNSUPPORTED;
  }
  const int kind = is_max ? 0 : static_cast<int>(ord);
  work.flags = static_cast<uint64_t>(kind);
  const auto* const* results = static_cast<const tb_tensor* const*>(args[3].v.p);
  for (std::size_t i = 0; i < work.num_tensors; ++i) {
    // The maximum of nothing is an error.
    if (!work.lists[0][i] || !results[i] || (is_max && elements_of(work.tensor(0, i)) == 0) ||
        value_type(results[i]->dtype) != value_type(work.tensor(0, i).dtype)) {
      return TB_STATUS_UNSUPPORTED;
    }
  }
  if (!work.check(context.device)) {
    return TB_STATUS_UNSUPPORTED;
  }
  const uint32_t items = block_items(context.device);
  tb_status status = TB_STATUS_OK;
  for_each_batch(work, 1, 1, /*with_empty=*/true, [&](Batch& batch) {
    if (status != TB_STATUS_OK) {
      return;
    }
    const int64_t most = runs_in_stretches(context.device)
                             ? std::max(device_api().properties(context.device).multiprocessor_count, 1)
                             : 64;
    const int64_t blocks = std::clamp<int64_t>(batch.count() / 32768, 1, most);
    void* parts = nullptr;
    status = context.host->alloc_workspace(static_cast<uint64_t>(blocks) * batch.places * sizeof(double), &parts);
    if (status != TB_STATUS_OK) {
      return;
    }
    const auto& function =
        find_function(context.device, key_of(work, batch), "multi", "multi_norm", [&](SourceText& text) {
          write_common(text, work, batch, 1);
          text.define("NORM", kind);
          text.define("BLOCK", static_cast<int64_t>(items));
          text.define("p_PARTS", c10::str("p", batch.places));
        });
    const Arguments arguments(work, batch);
    Launch launch(context);
    add_pointers(launch, work, batch);
    launch.pointer(parts);
    launch.value(arguments.words.data(), arguments.size * sizeof(int64_t));
    launch.run_blocks(function, blocks, items);

    auto end_key = key_of(work, batch);
    end_key.kind = &kNormEnd;
    const auto& end = find_function(context.device, end_key, "multi_norm_end", "multi_norm_end", [&](SourceText& text) {
      text.compute_in(work.compute);
      text.index_of(true);
      text.define("NORM", kind);
      text.define("TENSORS", static_cast<int64_t>(batch.places));
      std::string pointers;
      for (std::size_t i = 1; i <= batch.places; ++i) {
        pointers += c10::str(i == 1 ? "p" : ", p", i);
      }
      text.define("POINTERS", pointers);
      text.define("STORE(p, x)",
                  c10::str("TB_STORE_", name_of(value_type(work.tensor(0, batch.tensors[0]).dtype)), "(p, 0, x)"));
      text.parameters(static_cast<int>(batch.places) + 1);
    });
    Launch second(context);
    second.pointer(parts);
    for (std::size_t i = 0; i < batch.places; ++i) {
      // Spare places have the first tensor's: theirs go to nobody.
      second.pointer(i < batch.size
                         ? first_element(*results[batch.tensors[i]])
                         : static_cast<const char*>(parts) +
                               blocks * static_cast<int64_t>(batch.places - 1) * static_cast<int64_t>(sizeof(double)));
    }
    second.value(&blocks, sizeof(blocks));
    second.run(end, static_cast<int64_t>(batch.places));
  });
  return status;
}

} // namespace

void add_multi_tensor(Kernels& kernels) {
  const auto add_all = [&](const auto& optimizers, KernelFunction function) {
    for (const auto& optimizer : optimizers) {
      kernels.add(optimizer.overload, function, kTakesEmpty, &optimizer);
    }
  };
  add_all(kAdagrad, fused_adagrad);
  add_all(kAdam, fused_adam);
  add_all(kSgd, fused_sgd);
  kernels.add("aten::_amp_foreach_non_finite_check_and_unscale_", unscale, kTakesEmpty);
  kernels.add("aten::_amp_update_scale_", amp_update_scale);
  add_each(kernels);
  kernels.add("aten::_foreach_norm.Scalar", norm, kTakesEmpty);
}

} // namespace torch_backend::compiled
