#include "matmul.h"

#include <algorithm>
#include <iterator>

#include "allocation.h"
#include "clblast.h"
#include "common/boundary.h"
#include "options.h"
#include "stream.h"

namespace ocl {
namespace {

const result kNotOurs{TB_STATUS_UNSUPPORTED, ""};

// CLBlast's kernels are made for graphics processors. With PoCL on a CPU the first takes 16 s to compile, and then they
// are slower than a plain kernel that keeps a tile in registers: 4 GFLOP/s against 9 to 15.
bool is_wanted(const device& d) {
  if (settings().clblast != clblast_use::automatic) return settings().clblast == clblast_use::always;
  return !(device_info<cl_device_type>(d.found.id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU);
}

bool device_computes_doubles(const device& d) {
  return d.properties.compute_dtype_mask[TB_DTYPE_MASK_WORD(TB_DTYPE_FLOAT, 64)] &
         TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 64);
}

// The sizes and strides of a tensor as those of a batch of matrices; a vector is a row.
struct shape {
  int64_t batch = 1, rows = 1, columns = 1;
  int64_t batch_stride = 0, row_stride = 0, column_stride = 1;

  explicit shape(const tb_tensor& t) {
    const int64_t *sizes = t.shape + t.ndim, *strides = t.strides + t.ndim;
    if (t.ndim > 0) columns = sizes[-1], column_stride = strides[-1];
    if (t.ndim > 1) rows = sizes[-2], row_stride = strides[-2];
    if (t.ndim > 2) batch = sizes[-3], batch_stride = strides[-3];
  }
};

// `rows` of `columns` that lie one after the other, with at most a gap between rows. Strides of one row or column alone
// have no meaning.
bool has_rows(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  return (column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1);
}

// False if CLBlast has no name for the strides.
bool describe(const lookup& addresses, const tb_tensor& t, blas_matrix* out_matrix) {
  const shape s(t);
  const bool plain = has_rows(s.rows, s.columns, s.row_stride, s.column_stride);
  if (!plain && !has_rows(s.columns, s.rows, s.column_stride, s.row_stride)) return false;
  const char* address = static_cast<const char*>(t.data) + t.byte_offset;
  const allocation* a = addresses.find(address);
  const uint64_t item_bytes = t.dtype.bits / 8;
  if (!a || s.batch_stride < 0 || a->offset_of(address) % item_bytes != 0) return false;
  const int64_t stride = plain ? s.row_stride : s.column_stride;
  const int64_t lines = plain ? s.rows : s.columns, length = plain ? s.columns : s.rows;
  *out_matrix = {a->buffer, a->offset_of(address) / item_bytes, static_cast<size_t>(lines == 1 ? length : stride),
                 static_cast<size_t>(s.batch_stride), !plain};
  return true;
}

bool is_contiguous(const shape& s) {
  return (s.column_stride == 1 || s.columns == 1) && (s.row_stride == s.columns || s.rows == 1) &&
         (s.batch_stride == s.rows * s.columns || s.batch == 1);
}

// Every row of all matrices is the same, as a bias is.
bool is_one_row(const shape& s) {
  return (s.column_stride == 1 || s.columns == 1) && (s.row_stride == 0 || s.rows == 1) &&
         (s.batch_stride == 0 || s.batch == 1);
}

bool can_spread(const shape& from, const shape& to) {
  const bool same_sizes = from.batch == to.batch && from.rows == to.rows;
  return is_contiguous(to) && from.columns == to.columns && ((same_sizes && is_contiguous(from)) || is_one_row(from));
}

// Copies `t`, broadcast, to where a product is added to it. A row of which there are many doubles with every copy.
result spread(const tb_kernel_context& context, const tb_tensor& t, const tb_tensor& out) {
  const shape from(t), to(out);
  const uint64_t row_bytes = static_cast<uint64_t>(to.columns) * out.dtype.bits / 8;
  const uint64_t all_bytes = row_bytes * static_cast<uint64_t>(to.batch * to.rows);
  char* dst = static_cast<char*>(out.data) + out.byte_offset;
  const char* src = static_cast<const char*>(t.data) + t.byte_offset;
  uint64_t done = is_one_row(from) ? row_bytes : all_bytes;
  result r = memory_copy(context.device, dst, context.device, src, done, TB_COPY_DEVICE_TO_DEVICE, context.stream);
  for (; r.ok() && done < all_bytes; done *= 2)
    r = memory_copy(context.device, dst + done, context.device, dst, std::min(done, all_bytes - done),
                    TB_COPY_DEVICE_TO_DEVICE, context.stream);
  return r;
}

// out = alpha * a @ b + beta * added, with `added` NULL for beta = 0.
result multiply(const tb_kernel_context& context, const tb_tensor* added, const tb_tensor& a, const tb_tensor& b,
                double beta, double alpha, const tb_tensor& out) {
  queue& q = queue_of(context.device, context.stream);
  const bool is_double = out.dtype.bits == 64;
  if (!is_wanted(q.owner()) || (is_double && !device_computes_doubles(q.owner()))) return kNotOurs;
  if (a.dtype.bits != out.dtype.bits || b.dtype.bits != out.dtype.bits) return kNotOurs;
  if (added && (added->dtype.bits != out.dtype.bits || !can_spread(shape(*added), shape(out)))) return kNotOurs;
  blas_matrix left, right, result_matrix;
  {
    const lookup addresses;
    if (!describe(addresses, a, &left) || !describe(addresses, b, &right) ||
        !describe(addresses, out, &result_matrix) || result_matrix.transposed)
      return kNotOurs;
  }
  if (added)
    if (result r = spread(context, *added, out); !r.ok()) return r;
  const shape s(a), o(out);
  return q.enqueue("CLBlast", [&](cl_command_queue c, cl_event* event) {
    return gemm(is_double, static_cast<size_t>(o.batch), static_cast<size_t>(o.rows), static_cast<size_t>(o.columns),
                static_cast<size_t>(s.columns), alpha, left, right, added ? beta : 0, result_matrix, c, event);
  });
}

// ---- the kernels: their arguments ----

const tb_tensor& tensor(const tb_arg& arg) {
  return *static_cast<const tb_tensor*>(arg.v.p);
}

// False for a complex number.
bool number(const tb_arg& arg, double* out_number) {
  *out_number = arg.tag == TB_ARG_FLOAT ? arg.v.f : static_cast<double>(arg.v.i);
  return arg.tag == TB_ARG_FLOAT || arg.tag == TB_ARG_INT || arg.tag == TB_ARG_BOOL;
}

// mm, bmm: (self, mat2), out
result product(const tb_kernel_context* context, const tb_arg* args, int32_t) {
  return multiply(*context, nullptr, tensor(args[0]), tensor(args[1]), 0, 1, tensor(args[2]));
}

// addmm, baddbmm: (self, mat1, mat2, beta, alpha), out
result sum_of_product(const tb_kernel_context* context, const tb_arg* args, int32_t) {
  double beta = 1, alpha = 1;
  if (!number(args[3], &beta) || !number(args[4], &alpha)) return kNotOurs;
  const tb_tensor* added = beta == 0 ? nullptr : &tensor(args[0]);
  return multiply(*context, added, tensor(args[1]), tensor(args[2]), beta, alpha, tensor(args[5]));
}

constexpr uint64_t kDtypes[TB_DTYPE_MASK_WORDS] = {TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 32) |
                                                   TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT, 64)};
static_assert(TB_DTYPE_MASK_WORD(TB_DTYPE_FLOAT, 64) == 0);

template <auto Function>
constexpr tb_kernel kernel(const char* op) {
  return {sizeof(tb_kernel), op, boundary<Function>::call, 0, 0, kDtypes};
}

} // namespace

void matmul_kernels(const tb_kernel* const** out_kernels, uint64_t* out_count) {
  static constexpr tb_kernel mm = kernel<product>("aten::mm.out"), bmm = kernel<product>("aten::bmm.out"),
                             addmm = kernel<sum_of_product>("aten::addmm.out"),
                             baddbmm = kernel<sum_of_product>("aten::baddbmm.out");
  static const tb_kernel* const all[] = {&mm, &bmm, &addmm, &baddbmm};
  if (settings().clblast == clblast_use::never || !has_clblast()) return;
  *out_kernels = all;
  *out_count = std::size(all);
}

} // namespace ocl
