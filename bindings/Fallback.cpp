// Policies and counts of the CPU fallback.

#include "csrc/ops/host/Fallback.h"

#include <pybind11/stl.h>

#include "bindings/Module.h"

namespace py = pybind11;

namespace torch_backend::python {
namespace {

constexpr std::pair<const char*, FallbackPolicy> kPolicies[] = {
    {"allow", FallbackPolicy::kAllow}, {"warn", FallbackPolicy::kWarn}, {"error", FallbackPolicy::kError}};

void set_policy(const std::string& op, const std::string& policy) {
  if (policy.empty()) {
    clear_fallback_policy(op);
    return;
  }
  for (const auto& [name, value] : kPolicies) {
    if (policy == name) {
      set_fallback_policy(op, value);
      return;
    }
  }
  TORCH_CHECK_VALUE(false, "A fallback policy is 'allow', 'warn' or 'error'; got '", policy, "'.");
}

std::map<std::string, std::string> get_policies() {
  std::map<std::string, std::string> named;
  for (const auto& [op, policy] : fallback_policies()) {
    for (const auto& [name, value] : kPolicies) {
      if (policy == value) {
        named.emplace(op, name);
      }
    }
  }
  return named;
}

std::vector<std::tuple<std::string, uint64_t, uint64_t, double>> report() {
  std::vector<std::tuple<std::string, uint64_t, uint64_t, double>> rows;
  for (const auto& count : fallback_report()) {
    rows.emplace_back(count.overload, count.calls, count.bytes_copied, static_cast<double>(count.nanoseconds) * 1e-9);
  }
  return rows;
}

} // namespace

void init_fallback(py::module_& m) {
  m.def("fallback_set_policy", set_policy, py::arg("op"), py::arg("policy"));
  m.def("fallback_get_policies", get_policies);
  m.def("fallback_report", report);
  m.def("fallback_reset", reset_fallback_report);
}

} // namespace torch_backend::python
