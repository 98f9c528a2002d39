/* The text of a failure, for the thread that failed. */
#include "error_text.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

typedef struct thread_texts {
  char* stored;
  char* taken; /* what tb_host_take_error_text returned last */
} thread_texts;

static pthread_key_t key; /* -> thread_texts */
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void forget_thread(void* texts) {
  free(((thread_texts*)texts)->stored);
  free(((thread_texts*)texts)->taken);
  free(texts);
}

static void create_key(void) {
  if (pthread_key_create(&key, forget_thread) != 0) abort();
}

/* NULL if there is no memory. */
static thread_texts* texts_of_thread(void) {
  thread_texts* texts;
  pthread_once(&key_once, create_key);
  texts = pthread_getspecific(key);
  if (!texts) {
    texts = calloc(1, sizeof *texts);
    pthread_setspecific(key, texts);
  }
  return texts;
}

static char* formatted(const char* format, va_list args) {
  va_list measured;
  int length;
  char* text;
  va_copy(measured, args);
  length = vsnprintf(NULL, 0, format, measured);
  va_end(measured);
  if (length < 0) return strdup(format);
  text = malloc((size_t)length + 1);
  if (text) vsnprintf(text, (size_t)length + 1, format, args);
  return text;
}

tb_status tb_host_fail(tb_status code, const char* format, ...) {
  thread_texts* texts = texts_of_thread();
  va_list args;
  if (!texts) return code;
  va_start(args, format);
  free(texts->stored);
  texts->stored = formatted(format, args);
  va_end(args);
  return code;
}

const char* tb_host_take_error_text(void) {
  thread_texts* texts = texts_of_thread();
  if (!texts) return "";
  free(texts->taken);
  texts->taken = texts->stored;
  texts->stored = NULL;
  return texts->taken ? texts->taken : "";
}
