#include "clblast.h"

#include <dlfcn.h>

namespace ocl {
namespace {

// Of CLBlast's clblast_c.h, which has not changed in versions 1.0 to 1.6.
constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;

template <typename T>
using gemm_function = int (*)(int layout, int a_transpose, int b_transpose, size_t m, size_t n, size_t k, T alpha,
                              cl_mem a, size_t a_offset, size_t a_ld, cl_mem b, size_t b_offset, size_t b_ld, T beta,
                              cl_mem c, size_t c_offset, size_t c_ld, cl_command_queue* queue, cl_event* event);
template <typename T>
using batched_gemm_function = int (*)(int layout, int a_transpose, int b_transpose, size_t m, size_t n, size_t k,
                                      T alpha, cl_mem a, size_t a_offset, size_t a_ld, size_t a_stride, cl_mem b,
                                      size_t b_offset, size_t b_ld, size_t b_stride, T beta, cl_mem c, size_t c_offset,
                                      size_t c_ld, size_t c_stride, size_t batch, cl_command_queue* queue,
                                      cl_event* event);

template <typename T>
struct routines {
  gemm_function<T> gemm = nullptr;
  batched_gemm_function<T> batched = nullptr;

  void find(void* library, const char* gemm_name, const char* batched_name) {
    gemm = reinterpret_cast<gemm_function<T>>(dlsym(library, gemm_name));
    batched = reinterpret_cast<batched_gemm_function<T>>(dlsym(library, batched_name));
  }
  cl_int call(size_t batch, size_t m, size_t n, size_t k, double alpha, const blas_matrix& a, const blas_matrix& b,
              double beta, const blas_matrix& c, cl_command_queue queue, cl_event* event) const {
    const int a_transpose = a.transposed ? kTransposed : kPlain, b_transpose = b.transposed ? kTransposed : kPlain;
    const T factor = static_cast<T>(alpha), keep = static_cast<T>(beta);
    if (batch == 1)
      return gemm(kRowMajor, a_transpose, b_transpose, m, n, k, factor, a.buffer, a.offset, a.leading_dimension,
                  b.buffer, b.offset, b.leading_dimension, keep, c.buffer, c.offset, c.leading_dimension, &queue,
                  event);
    return batched(kRowMajor, a_transpose, b_transpose, m, n, k, factor, a.buffer, a.offset, a.leading_dimension,
                   a.batch_stride, b.buffer, b.offset, b.leading_dimension, b.batch_stride, keep, c.buffer, c.offset,
                   c.leading_dimension, c.batch_stride, batch, &queue, event);
  }
};

struct library {
  routines<float> s;
  routines<double> d;

  library() {
    void* handle = dlopen("libclblast.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) return;
    s.find(handle, "CLBlastSgemm", "CLBlastSgemmStridedBatched");
    d.find(handle, "CLBlastDgemm", "CLBlastDgemmStridedBatched");
  }
};

const library& clblast() {
  static const library l;
  return l;
}

} // namespace

bool has_clblast() {
  const library& l = clblast();
  return l.s.gemm && l.s.batched && l.d.gemm && l.d.batched;
}

cl_int gemm(bool is_double, size_t batch, size_t m, size_t n, size_t k, double alpha, const blas_matrix& a,
            const blas_matrix& b, double beta, const blas_matrix& c, cl_command_queue queue, cl_event* out_event) {
  return is_double ? clblast().d.call(batch, m, n, k, alpha, a, b, beta, c, queue, out_event)
                   : clblast().s.call(batch, m, n, k, alpha, a, b, beta, c, queue, out_event);
}

} // namespace ocl
