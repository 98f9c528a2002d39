/* Faults of modules, for faulty.c. */

/* ---- loading ---- */

static const char* formats_twice[] = {"c++", "opencl-c", "c++", NULL};

CAUGHT(formats_are_repeated, modules, "test_modules.py::test_formats_are_names", "module_formats lists a name twice")
CHANGE(formats_are_repeated, made.kernels.module_formats = formats_twice)
CAUGHT(modules_cannot_be_unloaded, modules, "test_kernel_table.py::test_module_slots_are_set_together",
       "only ['module_formats', 'module_load', 'module_function', 'module_launch'] are set")
CHANGE(modules_cannot_be_unloaded, MADE(module_unload) = NULL)
CAUGHT(the_compiler_is_not_heard, modules, "test_modules.py::test_errors_in_the_source_are_told",
       "what the compiler says is not told: 'the build of the program has failed'")
THEN(the_compiler_is_not_heard, module_load, if (status) host->fail(status, "the build of the program has failed"))

CAUGHT(there_is_no_compiler, modules, "test_modules.py::test_source_is_compiled[c++]", "no compiler is installed")
FIRST(there_is_no_compiler, module_load,
      if (strcmp(format, "image")) return host->fail(TB_STATUS_INTERNAL, "no compiler is installed"))

CAUGHT(images_have_no_image, modules, "test_modules.py::test_an_image_of_an_image", "the program was not compiled here")
THEN(images_have_no_image, module_load, if (!status && !strcmp(format, "image")) remember(*out_module))
FIRST(images_have_no_image, module_image,
      if (forget(module)) return host->fail(TB_STATUS_INTERNAL, "the program was not compiled here"))

CAUGHT(bad_source_is_taken, modules, "test_modules.py::test_errors_in_the_source_are_told",
       "module_load returned OK for source that uses an unknown name")
FAULT(bad_source_is_taken, module_load) { /* by a driver that compiles when a function is asked for */
  static const char nothing[] = "";
  const tb_status status = GOOD(module_load);
  return status ? good.kernels.module_load(device, format, nothing, 0, out_module) : status;
}

CAUGHT(unknown_functions_are_internal, modules, "test_modules.py::test_an_unknown_function_is_refused",
       "returned INTERNAL instead of INVALID_ARGUMENT")
FAULT(unknown_functions_are_internal, module_function) {
  const tb_status status = GOOD(module_function);
  return status ? host->fail(TB_STATUS_INTERNAL, "driver error 500") : status;
}

CAUGHT(names_are_prefixes, modules, "test_modules.py::test_an_unknown_function_is_refused",
       "module_function of 'write', which the module does not have, returned OK")
FAULT(names_are_prefixes, module_function) {
  char longer[64];
  if (GOOD(module_function) == TB_STATUS_OK) return TB_STATUS_OK;
  snprintf(longer, sizeof longer, "%.50s_value", name);
  return good.kernels.module_function(device, module, longer, out_function);
}

static tb_module* first_module[64];

CAUGHT(functions_are_global, modules, "test_modules.py::test_functions_of_one_name_are_those_of_their_modules",
       "functions of modules 1, 2, 1 wrote [1, 1, 1]")
THEN(functions_are_global, module_load, if (!status && !first_module[device]) first_module[device] = *out_module)
FIRST(functions_are_global, module_function, if (first_module[device]) module = first_module[device])
FIRST(functions_are_global, module_unload, if (module == first_module[device]) first_module[device] = NULL)

static tb_module* unloaded_module;

CAUGHT(unloaded_modules_come_back, modules, "test_modules.py::test_modules_come_and_go",
       "the function of module 4 wrote 3")
FAULT(unloaded_modules_come_back, module_load) {
  if (!unloaded_module) return GOOD(module_load);
  *out_module = unloaded_module;
  return TB_STATUS_OK;
}

ANSWERS(unloaded_modules_come_back, module_unload, (unloaded_module = module, TB_STATUS_OK))

static const void* source_of_all; /* what a driver that keeps it in one place compiles */
static uint64_t size_of_all;

CAUGHT(loads_share_a_place, modules, "test_modules.py::test_threads_load_at_once", "some wrote another's number")
FAULT(loads_share_a_place, module_load) {
  source_of_all = image, size_of_all = size_bytes;
  pause_ms(2);
  return good.kernels.module_load(device, format, source_of_all, size_of_all, out_module);
}

/* ---- images ---- */

CAUGHT(images_overrun, modules, "test_modules.py::test_too_little_room_for_an_image", "with room for 1: ")
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

CAUGHT(image_sizes_are_echoed, modules, "test_modules.py::test_too_little_room_for_an_image",
       "module_image with room for 1 bytes says that 1 are needed")
FAULT(image_sizes_are_echoed, module_image) {
  const uint64_t room = *size_bytes;
  const tb_status status = GOOD(module_image);
  if (room) *size_bytes = room;
  return status;
}

CAUGHT(bad_images_are_internal, modules, "test_modules.py::test_what_is_no_image_is_unsupported",
       "module_load of random bytes as an image returned INTERNAL instead of UNSUPPORTED")
FAULT(bad_images_are_internal, module_load) {
  const tb_status status = GOOD(module_load);
  return status == TB_STATUS_UNSUPPORTED ? host->fail(TB_STATUS_INTERNAL, "driver error 200") : status;
}

static char cached_image[1 << 20]; /* of the first module that was asked for */
static uint64_t cached_size;

CAUGHT(all_images_are_the_first, modules, "test_modules.py::test_an_image_is_a_module", "the image of module 2 wrote 1")
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

CAUGHT(values_have_eight_bytes, modules, "test_module_launches.py::test_values_arrive_whole",
       "a function added up what its values hold to")
WITH_PARAMS(values_have_eight_bytes, static char room[64]; cut_to_registers(param, room))
CAUGHT(pointers_are_rounded, modules, "test_module_launches.py::test_pointers_point_anywhere_in_memory[13]",
       "pointers 13 bytes into memory")
WITH_PARAMS(pointers_are_rounded,
            if (param->kind == TB_PARAM_POINTER) param->data = (void*)((uintptr_t)param->data & ~(uintptr_t)63))
static void* base_of(void* ptr) {
  tb_pointer_info info = {.struct_size = sizeof info};
  return ptr && !good.core.memory_query(ptr, &info) ? info.base : NULL;
}

CAUGHT(buffers_are_bound_once, modules, "test_module_launches.py::test_two_pointers_into_one_allocation",
       "two pointers into one allocation")
WITH_PARAMS(buffers_are_bound_once, uint32_t j;
            for (j = 0; j < i; ++j) if (param->kind == TB_PARAM_POINTER && changed[j].kind == TB_PARAM_POINTER &&
                                        base_of(param->data) && base_of(param->data) == base_of(changed[j].data))
                param->data = changed[j].data)
CAUGHT(null_is_a_buffer, modules, "test_module_launches.py::test_null_is_null", "a function that was given NULL")
WITH_PARAMS(null_is_a_buffer, if (param->kind == TB_PARAM_POINTER && !param->data) param->data = other_memory)
CAUGHT(local_memory_overlaps, modules, "test_module_launches.py::test_local_memory_is_the_blocks_own",
       "with 1 bytes of local memory, twice")
WITH_PARAMS(local_memory_overlaps,
            if (param->kind == TB_PARAM_LOCAL) * param = (tb_launch_param){TB_PARAM_POINTER, 0, shared_local})
CAUGHT(local_memory_is_small, modules, "test_module_launches.py::test_all_local_memory_can_be_used",
       "out of local memory")
WITH_PARAMS(local_memory_is_small,
            if (param->kind == TB_PARAM_LOCAL &&
                param->size_bytes > 65536) return host->fail(TB_STATUS_INVALID_ARGUMENT, "out of local memory"))

CAUGHT(grids_are_flat, modules, "test_module_launches.py::test_every_item_runs_once_and_knows_where_it_is[1x1x1]",
       "in a grid of (5, 3, 2) blocks")
FAULT(grids_are_flat, module_launch) {
  const uint32_t flat[3] = {grid[0] * grid[1] * grid[2], 1, 1};
  return good.kernels.module_launch(device, function, flat, block, params, num_params, stream);
}

CAUGHT(grids_have_sixteen_bits, modules, "test_module_launches.py::test_many_blocks_run", "100003 blocks")
FAULT(grids_have_sixteen_bits, module_launch) {
  const uint32_t cut[3] = {grid[0] & 0xffff, grid[1], grid[2]};
  return good.kernels.module_launch(device, function, cut, block, params, num_params, stream);
}

CAUGHT(launches_are_on_the_default_stream, async modules,
       "test_module_launches.py::test_launches_are_in_the_order_of_their_stream",
       "launches ran before what is on their stream")
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

CAUGHT(values_are_read_late, async modules, "test_module_launches.py::test_parameters_are_read_before_the_call_returns",
       "a launch whose parameters were overwritten after the call gave")
ANSWERS(values_are_read_late, module_launch, launch_late(device, function, grid, block, params, num_params, stream))

/* Only of addresses, which are not read late. */
CAUGHT(unloading_drops_launches, async modules, "test_modules.py::test_a_module_is_unloaded_with_launches_pending",
       "a launch that was pending when its module was unloaded wrote 0")
ANSWERS(unloading_drops_launches, module_launch, launch_late(device, function, grid, block, params, num_params, stream))
FIRST(unloading_drops_launches, module_unload, is_unloaded[device] = 1)

static int has_lost_a_stream[64];
CAUGHT(launches_go_with_their_stream, async modules,
       "test_modules.py::test_a_module_is_unloaded_with_launches_on_a_stream_that_is_gone",
       "a launch on a stream that was destroyed wrote 0")
ANSWERS(launches_go_with_their_stream, module_launch,
        launch_late(device, function, grid, block, params, num_params, stream))
FIRST(launches_go_with_their_stream, stream_destroy, has_lost_a_stream[device] = 1)
FIRST(launches_go_with_their_stream, module_unload, is_unloaded[device] = has_lost_a_stream[device])

/* A function has one set of arguments, which a launch sets and then uses. */
static tb_launch_param arguments_of_all[MAX_PARAMS];

CAUGHT(threads_share_arguments, modules, "test_module_launches.py::test_threads_launch_one_function", "got mixed up")
FAULT(threads_share_arguments, module_launch) {
  memcpy(arguments_of_all, params, num_params * sizeof *params);
  pause_ms(1);
  return good.kernels.module_launch(device, function, grid, block, arguments_of_all, num_params, stream);
}

CAUGHT(few_launches_fit, async modules, "test_module_launches.py::test_many_launches_are_taken", "the ring is full")
FAULT(few_launches_fit, module_launch) {
  static int num_launches;
  return ++num_launches > 500 ? host->fail(TB_STATUS_INTERNAL, "the ring is full") : GOOD(module_launch);
}

/* Recorded ones too. */
CAUGHT(launches_are_not_recorded, async modules, "test_graph_table.py::test_recorded_launches_keep_their_parameters",
       "after launches were recorded")
ANSWERS(launches_are_not_recorded, module_launch,
        good.kernels.module_launch(device, function, grid, block, params, num_params, NULL))
