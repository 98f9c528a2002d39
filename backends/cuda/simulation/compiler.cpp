#include "compiler.h"

#include <elf.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "../csrc/cu.h"
#include "common/simulation/rules.h"

namespace sim {
namespace {

using std::string;

unsigned long long sum_of(const char* bytes, size_t size) {
  unsigned long long sum = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < size; ++i) sum = (sum ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3ull;
  return sum;
}

string read(const string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const string& path, const string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

struct folder {
  string path;
  folder() {
    path = (std::filesystem::temp_directory_path() / "cuda-sim-XXXXXX").string();
    if (!mkdtemp(path.data())) std::abort();
  }
  ~folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

bool run(const folder& in, const string& arguments, string* out_log) {
  const char* set = std::getenv("CXX");
  const string command = "cd '" + in.path + "' && LC_ALL=C LD_PRELOAD= TMPDIR='" + in.path + "' " +
                         (set && *set ? set : "c++") + " -std=c++17 -w " + arguments + " > messages 2>&1";
  const bool succeeded = std::system(command.c_str()) == 0;
  *out_log = read(in.path + "/messages");
  return succeeded;
}

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)) becomes sim_cvt_f32_f16(y, x): a function of all operands, in their order.
void replace_instructions(string* text) {
  const string start = "asm";
  for (size_t at = 0; (at = text->find(start, at)) != string::npos; ++at) {
    size_t name = at + start.size();
    if ((at > 0 && is_name((*text)[at - 1])) || is_name((*text)[name])) continue;
    const size_t volatile_at = text->find_first_not_of(' ', name);
    if (text->compare(volatile_at, 8, "volatile") == 0) name = volatile_at + 8;
    name = text->find_first_not_of(' ', name);
    if ((*text)[name] != '(' || (*text)[name + 1] != '"') continue;
    name += 2;
    string mnemonic, operands;
    size_t place = name;
    bool quoted = true, named = false; // the text of the instruction may be of several strings
    for (int depth = 1; depth > 0; ++place) {
      const char c = (*text)[place];
      if (c == '"') {
        quoted = !quoted;
      } else if (quoted) {
        named = named || c == ' ' || c == ';';
        if (!named) mnemonic += c == '.' || c == ':' ? '_' : c;
      } else {
        depth += c == '(' ? 1 : c == ')' ? -1 : 0;
        if (c == '(' && depth == 2 && !operands.empty()) operands += ", ";
        if (depth > 1) operands += c;
        if (c == ')' && depth == 1) operands += c;
      }
    }
    text->replace(at, place - at, "sim_" + mnemonic + "(" + operands + ")");
  }
}

// extern __shared__ T name[]; (the prelude has made it static)
void replace_dynamic_shared(string* text) {
  const string before = "extern static ";
  for (size_t at = 0; (at = text->find(before, at)) != string::npos;) {
    const size_t bracket = text->find('[', at), end = text->find(';', at);
    size_t name = bracket;
    while (is_name((*text)[name - 1])) --name;
    const string type = text->substr(at + before.size(), name - at - before.size());
    text->replace(at, end - at,
                  "static " + type + "* const " + text->substr(name, bracket - name) + " = (" + type + "*)sim_shared");
  }
}

string table_of_kernels(const string& text) {
  std::set<string> names;
  const string mark = "__global__";
  for (size_t at = 0; (at = text.find(mark, at)) != string::npos; at += mark.size()) {
    size_t end = text.find('(', at), begin = end;
    while (begin > at && std::isspace(static_cast<unsigned char>(text[begin - 1]))) --begin;
    end = begin;
    while (is_name(text[begin - 1])) --begin;
    names.insert(text.substr(begin, end - begin));
  }
  string table = "\nstatic const sim_kernel sim_kernels[] = {";
  for (const string& name : names)
    table += "{\"" + name + "\", sim_call<" + name + ">::run, sim_call<" + name + ">::parameters},";
  return table +
         "{}};\nextern \"C\" __attribute__((visibility(\"default\"))) const sim_module sim_this_module = {&threadIdx, "
         "&blockIdx, &blockDim, &gridDim, &sim_barrier, sim_shared, sim_kernels};\n";
}

} // namespace

string build_module(const string& source, int arch, bool fmad, string* out_log) {
  const folder in;
  write(in.path + "/module.cu", source);
  const string defined = " -D__CUDA_ARCH__=" + std::to_string(arch * 10);
  if (!run(in, "-E -P -x c++ -include " SIM_PRELUDE + defined + " module.cu -o module.ii", out_log)) return "";
  string text = read(in.path + "/module.ii");
  replace_instructions(&text);
  replace_dynamic_shared(&text);
  write(in.path + "/module.cpp", text + table_of_kernels(text));
  const string flags =
      "-O1 -shared -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math -D__global__= module.cpp -o module.so ";
  if (!run(in, flags + (fmad ? "-mfma -ffp-contract=fast" : "-ffp-contract=off"), out_log)) return "";
  string code = read(in.path + "/module.so");
  code_end end{{}, arch, sum_of(code.data(), code.size())};
  std::memcpy(end.magic, kCodeMagic, sizeof end.magic);
  return code.append(reinterpret_cast<const char*>(&end), sizeof end);
}

int check_code(const void* code, int arch, size_t* out_size) {
  const auto* bytes = static_cast<const char*>(code);
  Elf64_Ehdr header;
  std::memcpy(&header, bytes, sizeof header);
  if (std::memcmp(bytes, ELFMAG, SELFMAG) != 0 || header.e_shentsize != sizeof(Elf64_Shdr))
    return refuse(xcuda::kCUDA_ERROR_INVALID_IMAGE, "an image that is no code of this simulation");
  *out_size = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
  code_end end;
  std::memcpy(&end, bytes + *out_size, sizeof end);
  if (std::memcmp(end.magic, kCodeMagic, sizeof end.magic) != 0 || end.sum != sum_of(bytes, *out_size))
    return refuse(xcuda::kCUDA_ERROR_INVALID_IMAGE, "an image that is damaged");
  if (end.arch / 10 != arch / 10 || end.arch > arch)
    return refuse(xcuda::kCUDA_ERROR_NO_BINARY_FOR_GPU, "code for sm_%lld on sm_%d", end.arch, arch);
  return 0;
}

} // namespace sim
