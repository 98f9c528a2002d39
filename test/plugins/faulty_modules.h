/* Faults of modules, for faulty.c. */

/* ---- loading ---- */

static const char* formats_twice[] = {"c++", "opencl-c", "c++", NULL};

CHANGE(formats_are_repeated, made.kernels.module_formats = formats_twice)
CHANGE(modules_cannot_be_unloaded, MADE(module_unload) = NULL)
THEN(the_compiler_is_not_heard, module_load, if (status) host->fail(status, "the build of the program has failed"))

FIRST(there_is_no_compiler, module_load,
      if (strcmp(format, "image")) return host->fail(TB_STATUS_INTERNAL, "no compiler is installed"))

THEN(images_have_no_image, module_load, if (!status && !strcmp(format, "image")) remember(*out_module))
FIRST(images_have_no_image, module_image,
      if (forget(module)) return host->fail(TB_STATUS_INTERNAL, "the program was not compiled here"))

FAULT(bad_source_is_taken, module_load) { /* by a driver that compiles when a function is asked for */
  static const char nothing[] = "";
  const tb_status status = GOOD(module_load);
  return status ? good.kernels.module_load(device, format, nothing, 0, out_module) : status;
}

FAULT(unknown_functions_are_internal, module_function) {
  const tb_status status = GOOD(module_function);
  return status ? host->fail(TB_STATUS_INTERNAL, "driver error 500") : status;
}

FAULT(names_are_prefixes, module_function) {
  char longer[64];
  if (GOOD(module_function) == TB_STATUS_OK) return TB_STATUS_OK;
  snprintf(longer, sizeof longer, "%.50s_value", name);
  return good.kernels.module_function(device, module, longer, out_function);
}

static tb_module* first_module[64];

THEN(functions_are_global, module_load, if (!status && !first_module[device]) first_module[device] = *out_module)
FIRST(functions_are_global, module_function, if (first_module[device]) module = first_module[device])
FIRST(functions_are_global, module_unload, if (module == first_module[device]) first_module[device] = NULL)

static tb_module* unloaded_module;

FAULT(unloaded_modules_come_back, module_load) {
  if (!unloaded_module) return GOOD(module_load);
  *out_module = unloaded_module;
  return TB_STATUS_OK;
}

ANSWERS(unloaded_modules_come_back, module_unload, (unloaded_module = module, TB_STATUS_OK))

static const void* source_of_all; /* what a driver that keeps it in one place compiles */
static uint64_t size_of_all;

FAULT(loads_share_a_place, module_load) {
  source_of_all = image, size_of_all = size_bytes;
  pause_ms(2);
  return good.kernels.module_load(device, format, source_of_all, size_of_all, out_module);
}

/* ---- images ---- */

FAULT(images_overrun, module_image) {
  uint64_t needed = 0;
  void* whole;
  tb_status status = good.kernels.module_image(device, module, NULL, &needed);
  if (status || !out_image) return *size_bytes = needed, status;
  whole = malloc(needed);
  status = good.kernels.module_image(device, module, whole, &needed);
  memcpy(out_image, whole, needed);
  free(whole);
  *size_bytes = needed;
  return status;
}

FAULT(image_sizes_are_echoed, module_image) {
  const uint64_t room = *size_bytes;
  const tb_status status = GOOD(module_image);
  if (room) *size_bytes = room;
  return status;
}

FAULT(bad_images_are_internal, module_load) {
  const tb_status status = GOOD(module_load);
  return status == TB_STATUS_UNSUPPORTED ? host->fail(TB_STATUS_INTERNAL, "driver error 200") : status;
}

static char cached_image[1 << 20]; /* of the first module that was asked for */
static uint64_t cached_size;

FAULT(all_images_are_the_first, module_image) {
  const uint64_t room = *size_bytes;
  if (!cached_size) {
    uint64_t size = sizeof cached_image;
    const tb_status status = good.kernels.module_image(device, module, cached_image, &size);
    if (status) return status;
    cached_size = size;
  }
  if (room >= cached_size) memcpy(out_image, cached_image, cached_size);
  *size_bytes = cached_size;
  return TB_STATUS_OK;
}

/* ---- launches ---- */

#define MAX_PARAMS 16

/* A launch with other parameters than were given. */
#define WITH_PARAMS(fault, ...)                                                                    \
  FAULT(fault, module_launch) {                                                                    \
    tb_launch_param changed[MAX_PARAMS];                                                           \
    uint32_t i;                                                                                    \
    memcpy(changed, params, num_params * sizeof *params);                                          \
    for (i = 0; i < num_params; ++i) {                                                             \
      tb_launch_param* param = &changed[i];                                                        \
      __VA_ARGS__;                                                                                 \
    }                                                                                              \
    return good.kernels.module_launch(device, function, grid, block, changed, num_params, stream); \
  }

static unsigned char shared_local[1 << 20];
static char other_memory[1 << 16];

static void cut_to_registers(tb_launch_param* param, char room[64]) {
  if (param->kind != TB_PARAM_VALUE || param->size_bytes <= 8) return;
  memset(room, 0, 64);
  memcpy(room, param->data, 8);
  param->data = room;
}

WITH_PARAMS(values_have_eight_bytes, static char room[64]; cut_to_registers(param, room))
WITH_PARAMS(pointers_are_rounded,
            if (param->kind == TB_PARAM_POINTER) param->data = (void*)((uintptr_t)param->data & ~(uintptr_t)63))
static void* base_of(void* ptr) {
  tb_pointer_info info = {.struct_size = sizeof info};
  return ptr && !good.core.memory_query(ptr, &info) ? info.base : NULL;
}

WITH_PARAMS(buffers_are_bound_once, uint32_t j;
            for (j = 0; j < i; ++j) if (param->kind == TB_PARAM_POINTER && changed[j].kind == TB_PARAM_POINTER &&
                                        base_of(param->data) && base_of(param->data) == base_of(changed[j].data))
                param->data = changed[j].data)
WITH_PARAMS(null_is_a_buffer, if (param->kind == TB_PARAM_POINTER && !param->data) param->data = other_memory)
WITH_PARAMS(local_memory_overlaps,
            if (param->kind == TB_PARAM_LOCAL) * param = (tb_launch_param){TB_PARAM_POINTER, 0, shared_local})
WITH_PARAMS(local_memory_is_small,
            if (param->kind == TB_PARAM_LOCAL &&
                param->size_bytes > 65536) return host->fail(TB_STATUS_INVALID_ARGUMENT, "out of local memory"))

FAULT(grids_are_flat, module_launch) {
  const uint32_t flat[3] = {grid[0] * grid[1] * grid[2], 1, 1};
  return good.kernels.module_launch(device, function, flat, block, params, num_params, stream);
}

FAULT(grids_have_sixteen_bits, module_launch) {
  const uint32_t cut[3] = {grid[0] & 0xffff, grid[1], grid[2]};
  return good.kernels.module_launch(device, function, cut, block, params, num_params, stream);
}

FIRST(launches_are_on_the_default_stream, module_launch, stream = NULL)

/* Launches that a host function makes, on a stream of their own that it waits for. */
typedef struct late_launch {
  int32_t device;
  tb_function* function;
  uint32_t grid[3], block[3];
  tb_launch_param params[MAX_PARAMS]; /* values are where the caller has them */
  uint32_t num_params;
} late_launch;

static tb_stream* side_streams[64];
static int is_unloaded[64];

static void run_late_launch(void* arg) {
  late_launch* launch = arg;
  tb_stream** side = &side_streams[launch->device];
  if (!*side) good.core.stream_create(launch->device, 0, side);
  if (!is_unloaded[launch->device])
    good.kernels.module_launch(launch->device, launch->function, launch->grid, launch->block, launch->params,
                               launch->num_params, *side);
  good.core.stream_synchronize(launch->device, *side);
  free(launch);
}

static tb_status launch_late(int32_t device, tb_function* function, const uint32_t* grid, const uint32_t* block,
                             const tb_launch_param* params, uint32_t num_params, tb_stream* stream) {
  late_launch* launch = malloc(sizeof *launch);
  launch->device = device;
  launch->function = function;
  memcpy(launch->grid, grid, sizeof launch->grid);
  memcpy(launch->block, block, sizeof launch->block);
  memcpy(launch->params, params, num_params * sizeof *params);
  launch->num_params = num_params;
  return good.core.stream_host_function(device, stream, run_late_launch, launch);
}

ANSWERS(values_are_read_late, module_launch, launch_late(device, function, grid, block, params, num_params, stream))

/* Only of addresses, which are not read late. */
ANSWERS(unloading_drops_launches, module_launch, launch_late(device, function, grid, block, params, num_params, stream))
FIRST(unloading_drops_launches, module_unload, is_unloaded[device] = 1)

static int has_lost_a_stream[64];
ANSWERS(launches_go_with_their_stream, module_launch,
        launch_late(device, function, grid, block, params, num_params, stream))
FIRST(launches_go_with_their_stream, stream_destroy, has_lost_a_stream[device] = 1)
FIRST(launches_go_with_their_stream, module_unload, is_unloaded[device] = has_lost_a_stream[device])

/* A function has one set of arguments, which a launch sets and then uses. */
static tb_launch_param arguments_of_all[MAX_PARAMS];

FAULT(threads_share_arguments, module_launch) {
  memcpy(arguments_of_all, params, num_params * sizeof *params);
  pause_ms(1);
  return good.kernels.module_launch(device, function, grid, block, arguments_of_all, num_params, stream);
}

FAULT(few_launches_fit, module_launch) {
  static int num_launches;
  return ++num_launches > 500 ? host->fail(TB_STATUS_INTERNAL, "the ring is full") : GOOD(module_launch);
}

/* Recorded ones too. */
ANSWERS(launches_are_not_recorded, module_launch,
        good.kernels.module_launch(device, function, grid, block, params, num_params, NULL))
