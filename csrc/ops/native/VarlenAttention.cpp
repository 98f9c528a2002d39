// Attention of sequences that lie one after the other (torch.nn.attention.varlen): a kernel that the device compiles, else one
// sequence after the other by the operator that scaled_dot_product_attention has for the device.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/ops/compiled/composed/Attention.h"
#include "csrc/ops/compiled/engine/AheadImages.h"
#include "csrc/ops/compiled/engine/Modules.h"
#include "csrc/ops/dispatch/Registrar.h"
#include "csrc/ops/native/Register.h"

namespace torch_backend {
namespace {

using compiled::attention::Call;
using compiled::attention::Sequences;

/// A boxed call's arguments by their names: PyTorch's versions have different ones.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack) : schema_(op.schema()), stack_(stack) {}

  c10::IValue operator[](std::string_view name) const {
    const auto& all = schema_.arguments();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].name() == name) {
        return torch::jit::peek(stack_, i, all.size());
      }
    }
    return {};
  }
  at::Tensor tensor(std::string_view name) const {
    const c10::IValue value = (*this)[name];
    return value.isTensor() ? value.toTensor() : at::Tensor();
  }
  int64_t number_or(std::string_view name, int64_t other) const {
    const c10::IValue value = (*this)[name];
    return value.isNone() ? other : value.toInt();
  }

 private:
  const c10::FunctionSchema& schema_;
  const torch::jit::Stack& stack_;
};

/// [rows, heads, elements] as [1, heads, rows, elements], and pages likewise.
at::Tensor by_heads(const at::Tensor& tensor) {
  return (tensor.dim() == 3 ? tensor.unsqueeze(0) : tensor).transpose(1, 2);
}

at::Tensor as_numbers(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(at::kInt).contiguous() : tensor;
}

struct Given {
  at::Tensor query, key, value; // as the caller has them
  Call call;
  Sequences sequences;
};

Given given_to(const Arguments& arguments) {
  Given given;
  auto& [query, key, value, call, sequences] = given;
  query = arguments.tensor("query");
  key = arguments.tensor("key");
  value = arguments.tensor("value");
  sequences.first_rows = as_numbers(arguments.tensor("cum_seq_q"));
  sequences.first_places = as_numbers(arguments.tensor("cum_seq_k"));
  sequences.used = as_numbers(arguments.tensor("seqused_k"));
  sequences.pages = as_numbers(arguments.tensor("block_table"));
  sequences.rows = arguments.number_or("max_q", 0);
  sequences.places = arguments.number_or("max_k", 0);
  const bool has_pages = sequences.pages.defined();
  TORCH_CHECK_NOT_IMPLEMENTED(sequences.first_rows.defined(),
                              "Attention of sequences needs cum_seq_q, where each of them begins; "
                              "scaled_dot_product_attention takes batches of one length.");
  TORCH_CHECK_NOT_IMPLEMENTED(arguments["dropout_p"].toDouble() == 0 && !arguments.tensor("alibi_slopes").defined(),
                              "Attention of sequences has neither a dropout nor slopes on ", query.device(),
                              "; scaled_dot_product_attention has a dropout, and takes slopes as a mask.");
  TORCH_CHECK(
      query.dim() == 3 && key.dim() == (has_pages ? 4 : 3) && value.dim() == key.dim(),
      "Attention of sequences takes [rows, heads, elements], or of pages [pages, places, heads, elements], and got a "
      "query ",
      query.sizes(), ", a key ", key.sizes(), " and a value ", value.sizes());
  TORCH_CHECK(has_pages ? sequences.used.defined() : sequences.first_places.defined(),
              has_pages ? "seqused_k is missing: how many places of its pages each sequence has"
                        : "cum_seq_k is missing: where the keys of each sequence begin");
  const int64_t count = sequences.first_rows.numel() - 1;
  TORCH_CHECK(count >= 0 && (has_pages || sequences.first_places.numel() == count + 1) &&
                  (!sequences.used.defined() || sequences.used.numel() == count) &&
                  (!has_pages || (sequences.pages.dim() == 2 && sequences.pages.size(0) == count)),
              "cum_seq_q says that there are ", count,
              " sequences, and cum_seq_k, seqused_k or block_table that there are others");
  TORCH_CHECK(query.size(1) % std::max<int64_t>(key.size(-2), 1) == 0, "The query has ", query.size(1),
              " heads, which is no multiple of the key's ", key.size(-2));
  sequences.after = arguments.number_or("window_size_right", -1);
  sequences.before = arguments.number_or("window_size_left", -1);
  if (arguments["is_causal"].toBool()) {
    sequences.after = 0;
  }
  const c10::IValue scale = arguments["scale"];
  call = {by_heads(query),
          by_heads(key),
          by_heads(value),
          {},
          false,
          sdp::calculate_scale(query, scale.isNone() ? std::nullopt : std::optional<double>(scale.toDouble()))
              .expect_float(),
          0};
  return given;
}

// ---- one sequence after the other ----

std::vector<int64_t> on_host(const at::Tensor& numbers) {
  const at::Tensor there = numbers.to(at::kCPU, at::kLong);
  const auto* data = there.const_data_ptr<int64_t>();
  return {data, data + there.numel()};
}

/// One of them, [1, heads, rows, elements] each, without the first rows, which have no place.
struct Sequence {
  int64_t first_row, rows, first_place, places;
  at::Tensor query, key, value, bias;
  bool is_causal;
};

/// Key and value heads are repeated for all that share them.
at::Tensor repeated(const at::Tensor& tensor, int64_t heads) {
  const int64_t shared = heads / std::max<int64_t>(tensor.size(1), 1);
  return shared == 1 ? tensor : tensor.repeat_interleave(shared, 1);
}

template <class Function>
void for_sequences(const Given& given, Function function) {
  const auto& [query, key, value, call, all] = given;
  const auto first_rows = on_host(all.first_rows);
  const auto first_places = all.first_places.defined() ? on_host(all.first_places) : std::vector<int64_t>();
  const auto used = all.used.defined() ? on_host(all.used) : std::vector<int64_t>();
  for (std::size_t n = 0; n + 1 < first_rows.size(); ++n) {
    const int64_t rows = first_rows[n + 1] - first_rows[n];
    const int64_t places = used.empty() ? first_places[n + 1] - first_places[n] : used[n];
    const int64_t shift = places - rows; // of a row's last place
    const int64_t alone = all.after < 0 ? 0 : std::clamp<int64_t>(-(shift + all.after), 0, std::max<int64_t>(rows, 0));
    if (rows - alone <= 0 || places <= 0) {
      continue;
    }
    Sequence one{
        first_rows[n] + alone, rows - alone, first_places.empty() ? 0 : first_places[n], places, {}, {}, {}, {}, false};
    const auto places_of = [&](const at::Tensor& tensor) {
      if (!all.pages.defined()) {
        return repeated(by_heads(tensor.narrow(0, one.first_place, places)), query.size(1));
      }
      const int64_t page = tensor.size(1), pages = (places + page - 1) / page;
      const at::Tensor own = tensor.index_select(0, all.pages.select(0, static_cast<int64_t>(n)).narrow(0, 0, pages));
      return repeated(by_heads(own.flatten(0, 1).narrow(0, 0, places)), query.size(1));
    };
    one.query = by_heads(query.narrow(0, one.first_row, one.rows));
    one.key = places_of(key);
    one.value = places_of(value);
    one.is_causal = all.after == 0 && all.before < 0 && shift == 0;
    if (!one.is_causal && (all.after >= 0 || all.before >= 0)) {
      const auto numbers = query.options().dtype(at::kLong);
      const at::Tensor away =
          at::arange(places, numbers).unsqueeze(0).sub(at::arange(alone + shift, rows + shift, numbers).unsqueeze(1));
      at::Tensor is_far = all.after < 0 ? away.lt(-all.before) : away.gt(all.after);
      if (all.after >= 0 && all.before >= 0) {
        is_far = is_far.logical_or(away.lt(-all.before));
      }
      one.bias =
          at::zeros({one.rows, places}, query.options()).masked_fill_(is_far, -std::numeric_limits<double>::infinity());
    }
    function(std::as_const(one));
  }
}

std::optional<at::Tensor> bias_of(const Sequence& one) {
  return one.bias.defined() ? std::optional<at::Tensor>(one.bias) : std::nullopt;
}

void forward_one_by_one(const Given& given, const at::Tensor& out, const at::Tensor& logarithms) {
  for_sequences(given, [&](const Sequence& one) {
    const auto results = at::_scaled_dot_product_fused_attention_overrideable(
        one.query, one.key, one.value, bias_of(one), 0, one.is_causal, false, given.call.scale);
    by_heads(out.narrow(0, one.first_row, one.rows)).copy_(std::get<0>(results));
    logarithms.narrow(1, one.first_row, one.rows).copy_(std::get<1>(results).squeeze(0));
  });
}

void add_shared(const at::Tensor& to, const at::Tensor& gradient) {
  const int64_t heads = to.size(1);
  to.copy_(gradient.size(1) == heads ? gradient : gradient.unflatten(1, {heads, gradient.size(1) / heads}).sum(2));
}

void backward_one_by_one(const Given& given, const at::Tensor& grad_out, const at::Tensor& out,
                         const at::Tensor& logarithms, const at::Tensor& grad_query, const at::Tensor& grad_key,
                         const at::Tensor& grad_value) {
  const at::Tensor none, number = at::empty({}, given.query.options().dtype(at::kLong));
  for_sequences(given, [&](const Sequence& one) {
    const auto rows_of = [&](const at::Tensor& all) { return by_heads(all.narrow(0, one.first_row, one.rows)); };
    const auto places_of = [&](const at::Tensor& all) { return by_heads(all.narrow(0, one.first_place, one.places)); };
    const auto gradients = at::_scaled_dot_product_fused_attention_overrideable_backward(
        rows_of(grad_out), one.query, one.key, one.value, one.bias, {true, true, true, false}, rows_of(out),
        logarithms.narrow(1, one.first_row, one.rows).unsqueeze(0).contiguous(), none, none, one.rows, one.places, 0,
        one.is_causal, number, number, given.call.scale);
    rows_of(grad_query).copy_(std::get<0>(gradients));
    add_shared(places_of(grad_key), std::get<1>(gradients));
    add_shared(places_of(grad_value), std::get<2>(gradients));
  });
}

// ---- operators ----

/// Into `out`; what belongs to no sequence, or sees no place, is 0. Returns the logarithms, [heads, rows].
at::Tensor forward(const Given& given, const at::Tensor& out) {
  out.zero_();
  const at::Tensor logarithms =
      at::full({given.query.size(1), given.query.size(0)}, -std::numeric_limits<float>::infinity(),
               given.query.options().dtype(at::kFloat));
  if (compiled::attention::takes(given.call, given.sequences)) {
    try {
      compiled::attention::forward_of_sequences(given.call, given.sequences, by_heads(out), logarithms.unsqueeze(0));
      return logarithms;
    } catch (const compiled::MissingImage&) { // it is composed
    }
  }
  forward_one_by_one(given, out, logarithms);
  return logarithms;
}

std::vector<int64_t> sizes_of_result(const Given& given) {
  return {given.query.size(0), given.query.size(1), given.value.size(-1)};
}

void varlen_forward(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Given given = given_to({op, *stack});
  const at::Tensor out = at::empty(sizes_of_result(given), given.query.options());
  const at::Tensor logarithms = forward(given, out);
  torch::jit::drop(*stack, op.schema().arguments().size());
  const at::Tensor nothing = at::empty({0}, given.query.options());
  torch::jit::push(*stack, out, logarithms, at::zeros({2}, given.query.options().dtype(at::kLong)), nothing, nothing);
}

void varlen_forward_into(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Arguments arguments(op, *stack);
  const Given given = given_to(arguments);
  const at::Tensor out = arguments.tensor("out");
  TORCH_CHECK(out.sizes() == sizes_of_result(given) && out.scalar_type() == given.query.scalar_type(), "The result is ",
              given.query.scalar_type(), " of ", c10::IntArrayRef(sizes_of_result(given)), ", and out is ",
              out.scalar_type(), " of ", out.sizes());
  const at::Tensor logarithms = forward(given, out);
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, logarithms);
}

void varlen_backward(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Arguments arguments(op, *stack);
  const Given given = given_to(arguments);
  TORCH_CHECK_NOT_IMPLEMENTED(!given.sequences.pages.defined() && !given.sequences.used.defined(),
                              "Attention of sequences has no gradient for pages, nor where seqused_k is given");
  const at::Tensor grad_out = arguments.tensor("grad_out"), out = arguments.tensor("out");
  const at::Tensor logarithms = arguments.tensor("logsumexp").contiguous();
  const at::Tensor grad_query = at::zeros_like(given.query), grad_key = at::zeros_like(given.key),
                   grad_value = at::zeros_like(given.value);
  bool is_done = false;
  if (compiled::attention::takes(given.call, given.sequences)) {
    try {
      compiled::attention::backward_of_sequences(given.call, given.sequences, by_heads(grad_out), by_heads(out),
                                                 logarithms.unsqueeze(0), by_heads(grad_query), by_heads(grad_key),
                                                 by_heads(grad_value));
      is_done = true;
    } catch (const compiled::MissingImage&) { // it is composed
    }
  }
  if (!is_done) {
    backward_one_by_one(given, grad_out, out, logarithms, grad_query, grad_key, grad_value);
  }
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, grad_query, grad_key, grad_value);
}

} // namespace

void register_varlen_attention(Registrar& m) {
  const auto source = compiled::has_modules() ? Source::kGenerated : Source::kComposite;
  auto& dispatcher = c10::Dispatcher::singleton();
  m.impl_boxed<&varlen_forward>("_flash_attention_forward", source);
  m.impl_boxed<&varlen_backward>("_flash_attention_backward", source);
  if (dispatcher.findSchema({"aten::_flash_attention_forward_no_dropout_inplace", ""})) {
    m.impl_boxed<&varlen_forward_into>("_flash_attention_forward_no_dropout_inplace", source);
  }
}

} // namespace torch_backend
