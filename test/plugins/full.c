/* LIBRARY, which is xcpu, with two kernels: one of relu that never has memory enough, and one of exp that enqueues a
 * fill with 7. WITHOUT_GRAPHS: and without graph.1. */
#include "wrapper.h"

static tb_status relu(const tb_kernel_context* context, const tb_arg* args, int32_t num_args) {
  return host->fail(TB_STATUS_OUT_OF_MEMORY, "the kernel finds no room");
}

static tb_status exponential(const tb_kernel_context* context, const tb_arg* args, int32_t num_args) {
  const tb_tensor* out = args[num_args - 1].v.p;
  const float seven = 7;
  return good.core.memory_fill(context->device, (char*)out->data + out->byte_offset, &seven, sizeof seven,
                               (uint64_t)out->shape[0] * sizeof seven, context->stream);
}

FUNCTION(without_graphs, device_properties) {
  const tb_status status = GOOD(device_properties);
  out_properties->capabilities &= ~TB_CAP_GRAPH;
  return status;
}

const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  static const tb_kernel of_relu = {sizeof(tb_kernel), "aten::relu", relu, 0, 0, NULL};
  static const tb_kernel of_exp = {sizeof(tb_kernel), "aten::exp.out", exponential, 0, 0, NULL};
  static const tb_kernel* const kernels[] = {&of_relu, &of_exp};
  host = the_host;
  if (!wrap(LIBRARY, the_host)) return NULL;
  made.kernels = (tb_kernel_table){.struct_size = sizeof(tb_kernel_table), .kernels = kernels, .num_kernels = 2};
#ifdef WITHOUT_GRAPHS
  MADE(device_properties) = without_graphs;
  made.graph.struct_size = 0;
#endif
  return &plugin;
}
