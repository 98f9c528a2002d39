#include "common/testing/plugin_instance.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>
#include <utility>

namespace torch_backend::testing {
namespace {

// Never destroyed: worker threads of plugins may outlast static destruction.
struct option_store {
  std::mutex mutex; // guards all below
  std::map<std::string, const char*> current;
  std::set<std::string> texts; // every text ever set: host->option's answers stay valid
};

option_store& store() {
  static option_store& s = *new option_store;
  return s;
}

void store_option(option_store& s, const std::string& key, const std::string& value) {
  s.current[key] = s.texts.insert(value).first->c_str();
}

thread_local std::string failure_text;

tb_status fail(tb_status code, const char* format, ...) {
  char text[8192];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  failure_text = text;
  return code;
}

void log(int32_t level, const char* text) {
  std::fprintf(stderr, "[%d] %s\n", static_cast<int>(level), text);
}

const char* option(const char* key) {
  option_store& s = store();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = s.current.find(key);
  return found == s.current.end() ? nullptr : found->second;
}

const tb_host kHost = {sizeof(tb_host), TB_ABI_MAJOR, TB_ABI_MINOR, fail, log, option, nullptr, nullptr};

std::string copy_to_temporary(const std::string& path) {
  std::string copy = ::testing::TempDir() + "/plugin.XXXXXX";
  const int fd = mkstemp(copy.data());
  if (fd >= 0) close(fd);
  std::ifstream from(path, std::ios::binary);
  std::ofstream to(copy, std::ios::binary);
  to << from.rdbuf();
  return copy;
}

} // namespace

void set_options(option_map options) {
  option_store& s = store();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.current.clear();
  for (const auto& [key, value] : options) store_option(s, key, value);
}

void set_option(const std::string& key, const std::string& value) {
  option_store& s = store();
  const std::lock_guard<std::mutex> lock(s.mutex);
  store_option(s, key, value);
}

std::string take_failure_text() {
  return std::exchange(failure_text, {});
}

const tb_plugin* load_plugin(const std::string& path) {
  const std::string copy = copy_to_temporary(path);
  void* library = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  unlink(copy.c_str());
  if (!library) {
    ADD_FAILURE() << path << ": " << dlerror();
    return nullptr;
  }
  const auto entry = reinterpret_cast<tb_plugin_entry_function>(dlsym(library, TB_PLUGIN_ENTRY_NAME));
  if (!entry) {
    ADD_FAILURE() << path << " does not export " << TB_PLUGIN_ENTRY_NAME;
    return nullptr;
  }
  return entry(&kHost);
}

::testing::AssertionResult status_is(tb_status actual, tb_status expected, const char* expression) {
  if (actual == expected) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << expression << " returned status " << actual << ", expected " << expected
                                       << "; \"" << take_failure_text() << "\"";
}

} // namespace torch_backend::testing
