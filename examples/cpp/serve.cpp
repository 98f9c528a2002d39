// Runs a package of AOTInductor on a device of torch_backend, in a process without Python: serve DEVICE PACKAGE. The
// program that was packaged takes one matrix with 4 columns.

#include <cstdio>
#include <exception>

#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include "torch_backend/api.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "serve DEVICE PACKAGE\n");
    return 1;
  }
  try {
    const auto device = torch_backend::activate(argv[1]);
    torch::inductor::AOTIModelPackageLoader package(argv[2]);
    const auto results = package.run({at::ones({3, 4}, device)});
    std::printf("%zu result on %s, in all %.4f\n", results.size(), results.at(0).device().str().c_str(),
                results.at(0).sum().item<double>());
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  }
  return 0;
}
