// Pins the binary layout of device.h on LP64 platforms: size of every public struct, offset and size of every field,
// and the values of its constants. Compiling this file is the test. A change here is a change of the ABI: see
// include/torch_backend/CHANGELOG.md.
#include <gtest/gtest.h>

#include <cstddef>
#include <iterator>
#include <string>

#include "torch_backend/device.h"

static_assert(sizeof(void*) == 8 && sizeof(long) == 8, "the figures below are those of LP64");

#define PIN_STRUCT(type, size) static_assert(sizeof(type) == (size), #type)
#define PIN(type, field, offset, size) \
  static_assert(offsetof(type, field) == (offset) && sizeof(type::field) == (size), #type "." #field)
// A slot of a table: all are function pointers.
#define PIN_SLOT(type, field, index) PIN(type, field, 8 * (index), 8)

PIN_STRUCT(tb_device_id, 8);
PIN(tb_device_id, type, 0, 4);
PIN(tb_device_id, index, 4, 4);

PIN_STRUCT(tb_dtype, 4);
PIN(tb_dtype, code, 0, 1);
PIN(tb_dtype, bits, 1, 1);
PIN(tb_dtype, lanes, 2, 2);

PIN_STRUCT(tb_tensor, 48);
PIN(tb_tensor, data, 0, 8);
PIN(tb_tensor, device, 8, 8);
PIN(tb_tensor, ndim, 16, 4);
PIN(tb_tensor, dtype, 20, 4);
PIN(tb_tensor, shape, 24, 8);
PIN(tb_tensor, strides, 32, 8);
PIN(tb_tensor, byte_offset, 40, 8);

PIN_STRUCT(tb_arg, 16);
PIN(tb_arg, tag, 0, 4);
PIN(tb_arg, length, 4, 4);
PIN(tb_arg, v, 8, 8);

PIN_STRUCT(tb_device_properties, 216);
PIN(tb_device_properties, struct_size, 0, 8);
PIN(tb_device_properties, name, 8, 64);
PIN(tb_device_properties, arch, 72, 32);
PIN(tb_device_properties, capabilities, 104, 8);
PIN(tb_device_properties, total_memory_bytes, 112, 8);
PIN(tb_device_properties, allocation_granularity_bytes, 120, 8);
PIN(tb_device_properties, allocation_alignment_bytes, 128, 8);
PIN(tb_device_properties, dtype_mask, 136, 32);
PIN(tb_device_properties, capability_major, 168, 4);
PIN(tb_device_properties, capability_minor, 172, 4);
PIN(tb_device_properties, multiprocessor_count, 176, 4);
PIN(tb_device_properties, warp_size, 180, 4);
PIN(tb_device_properties, stream_priority_lowest, 184, 4);
PIN(tb_device_properties, stream_priority_highest, 188, 4);
PIN(tb_device_properties, numa_node, 192, 4);
PIN(tb_device_properties, reserved, 196, 4);
PIN(tb_device_properties, uuid, 200, 16);

PIN_STRUCT(tb_pointer_info, 32);
PIN(tb_pointer_info, struct_size, 0, 8);
PIN(tb_pointer_info, kind, 8, 4);
PIN(tb_pointer_info, device, 12, 4);
PIN(tb_pointer_info, base, 16, 8);
PIN(tb_pointer_info, size_bytes, 24, 8);

PIN_STRUCT(tb_ipc_handle, 64);
PIN(tb_ipc_handle, bytes, 0, 64);

PIN_STRUCT(tb_core_table, 264);
PIN(tb_core_table, struct_size, 0, 8);
PIN_SLOT(tb_core_table, device_count, 1);
PIN_SLOT(tb_core_table, device_properties, 2);
PIN_SLOT(tb_core_table, memory_allocate, 3);
PIN_SLOT(tb_core_table, memory_free, 4);
PIN_SLOT(tb_core_table, memory_copy, 5);
PIN_SLOT(tb_core_table, stream_create, 6);
PIN_SLOT(tb_core_table, stream_destroy, 7);
PIN_SLOT(tb_core_table, stream_synchronize, 8);
PIN_SLOT(tb_core_table, stream_wait_event, 9);
PIN_SLOT(tb_core_table, event_create, 10);
PIN_SLOT(tb_core_table, event_destroy, 11);
PIN_SLOT(tb_core_table, event_record, 12);
PIN_SLOT(tb_core_table, event_query, 13);
PIN_SLOT(tb_core_table, initialize, 14);
PIN_SLOT(tb_core_table, thread_bind, 15);
PIN_SLOT(tb_core_table, device_synchronize, 16);
PIN_SLOT(tb_core_table, memory_info, 17);
PIN_SLOT(tb_core_table, memory_fill, 18);
PIN_SLOT(tb_core_table, memory_copy_2d, 19);
PIN_SLOT(tb_core_table, memory_query, 20);
PIN_SLOT(tb_core_table, memory_map, 21);
PIN_SLOT(tb_core_table, memory_unmap, 22);
PIN_SLOT(tb_core_table, host_register, 23);
PIN_SLOT(tb_core_table, host_unregister, 24);
PIN_SLOT(tb_core_table, stream_query, 25);
PIN_SLOT(tb_core_table, stream_host_function, 26);
PIN_SLOT(tb_core_table, event_synchronize, 27);
PIN_SLOT(tb_core_table, event_elapsed, 28);
PIN_SLOT(tb_core_table, peer_can_access, 29);
PIN_SLOT(tb_core_table, ipc_export, 30);
PIN_SLOT(tb_core_table, ipc_import, 31);
PIN_SLOT(tb_core_table, ipc_close, 32);

PIN_STRUCT(tb_graph_table, 56);
PIN(tb_graph_table, struct_size, 0, 8);
PIN_SLOT(tb_graph_table, capture_begin, 1);
PIN_SLOT(tb_graph_table, capture_end, 2);
PIN_SLOT(tb_graph_table, stream_is_capturing, 3);
PIN_SLOT(tb_graph_table, graph_instantiate, 4);
PIN_SLOT(tb_graph_table, graph_launch, 5);
PIN_SLOT(tb_graph_table, graph_destroy, 6);

PIN_STRUCT(tb_kernel_context, 32);
PIN(tb_kernel_context, struct_size, 0, 8);
PIN(tb_kernel_context, device, 8, 4);
PIN(tb_kernel_context, flags, 12, 4);
PIN(tb_kernel_context, stream, 16, 8);
PIN(tb_kernel_context, host, 24, 8);

PIN_STRUCT(tb_kernel, 40);
PIN(tb_kernel, struct_size, 0, 8);
PIN(tb_kernel, op, 8, 8);
PIN(tb_kernel, function, 16, 8);
PIN(tb_kernel, flags, 24, 4);
PIN(tb_kernel, reserved, 28, 4);
PIN(tb_kernel, dtype_mask, 32, 8);

PIN_STRUCT(tb_kernel_table, 56);
PIN(tb_kernel_table, struct_size, 0, 8);
PIN(tb_kernel_table, kernels, 8, 8);
PIN(tb_kernel_table, num_kernels, 16, 8);
PIN(tb_kernel_table, kernel_find, 24, 8);
PIN(tb_kernel_table, module_load, 32, 8);
PIN(tb_kernel_table, module_unload, 40, 8);
PIN(tb_kernel_table, module_launch, 48, 8);

PIN_STRUCT(tb_ccl_table, 136);
PIN(tb_ccl_table, struct_size, 0, 8);
PIN(tb_ccl_table, unique_id_bytes, 8, 8);
PIN_SLOT(tb_ccl_table, unique_id_create, 2);
PIN_SLOT(tb_ccl_table, comm_create, 3);
PIN_SLOT(tb_ccl_table, comm_destroy, 4);
PIN_SLOT(tb_ccl_table, send, 5);
PIN_SLOT(tb_ccl_table, recv, 6);
PIN_SLOT(tb_ccl_table, group_begin, 7);
PIN_SLOT(tb_ccl_table, group_end, 8);
PIN_SLOT(tb_ccl_table, comm_abort, 9);
PIN_SLOT(tb_ccl_table, comm_query_error, 10);
PIN_SLOT(tb_ccl_table, all_reduce, 11);
PIN_SLOT(tb_ccl_table, reduce, 12);
PIN_SLOT(tb_ccl_table, broadcast, 13);
PIN_SLOT(tb_ccl_table, all_gather, 14);
PIN_SLOT(tb_ccl_table, reduce_scatter, 15);
PIN_SLOT(tb_ccl_table, all_to_all, 16);

PIN_STRUCT(tb_trace_record, 64);
PIN(tb_trace_record, struct_size, 0, 8);
PIN(tb_trace_record, kind, 8, 4);
PIN(tb_trace_record, device, 12, 4);
PIN(tb_trace_record, stream, 16, 8);
PIN(tb_trace_record, correlation, 24, 8);
PIN(tb_trace_record, start_ns, 32, 8);
PIN(tb_trace_record, end_ns, 40, 8);
PIN(tb_trace_record, name, 48, 8);
PIN(tb_trace_record, size_bytes, 56, 8);

PIN_STRUCT(tb_profiler_table, 72);
PIN(tb_profiler_table, struct_size, 0, 8);
PIN_SLOT(tb_profiler_table, trace_start, 1);
PIN_SLOT(tb_profiler_table, trace_stop, 2);
PIN_SLOT(tb_profiler_table, trace_collect, 3);
PIN_SLOT(tb_profiler_table, correlation_push, 4);
PIN_SLOT(tb_profiler_table, correlation_pop, 5);
PIN_SLOT(tb_profiler_table, clock_pair, 6);
PIN_SLOT(tb_profiler_table, range_push, 7);
PIN_SLOT(tb_profiler_table, range_pop, 8);

PIN_STRUCT(tb_host, 56);
PIN(tb_host, struct_size, 0, 8);
PIN(tb_host, abi_major, 8, 4);
PIN(tb_host, abi_minor, 12, 4);
PIN(tb_host, fail, 16, 8);
PIN(tb_host, log, 24, 8);
PIN(tb_host, option, 32, 8);
PIN(tb_host, alloc_output, 40, 8);
PIN(tb_host, alloc_workspace, 48, 8);

PIN_STRUCT(tb_plugin, 64);
PIN(tb_plugin, struct_size, 0, 8);
PIN(tb_plugin, abi_major, 8, 4);
PIN(tb_plugin, abi_minor, 12, 4);
PIN(tb_plugin, name, 16, 8);
PIN(tb_plugin, vendor, 24, 8);
PIN(tb_plugin, version, 32, 8);
PIN(tb_plugin, core, 40, 8);
PIN(tb_plugin, table, 48, 8);
PIN(tb_plugin, option_keys, 56, 8);

#define PIN_VALUE(name, value) static_assert((name) == (value), #name)

PIN_VALUE(TB_ABI_MAJOR, 1u);
PIN_VALUE(TB_ABI_MINOR, 0u);

PIN_VALUE(TB_DTYPE_INT, 0u);
PIN_VALUE(TB_DTYPE_UINT, 1u);
PIN_VALUE(TB_DTYPE_FLOAT, 2u);
PIN_VALUE(TB_DTYPE_BFLOAT, 4u);
PIN_VALUE(TB_DTYPE_COMPLEX, 5u);
PIN_VALUE(TB_DTYPE_BOOL, 6u);
PIN_VALUE(TB_DTYPE_FLOAT8_E4M3FN, 10u);
PIN_VALUE(TB_DTYPE_FLOAT8_E4M3FNUZ, 11u);
PIN_VALUE(TB_DTYPE_FLOAT8_E5M2, 12u);
PIN_VALUE(TB_DTYPE_FLOAT8_E5M2FNUZ, 13u);
PIN_VALUE(TB_DTYPE_FLOAT8_E8M0FNU, 14u);
PIN_VALUE(TB_DTYPE_MASK_WORDS, 4);

PIN_VALUE(TB_ARG_NONE, 0);
PIN_VALUE(TB_ARG_INT, 1);
PIN_VALUE(TB_ARG_BOOL, 2);
PIN_VALUE(TB_ARG_FLOAT, 3);
PIN_VALUE(TB_ARG_POINTER, 4);
PIN_VALUE(TB_ARG_DTYPE, 5);
PIN_VALUE(TB_ARG_DEVICE, 6);
PIN_VALUE(TB_ARG_TENSOR, 7);
PIN_VALUE(TB_ARG_STRING, 8);
PIN_VALUE(TB_ARG_COMPLEX, 9);
PIN_VALUE(TB_ARG_INT_LIST, 0x101);
PIN_VALUE(TB_ARG_FLOAT_LIST, 0x103);
PIN_VALUE(TB_ARG_TENSOR_LIST, 0x107);

PIN_VALUE(TB_CAP_ASYNC, (1ull << 0));
PIN_VALUE(TB_CAP_HOST_ACCESS, (1ull << 1));
PIN_VALUE(TB_CAP_HOST_COHERENT, (1ull << 2));
PIN_VALUE(TB_CAP_PAGEABLE_ACCESS, (1ull << 3));
PIN_VALUE(TB_CAP_STREAM_ALLOC, (1ull << 4));
PIN_VALUE(TB_CAP_EVENT_TIMING, (1ull << 5));
PIN_VALUE(TB_CAP_EVENT_RERECORD, (1ull << 6));
PIN_VALUE(TB_CAP_PEER, (1ull << 7));
PIN_VALUE(TB_CAP_IPC, (1ull << 8));
PIN_VALUE(TB_CAP_GRAPH, (1ull << 9));
PIN_VALUE(TB_CAP_VIRTUAL_MEMORY, (1ull << 10));

PIN_VALUE(TB_MEMORY_DEVICE, 0u);
PIN_VALUE(TB_MEMORY_HOST, 1u);
PIN_VALUE(TB_MEMORY_SHARED, 2u);
PIN_VALUE(TB_MEMORY_UNKNOWN, 3u);

PIN_VALUE(TB_COPY_HOST_TO_DEVICE, 1u);
PIN_VALUE(TB_COPY_DEVICE_TO_HOST, 2u);
PIN_VALUE(TB_COPY_DEVICE_TO_DEVICE, 3u);
PIN_VALUE(TB_COPY_PEER, 4u);

PIN_VALUE(TB_MAP_READ, 1u);
PIN_VALUE(TB_MAP_WRITE, 2u);

PIN_VALUE(TB_EVENT_TIMING, 1u);
PIN_VALUE(TB_EVENT_INTERPROCESS, 2u);

PIN_VALUE(TB_IPC_HANDLE_BYTES, 64);

PIN_VALUE(TB_CAPTURE_GLOBAL, 0u);
PIN_VALUE(TB_CAPTURE_THREAD_LOCAL, 1u);
PIN_VALUE(TB_CAPTURE_RELAXED, 2u);

PIN_VALUE(TB_KERNEL_NEEDS_CONTIGUOUS, 1u);
PIN_VALUE(TB_KERNEL_ALLOCATES_OUTPUT, 2u);

PIN_VALUE(TB_REDUCE_SUM, 0);
PIN_VALUE(TB_REDUCE_PRODUCT, 1);
PIN_VALUE(TB_REDUCE_MIN, 2);
PIN_VALUE(TB_REDUCE_MAX, 3);
PIN_VALUE(TB_REDUCE_AVERAGE, 4);

PIN_VALUE(TB_TRACE_KERNEL, 1u);
PIN_VALUE(TB_TRACE_COPY, 2u);
PIN_VALUE(TB_TRACE_FILL, 4u);
PIN_VALUE(TB_TRACE_RUNTIME, 8u);

PIN_VALUE(TB_LOG_DEBUG, 0);
PIN_VALUE(TB_LOG_INFO, 1);
PIN_VALUE(TB_LOG_WARNING, 2);
PIN_VALUE(TB_LOG_ERROR, 3);

PIN_VALUE(TB_STATUS_OK, 0);
PIN_VALUE(TB_STATUS_NOT_READY, 1);
PIN_VALUE(TB_STATUS_UNSUPPORTED, 2);
PIN_VALUE(TB_STATUS_OUT_OF_MEMORY, 3);
PIN_VALUE(TB_STATUS_INVALID_ARGUMENT, 4);
PIN_VALUE(TB_STATUS_DEVICE_LOST, 5);
PIN_VALUE(TB_STATUS_INTERNAL, 6);
PIN_VALUE(TB_STATUS_TIMEOUT, 7);

// The bits of a dtype mask: 8 for each DLPack code, by element size.
static_assert(TB_DTYPE_BIT(TB_DTYPE_INT, 8) == 0 && TB_DTYPE_BIT(TB_DTYPE_INT, 64) == 3);
static_assert(TB_DTYPE_BIT(TB_DTYPE_FLOAT, 32) == 18 && TB_DTYPE_BIT(TB_DTYPE_COMPLEX, 128) == 44);
static_assert(TB_DTYPE_MASK_WORD(TB_DTYPE_FLOAT8_E8M0FNU, 8) == 1);
static_assert(TB_DTYPE_MASK_FLAG(TB_DTYPE_FLOAT8_E8M0FNU, 8) == 1ull << 48);

namespace {

struct status {
  int value;
  std::string name, text;
};

#define STATUS(name, value, text) {value, #name, text},
const status kStatuses[] = {TB_STATUS_LIST(STATUS)};
#undef STATUS

TEST(AbiLayout, StatusesAreNumberedWithoutGaps) {
  ASSERT_EQ(std::size(kStatuses), size_t{TB_STATUS_COUNT_});
  for (size_t i = 0; i < std::size(kStatuses); ++i) EXPECT_EQ(kStatuses[i].value, static_cast<int>(i));
}

TEST(AbiLayout, StatusesHaveDistinctNamesAndTexts) {
  for (const status& s : kStatuses) {
    EXPECT_EQ(s.name.rfind("TB_STATUS_", 0), 0u) << s.name;
    EXPECT_FALSE(s.text.empty()) << s.name;
    for (const status& other : kStatuses) EXPECT_EQ(other.text == s.text, other.value == s.value) << s.name;
  }
}

TEST(AbiLayout, EntryIsNamedAsDeclared) {
  EXPECT_STREQ(TB_PLUGIN_ENTRY_NAME, "tb_plugin_entry");
}

} // namespace
