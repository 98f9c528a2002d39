#include "source.h"

#include <vector>

#include "../options.h"
#include "common/host_compiler/compiler.h"
#include "common/host_compiler/temporary_directory.h"
#include "common/simt/compile.h"

namespace xcpu::modules {
namespace {

using words = std::vector<std::string>;

bool is_side_by_side() {
  return settings().modules == modules_mode::side_by_side;
}

// The maths of a kernel is that of its source: no contraction, no reordering. Nobody looks at errno and at traps.
const words& flags() {
  static const words all = {"-std=c++17",
                            "-O3",
                            "-march=native",
                            "-shared",
                            "-fPIC",
                            "-w",
                            "-fno-math-errno",
                            "-fno-trapping-math",
                            "-ffp-contract=off",
                            "-fvisibility=default"};
  return all;
}

simt::compile_options side_by_side_options() {
  return {kCapability, {"-march=native", "-ffp-contract=off"}, settings().races};
}

std::string description() {
  if (is_side_by_side()) return simt::description(side_by_side_options());
  std::string all;
  for (const std::string& word : flags()) all += word + "\n";
  return all;
}

} // namespace

const char* source_format() {
  return is_side_by_side() ? "cuda-c" : "c++";
}

const std::string& driver_version() {
  static const std::string asked = compiler_version(description());
  return asked;
}

result compile(std::string_view source, std::string* out_object) {
  if (is_side_by_side()) return simt::compile(source, side_by_side_options(), out_object);
  const temporary_directory in;
  const std::string from = in.file("module.cpp"), object = in.file("module.so");
  write_file(from, source);
  words arguments = flags();
  arguments.insert(arguments.end(), {"-o", object, from, "-lm"});
  result r = run_compiler(arguments, in, object);
  if (r.ok()) *out_object = read_file(object);
  return r;
}

} // namespace xcpu::modules
