#include "compiler.h"

#include <elf.h>

#include <cstring>
#include <vector>

#include "../csrc/cu.h"
#include "common/host_compiler/checksum.h"
#include "common/simt/compile.h"
#include "common/simulation/rules.h"

namespace sim {

using std::string;

string build_module(const string& source, int arch, bool fmad, string* out_log) {
  const plugin::simt::compile_options options{
      arch, fmad ? std::vector<string>{"-mfma", "-ffp-contract=fast"} : std::vector<string>{"-ffp-contract=off"}};
  string code;
  const plugin::result r = plugin::simt::compile(source, options, &code);
  *out_log = r.text;
  if (!r.ok()) return "";
  code_end end{{}, arch, plugin::checksum(code)};
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
  if (std::memcmp(end.magic, kCodeMagic, kCodeVersionAt) == 0 &&
      end.magic[kCodeVersionAt] != kCodeMagic[kCodeVersionAt])
    return xcuda::kCUDA_ERROR_INVALID_IMAGE; // which a program has kept since another simulation made it: no mistake
  if (std::memcmp(end.magic, kCodeMagic, sizeof end.magic) != 0 || end.sum != plugin::checksum({bytes, *out_size}))
    return refuse(xcuda::kCUDA_ERROR_INVALID_IMAGE, "an image that is damaged");
  if (end.arch / 10 != arch / 10 || end.arch > arch)
    return refuse(xcuda::kCUDA_ERROR_NO_BINARY_FOR_GPU, "code for sm_%lld on sm_%d", end.arch, arch);
  return 0;
}

} // namespace sim
