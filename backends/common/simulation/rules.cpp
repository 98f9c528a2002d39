#include "rules.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>

namespace sim {

const char* setting(const char* name) {
  const char* text = std::getenv((std::string(kPrefix) + "_" + name).c_str());
  return text && *text ? text : nullptr;
}

int setting(const char* name, int otherwise) {
  const char* text = setting(name);
  return text ? std::atoi(text) : otherwise;
}

std::string& refusal() {
  static thread_local std::string text;
  return text;
}

int refuse(int code, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  refusal() = text;
  if (const char* path = setting("LOG"))
    if (FILE* file = std::fopen(path, "a")) {
      std::fprintf(file, "%d %s\n", code, text);
      std::fclose(file);
    }
  return code;
}

int injected_fault(const char* name) {
  static const std::string all = [] {
    const char* text = setting("FAIL");
    return std::string(text ? text : "");
  }();
  if (all.empty()) return 0;
  static std::mutex mutex; // guards calls
  static auto& calls = *new std::map<std::string, int>;
  const std::lock_guard<std::mutex> lock(mutex);
  const int call = ++calls[name];
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(',', at), all.size());
    const std::string entry = all.substr(at, end - at);
    const size_t equals = entry.find('='), colon = entry.find(':');
    const std::string wanted = entry.substr(0, std::min(equals, colon));
    const int of = colon == std::string::npos ? call : std::atoi(entry.c_str() + colon + 1);
    if (wanted == name && of == call) return std::atoi(entry.c_str() + equals + 1);
    at = end + 1;
  }
  return 0;
}

void delay() {
  static const auto range = [] {
    std::pair<int, int> us{0, 0};
    if (const char* text = setting("DELAY_US")) std::sscanf(text, "%d-%d", &us.first, &us.second);
    return us;
  }();
  if (range.second <= 0) return;
  static thread_local std::minstd_rand random(static_cast<unsigned>(pthread_self()));
  std::uniform_int_distribution<int> draw(range.first, range.second);
  if (const int us = draw(random)) usleep(static_cast<unsigned>(us));
}

} // namespace sim
