/* The user's settings: those that were set, and else the environment's as they were when first asked for. */
#include "option.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

typedef struct setting {
  char* key;
  char* value;
  struct setting* next;
} setting;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards settings */
/* The newest first. None goes: a string that was handed out stays valid until the process ends. */
static setting* settings;

/* With the mutex held. */
static setting* find(const char* key) {
  setting* s = settings;
  while (s && strcmp(s->key, key) != 0) s = s->next;
  return s;
}

/* With the mutex held. Returns what is kept, NULL if there is no memory. */
static const char* keep(const char* key, const char* value) {
  setting* s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->key = strdup(key);
  s->value = strdup(value);
  if (!s->key || !s->value) {
    free(s->key);
    free(s->value);
    free(s);
    return NULL;
  }
  s->next = settings;
  settings = s;
  return s->value;
}

/* "TORCH_BACKEND_" and the key in capitals, "_" for what is neither letter nor digit. */
static const char* from_environment(const char* key) {
  static const char prefix[] = "TORCH_BACKEND_";
  const size_t length = strlen(key);
  char* name = malloc(sizeof prefix + length);
  char* end;
  const char* value;
  size_t i;
  if (!name) return NULL;
  memcpy(name, prefix, sizeof prefix);
  end = name + sizeof prefix - 1;
  for (i = 0; i < length; ++i) {
    const unsigned char c = (unsigned char)key[i];
    *end++ = isalnum(c) ? (char)toupper(c) : '_';
  }
  *end = '\0';
  value = getenv(name);
  free(name);
  return value;
}

const char* tb_host_option(const char* key) {
  const setting* s;
  const char* value;
  pthread_mutex_lock(&mutex);
  s = find(key);
  value = s ? s->value : from_environment(key);
  if (!s && value) value = keep(key, value);
  pthread_mutex_unlock(&mutex);
  return value;
}

int tb_host_set_option(const char* key, const char* value) {
  const char* kept;
  pthread_mutex_lock(&mutex);
  kept = keep(key, value);
  pthread_mutex_unlock(&mutex);
  return kept ? 0 : -1;
}
