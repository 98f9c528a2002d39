#include "compiler.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "checksum.h"
#include "temporary_directory.h"

namespace plugin {
namespace {

using words = std::vector<std::string>;

// Much more is not read; what comes first is what is wrong.
constexpr size_t kLongestMessage = 4000;

const words& command() {
  static const words split = [] {
    const char* set = std::getenv("CXX");
    std::istringstream text(set ? set : "");
    words all;
    for (std::string word; text >> word;) all.push_back(word);
    if (all.empty()) all.push_back("c++");
    return all;
  }();
  return split;
}

std::vector<char*> pointers(words& all) {
  std::vector<char*> list;
  for (std::string& each : all) list.push_back(each.data());
  list.push_back(nullptr);
  return list;
}

// This process's, but that messages are in English, that nothing of the compiler's is left behind, and that what is
// preloaded here (a sanitizer, an allocator) is not there.
words environment(const temporary_directory& directory) {
  words all = {"LC_ALL=C", "TMPDIR=" + directory.path()};
  for (char** each = environ; each && *each; ++each) {
    const std::string_view text = *each;
    const std::string_view name = text.substr(0, text.find('='));
    if (name != "LC_ALL" && name != "TMPDIR" && name != "LD_PRELOAD") all.emplace_back(text);
  }
  return all;
}

result not_found(int error) {
  return failure(TB_STATUS_INTERNAL,
                 "the C++ compiler \"%s\" cannot be run (%s). Install one, for example with \"apt install g++\", \"dnf "
                 "install gcc-c++\" or \"conda install gxx\", or set CXX to the one to use.",
                 command()[0].c_str(), std::strerror(error));
}

struct spawn_settings {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  explicit spawn_settings(const std::string& output) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  }
  ~spawn_settings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

// Fails if there is no compiler. What it prints, on both outputs, goes to `*out_text`.
result run(const words& arguments, const temporary_directory& directory, bool* out_succeeded, std::string* out_text) {
  words call = command(), variables = environment(directory);
  call.insert(call.end(), arguments.begin(), arguments.end());
  const std::string output = directory.file("messages.txt");
  const spawn_settings settings(output);
  pid_t child = 0;
  if (const int error = posix_spawnp(&child, call[0].c_str(), &settings.files, &settings.attributes,
                                     pointers(call).data(), pointers(variables).data()))
    return not_found(error);
  int status = 0;
  pid_t ended = 0;
  do {
    ended = waitpid(child, &status, 0);
  } while (ended < 0 && errno == EINTR);
  // A process that ignores SIGCHLD is not told: then what was made decides.
  *out_succeeded = ended < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
  *out_text = read_file(output);
  // The system may leave it to the child to tell that there is no such program.
  if (ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 127 && out_text->empty()) return not_found(ENOENT);
  if (ended == child && WIFSIGNALED(status))
    *out_text += "\nThe compiler was ended by signal " + std::to_string(WTERMSIG(status)) + ".";
  return {};
}

// Without the directory's name, and not too long.
std::string readable(std::string text, const temporary_directory& directory) {
  const std::string prefix = directory.path() + "/";
  for (size_t at = 0; (at = text.find(prefix, at)) != std::string::npos;) text.erase(at, prefix.size());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.size() <= kLongestMessage) return text;
  const size_t line = text.rfind('\n', kLongestMessage), end = line == std::string::npos ? kLongestMessage : line;
  return text.substr(0, end) + "\n... and " + std::to_string(text.size() - end) + " more bytes";
}

// What -march=native depends on.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string all;
  for (std::string line; std::getline(file, line) && !line.empty();)
    for (const char* name : {"model", "flags", "Features", "CPU ", "isa", "cpu"})
      if (line.rfind(name, 0) == 0 && line.rfind("cpu MHz", 0) != 0) all += line + "\n";
  return all;
}

} // namespace

std::string compiler_version(std::string_view called) {
  const temporary_directory directory;
  bool succeeded = false;
  std::string text;
  if (!run({"--version"}, directory, &succeeded, &text).ok() || !succeeded || text.empty()) return "";
  uint64_t sum = checksum(processor(), checksum(text));
  for (const std::string& word : command()) sum = checksum(word + "\n", sum);
  sum = checksum(called, sum);
  std::string line;
  for (const char each : text.substr(0, std::min<size_t>(text.find('\n'), 46)))
    if (each >= ' ' && each <= '~') line += each;
  char number[18];
  std::snprintf(number, sizeof number, " %016llx", static_cast<unsigned long long>(sum));
  return line + number;
}

result run_compiler(const words& arguments, const temporary_directory& in, const std::string& made) {
  bool succeeded = false;
  std::string text;
  result r = run(arguments, in, &succeeded, &text);
  if (r.ok() && (!succeeded || access(made.c_str(), R_OK) != 0))
    r = {TB_STATUS_INVALID_ARGUMENT, "the C++ compiler refuses the module:\n" + readable(std::move(text), in)};
  return r;
}

} // namespace plugin
