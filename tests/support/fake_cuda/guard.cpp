// Device guards and hooks for a CUDA device and a Mac's GPU (MPS) that do not exist, so that a CPU build of torch accepts
// tensors on them. A process has one of them at a time.
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

using c10::DeviceType;

DeviceType present = DeviceType::CUDA;

// The base class does nothing and calls its device -1, which torch takes for "no device".
template <DeviceType type>
struct FakeGuard final : c10::impl::NoOpDeviceGuardImpl<type> {
  static c10::Stream stream() noexcept {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(type, 0));
  }
  c10::Device getDevice() const override { return c10::Device(type, 0); }
  c10::Device exchangeDevice(c10::Device) const override { return c10::Device(type, 0); }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
};
using FakeCUDAGuard = FakeGuard<DeviceType::CUDA>;
using FakeMPSGuard = FakeGuard<DeviceType::MPS>;

// What autograd, autocast and random generators query before they use a device.
struct FakeCUDAHooks final : at::CUDAHooksInterface {
  explicit FakeCUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return present == DeviceType::CUDA; }
  bool isBuilt() const override { return hasCUDA(); }
  bool isAvailable() const override { return hasCUDA(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  int getNumGPUs() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
};

struct FakeMPSHooks final : at::MPSHooksInterface {
  void init() const override {}
  bool hasMPS() const override { return present == DeviceType::MPS; }
  bool isBuilt() const override { return hasMPS(); }
  bool isAvailable() const override { return hasMPS(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(CUDA, FakeCUDAGuard)
C10_REGISTER_GUARD_IMPL(MPS, FakeMPSGuard)

namespace at {
using CUDAHooks = FakeCUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
using MPSHooks = FakeMPSHooks;
REGISTER_MPS_HOOKS(MPSHooks)
}  // namespace at

extern "C" void use_mps(bool mps) { present = mps ? DeviceType::MPS : DeviceType::CUDA; }
