/* LIBRARY, which is xcpu, whose streams a vendor's own API makes and destroys too: create_stream and destroy_stream. Without
 * device_synchronize, so that a wait for the device is one for every stream. What is asked of a stream that was destroyed
 * is counted. */
#include "wrapper.h"

#include <pthread.h>

#define MAX_STREAMS 4096
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static tb_stream* destroyed[MAX_STREAMS];
static int num_destroyed, num_wrong_calls;

static int is_destroyed(tb_stream* stream) {
  int i, found = 0;
  pthread_mutex_lock(&mutex);
  for (i = 0; i < num_destroyed; ++i) found |= destroyed[i] == stream;
  num_wrong_calls += found;
  pthread_mutex_unlock(&mutex);
  return found;
}

FUNCTION(synchronize, stream_synchronize) {
  return is_destroyed(stream) ? TB_STATUS_OK : GOOD(stream_synchronize);
}

FUNCTION(record, event_record) {
  return is_destroyed(stream) ? TB_STATUS_OK : GOOD(event_record);
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
  good.core.stream_create(0, 0, &stream);
  return stream;
}

TB_EXPORT int calls_of_destroyed_streams(void) {
  return num_wrong_calls;
}

const tb_plugin* tb_plugin_entry(const tb_host* the_host) {
  if (!wrap(LIBRARY, the_host)) return NULL;
  MADE(device_synchronize) = NULL;
  MADE(stream_synchronize) = synchronize;
  MADE(event_record) = record;
  return &plugin;
}
