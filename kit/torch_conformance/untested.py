"""By the reason: the sentences of device.h that no test of the suite can break with, named as promises.py says."""

UNTESTED = {
    "It introduces or names something: there is nothing in it to keep or to break.": """
        all calls 1.1 2.1-4 4.1 5.1, TB_STATUS_LIST 1.1 5.1 7.1 8.1, tb_function, tb_dtype.code, tb_dtype.bits,
        TB_DTYPE_MASK_WORDS, TB_ARG_NONE 1, tb_device_properties.capability_major, TB_MEMORY_DEVICE,
        TB_EVENT_INTERPROCESS, device_properties 2, initialize 1, kernels.1 1, tb_launch_param.kind,
        tb_kernel.dtype_mask 2 3, tb_kernel_table 2.1, tb_kernel_table.module_formats 2, TB_TRACE_RUNTIME,
        TB_PLUGIN_ENTRY_NAME 1
    """,
    (
        "It is about the header itself, whose layout test/python/test_abi_mirror.py and test_device_header.py "
        "compare with each release's."
    ): """
        all calls 3.1 3.5 3.6, TB_STATUS_LIST 1.2, tb_device_id
    """,
    (
        "The core promises it, not the device. The tests of the core in test/cpp and test/python have devices that "
        "see whether it does."
    ): """
        all calls 3.3 3.7 8.3 9.1 9.2 12.1 13.1 14.1-3, TB_STATUS_LIST 1.3 3.1 4.1, tb_stream, tb_kernel_host,
        TB_CAP_EVENT_TIMING 2, TB_CAP_EVENT_RERECORD 2, TB_CAP_PEER 2, tb_device_properties.driver_version 2,
        TB_EVENT_TIMING, tb_host_function 2, memory_allocate 6 8, memory_copy 2 4 5, stream_create 3, stream_destroy 2,
        event_create 3, initialize 2 3, thread_bind 2-5, device_synchronize 2, memory_info 2, memory_fill 3 4,
        memory_copy_2d 2 4, memory_query 2, host_register 2, stream_query 3, stream_host_function 3,
        event_synchronize 2, event_elapsed 4, peer_can_access 2, address_reserve 6, address_release 2, memory_commit 5,
        memory_decommit 4, capture_end 3, tb_kernel_function 10.3 10.4, TB_KERNEL_NEEDS_CONTIGUOUS,
        tb_kernel_table 1.1-3, kernel_find 3, tb_kernel_table.module_formats 3, module_load 2 6, module_launch 3,
        module_image 3, tb_trace_record.name, trace_stop, tb_host 1-3, fail 1 2, log, option 1-3, alloc_output 2 3,
        alloc_workspace 1 2, table 2, TB_PLUGIN_ENTRY_NAME 2
    """,
    "No call that gives something could be tested without it: nearly every test breaks.": """
        all calls 7.2 7.3
    """,
    "It leaves the device free: whatever it does is right.": """
        all calls 8.2, tb_host_function 1, device_count 2, memory_allocate 2, memory_free 2, memory_map 3,
        address_reserve 3 4, memory_commit 4, memory_decommit 3, TB_KERNEL_ALLOCATES_OUTPUT 2, TB_MATH_TF32_MATMUL,
        TB_MATH_TF32_CONV, TB_MATH_FP16_REDUCTION, TB_MATH_FP16_ACCUMULATION, comm_create, tb_plugin.option_keys 2
    """,
    (
        "No test can make the work of a device fail, or lose the device. test/python/test_failed_waits.py and "
        "test_device_lost.py test the core with devices that fail when they are told."
    ): """
        all calls 11.1, TB_STATUS_LIST 6.1
    """,
    (
        "It says what kernels are given, which the core keeps and test/python/test_plugin_kernels.py tests. What "
        "kernels make of it every test of the level ops compares with the CPU."
    ): """
        tb_device_id.type, tb_tensor.data 1 2, tb_tensor.shape, tb_tensor.strides, TB_ARG_NONE 2, TB_ARG_INT,
        TB_ARG_BOOL, TB_ARG_FLOAT, TB_ARG_POINTER, TB_ARG_DTYPE, TB_ARG_DEVICE, TB_ARG_TENSOR, TB_ARG_STRING,
        TB_ARG_COMPLEX, TB_ARG_GENERATOR, TB_ARG_INT_LIST, TB_ARG_FLOAT_LIST, TB_ARG_TENSOR_LIST, tb_philox 3,
        tb_philox.offset, tb_kernel_context.flags, tb_kernel_context.stream, tb_kernel_context.host,
        tb_kernel_context.compute_dtype, tb_kernel_function 2.1-4 3.1-5 4.1 4.2 5.1-3 6.1 7.1 7.2 8.1-5 9.1 9.3 10.1,
        TB_KERNEL_ALLOCATES_OUTPUT 1, TB_KERNEL_MIXED_DTYPES, TB_KERNEL_NUMBERS, TB_KERNEL_MATH_FLAGS,
        TB_KERNEL_INPUT_DTYPES, alloc_output 1 4, alloc_workspace 3
    """,
    "The core passes kernels no such memory, and no table of device.h lets a test do it.": """
        TB_CAP_PAGEABLE_ACCESS
    """,
    "Only the library itself knows: its host gets the same calls either way.": """
        kernel_find 4
    """,
    "The library cannot be opened otherwise, and the kit says why instead of running.": """
        tb_plugin.name
    """,
}
