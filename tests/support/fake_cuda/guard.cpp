// A device guard and hooks for a CUDA device that does not exist, so that a CPU build of torch accepts tensors on it.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

constexpr auto CUDA = c10::DeviceType::CUDA;

// The base class does nothing and calls its device -1, which torch takes for "no device".
struct FakeGuard final : c10::impl::NoOpDeviceGuardImpl<CUDA> {
  static c10::Stream stream() noexcept {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(CUDA, 0));
  }
  c10::Device getDevice() const override { return c10::Device(CUDA, 0); }
  c10::Device exchangeDevice(c10::Device) const override { return c10::Device(CUDA, 0); }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
};

// What autograd, autocast and random generators query before they use a device.
struct FakeHooks final : at::CUDAHooksInterface {
  explicit FakeHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  int getNumGPUs() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
};

}  // namespace

C10_REGISTER_GUARD_IMPL(CUDA, FakeGuard)

namespace at {
using CUDAHooks = FakeHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
