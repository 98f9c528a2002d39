// The simulated libcublasLt: products that are computed, and the rules of the descriptors and algorithms they are
// described by.
#include "../csrc/cublaslt.h"

#include <algorithm>
#include <cstring>

#include "bfloat16.h"
#include "driver.h"

#define LT_API extern "C" __attribute__((visibility("default"))) int

struct cublasLtContext {
  sim::CUcontext context = nullptr;
};

namespace xcuda {

struct lt_matrix_layout {
  int dtype = 0;
  uint64_t rows = 0, columns = 0;
  int64_t ld = 0, batch_stride = 0;
  int32_t batch = 1;
};

struct lt_matmul_desc {
  int compute_type = 0, scale_type = 0;
  int32_t transpose_a = kCUBLAS_OP_N, transpose_b = kCUBLAS_OP_N, epilogue = kCUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int64_t bias_batch_stride = 0;
};

struct lt_matmul_preference {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = kCUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment[4] = {256, 256, 256, 256}; // of a, b, c, d
};

} // namespace xcuda

namespace sim {
namespace {

constexpr uint64_t kWorkspaceAlignment = 256;
constexpr uint32_t kVectorBytes = 16; // that fast algorithms load at once
constexpr uint64_t kParts = 4;        // that long sums are split into
constexpr uint64_t kLongSum = 16, kLongHalfSum = 64, kFewResults = 4096;

// What an algorithm is, in its 64 bytes.
struct algorithm {
  uint64_t magic, problem, workspace_bytes;
  uint32_t alignment[4];
  int32_t reduction; // of the parts' sums; 0: in one part
  int32_t unused[5];
};
static_assert(sizeof(algorithm) == sizeof(cublasLtMatmulAlgo_t));
constexpr uint64_t kMagic = 0x435542'4c41'534c'74;

uint64_t bytes_of(int dtype) {
  switch (dtype) {
    case kCUDA_R_64F:
      return 8;
    case kCUDA_R_32F:
      return 4;
    case kCUDA_R_16F:
    case kCUDA_R_16BF:
      return 2;
    default:
      return 0;
  }
}

// ---- checks ----

struct call {
  const char* name;
  cublasLtHandle_t handle;
  const lt_matmul_desc* desc;
  const lt_matrix_layout *a, *b, *c, *d;

  bool has_bias() const {
    return desc->epilogue == kCUBLASLT_EPILOGUE_BIAS;
  }
  uint64_t inner() const {
    return desc->transpose_a == kCUBLAS_OP_T ? a->rows : a->columns;
  }
  // All that an algorithm was chosen for.
  uint64_t problem() const {
    uint64_t sum = 14695981039346656037u;
    const auto add = [&sum](uint64_t value) { sum = (sum ^ value) * 1099511628211u; };
    for (const lt_matrix_layout* m : {a, b, c, d})
      for (uint64_t value :
           {uint64_t(m->dtype), m->rows, m->columns, uint64_t(m->ld), uint64_t(m->batch_stride), uint64_t(m->batch)})
        add(value);
    for (int value : {desc->compute_type, desc->scale_type, desc->transpose_a, desc->transpose_b, desc->epilogue})
      add(static_cast<uint64_t>(value));
    return sum;
  }
};

int check_handles(const call& c) {
  if (!registry<cublasLtContext>::all().has(c.handle))
    return refuse(kCUBLAS_STATUS_NOT_INITIALIZED, "%s: not a handle of cublasLtCreate", c.name);
  CUcontext context = nullptr;
  if (enter(c.name, &context)) return kCUBLAS_STATUS_EXECUTION_FAILED;
  if (context != c.handle->context)
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: the handle is of another device than the thread's context",
                  c.name);
  if (!registry<const lt_matmul_desc>::all().has(c.desc))
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: not a descriptor", c.name);
  for (const lt_matrix_layout* m : {c.a, c.b, c.c, c.d})
    if (!registry<const lt_matrix_layout>::all().has(m))
      return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: not a layout", c.name);
  return 0;
}

int check_layout(const char* name, const char* which, const lt_matrix_layout& m, uint64_t rows, uint64_t columns,
                 const call& of) {
  if (m.rows != rows || m.columns != columns)
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: %s is %lu x %lu, not %lu x %lu", name, which, m.rows, m.columns,
                  rows, columns);
  if (m.ld < static_cast<int64_t>(m.rows))
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: %s has columns of %lu that are %ld apart", name, which, m.rows,
                  m.ld);
  if (m.batch != of.d->batch)
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: %s has %d matrices, d has %d", name, which, m.batch, of.d->batch);
  if (m.dtype != of.d->dtype) return refuse(kCUBLAS_STATUS_NOT_SUPPORTED, "%s: %s and d are of two types", name, which);
  return 0;
}

bool computes(const lt_matmul_desc& desc, int dtype) {
  if (dtype == kCUDA_R_64F) return desc.compute_type == kCUBLAS_COMPUTE_64F && desc.scale_type == kCUDA_R_64F;
  const bool is_fast = desc.compute_type == kCUBLAS_COMPUTE_32F_FAST_TF32 && dtype == kCUDA_R_32F;
  return (desc.compute_type == kCUBLAS_COMPUTE_32F || is_fast) && desc.scale_type == kCUDA_R_32F && bytes_of(dtype);
}

int check(const call& c) {
  if (const int error = check_handles(c)) return error;
  const uint64_t rows = c.d->rows, columns = c.d->columns;
  const bool turned_a = c.desc->transpose_a == kCUBLAS_OP_T, turned_b = c.desc->transpose_b == kCUBLAS_OP_T;
  int error = check_layout(c.name, "a", *c.a, turned_a ? c.inner() : rows, turned_a ? rows : c.inner(), c);
  if (!error)
    error = check_layout(c.name, "b", *c.b, turned_b ? columns : c.inner(), turned_b ? c.inner() : columns, c);
  if (!error) error = check_layout(c.name, "c", *c.c, rows, columns, c);
  if (!error) error = check_layout(c.name, "d", *c.d, rows, columns, c);
  if (!error && c.d->batch > 1 && c.d->batch_stride == 0)
    error = refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: the matrices of d lie on each other", c.name);
  if (!error && !computes(*c.desc, c.d->dtype))
    error = refuse(kCUBLAS_STATUS_NOT_SUPPORTED, "%s: type %d is not computed in %d with factors of %d", c.name,
                   c.d->dtype, c.desc->compute_type, c.desc->scale_type);
  if (!error && c.has_bias() && !c.desc->bias)
    error = refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: there is no bias", c.name);
  return error;
}

// ---- numbers ----

// What the tensor cores make of a float: its first ten bits.
float to_tf32(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (value == value) bits = (bits + 0xfff + (bits >> 13 & 1)) & ~uint32_t{0x1fff};
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <typename T, typename Computed>
Computed load(const char* at) {
  T value{};
  std::memcpy(&value, at, sizeof value);
  return static_cast<Computed>(value);
}

template <typename T, typename Computed>
void store(char* at, Computed computed) {
  const T value = static_cast<T>(computed);
  std::memcpy(at, &value, sizeof value);
}

// ---- a product ----

// A copy of all that a call has named, which may change when it has returned.
struct product {
  lt_matmul_desc desc;
  lt_matrix_layout a, b, c, d;
  algorithm chosen;
  double alpha, beta;
  CUdeviceptr a_at, b_at, c_at, d_at, workspace_at;
  uint64_t inner;
  bool has_bias;
};

// What of device memory the product uses; null pointers are what it does not.
struct places {
  char *a, *b, *c, *d, *bias, *workspace;
};

char* locate(const char* what, CUdeviceptr address, const lt_matrix_layout& m, CUcontext context) {
  const auto last_batch = static_cast<uint64_t>(m.batch - 1) * static_cast<uint64_t>(m.batch_stride);
  const uint64_t items = last_batch + static_cast<uint64_t>(m.ld) * (m.columns - 1) + m.rows;
  char* found = resolve(address, items * bytes_of(m.dtype), context);
  if (!found) refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "cublasLtMatmul: %s is not memory that the device can access", what);
  return found;
}

// op(m) as rows x columns, row after row.
template <typename T, typename Computed>
std::vector<Computed> gather(const char* from, const lt_matrix_layout& m, bool is_turned, bool is_fast) {
  const uint64_t rows = is_turned ? m.columns : m.rows, columns = is_turned ? m.rows : m.columns;
  const auto ld = static_cast<uint64_t>(m.ld);
  std::vector<Computed> all(rows * columns);
  for (uint64_t i = 0; i < rows; ++i)
    for (uint64_t j = 0; j < columns; ++j) {
      const auto value = load<T, Computed>(from + (is_turned ? i * ld + j : j * ld + i) * sizeof(T));
      all[i * columns + j] = is_fast ? static_cast<Computed>(to_tf32(static_cast<float>(value))) : value;
    }
  return all;
}

// The sums of a part of the inner dimension are kept in the workspace, in the type of results or of sums.
template <typename T, typename Computed>
void multiply(const product& p, const places& at, uint64_t batch) {
  const uint64_t rows = p.d.rows, columns = p.d.columns;
  const auto of = [batch](char* place, const lt_matrix_layout& m) {
    return place + batch * static_cast<uint64_t>(m.batch_stride) * sizeof(T);
  };
  const bool is_fast = p.desc.compute_type == kCUBLAS_COMPUTE_32F_FAST_TF32;
  const auto a = gather<T, Computed>(of(at.a, p.a), p.a, p.desc.transpose_a == kCUBLAS_OP_T, is_fast);
  const auto b = gather<T, Computed>(of(at.b, p.b), p.b, p.desc.transpose_b == kCUBLAS_OP_T, is_fast);
  const uint64_t parts = p.chosen.reduction ? kParts : 1;
  const bool is_rounded = p.chosen.reduction == kCUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  std::vector<Computed> sums(rows * columns);
  for (uint64_t part = 0; part < parts; ++part) {
    std::vector<Computed> some(rows * columns);
    for (uint64_t i = 0; i < rows; ++i)
      for (uint64_t k = p.inner * part / parts; k < p.inner * (part + 1) / parts; ++k)
        for (uint64_t j = 0; j < columns; ++j) some[i * columns + j] += a[i * p.inner + k] * b[k * columns + j];
    for (uint64_t i = 0; i < rows * columns; ++i) {
      char* kept = at.workspace + i * sizeof(Computed);
      if (parts > 1 && is_rounded) store<T>(kept, some[i]), some[i] = load<T, Computed>(kept);
      if (parts > 1 && !is_rounded) store<Computed>(kept, some[i]), some[i] = load<Computed, Computed>(kept);
      sums[i] += some[i];
    }
  }
  const auto alpha = static_cast<Computed>(p.alpha), beta = static_cast<Computed>(p.beta);
  for (uint64_t i = 0; i < rows; ++i)
    for (uint64_t j = 0; j < columns; ++j) {
      Computed value = alpha * sums[i * columns + j];
      if (at.c) value += beta * load<T, Computed>(of(at.c, p.c) + (j * static_cast<uint64_t>(p.c.ld) + i) * sizeof(T));
      if (at.bias) {
        const uint64_t first = batch * static_cast<uint64_t>(p.desc.bias_batch_stride);
        value += load<T, Computed>(at.bias + (first + i) * sizeof(T));
      }
      store<T>(of(at.d, p.d) + (j * static_cast<uint64_t>(p.d.ld) + i) * sizeof(T), value);
    }
}

int run(const product& p, CUcontext context) {
  places at{};
  at.a = locate("a", p.a_at, p.a, context);
  at.b = locate("b", p.b_at, p.b, context);
  at.d = locate("d", p.d_at, p.d, context);
  if (p.beta != 0) at.c = locate("c", p.c_at, p.c, context);
  if (!at.a || !at.b || !at.d || (p.beta != 0 && !at.c)) return kCUDA_ERROR_ILLEGAL_ADDRESS;
  if (p.has_bias) {
    lt_matrix_layout bias{p.d.dtype, p.d.rows, 1, static_cast<int64_t>(p.d.rows), p.desc.bias_batch_stride, p.d.batch};
    if (!(at.bias = locate("the bias", address_of(p.desc.bias), bias, context))) return kCUDA_ERROR_ILLEGAL_ADDRESS;
  }
  if (p.chosen.workspace_bytes && !(at.workspace = resolve(p.workspace_at, p.chosen.workspace_bytes, context)))
    return refuse(kCUDA_ERROR_ILLEGAL_ADDRESS, "cublasLtMatmul: its workspace is outside of an allocation");
  for (uint64_t batch = 0; batch < static_cast<uint64_t>(p.d.batch); ++batch) switch (p.d.dtype) {
      case kCUDA_R_64F:
        multiply<double, double>(p, at, batch);
        break;
      case kCUDA_R_32F:
        multiply<float, float>(p, at, batch);
        break;
      case kCUDA_R_16F:
        multiply<_Float16, float>(p, at, batch);
        break;
      default:
        multiply<bfloat16, float>(p, at, batch);
    }
  return 0;
}

// ---- algorithms ----

// Whether a matrix can be loaded by vectors, if it begins at a multiple of `alignment`.
bool has_vectors(const lt_matrix_layout& m, uint32_t alignment) {
  const uint64_t item = bytes_of(m.dtype);
  return alignment % kVectorBytes == 0 && static_cast<uint64_t>(m.ld) * item % kVectorBytes == 0 &&
         static_cast<uint64_t>(m.batch_stride) * item % kVectorBytes == 0;
}

bool choose(const call& c, const lt_matmul_preference& wanted, algorithm* out) {
  const auto item = static_cast<uint32_t>(bytes_of(c.d->dtype));
  *out = {kMagic, c.problem(), 0, {item, item, item, item}, 0, {}};
  const lt_matrix_layout* all[] = {c.a, c.b, c.c, c.d};
  for (int i = 0; i < 4; ++i) {
    if (wanted.alignment[i] % item) return false;
    if (has_vectors(*all[i], wanted.alignment[i])) out->alignment[i] = kVectorBytes;
  }
  const uint64_t results = c.d->rows * c.d->columns;
  if (c.inner() < (item < sizeof(float) ? kLongHalfSum : kLongSum) || results > kFewResults) return true;
  const uint64_t bytes = results * (c.d->dtype == kCUDA_R_64F ? 8 : 4);
  if (bytes > wanted.workspace_bytes) return true;
  out->workspace_bytes = bytes;
  for (int scheme : {kCUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, kCUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE})
    if (wanted.reductions & static_cast<uint32_t>(scheme)) return out->reduction = scheme, true;
  out->workspace_bytes = 0;
  return true;
}

// ---- attributes ----

template <typename T>
int write(const char* name, T* out, const void* value, size_t bytes) {
  if (!value || bytes != sizeof *out)
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: %zu bytes, not %zu", name, bytes, sizeof *out);
  std::memcpy(out, value, sizeof *out);
  return 0;
}

int unknown(const char* name, int attribute) {
  return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: attribute %d is not simulated", name, attribute);
}

template <typename T>
int destroy(const char* name, T* made) {
  return registry<const T>::all().retire(made) ? 0 : refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: not one", name);
}

} // namespace
} // namespace sim

using namespace sim;

LT_API cublasLtCreate(cublasLtHandle_t* handle) {
  CUcontext context = nullptr;
  if (enter("cublasLtCreate", &context)) return kCUBLAS_STATUS_NOT_INITIALIZED;
  *handle = make<cublasLtContext>();
  (*handle)->context = context;
  return 0;
}

extern "C" __attribute__((visibility("default"))) const char* cublasLtGetStatusString(int) {
  return refusal().c_str();
}

LT_API cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, int dtype, uint64_t rows, uint64_t columns,
                                  int64_t ld) {
  if (!bytes_of(dtype) || rows == 0 || columns == 0)
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "cublasLtMatrixLayoutCreate(%d, %lu, %lu)", dtype, rows, columns);
  *layout = new lt_matrix_layout{dtype, rows, columns, ld, 0, 1};
  registry<const lt_matrix_layout>::all().add(*layout);
  return 0;
}

LT_API cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy("cublasLtMatrixLayoutDestroy", layout);
}

LT_API cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, int attribute, const void* value, size_t bytes) {
  constexpr char kName[] = "cublasLtMatrixLayoutSetAttribute";
  if (!registry<const lt_matrix_layout>::all().has(layout))
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: not a layout", kName);
  switch (attribute) {
    case kCUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return write(kName, &layout->batch, value, bytes);
    case kCUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return write(kName, &layout->batch_stride, value, bytes);
    default:
      return unknown(kName, attribute);
  }
}

LT_API cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, int compute_type, int scale_type) {
  *desc = new lt_matmul_desc;
  (*desc)->compute_type = compute_type;
  (*desc)->scale_type = scale_type;
  registry<const lt_matmul_desc>::all().add(*desc);
  return 0;
}

LT_API cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return destroy("cublasLtMatmulDescDestroy", desc);
}

LT_API cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, int attribute, const void* value, size_t bytes) {
  constexpr char kName[] = "cublasLtMatmulDescSetAttribute";
  if (!registry<const lt_matmul_desc>::all().has(desc))
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: not a descriptor", kName);
  switch (attribute) {
    case kCUBLASLT_MATMUL_DESC_TRANSA:
      return write(kName, &desc->transpose_a, value, bytes);
    case kCUBLASLT_MATMUL_DESC_TRANSB:
      return write(kName, &desc->transpose_b, value, bytes);
    case kCUBLASLT_MATMUL_DESC_EPILOGUE:
      return write(kName, &desc->epilogue, value, bytes);
    case kCUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return write(kName, &desc->bias, value, bytes);
    case kCUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return write(kName, &desc->bias_batch_stride, value, bytes);
    default:
      return unknown(kName, attribute);
  }
}

LT_API cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new lt_matmul_preference;
  registry<const lt_matmul_preference>::all().add(*preference);
  return 0;
}

LT_API cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy("cublasLtMatmulPreferenceDestroy", preference);
}

LT_API cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, int attribute, const void* value,
                                            size_t bytes) {
  constexpr char kName[] = "cublasLtMatmulPreferenceSetAttribute";
  if (!registry<const lt_matmul_preference>::all().has(preference))
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: not a preference", kName);
  switch (attribute) {
    case kCUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return write(kName, &preference->workspace_bytes, value, bytes);
    case kCUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return write(kName, &preference->reductions, value, bytes);
    case kCUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case kCUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case kCUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case kCUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return write(kName, &preference->alignment[attribute - kCUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
                   bytes);
    default:
      return unknown(kName, attribute);
  }
}

LT_API cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                      cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                      cublasLtMatmulPreference_t preference, int count,
                                      cublasLtMatmulHeuristicResult_t* results, int* found) {
  const call asked{"cublasLtMatmulAlgoGetHeuristic", handle, desc, a, b, c, d};
  if (const int error = check(asked)) return error;
  if (count <= 0 || !registry<const lt_matmul_preference>::all().has(preference))
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "cublasLtMatmulAlgoGetHeuristic: %d results, or no preference", count);
  algorithm chosen{};
  *found = choose(asked, *preference, &chosen);
  if (!*found) return kCUBLAS_STATUS_NOT_SUPPORTED; // how programs ask
  std::memcpy(&results->algo, &chosen, sizeof chosen);
  results->workspaceSize = chosen.workspace_bytes;
  results->state = kCUBLAS_STATUS_SUCCESS;
  return 0;
}

LT_API cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                      cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                      const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                      const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes, CUstream handle_of) {
  constexpr char kName[] = "cublasLtMatmul";
  const call asked{kName, handle, desc, a_layout, b_layout, c_layout, d_layout};
  if (const int error = check(asked)) return error;
  CUstream stream = nullptr;
  if (find_stream(kName, handle_of, handle->context, &stream)) return kCUBLAS_STATUS_EXECUTION_FAILED;
  if (stream->context != handle->context)
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: handle and stream are of two devices", kName);
  if (!algo) return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: without an algorithm, which is not simulated", kName);
  product p{*desc, *a_layout, *b_layout, *c_layout,     *d_layout,       {}, 0, 0, 0, 0,
            0,     0,         0,         asked.inner(), asked.has_bias()};
  std::memcpy(&p.chosen, algo, sizeof p.chosen);
  if (p.chosen.magic != kMagic || p.chosen.problem != asked.problem())
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: the algorithm was chosen for another problem", kName);
  const void* all[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (!all[i] || address_of(all[i]) % p.chosen.alignment[i])
      return refuse(kCUBLAS_STATUS_INVALID_VALUE,
                    "%s: %c is null, or not aligned to %u bytes, as the algorithm wants it", kName, "abcd"[i],
                    p.chosen.alignment[i]);
  if (asked.has_bias() && address_of(desc->bias) % bytes_of(p.d.dtype))
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: the bias is not aligned", kName);
  if (workspace_bytes < p.chosen.workspace_bytes || address_of(workspace) % kWorkspaceAlignment ||
      (p.chosen.workspace_bytes && !workspace))
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: a workspace of %zu bytes at %p; %lu are wanted, aligned to 256",
                  kName, workspace_bytes, workspace, p.chosen.workspace_bytes);
  const bool is_double = p.desc.scale_type == kCUDA_R_64F;
  p.alpha = is_double ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  p.beta = is_double ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  if (p.beta != 0 && c == d && (p.c.ld != p.d.ld || p.c.batch_stride != p.d.batch_stride))
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: c is d with another layout", kName);
  p.a_at = address_of(a), p.b_at = address_of(b), p.c_at = address_of(c), p.d_at = address_of(d);
  p.workspace_at = address_of(workspace);
  return enqueue(kName, stream,
                 {[p, stream] { return run(p, stream->context); }, false, {traced_work::kKernel, "gemm"}})
             ? kCUBLAS_STATUS_EXECUTION_FAILED
             : 0;
}
