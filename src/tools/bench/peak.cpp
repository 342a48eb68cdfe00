#include "tools/bench/peak.h"

#include <ATen/Parallel.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>

#include "lockstep/base/files/small_file.h"
#include "lockstep/base/format.h"
#include "tools/bench/clock.h"
#include "tools/bench/peak_loops.h"
#include "tools/bench/units.h"

namespace lockstep::bench {
namespace {

constexpr std::chrono::milliseconds kPeriod{150};
constexpr int64_t kRoundsATurn = 10'000;              // between two looks at the clock: about 20 us
constexpr int64_t kCaches = 4, kAThread = 12 * kMiB;  // together the arrays are so much larger than a cache
constexpr int64_t kLeast = 64 * kMiB, kMost = 1024 * kMiB;

// Not of the heap, which keeps what it once had: the steps are to find it as a training does.
class Array {
 public:
  explicit Array(int64_t count) : size_(static_cast<size_t>(count) * sizeof(float)) {
    at_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (is_there()) std::fill_n(data(), count, 1.0F);
  }
  ~Array() {
    if (is_there()) ::munmap(at_, size_);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  bool is_there() const { return at_ != MAP_FAILED; }
  float* data() const { return static_cast<float*>(at_); }

 private:
  size_t size_;
  void* at_;
};

// What `turn` does, over and over, a second.
template <class Turn>
double speed_of(const Turn& turn) {
  const auto begin = Clock::now();
  double done = 0;
  auto now = begin;
  while (now < begin + kPeriod) {
    done += turn();
    now = Clock::now();
  }
  return done / std::chrono::duration<double>(now - begin).count();
}

// On every thread of libtorch's at once; their sum.
template <class Work>
double on_all_threads(const Work& work) {
  std::vector<double> speeds(static_cast<size_t>(at::get_num_threads()));
  at::parallel_for(0, static_cast<int64_t>(speeds.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) speeds[static_cast<size_t>(i)] = work();
  });
  double sum = 0;
  for (const double speed : speeds) sum += speed;
  return sum;
}

double multiply_adds() {
  return on_all_threads(
      [] { return speed_of([] { return multiply_and_add(kRoundsATurn, kernels::level()); }); });
}

// As STREAM counts: what is written is not read before.
double sweep(int64_t count) {
  const Array a(count), b(count), c(count);
  if (!a.is_there() || !b.is_there() || !c.is_there()) return 0;
  return speed_of([&] {
    triad(a.data(), b.data(), c.data(), count, kernels::level());
    return 3.0 * sizeof(float) * static_cast<double>(count);
  });
}

double sweeps() {
  const int64_t threads = at::get_num_threads();
  const int64_t together = std::clamp(std::max(kCaches * cache_bytes(), kAThread * threads), kLeast, kMost);
  return on_all_threads([&] { return sweep(together / threads / 3 / int64_t{sizeof(float)}); });
}

int64_t bytes_of(const std::string& size) {
  return base::number_in(size).value_or(0) * (size.ends_with('K') ? 1024 : size.ends_with('M') ? kMiB : 1);
}

}  // namespace

int vector_bits() {
  return lanes_of(kernels::level()) * 32;
}

int64_t cache_bytes() {
  constexpr int64_t kUnknown = 32 * kMiB;
  int64_t most = 0;
  for (int index = 0; index < 8; ++index) {
    most = std::max(most, bytes_of(base::first_line(format("/sys/devices/system/cpu/cpu{}/cache/index{}/size",
                                                           std::max(0, ::sched_getcpu()), index))));
  }
  return most > 0 ? most : kUnknown;
}

Peak measure_peak(const Team& team) {
  Peak peak;
  team.barrier();
  peak.flops = multiply_adds();
  team.barrier();
  peak.bytes = sweeps();
  return peak;
}

}  // namespace lockstep::bench
