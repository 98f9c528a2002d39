/* A whole PyTorch device: memory, streams and a compiler of OpenCL, and not one kernel. torch_backend writes those. */
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <torch_backend/device.h>

static const tb_host* host;
static cl_device_id gpu;
static cl_context context;
static cl_command_queue default_queue;
static pthread_mutex_t arguments = PTHREAD_MUTEX_INITIALIZER; /* clSetKernelArg is not thread-safe */

#define QUEUE(stream) ((stream) ? (cl_command_queue)(stream) : default_queue)

static tb_status check(cl_int error, const char* what) {
  return error == CL_SUCCESS ? TB_STATUS_OK : host->fail(TB_STATUS_INTERNAL, "%s: OpenCL error %d", what, error);
}

static tb_status device_count(int32_t* out_count) {
  *out_count = 1;
  return TB_STATUS_OK;
}

static tb_status initialize(void) {
  cl_platform_id platform;
  cl_int error = clGetPlatformIDs(1, &platform, NULL);
  if (!error) error = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &gpu, NULL);
  if (!error) context = clCreateContext(NULL, 1, &gpu, NULL, NULL, &error);
  if (!error) default_queue = clCreateCommandQueueWithProperties(context, gpu, NULL, &error);
  return check(error, "no device");
}

static tb_status device_properties(int32_t device, tb_device_properties* out) {
  tb_device_properties p = {.struct_size = sizeof(p), .capabilities = TB_CAP_ASYNC | TB_CAP_EVENT_RERECORD};
  cl_device_type type = 0;
  clGetDeviceInfo(gpu, CL_DEVICE_NAME, sizeof(p.name) - 1, p.name, NULL);
  clGetDeviceInfo(gpu, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(p.total_memory_bytes), &p.total_memory_bytes, NULL);
  clGetDeviceInfo(gpu, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(p.max_allocation_bytes), &p.max_allocation_bytes, NULL);
  clGetDeviceInfo(gpu, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(p.multiprocessor_count), &p.multiprocessor_count, NULL);
  clGetDeviceInfo(gpu, CL_DEVICE_TYPE, sizeof(type), &type, NULL);
  p.allocation_alignment_bytes = 128;
  p.warp_size = type == CL_DEVICE_TYPE_CPU ? 1 : 32;
  p.max_block_items = p.preferred_block_items = type == CL_DEVICE_TYPE_CPU ? 1 : 256;
  memcpy(out, &p, out->struct_size < sizeof(p) ? out->struct_size : sizeof(p));
  return TB_STATUS_OK;
}

static tb_status memory_allocate(int32_t device, uint32_t kind, uint64_t size, tb_stream* stream, void** out) {
  if (kind != TB_MEMORY_DEVICE) return TB_STATUS_UNSUPPORTED;
  *out = clSVMAlloc(context, CL_MEM_READ_WRITE, size, 128);
  return *out ? TB_STATUS_OK : host->fail(TB_STATUS_OUT_OF_MEMORY, "no %llu bytes left", (unsigned long long)size);
}
static tb_status memory_free(int32_t device, uint32_t kind, void* ptr, uint64_t size, tb_stream* stream) {
  clSVMFree(context, ptr);
  return TB_STATUS_OK;
}
static tb_status memory_copy(int32_t dst_device, void* dst, int32_t src_device, const void* src, uint64_t size,
                             uint32_t kind, tb_stream* stream) {
  return check(clEnqueueSVMMemcpy(QUEUE(stream), CL_FALSE, dst, src, size, 0, NULL, NULL), "clEnqueueSVMMemcpy");
}

static tb_status stream_create(int32_t device, int32_t priority, tb_stream** out) {
  cl_int error;
  *out = (tb_stream*)clCreateCommandQueueWithProperties(context, gpu, NULL, &error);
  return check(error, "clCreateCommandQueueWithProperties");
}
static tb_status stream_destroy(int32_t device, tb_stream* stream) {
  return check(clReleaseCommandQueue((cl_command_queue)stream), "clReleaseCommandQueue");
}
static tb_status stream_synchronize(int32_t device, tb_stream* stream) {
  return check(clFinish(QUEUE(stream)), "clFinish");
}

/* A tb_event is a place for the marker that was recorded last. */
static tb_status event_create(int32_t device, uint32_t flags, tb_event** out) {
  *out = flags ? NULL : calloc(1, sizeof(cl_event));
  return *out ? TB_STATUS_OK : TB_STATUS_UNSUPPORTED;
}
static tb_status event_destroy(int32_t device, tb_event* event) {
  if (*(cl_event*)event) clReleaseEvent(*(cl_event*)event);
  free(event);
  return TB_STATUS_OK;
}
static tb_status event_record(int32_t device, tb_event* event, tb_stream* stream) {
  if (*(cl_event*)event) clReleaseEvent(*(cl_event*)event);
  const cl_int error = clEnqueueMarkerWithWaitList(QUEUE(stream), 0, NULL, (cl_event*)event);
  return check(error ? error : clFlush(QUEUE(stream)), "clEnqueueMarkerWithWaitList");
}
static tb_status event_query(int32_t device, tb_event* event) {
  cl_int state = CL_COMPLETE;
  cl_event marker = *(cl_event*)event;
  if (marker) clGetEventInfo(marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state, NULL);
  return state > CL_COMPLETE ? TB_STATUS_NOT_READY : check(state, "a command");
}
static tb_status stream_wait_event(int32_t device, tb_stream* stream, tb_event* event) {
  if (!*(cl_event*)event) return TB_STATUS_OK;
  return check(clEnqueueBarrierWithWaitList(QUEUE(stream), 1, (cl_event*)event, NULL), "clEnqueueBarrierWithWaitList");
}

static tb_status module_load(int32_t device, const char* format, const void* image, uint64_t size, tb_module** out) {
  if (strcmp(format, "opencl-c") != 0) return TB_STATUS_UNSUPPORTED;
  const char* text = image;
  size_t length = size;
  cl_program program = clCreateProgramWithSource(context, 1, &text, &length, NULL);
  if (clBuildProgram(program, 1, &gpu, "", NULL, NULL)) {
    char log[2048] = "";
    clGetProgramBuildInfo(program, gpu, CL_PROGRAM_BUILD_LOG, sizeof(log) - 1, log, NULL);
    clReleaseProgram(program);
    return host->fail(TB_STATUS_INTERNAL, "%s", log);
  }
  *out = (tb_module*)program;
  return TB_STATUS_OK;
}
static tb_status module_unload(int32_t device, tb_module* module) {
  return check(clReleaseProgram((cl_program)module), "clReleaseProgram");
}
static tb_status module_function(int32_t device, tb_module* module, const char* name, tb_function** out) {
  *out = (tb_function*)clCreateKernel((cl_program)module, name, NULL);
  return *out ? TB_STATUS_OK : host->fail(TB_STATUS_INVALID_ARGUMENT, "no kernel called %s", name);
}
static tb_status module_launch(int32_t device, tb_function* function, const uint32_t grid[3], const uint32_t block[3],
                               const tb_launch_param* params, uint32_t num_params, tb_stream* stream) {
  const size_t local[3] = {block[0], block[1], block[2]};
  const size_t global[3] = {grid[0] * local[0], grid[1] * local[1], grid[2] * local[2]};
  const cl_ulong no_offset = 0;
  cl_kernel kernel = (cl_kernel)function;
  cl_int error = 0;
  pthread_mutex_lock(&arguments);
  for (uint32_t i = 0, at = 0; i < num_params && !error; ++i) {
    if (params[i].kind == TB_PARAM_POINTER) {
      error = clSetKernelArgSVMPointer(kernel, at++, params[i].data);
      if (!error) error = clSetKernelArg(kernel, at++, sizeof(no_offset), &no_offset);
    } else {
      error = clSetKernelArg(kernel, at++, params[i].size_bytes, params[i].data);
    }
  }
  if (!error) error = clEnqueueNDRangeKernel(QUEUE(stream), kernel, 3, NULL, global, local, 0, NULL, NULL);
  pthread_mutex_unlock(&arguments);
  return check(error, "clEnqueueNDRangeKernel");
}

static const void* table(const char* name) {
  static const char* const formats[] = {"opencl-c", NULL};
  static const tb_kernel_table kernels = {
      sizeof(kernels), NULL, 0, NULL, formats, module_load, module_unload, module_function, module_launch, NULL};
  return strcmp(name, "kernels.1") == 0 ? &kernels : NULL;
}

const tb_plugin* tb_plugin_entry(const tb_host* from) {
  static const tb_core_table core = {
      sizeof(core), device_count,  device_properties, memory_allocate,    memory_free,
      memory_copy,  stream_create, stream_destroy,    stream_synchronize, stream_wait_event,
      event_create, event_destroy, event_record,      event_query,        .initialize = initialize};
  static const tb_plugin plugin = {sizeof(plugin), TB_ABI_MAJOR, TB_ABI_MINOR, "tiny", "Example",
                                   "1.0",          &core,        table,        NULL};
  host = from;
  return &plugin;
}
