// The simulated libcublasLt: products, and the rules of the descriptors and algorithms they are described by.
#include "../csrc/cublaslt.h"

#include <cstring>

#include "operation.h"

#define LT_API extern "C" __attribute__((visibility("default"))) int

struct cublasLtContext {
  sim::CUcontext context = nullptr;
};

namespace xcuda {

struct lt_matrix_layout {
  at::ScalarType dtype = at::ScalarType::Undefined;
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
constexpr int64_t kParts = 4;         // that long sums are split into
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

at::ScalarType scalar_type_of(int dtype) {
  switch (dtype) {
    case kCUDA_R_64F:
      return at::kDouble;
    case kCUDA_R_32F:
      return at::kFloat;
    case kCUDA_R_16F:
      return at::kHalf;
    case kCUDA_R_16BF:
      return at::kBFloat16;
    default:
      return at::ScalarType::Undefined;
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

bool computes(const lt_matmul_desc& desc, at::ScalarType dtype) {
  if (dtype == at::kDouble) return desc.compute_type == kCUBLAS_COMPUTE_64F && desc.scale_type == kCUDA_R_64F;
  const bool is_fast = desc.compute_type == kCUBLAS_COMPUTE_32F_FAST_TF32 && dtype == at::kFloat;
  return (desc.compute_type == kCUBLAS_COMPUTE_32F || is_fast) && desc.scale_type == kCUDA_R_32F;
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
    error = refuse(kCUBLAS_STATUS_NOT_SUPPORTED, "%s: %s is not computed in %d with factors of %d", c.name,
                   c10::toString(c.d->dtype), c.desc->compute_type, c.desc->scale_type);
  if (!error && c.has_bias() && !c.desc->bias)
    error = refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: there is no bias", c.name);
  return error;
}

// ---- a product ----

operand operand_of(const lt_matrix_layout& m, const void* data) {
  return {m.dtype,
          {m.batch, static_cast<int64_t>(m.rows), static_cast<int64_t>(m.columns)},
          {m.batch_stride, 1, m.ld},
          address_of(data)};
}

// a, b, c, d and the bias. The sums of a part of the inner dimension are kept in the type of results or of sums.
void multiply(const lt_matmul_desc& desc, int32_t reduction, double alpha, double beta, const tensors& t) {
  const auto factor = [&](const at::Tensor& m, int32_t transpose) {
    const at::Tensor wide = m.to(at::kDouble);
    const at::Tensor taken = desc.compute_type == kCUBLAS_COMPUTE_32F_FAST_TF32 ? to_tf32(wide) : wide;
    return transpose == kCUBLAS_OP_T ? taken.mT() : taken;
  };
  const at::Tensor a = factor(t[0], desc.transpose_a), b = factor(t[1], desc.transpose_b);
  const auto type_of_sums = desc.compute_type == kCUBLAS_COMPUTE_64F ? at::kDouble : at::kFloat;
  const auto kept = reduction == kCUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE ? t[3].scalar_type() : type_of_sums;
  const int64_t inner = a.size(2), parts = reduction ? kParts : 1;
  at::Tensor sums = at::zeros(t[3].sizes(), at::kDouble);
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t from = inner * part / parts, to = inner * (part + 1) / parts;
    sums += a.slice(2, from, to).matmul(b.slice(1, from, to)).to(kept);
  }
  sums *= alpha;
  if (t[2].defined()) sums += t[2].to(at::kDouble) * beta;
  if (t[4].defined()) sums += t[4];
  t[3].copy_(sums);
}

// ---- algorithms ----

// Whether a matrix can be loaded by vectors, if it begins at a multiple of `alignment`.
bool has_vectors(const lt_matrix_layout& m, uint32_t alignment) {
  const uint64_t item = at::elementSize(m.dtype);
  return alignment % kVectorBytes == 0 && static_cast<uint64_t>(m.ld) * item % kVectorBytes == 0 &&
         static_cast<uint64_t>(m.batch_stride) * item % kVectorBytes == 0;
}

bool choose(const call& c, const lt_matmul_preference& wanted, algorithm* out) {
  const auto item = static_cast<uint32_t>(at::elementSize(c.d->dtype));
  *out = {kMagic, c.problem(), 0, {item, item, item, item}, 0, {}};
  const lt_matrix_layout* all[] = {c.a, c.b, c.c, c.d};
  for (int i = 0; i < 4; ++i) {
    if (wanted.alignment[i] % item) return false;
    if (has_vectors(*all[i], wanted.alignment[i])) out->alignment[i] = kVectorBytes;
  }
  const uint64_t results = c.d->rows * c.d->columns;
  if (c.inner() < (item < sizeof(float) ? kLongHalfSum : kLongSum) || results > kFewResults) return true;
  const uint64_t bytes = results * (c.d->dtype == at::kDouble ? 8 : 4);
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
  const at::ScalarType type = scalar_type_of(dtype);
  if (type == at::ScalarType::Undefined || rows == 0 || columns == 0)
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "cublasLtMatrixLayoutCreate(%d, %lu, %lu)", dtype, rows, columns);
  *layout = new lt_matrix_layout{type, rows, columns, ld, 0, 1};
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
  constexpr const char* kName = "cublasLtMatmul";
  const call asked{kName, handle, desc, a_layout, b_layout, c_layout, d_layout};
  if (const int error = check(asked)) return error;
  CUstream stream = nullptr;
  if (find_stream(kName, handle_of, handle->context, &stream)) return kCUBLAS_STATUS_EXECUTION_FAILED;
  if (stream->context != handle->context)
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: handle and stream are of two devices", kName);
  if (!algo) return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: without an algorithm, which is not simulated", kName);
  algorithm chosen{};
  std::memcpy(&chosen, algo, sizeof chosen);
  if (chosen.magic != kMagic || chosen.problem != asked.problem())
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: the algorithm was chosen for another problem", kName);
  const void* all[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (!all[i] || address_of(all[i]) % chosen.alignment[i])
      return refuse(kCUBLAS_STATUS_INVALID_VALUE,
                    "%s: %c is null, or not aligned to %u bytes, as the algorithm wants it", kName, "abcd"[i],
                    chosen.alignment[i]);
  if (asked.has_bias() && address_of(desc->bias) % at::elementSize(d_layout->dtype))
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: the bias is not aligned", kName);
  if (workspace_bytes < chosen.workspace_bytes || address_of(workspace) % kWorkspaceAlignment ||
      (chosen.workspace_bytes && !workspace))
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: a workspace of %zu bytes at %p; %lu are wanted, aligned to 256",
                  kName, workspace_bytes, workspace, chosen.workspace_bytes);
  const bool is_double = desc->scale_type == kCUDA_R_64F;
  const double times = number_at(alpha, is_double), before = number_at(beta, is_double);
  if (before != 0 && c == d && (c_layout->ld != d_layout->ld || c_layout->batch_stride != d_layout->batch_stride))
    return refuse(kCUBLAS_STATUS_INVALID_VALUE, "%s: c is d with another layout", kName);
  std::vector<operand> operands(5);
  operands[0] = operand_of(*a_layout, a), operands[1] = operand_of(*b_layout, b),
  operands[3] = operand_of(*d_layout, d);
  if (before != 0) operands[2] = operand_of(*c_layout, c);
  const int64_t rows = operands[3].sizes[1];
  if (asked.has_bias())
    operands[4] = {
        d_layout->dtype, {d_layout->batch, rows, 1}, {desc->bias_batch_stride, 1, rows}, address_of(desc->bias)};
  const auto run = [=, copy = *desc](const tensors& t) { multiply(copy, chosen.reduction, times, before, t); };
  return enqueue(stream, {kName, "gemm", std::move(operands), address_of(workspace), chosen.workspace_bytes, run})
             ? kCUBLAS_STATUS_EXECUTION_FAILED
             : 0;
}
