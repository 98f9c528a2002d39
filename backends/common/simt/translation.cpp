#include "translation.h"

#include <cctype>
#include <set>

namespace plugin::simt {
namespace {

using std::string;

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)) becomes simt_cvt_f32_f16(y, x): a function of all operands, in their order.
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
    for (int depth = 1; depth > 0 && place < text->size(); ++place) {
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
    text->replace(at, place - at, "simt_" + mnemonic + "(" + operands + ")");
  }
}

// extern __shared__ T name[]; (the prelude has made it static)
void replace_dynamic_shared(string* text) {
  const string before = "extern static ";
  for (size_t at = 0; (at = text->find(before, at)) != string::npos;) {
    const size_t bracket = text->find('[', at), end = text->find(';', at);
    if (bracket > end || end == string::npos) break;
    size_t name = bracket;
    while (is_name((*text)[name - 1])) --name;
    const string type = text->substr(at + before.size(), name - at - before.size());
    text->replace(at, end - at,
                  "static " + type + "* const " + text->substr(name, bracket - name) + " = (" + type + "*)simt_shared");
  }
}

string table_of_kernels(const string& text) {
  std::set<string> names;
  const string mark = "__global__";
  for (size_t at = 0; (at = text.find(mark, at)) != string::npos; at += mark.size()) {
    size_t end = text.find('(', at), begin = end;
    if (end == string::npos) break; // which the compiler refuses
    while (begin > at && std::isspace(static_cast<unsigned char>(text[begin - 1]))) --begin;
    end = begin;
    while (is_name(text[begin - 1])) --begin;
    names.insert(text.substr(begin, end - begin));
  }
  string table = "\nstatic const simt_kernel simt_kernels[] = {";
  for (const string& name : names)
    table += "{\"" + name + "\", simt_call<" + name + ">::run, simt_call<" + name + ">::parameters},";
  return table +
         "{}};\nextern \"C\" __attribute__((visibility(\"default\"))) const simt_module simt_this_module = "
         "{&threadIdx, "
         "&blockIdx, &blockDim, &gridDim, &simt_barriers, &simt_runner, simt_shared, __bss_start, _end, "
         "simt_kernels};\n";
}

} // namespace

string translate(string text) {
  replace_instructions(&text);
  replace_dynamic_shared(&text);
  return text + table_of_kernels(text);
}

} // namespace plugin::simt
