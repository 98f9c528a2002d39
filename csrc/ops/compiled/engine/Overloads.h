// The places of overloads' arguments in what their kernels are called with: args[op::index_reduce_out::include_self]. What
// a supported torch lacks is guarded by TB_HAS_<overload>.
#pragma once

#include <cstdint>
#include <string_view>

#include "OperatorArguments.h" // written by codegen

namespace torch_backend::compiled {

/// -1: there is no such argument.
constexpr int32_t place_of(std::string_view arguments, std::string_view name) {
  for (int32_t place = 0; !arguments.empty(); ++place) {
    const auto word = arguments.substr(0, arguments.find(' '));
    if (word == name) {
      return place;
    }
    arguments.remove_prefix(word.size() < arguments.size() ? word.size() + 1 : word.size());
  }
  return -1;
}

/// Whether all of them have these arguments in the same places, so that one function can serve them.
template <class First, class... Others>
constexpr bool agree(std::string_view names = First::kArguments) {
  while (!names.empty()) {
    const auto word = names.substr(0, names.find(' '));
    const auto place = place_of(First::kArguments, word);
    if (place < 0 || ((place_of(Others::kArguments, word) != place) || ...)) {
      return false;
    }
    names.remove_prefix(word.size() < names.size() ? word.size() + 1 : word.size());
  }
  return true;
}

} // namespace torch_backend::compiled
