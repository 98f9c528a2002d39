// What describes a graph to the simulated libcudnn, and the attention that one is of.
#pragma once

#include <map>
#include <vector>

#include "dnn.h"

namespace sim {

struct attribute {
  int type = 0;
  int64_t count = 0;
  std::vector<char> bytes;
};

struct backend_descriptor {
  int type = 0;
  bool is_final = false;
  int engine = 0; // of an engine, or a configuration of one
  std::map<int, attribute> set;

  template <typename T>
  std::vector<T> list(int name) const {
    const auto found = set.find(name);
    if (found == set.end()) return {};
    std::vector<T> all(static_cast<size_t>(found->second.count));
    std::memcpy(all.data(), found->second.bytes.data(), all.size() * sizeof(T));
    return all;
  }
  template <typename T>
  T one(int name) const {
    T value{};
    const auto found = set.find(name);
    if (found != set.end()) std::memcpy(&value, found->second.bytes.data(), sizeof value);
    return value;
  }
};

// Alive, and whether it is finalized.
int find(const char* name, void* handle, bool is_final, backend_descriptor** out);
// A finalized descriptor of another one's.
int find_part(const char* name, const backend_descriptor& whole, int attribute, backend_descriptor** out);

struct operand {
  int64_t name = 0;
  int dtype = 0;
  bool is_by_value = false, is_virtual = false;
  int64_t alignment = 1;
  std::vector<int64_t> shape, strides;
  CUdeviceptr at = 0;

  char* find(CUcontext context) const {
    int64_t last = 0;
    for (size_t i = 0; i < shape.size(); ++i) last += (shape[i] - 1) * strides[i];
    return resolve(at, static_cast<uint64_t>(last + 1) * bytes_of(dtype), context);
  }
  uint64_t offset(int64_t n, int64_t head, int64_t place, int64_t i) const {
    return static_cast<uint64_t>(n * strides[0] + head * strides[1] + place * strides[2] + i * strides[3]) *
           bytes_of(dtype);
  }
};

// softmax(scale * q k^T) v, row by row in float, or its gradients. Operands that there are none of have no shape.
struct attention {
  bool is_backward = false, is_causal = false;
  operand query, key, value, output, stats, grad_output, grad_query, grad_key, grad_value, scale, nothing, scores,
      masked;
  float factor = 1, left_out = 0; // what is by value
  bool is_in_any_order = false;   // another last bit in each run

  // Those that a caller has, and with the graph's own.
  std::vector<operand*> given();
  std::vector<operand*> all();
};

int read(const char* name, const backend_descriptor& operation, attention* out);
int check_attention(const char* name, const backend_descriptor& operation);
int check_mask(const char* name, const backend_descriptor& operation);
int run(const attention& a, CUcontext context);

} // namespace sim
