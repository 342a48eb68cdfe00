#include "draw.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <mutex>

namespace lab {
namespace {

constexpr uint64_t kAdvance = 4;  // of the offset, per call; CUDA's generator asks for multiples of it

at::PhiloxCudaState advance(const std::optional<at::Generator>& generator, int device) {
  const auto& own = at::cuda::detail::getDefaultCUDAGenerator(static_cast<c10::DeviceIndex>(device));
  auto* impl = at::get_generator_or_default<at::CUDAGeneratorImpl>(generator, own);
  const std::lock_guard lock(impl->mutex_);
  return impl->philox_cuda_state(kAdvance);
}

uint64_t scramble(uint64_t x) {  // splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

Draw::Draw(const std::optional<at::Generator>& generator, int device) : state_(advance(generator, device)) {}

uint64_t Draw::seed() const {
  const bool captured = state_.captured_;
  const auto seed = captured ? static_cast<uint64_t>(*state_.seed_.ptr) : state_.seed_.val;
  const auto offset =
      captured ? static_cast<uint64_t>(*state_.offset_.ptr) + state_.offset_intragraph_ : state_.offset_.val;
  return scramble(seed * 0x9e3779b97f4a7c15ULL + offset + 1);
}

at::Generator Draw::generator() const {
  return at::make_generator<at::CPUGeneratorImpl>(seed());
}

}  // namespace lab
