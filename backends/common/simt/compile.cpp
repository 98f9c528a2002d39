#include "compile.h"

#include "../host_compiler/compiler.h"
#include "../host_compiler/temporary_directory.h"
#include "prelude_text.h"
#include "translation.h"

namespace plugin::simt {
namespace {

using words = std::vector<std::string>;

// Both passes'.
words common_flags(const compile_options& options) {
  words all = {"-std=c++17", "-w", "-D__CUDA_ARCH__=" + std::to_string(options.arch * 10)};
  // Its runtime is not linked: the prelude has what takes its place. Less is optimized away.
  if (options.looks_for_races) all.insert(all.end(), {"-fsanitize=thread", "--param=tsan-distinguish-volatile=1"});
  return all;
}

// As in CUDA C++, words of any type may be moved as those of another.
words object_flags(const compile_options& options) {
  words all = {options.looks_for_races ? "-O1" : "-O2",
               "-shared",
               "-fPIC",
               "-fvisibility=hidden",
               "-fno-gnu-unique",
               "-fno-exceptions",
               "-fno-strict-aliasing",
               "-fno-math-errno",
               "-fno-trapping-math",
               "-D__global__="};
  all.insert(all.end(), options.flags.begin(), options.flags.end());
  return all;
}

} // namespace

std::string description(const compile_options& options) {
  std::string all = kPreludeText;
  all += kKernelAbiText;
  for (const words& some : {common_flags(options), object_flags(options)})
    for (const std::string& word : some) all += word + "\n";
  return all;
}

result compile(std::string_view text, const compile_options& options, std::string* out_object) {
  const temporary_directory in;
  const std::string from = in.file("module.cu"), plain = in.file("module.ii"), source = in.file("module.cpp"),
                    object = in.file("module.so"), prelude = in.file("prelude.h");
  write_file(from, text);
  write_file(prelude, kPreludeText);
  write_file(in.file("kernel_abi.h"), kKernelAbiText);
  words arguments = common_flags(options);
  arguments.insert(arguments.end(), {"-E", "-x", "c++", "-include", prelude, from, "-o", plain});
  result r = run_compiler(arguments, in, plain);
  if (!r.ok()) return r;
  write_file(source, translate(read_file(plain)));
  arguments = common_flags(options);
  for (const std::string& flag : object_flags(options)) arguments.push_back(flag);
  arguments.insert(arguments.end(), {"-o", object, source, "-nodefaultlibs", "-lm", "-lc", "-lgcc"});
  r = run_compiler(arguments, in, object);
  if (r.ok()) *out_object = read_file(object);
  return r;
}

} // namespace plugin::simt
