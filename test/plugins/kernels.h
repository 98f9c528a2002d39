/* A table "kernels.1" for plugin.c, compiled in with -DKERNELS: kernels that fail, and with one more switch a table that
 * is not usable.
 *
 * NULL_ENTRY, NULL_OP, BARE_OP, NO_FUNCTION, UNKNOWN_FLAG, SMALL_ENTRY, TWICE    one entry is malformed
 * SMALL_TABLE, NO_LIST, HALF_MODULE                                              the table is
 * WRONG_FIND                                                                     kernel_find answers for another */
#define KERNEL(name) static tb_status name(const tb_kernel_context* context, const tb_arg* args, int32_t num_args)

static int attempts = 0;

KERNEL(fails) {
  (void)context, (void)args;
  return host->fail(TB_STATUS_INTERNAL, "the multiplier is on fire after %d arguments", (int)num_args);
}

KERNEL(is_lost) {
  (void)context, (void)args, (void)num_args;
  return host->fail(TB_STATUS_DEVICE_LOST, "it fell off the bus");
}

/* Has memory only when the core has emptied its cache. */
KERNEL(is_full_once) {
  const tb_tensor* out = args[num_args - 1].v.p;
  (void)context;
  if (attempts++ % 2 == 0) return host->fail(TB_STATUS_OUT_OF_MEMORY, "no room");
  *(float*)((char*)out->data + out->byte_offset) = 7;
  return TB_STATUS_OK;
}

KERNEL(is_full) {
  (void)context, (void)args, (void)num_args;
  return host->fail(TB_STATUS_OUT_OF_MEMORY, "no room at all");
}

KERNEL(wants_too_much) {
  void* workspace;
  (void)args, (void)num_args;
  return host->alloc_workspace(context, (uint64_t)1 << 50, &workspace);
}

KERNEL(allocates_undeclared) {
  tb_tensor out = {.dtype = {TB_DTYPE_FLOAT, 32, 1}};
  const int64_t shape[1] = {1};
  (void)args, (void)num_args;
  return host->alloc_output(context, 0, 1, shape, &out);
}

/* A copy of the context is not the running kernel's. */
KERNEL(allocates_elsewhere) {
  const tb_kernel_context copy = *context;
  void* workspace;
  (void)args, (void)num_args;
  return host->alloc_workspace(&copy, 64, &workspace);
}

KERNEL(allocates_nothing) {
  (void)context, (void)args, (void)num_args;
  return TB_STATUS_OK;
}

KERNEL(allocates_without_dtype) {
  tb_tensor out;
  const int64_t shape[1] = {1};
  memset(&out, 0, sizeof out);
  (void)args, (void)num_args;
  return host->alloc_output(context, 0, 1, shape, &out);
}

/* Tells what it was given: the number of arguments, and the tag and length of each. */
KERNEL(describes) {
  char text[512] = "";
  (void)context;
  for (int32_t i = 0; i < num_args; ++i)
    sprintf(text + strlen(text), " %d/%u", (int)args[i].tag, (unsigned)args[i].length);
  return host->fail(TB_STATUS_INVALID_ARGUMENT, "given%s", text);
}

/* Tells more: what the core computes in, then of every argument what it is. A dtype is its code and bits. */
KERNEL(tells) {
  char text[512];
  int end = sprintf(text, "in %u/%u:", (unsigned)context->compute_dtype.code, (unsigned)context->compute_dtype.bits);
  if (context->flags) end += sprintf(text + end, " allowed %u", (unsigned)context->flags);
  for (int32_t i = 0; i < num_args; ++i) {
    const tb_arg* arg = &args[i];
    if (arg->tag == TB_ARG_TENSOR) {
      const tb_dtype dtype = ((const tb_tensor*)arg->v.p)->dtype;
      end += sprintf(text + end, " t%u/%u", (unsigned)dtype.code, (unsigned)dtype.bits);
    } else if (arg->tag == TB_ARG_INT || arg->tag == TB_ARG_BOOL) {
      end += sprintf(text + end, " %c%lld", arg->tag == TB_ARG_INT ? 'i' : 'b', (long long)arg->v.i);
    } else if (arg->tag == TB_ARG_FLOAT) {
      end += sprintf(text + end, " f%g", arg->v.f);
    } else if (arg->tag == TB_ARG_COMPLEX) {
      end += sprintf(text + end, " c%g,%g", ((const double*)arg->v.p)[0], ((const double*)arg->v.p)[1]);
    } else if (arg->tag == TB_ARG_GENERATOR) {
      const tb_philox* numbers = arg->v.p;
      end += sprintf(text + end, " g%llu+%llu", (unsigned long long)numbers->seed, (unsigned long long)numbers->offset);
    } else {
      end += sprintf(text + end, " -");
    }
  }
  return host->fail(TB_STATUS_INVALID_ARGUMENT, "told %s.", text);
}

#define MIXED_NUMBERS (TB_KERNEL_MIXED_DTYPES | TB_KERNEL_NUMBERS)
#define ENTRY(name, function, flags) {sizeof(tb_kernel), name, function, flags, 0, NULL}
static const tb_kernel entries[] = {
    ENTRY("aten::mul.out", fails, 0),
    ENTRY("aten::neg.out", is_lost, 0),
    ENTRY("aten::exp.out", is_full_once, 0),
    ENTRY("aten::exp2.out", is_full, 0),
    ENTRY("aten::log.out", wants_too_much, 0),
    ENTRY("aten::sin.out", allocates_undeclared, 0),
    ENTRY("aten::cos.out", allocates_elsewhere, 0),
    ENTRY("aten::nonzero.out", allocates_nothing, TB_KERNEL_ALLOCATES_OUTPUT),
    ENTRY("aten::masked_select.out", allocates_without_dtype, TB_KERNEL_ALLOCATES_OUTPUT),
    ENTRY("aten::upsample_nearest2d.out", describes, 0),
    ENTRY("aten::native_layer_norm", describes, 0),
    ENTRY("aten::index.Tensor_out", describes, 0),
    ENTRY("aten::cat.out", describes, 0),
    ENTRY("aten::native_batch_norm.out", describes, 0),
    ENTRY("aten::quantum_add.out", fails, 0),          /* no version of PyTorch has it */
    ENTRY("aten::_foreach_add_.ScalarList", fails, 0), /* takes a list of Scalar */
    ENTRY("aten::normal_", tells, 0),
    ENTRY("aten::bernoulli.out", tells, 0),
    ENTRY("aten::sub.out", tells, TB_KERNEL_MIXED_DTYPES),
    ENTRY("aten::atan2.out", tells, TB_KERNEL_NUMBERS),
    ENTRY("aten::div.out", tells, MIXED_NUMBERS),
    ENTRY("aten::eq.Tensor_out", tells, MIXED_NUMBERS),
    ENTRY("aten::logical_and.out", tells, MIXED_NUMBERS), /* not structured, as the next: called in another way */
    ENTRY("aten::where.self_out", tells, MIXED_NUMBERS),
    ENTRY("aten::dot", tells, TB_KERNEL_MATH_FLAGS),
    ENTRY("aten::vdot", tells, 0),
    ENTRY("later::on", describes, 0), /* may still be defined */
#ifdef NULL_OP
    ENTRY(NULL, fails, 0),
#endif
#ifdef BARE_OP
    ENTRY("add.out", fails, 0),
#endif
#ifdef NO_FUNCTION
    ENTRY("aten::add.out", NULL, 0),
#endif
#ifdef UNKNOWN_FLAG
    ENTRY("aten::add.out", fails, 64),
#endif
#ifdef SMALL_ENTRY
    {8, "aten::add.out", fails, 0, 0, NULL},
#endif
#ifdef TWICE
    ENTRY("aten::mul.out", fails, 0),
#endif
};
#define NUM_KERNELS (sizeof entries / sizeof entries[0])

static const tb_kernel* kernel_find(const char* op) {
  static const tb_kernel found = ENTRY("aten::tan.out", fails, 0);
#ifdef WRONG_FIND
  return strcmp(op, "aten::tanh.out") == 0 ? &found : NULL;
#else
  return strcmp(op, found.op) == 0 ? &found : NULL;
#endif
}

#ifdef HALF_MODULE
static tb_status module_unload(int32_t device, tb_module* module) {
  (void)device, (void)module;
  return TB_STATUS_OK;
}
#endif

static const void* table(const char* name) {
  static const tb_kernel* kernels[NUM_KERNELS + 1]; /* one more: NULL */
  static tb_kernel_table offered = {.struct_size = sizeof(tb_kernel_table), .num_kernels = NUM_KERNELS};
  for (size_t i = 0; i < NUM_KERNELS; ++i) kernels[i] = &entries[i];
  offered.kernels = kernels;
  offered.kernel_find = kernel_find;
#ifdef NULL_ENTRY
  offered.num_kernels = NUM_KERNELS + 1;
#endif
#ifdef SMALL_TABLE
  offered.struct_size = 8;
#endif
#ifdef NO_LIST
  offered.kernels = NULL;
#endif
#ifdef HALF_MODULE
  offered.module_unload = module_unload;
#endif
  return strcmp(name, "kernels.1") == 0 ? &offered : NULL;
}
