#include "csrc/ops/compiled/engine/SourceText.h"

#include <cctype>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "csrc/ops/compiled/engine/KernelText.h"

namespace torch_backend::compiled {

void SourceText::define(std::string_view name, std::string_view value) {
  text_ += "#define ";
  text_ += name;
  text_ += ' ';
  for (const char c : value) {
    if (c == '\n') {
      text_ += " \\";
    }
    text_ += c;
  }
  text_ += '\n';
}

void SourceText::define(std::string_view name, int64_t value) {
  define(name, std::to_string(value));
}

void SourceText::compute_in(ValueType type) {
  const char* name = name_of(part_type(type));
  dtype_ = c10::str("_", name_of(type));
  compute_ = c10::str("#define TB_T_", name, " 1\n");
  if (is_complex(type)) {
    text_ += c10::str("typedef ", name, " R;\n#define TB_COMPLEX ", name_of(type),
                      "\n#define TB_SCALAR(n) tb_complex(args.scalars[2 * (n)].", name, "_, args.scalars[2 * (n) + 1].",
                      name, "_)\n", kernel_text("complex"));
    return;
  }
  text_ += c10::str("typedef ", name, " T;\n#define TB_T ", name, "\n#define TB_SCALAR(n) (args.scalars[n].",
                    is_floating(type) ? name : "i64", "_)\n");
}

void SourceText::index_of(bool fits_32) {
  text_ += fits_32 ? "typedef i32 Index;\ntypedef u32 UIndex;\n" : "typedef i64 Index;\ntypedef u64 UIndex;\n";
}

void SourceText::line(std::string_view text) {
  text_ += text;
  text_ += '\n';
}

void SourceText::call_it(std::string_view what) {
  const auto colons = what.find("::");
  what.remove_prefix(colons == std::string_view::npos ? 0 : colons + 2);
  called_ += '_';
  for (const char c : what.substr(0, what.find('.'))) {
    called_ += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  }
}

void SourceText::parameters(int num_pointers, bool has_args) {
  std::string parameters, body;
  for (int i = 0; i < num_pointers; ++i) {
    if (language_ == "opencl") {
      parameters += c10::str("__global char* b", i, ", ulong o", i, ", ");
      define(c10::str("p", i), c10::str("(b", i, " + o", i, ")"));
    } else if (language_ == "cuda") {
      parameters += c10::str("char* p", i, ", ");
    } else {
      body += c10::str(" char* p", i, " = (char*)tb_params[", i, "];");
    }
  }
  const char* args = has_args ? "const Args args" : "";
  if (!has_args && !parameters.empty()) {
    parameters.resize(parameters.size() - 2);
  }
  if (language_ == "cpp") {
    before_name_ = "extern \"C\" __attribute__((visibility(\"default\"))) void";
    after_name_ = c10::str(
        "(const u32* tb_block, const u32* tb_grid, const u32*, void* const* tb_params) {", body,
        has_args ? c10::str(" const Args& args = *(const Args*)tb_params[", num_pointers, "];") : std::string());
    define("TB_END", "}");
  } else {
    // The skeleton's braces are the function's: local memory is declared nowhere else.
    before_name_ = language_ == "cuda" ? "extern \"C\" __global__ void" : "__kernel void";
    after_name_ = c10::str("(", parameters, args, ")");
    define("TB_END", "");
  }
}

std::string SourceText::complete(const char* skeletons, bool chunked) const {
  const std::string prelude(language_);
  std::string text = kernel_text(prelude.c_str());
  if (chunked && language_ != "cpp") {
    text += "#define TB_CHUNKED 1\n";
  }
  text += compute_;
  text += kernel_text("common");
  text += text_;
  text += c10::str("#define TB_KERNEL(name) ", before_name_, suffix().empty() ? " name" : " name##", suffix(),
                   after_name_, "\n");
  for (const auto& name : c10::split(skeletons, ' ')) {
    const char* skeleton = kernel_text(std::string(name).c_str());
    TORCH_INTERNAL_ASSERT(skeleton, "no kernel text called ", name);
    text += skeleton;
  }
  return text;
}

} // namespace torch_backend::compiled
