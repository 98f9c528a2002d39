// What describes a graph to the simulated libcudnn, and the attention that one is of.
#pragma once

#include <cstring>
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

// A tensor of a graph.
struct graph_tensor : operand {
  int64_t name = 0;
  bool is_by_value = false, is_virtual = false;
  int64_t alignment = 1;
};

// softmax(scale * q k^T) v, or its gradients. Tensors that there are none of have no sizes.
struct attention {
  bool is_backward = false, is_causal = false;
  graph_tensor query, key, value, output, stats, grad_output, grad_query, grad_key, grad_value, scale, nothing, scores,
      masked;
  float factor = 1, left_out = 0; // what is by value
  bool is_in_any_order = false;   // another last bit in each run

  // Those that a caller has, and with the graph's own.
  std::vector<graph_tensor*> given();
  std::vector<graph_tensor*> all();
};

// Which attribute of an operation says which of its tensors.
struct part {
  int operation, attribute;
  bool is_needed;
  graph_tensor attention::* where;
};
extern const std::vector<part> kParts;

// The attributes of an operation's subgraph.
struct subgraph {
  int operation, graph, input, output;
};
extern const std::vector<subgraph> kSubgraphs;

int read(const char* name, const backend_descriptor& operation, attention* out);
int check_attention(const char* name, const backend_descriptor& operation);
int check_mask(const char* name, const backend_descriptor& operation);
// What it is of, and its function.
std::vector<operand> operands_of(const attention& a);
void run(const attention& a, const tensors& operands);

} // namespace sim
