/* LIBRARY, which is xcpu, whose streams a vendor's own API makes and destroys too: create_stream and destroy_stream. Without
 * device_synchronize, so that a wait for the device is one for every stream. What is asked of a stream that was destroyed
 * is counted. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "torch_backend/device.h"

#define MAX_STREAMS 4096
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static tb_stream* destroyed[MAX_STREAMS];
static int num_destroyed, num_wrong_calls;

static tb_core_table good;

static int is_destroyed(tb_stream* stream) {
  int i, found = 0;
  pthread_mutex_lock(&mutex);
  for (i = 0; i < num_destroyed; ++i) found |= destroyed[i] == stream;
  num_wrong_calls += found;
  pthread_mutex_unlock(&mutex);
  return found;
}

static tb_status stream_synchronize(int32_t device, tb_stream* stream) {
  return is_destroyed(stream) ? TB_STATUS_OK : good.stream_synchronize(device, stream);
}

static tb_status event_record(int32_t device, tb_event* event, tb_stream* stream) {
  return is_destroyed(stream) ? TB_STATUS_OK : good.event_record(device, event, stream);
}

/* Its memory is kept, so that no other stream gets its address. */
TB_EXPORT int destroy_stream(tb_stream* stream) {
  pthread_mutex_lock(&mutex);
  destroyed[num_destroyed++] = stream;
  pthread_mutex_unlock(&mutex);
  return 0;
}

TB_EXPORT tb_stream* create_stream(void) {
  tb_stream* stream = NULL;
  good.stream_create(0, 0, &stream);
  return stream;
}

TB_EXPORT int calls_of_destroyed_streams(void) {
  return num_wrong_calls;
}

const tb_plugin* tb_plugin_entry(const tb_host* host) {
  static tb_core_table table;
  static tb_plugin plugin;
  void* library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  tb_plugin_entry_function entry;
  const tb_plugin* whole;
  if (!library) {
    host->fail(TB_STATUS_INTERNAL, "%s", dlerror());
    return NULL;
  }
  *(void**)&entry = dlsym(library, TB_PLUGIN_ENTRY_NAME);
  if (!(whole = entry(host))) return NULL;
  good = table = *whole->core;
  table.device_synchronize = NULL;
  table.stream_synchronize = stream_synchronize;
  table.event_record = event_record;
  plugin = *whole;
  plugin.core = &table;
  return &plugin;
}
