#include "library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "cu.h"
#include "options.h"
#include "result.h"

namespace xcuda {
namespace {

// The folders of Python packages that libraries of this process lie in.
int add_site(dl_phdr_info* info, size_t, void* data) {
  auto& sites = *static_cast<std::vector<std::string>*>(data);
  const std::string path = info->dlpi_name ? info->dlpi_name : "";
  for (const char* folder : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = path.find(folder);
    if (at == std::string::npos) continue;
    const std::string site = path.substr(0, at) + folder;
    if (std::find(sites.begin(), sites.end(), site) == sites.end()) sites.push_back(site);
  }
  return 0;
}

void add_matches(const std::string& pattern, std::vector<std::string>* out_paths) {
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    out_paths->insert(out_paths->end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
}

std::vector<std::string> places_of(const std::string& name) {
  std::vector<std::string> paths, sites;
  std::istringstream folders(settings().library_path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty()) paths.push_back(folder + "/" + name);
  paths.push_back(name);
  dl_iterate_phdr(add_site, &sites);
  for (const std::string& site : sites) add_matches(site + "nvidia/*/lib/" + name, &paths);
  paths.push_back("/usr/local/cuda/lib64/" + name);
  return paths;
}

} // namespace

void* open_library(const std::vector<std::string>& names, std::string* out_tried) {
  for (const std::string& name : names)
    for (const std::string& path : places_of(name)) {
      if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
      const char* why = dlerror();
      const bool is_there = path != name && access(path.c_str(), F_OK) == 0; // and says more than that others are not
      if (is_there || (path == name && out_tried->empty())) *out_tried = why ? why : name;
    }
  return nullptr;
}

void open_beside(void* library, const char* symbol, const std::string& pattern) {
  Dl_info info{};
  if (!dladdr(dlsym(library, symbol), &info) || !info.dli_fname) return;
  const std::string path = info.dli_fname;
  std::vector<std::string> found;
  add_matches(path.substr(0, path.rfind('/') + 1) + pattern, &found);
  for (const std::string& each : found) dlopen(each.c_str(), RTLD_NOW | RTLD_LOCAL);
}

void* load_library(const std::vector<std::string>& names, const std::vector<library_function>& functions,
                   const char* otherwise) {
  std::string missing;
  void* library = open_library(names, &missing);
  if (library) missing.clear();
  for (const library_function& each : functions)
    if (library && !(*each.address = dlsym(library, each.name)))
      missing = std::string("there is no ") + each.name + " in " + names.back() + ", which is too old";
  if (missing.empty()) return library;
  host().log(TB_LOG_DEBUG, ("xcuda: " + std::string(otherwise) + ": " + missing).c_str());
  return nullptr;
}

std::vector<std::string> versions_of(const std::string& name) {
  std::vector<std::string> names;
  for (int major = driver_version() / 1000; major >= 12; --major) names.push_back(name + "." + std::to_string(major));
  return names;
}

} // namespace xcuda
