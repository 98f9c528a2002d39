// Trains a small network on a device of torch_backend, in a process without Python: train DEVICE [KEY=VALUE ...]

#include <cstdio>
#include <exception>
#include <string>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include "torch_backend/api.h"

namespace {

// An operator with a kernel for the device, which is made of the device's own operators here.
at::Tensor swish(const at::Tensor& x, double beta) {
  return x * torch::sigmoid(x * beta);
}

TORCH_LIBRARY(example, m) {
  m.def("swish(Tensor x, float beta) -> Tensor");
  m.impl("swish", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(swish));
}

double train(at::Device device) {
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(16, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
  const auto inputs = torch::randn({256, 16}).to(device);
  const auto targets = (inputs * inputs).mean(1, /*keepdim=*/true);
  model->to(device);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
  torch::Tensor loss;
  for (int step = 0; step < 50; ++step) {
    optimizer.zero_grad();
    loss = torch::mse_loss(model->forward(inputs), targets);
    loss.backward();
    optimizer.step();
  }
  return loss.item<double>();
}

void use(at::Device device) {
  std::printf("%s has %d devices\n", c10::get_privateuse1_backend().c_str(), int(at::accelerator::deviceCount()));
  std::printf("loss on the device %.5f, on the CPU %.5f\n", train(device), train(at::kCPU));

  // Work on another stream, between two events that take the time.
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream side = guard.getNewStream(at::Device(device.type(), 0));
  c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT), end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  at::Tensor product;
  {
    const c10::StreamGuard on(side);
    const auto matrix = torch::ones({256, 256}, device);
    begin.record(side);
    product = matrix.mm(matrix);
    end.record(side);
  }
  end.synchronize();
  std::printf("a product on another stream is %.0f, in a positive time: %s\n", product[0][0].item<double>(),
              begin.elapsedTime(end) > 0 ? "yes" : "no");

  // Memory that only this thread gets.
  {
    const torch_backend::MemPool pool;
    {
      const torch_backend::MemPoolGuard in(pool);
      const auto inside = torch::zeros({1 << 20}, device);
      std::printf("the pool is held by %d\n", pool.use_count());
    }
  }
  product.reset();
  at::accelerator::emptyCache();
  const auto bytes = at::accelerator::getDeviceStats(0).reserved_bytes[0];
  std::printf("at its peak the process held %s, after emptyCache less: %s\n", bytes.peak > 0 ? "memory" : "nothing",
              bytes.current < bytes.peak ? "yes" : "no");

  const auto x = torch::linspace(-2, 2, 5, device);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("example::swish", "");
  const auto y = op.typed<at::Tensor(const at::Tensor&, double)>().call(x, 1.0);
  std::printf("swish(2) is %.4f\n", y[4].item<double>());
}

} // namespace

int main(int argc, char** argv) {
  try {
    torch_backend::Options options;
    for (int i = 2; i < argc; ++i) {
      const std::string option = argv[i];
      const auto equals = option.find('=');
      TORCH_CHECK(equals != std::string::npos, "Expected KEY=VALUE, got ", option, ".");
      options[option.substr(0, equals)] = option.substr(equals + 1);
    }
    TORCH_CHECK(argc > 1, "Which device? train DEVICE [KEY=VALUE ...]; there are ", torch_backend::available_devices());
    use(torch_backend::activate(argv[1], options));
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  }
  return 0;
}
