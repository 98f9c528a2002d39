/* The log: the last lines, until somebody takes them. */
#include "log.h"

#include <pthread.h>
#include <string.h>

#include "host.h"

#define NUM_LINES 256u

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static tb_host_log_line lines[NUM_LINES];                 /* a ring */
static unsigned oldest, count;

void tb_host_log(int32_t level, const char* text) {
  tb_host_log_line* line;
  pthread_mutex_lock(&mutex);
  if (count == NUM_LINES) {
    oldest = (oldest + 1) % NUM_LINES;
    --count;
  }
  line = &lines[(oldest + count++) % NUM_LINES];
  line->level = level;
  strncpy(line->text, text, sizeof line->text - 1);
  line->text[sizeof line->text - 1] = '\0';
  pthread_mutex_unlock(&mutex);
}

int tb_host_take_log_line(tb_host_log_line* out_line) {
  int taken;
  pthread_mutex_lock(&mutex);
  taken = count > 0;
  if (taken) {
    *out_line = lines[oldest];
    oldest = (oldest + 1) % NUM_LINES;
    --count;
  }
  pthread_mutex_unlock(&mutex);
  return taken;
}
