#include "matmul.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "cublaslt.h"
#include "device.h"
#include "kernel.h"
#include "stream.h"

namespace xcuda {
namespace {

// NVIDIA's recommendation for the largest GPUs. What an algorithm wants of it is taken from the core's cache.
constexpr uint64_t kMaxWorkspaceBytes = 32 << 20;
// What cuMemAlloc promises: more is not looked for.
constexpr uint64_t kMaxAlignmentBytes = 256;

constexpr library_dtypes cuda_dtype_of{kCUDA_R_16F, kCUDA_R_16BF, kCUDA_R_32F, kCUDA_R_64F};

// ---- matrices ----

// A matrix, or one for each of a batch. Strides are in elements; those of dimensions with one element are 0.
struct matrix {
  char* data = nullptr;
  int64_t rows = 0, columns = 0, row_stride = 0, column_stride = 0, batch_stride = 0;

  matrix transposed() const {
    return {data, columns, rows, column_stride, row_stride, batch_stride};
  }
  bool has_whole_columns() const {
    return (rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows);
  }
  // Of column after column. Pre: has_whole_columns.
  int64_t ld() const {
    return columns == 1 ? rows : column_stride;
  }
  // The same column over and over.
  bool is_one_column() const {
    return columns > 1 && column_stride == 0 && (rows == 1 || row_stride == 1);
  }
  int64_t alignment_bytes() const {
    const auto address = reinterpret_cast<uint64_t>(data) | kMaxAlignmentBytes;
    return static_cast<int64_t>(address & -address);
  }
};

// Broadcast to rows x columns, from the last dimension on.
matrix matrix_of(const tb_tensor& t, int64_t rows, int64_t columns) {
  const auto stride = [&t](int32_t from_last) {
    const int32_t at = t.ndim - 1 - from_last;
    return at < 0 || t.shape[at] == 1 ? 0 : t.strides[at];
  };
  return {const_cast<char*>(data_of(t)), rows, columns, stride(1), stride(0), stride(2)};
}

// d = alpha * a b + beta * c + bias, which is a column for all columns. Dimensions are those of d.
struct product {
  int dtype = kNone;
  int64_t inner = 0, batch = 1;
  matrix a, b, c, d;
  const char* bias = nullptr;
  int64_t bias_batch_stride = 0;
  double alpha = 1, beta = 0;
  uint32_t allowed = 0; // TB_MATH_*

  // cuBLASLt writes columns. A result of rows is a transposed one of columns.
  void turn() {
    const matrix left = a.transposed();
    a = b.transposed();
    b = left;
    c = c.transposed();
    d = d.transposed();
  }

  bool has_sum_as_bias() const {
    return beta == 1 && c.is_one_column();
  }
  // Whether cuBLASLt can write d, and read c, as they lie.
  bool fits() const {
    return d.has_whole_columns() && (beta == 0 || c.has_whole_columns() || has_sum_as_bias());
  }

  result lay_out() {
    if (!fits()) turn();
    if (!fits()) return refuse();
    for (const matrix* m : {&a, &b})
      if (!m->has_whole_columns() && !m->transposed().has_whole_columns()) return refuse();
    if (has_sum_as_bias()) {
      bias = c.data;
      bias_batch_stride = c.batch_stride;
      beta = 0;
    }
    if (beta == 0) c = d; // which is not read
    return {};
  }
};

// ---- plans ----

struct operand_plan {
  bool is_transposed;
  int64_t ld;
};

operand_plan plan_of(const matrix& m) {
  if (m.has_whole_columns()) return {false, m.ld()};
  return {true, m.transposed().ld()};
}

// All that the choice of an algorithm depends on.
using problem = std::array<int64_t, 25>;

problem problem_of(int32_t device, const product& p) {
  const operand_plan a = plan_of(p.a), b = plan_of(p.b);
  const matrix bias{const_cast<char*>(p.bias), 1, 1, 0, 0, 0};
  return {device,
          p.dtype,
          p.allowed,
          p.d.rows,
          p.d.columns,
          p.inner,
          p.batch,
          a.is_transposed,
          a.ld,
          p.a.batch_stride,
          p.a.alignment_bytes(),
          b.is_transposed,
          b.ld,
          p.b.batch_stride,
          p.b.alignment_bytes(),
          p.c.ld(),
          p.c.batch_stride,
          p.c.alignment_bytes(),
          p.d.ld(),
          p.d.batch_stride,
          p.d.alignment_bytes(),
          p.bias != nullptr,
          p.bias ? bias.alignment_bytes() : 0,
          p.bias_batch_stride,
          p.beta == 0};
}

result library_handle_of(xcuda::device& d, cublasLtHandle_t* out_handle) {
  static std::mutex mutex; // guards all
  static auto& all = *new std::map<int32_t, cublasLtHandle_t>;
  const std::lock_guard<std::mutex> lock(mutex);
  cublasLtHandle_t& made = all[d.index];
  const outside_captures outside;
  result r = made ? result() : check_cublaslt(lt.Create(&made), "cublasLtCreate");
  *out_handle = made;
  return r;
}

uint32_t reductions_allowed(const product& p) {
  const bool reduced = (p.dtype != kCUDA_R_16F || p.allowed & TB_MATH_FP16_REDUCTION) &&
                       (p.dtype != kCUDA_R_16BF || p.allowed & TB_MATH_BF16_REDUCTION);
  return reduced ? kCUBLASLT_REDUCTION_SCHEME_MASK : kCUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

// The descriptors and the algorithm for one problem. One thread.
class plan {
 public:
  plan() = default;
  plan(const plan&) = delete;
  plan& operator=(const plan&) = delete;
  ~plan() {
    for (cublasLtMatrixLayout_t each : {a_, b_, c_, d_})
      if (each) lt.MatrixLayoutDestroy(each);
    if (desc_) lt.MatmulDescDestroy(desc_);
  }

  // Once. Pre: the device's context is the thread's.
  result make(xcuda::device& d, const product& p) {
    result r = library_handle_of(d, &handle_);
    if (r.ok()) r = describe(p);
    if (r.ok()) r = lay_out(p, p.a, &a_);
    if (r.ok()) r = lay_out(p, p.b, &b_);
    if (r.ok()) r = lay_out(p, p.c, &c_);
    if (r.ok()) r = lay_out(p, p.d, &d_);
    return r.ok() ? choose(p) : r;
  }

  result run(const product& p, const tb_kernel_context& context) {
    void* workspace = nullptr;
    result r = allocate_workspace(context, choice_.workspaceSize, &workspace);
    if (r.ok() && p.bias) r = set(kCUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (!r.ok()) return r;
    const bool is_double = p.dtype == kCUDA_R_64F;
    const factor alpha(p.alpha, is_double), beta(p.beta, is_double);
    return check_cublaslt(
        lt.Matmul(handle_, desc_, alpha.pointer(), p.a.data, a_, p.b.data, b_, beta.pointer(), p.c.data, c_, p.d.data,
                  d_, &choice_.algo, workspace, choice_.workspaceSize, handle_of(context.stream)),
        "cublasLtMatmul");
  }

 private:
  template <typename T>
  result set(int attribute, T value) {
    return check_cublaslt(lt.MatmulDescSetAttribute(desc_, attribute, &value, sizeof value),
                          "cublasLtMatmulDescSetAttribute");
  }

  result describe(const product& p) {
    const bool is_double = p.dtype == kCUDA_R_64F;
    const bool is_tf32 = p.dtype == kCUDA_R_32F && p.allowed & TB_MATH_TF32_MATMUL;
    const int single = is_tf32 ? kCUBLAS_COMPUTE_32F_FAST_TF32 : kCUBLAS_COMPUTE_32F;
    result r = check_cublaslt(
        lt.MatmulDescCreate(&desc_, is_double ? kCUBLAS_COMPUTE_64F : single, is_double ? kCUDA_R_64F : kCUDA_R_32F),
        "cublasLtMatmulDescCreate");
    const auto transposition = [](const matrix& m) {
      return int32_t{plan_of(m).is_transposed ? kCUBLAS_OP_T : kCUBLAS_OP_N};
    };
    if (r.ok()) r = set(kCUBLASLT_MATMUL_DESC_TRANSA, transposition(p.a));
    if (r.ok()) r = set(kCUBLASLT_MATMUL_DESC_TRANSB, transposition(p.b));
    if (!r.ok() || !p.bias) return r;
    r = set(kCUBLASLT_MATMUL_DESC_EPILOGUE, int32_t{kCUBLASLT_EPILOGUE_BIAS});
    if (r.ok()) r = set(kCUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, p.bias_batch_stride);
    return r.ok() ? set(kCUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias) : r; // whose alignment counts
  }

  static result lay_out(const product& p, const matrix& m, cublasLtMatrixLayout_t* out_layout) {
    const operand_plan o = plan_of(m);
    const matrix stored = o.is_transposed ? m.transposed() : m;
    const auto batch = static_cast<int32_t>(p.batch);
    cublasStatus_t error = lt.MatrixLayoutCreate(out_layout, p.dtype, static_cast<uint64_t>(stored.rows),
                                                 static_cast<uint64_t>(stored.columns), o.ld);
    if (!error)
      error = lt.MatrixLayoutSetAttribute(*out_layout, kCUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    if (!error)
      error = lt.MatrixLayoutSetAttribute(*out_layout, kCUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.batch_stride,
                                          sizeof m.batch_stride);
    return check_cublaslt(error, "cublasLtMatrixLayoutCreate");
  }

  // NOT_SUPPORTED, or that there is none, is for the next kernel source.
  result choose(const product& p) {
    cublasLtMatmulPreference_t preference = nullptr;
    result r = check_cublaslt(lt.MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    if (!r.ok()) return r;
    const auto set_preference = [&](int attribute, auto value) {
      if (r.ok())
        r = check_cublaslt(lt.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
                           "cublasLtMatmulPreferenceSetAttribute");
    };
    set_preference(kCUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspaceBytes);
    set_preference(kCUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions_allowed(p));
    set_preference(kCUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(p.a.alignment_bytes()));
    set_preference(kCUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(p.b.alignment_bytes()));
    set_preference(kCUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(p.c.alignment_bytes()));
    set_preference(kCUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(p.d.alignment_bytes()));
    int found = 0;
    if (r.ok())
      r = check_cublaslt(lt.MatmulAlgoGetHeuristic(handle_, desc_, a_, b_, c_, d_, preference, 1, &choice_, &found),
                         "cublasLtMatmulAlgoGetHeuristic");
    lt.MatmulPreferenceDestroy(preference);
    if (r.ok() && (found == 0 || choice_.state != kCUBLAS_STATUS_SUCCESS)) r = refuse();
    return r;
  }

  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr, d_ = nullptr;
  cublasLtMatmulHeuristicResult_t choice_{};
};

// ---- kernels ----

// Not of a complex one, which real matrices are not multiplied by.
double number_of(const tb_arg& arg) {
  return arg.tag == TB_ARG_FLOAT ? arg.v.f : static_cast<double>(arg.v.i);
}

// c is null for products alone.
result multiply(const tb_kernel_context& context, const tb_tensor* c, const tb_tensor& a, const tb_tensor& b,
                const tb_tensor& d, double beta, double alpha) {
  const int64_t rows = d.shape[d.ndim - 2], columns = d.shape[d.ndim - 1];
  product p;
  p.dtype = cuda_dtype_of(d.dtype);
  p.inner = a.shape[a.ndim - 1];
  p.batch = d.ndim == 3 ? d.shape[0] : 1;
  p.alpha = alpha;
  p.beta = beta;
  p.allowed = context.flags & (TB_MATH_TF32_MATMUL | TB_MATH_FP16_REDUCTION | TB_MATH_BF16_REDUCTION);
  p.a = matrix_of(a, rows, p.inner);
  p.b = matrix_of(b, p.inner, columns);
  p.d = matrix_of(d, rows, columns);
  if (c) p.c = matrix_of(*c, rows, columns);
  const bool is_one_dtype = cuda_dtype_of(a.dtype) == p.dtype && cuda_dtype_of(b.dtype) == p.dtype &&
                            (!c || cuda_dtype_of(c->dtype) == p.dtype);
  if (!is_one_dtype || p.batch > std::numeric_limits<int32_t>::max()) return refuse();
  if (result r = p.lay_out(); !r.ok()) return r;
  xcuda::device& on = device_at(context.device);
  const context_scope scope(on);
  if (!scope.failure().ok()) return scope.failure();
  std::shared_ptr<plan> found;
  result r = find_plan(problem_of(on.index, p), &found, [&](plan& made) { return made.make(on, p); });
  return r.ok() ? found->run(p, context) : r;
}

// (self, other), out
result product_alone(const tb_kernel_context* context, const tb_arg* args, int32_t) {
  return multiply(*context, nullptr, tensor_of(args[0]), tensor_of(args[1]), tensor_of(args[2]), 0, 1);
}

// (self, left, right, beta, alpha), out
result product_and_sum(const tb_kernel_context* context, const tb_arg* args, int32_t) {
  if (args[3].tag == TB_ARG_COMPLEX || args[4].tag == TB_ARG_COMPLEX) return refuse();
  return multiply(*context, &tensor_of(args[0]), tensor_of(args[1]), tensor_of(args[2]), tensor_of(args[5]),
                  number_of(args[3]), number_of(args[4]));
}

} // namespace

void add_matmul_kernels(std::vector<const tb_kernel*>* out_kernels) {
  static const tb_kernel kernels[] = {kernel<product_alone>("aten::mm.out"), kernel<product_alone>("aten::bmm.out"),
                                      kernel<product_and_sum>("aten::addmm.out"),
                                      kernel<product_and_sum>("aten::baddbmm.out")};
  static const bool offered = load_cublaslt();
  for (const tb_kernel& each : kernels)
    if (offered) out_kernels->push_back(&each);
}

} // namespace xcuda
