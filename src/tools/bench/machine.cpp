#include "tools/bench/machine.h"

#include <ATen/Parallel.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/kernels/vector.h"
#include "lockstep/launch/process/cpus.h"
#include "tools/bench/measure.h"
#include "tools/report/numbers.h"

namespace lockstep::bench {
namespace {

using kernels::Vector;

// Two units that take four cycles each want eight sums at once; a few more do no harm in 16 registers.
constexpr int kSums = 12;

template <int lanes>
LOCKSTEP_INLINE inline void add_up(int64_t rounds) {
  using Floats = Vector<float, lanes>;
  // hidden from the optimiser
  float tenth = 0.1F, most = 0.9F;
  asm volatile("" : "+m"(tenth), "+m"(most));
  const Floats step = Floats{} + tenth, factor = Floats{} + most;
  Floats sums[kSums] = {};
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = sum * factor + step;
  }
  for (auto& sum : sums) asm volatile("" : : "m"(sum));
}

constexpr int64_t kMiB = 1 << 20;
constexpr std::chrono::milliseconds kPeriod{150};
constexpr int64_t kRoundsATurn = 10'000;              // between two looks at the clock: about 20 us
constexpr int64_t kCaches = 4, kAThread = 12 * kMiB;  // together the arrays are so much larger than a cache
constexpr int64_t kLeast = 64 * kMiB, kMost = 1024 * kMiB;

// Mapped, because the heap would keep the memory, and the steps should find it as a training does.
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

// How much `turn` does in a second when it is repeated.
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

// The sum over all threads of libtorch at once.
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

// Counted as STREAM does: what is written is not read before.
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

// The limits of bench/compare.
constexpr double kOthers = 0.05, kStolen = 0.02;
constexpr double kLeastSeconds = 0.5;  // seconds: the kernel counts in hundredths

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

std::string described(const std::string& host, const ProcessorTime& passed) {
  if (passed.all < kLeastSeconds) return "";
  const double others = (passed.all - passed.idle - passed.stolen - passed.own) / passed.all;
  const double stolen = passed.stolen / passed.all;
  std::vector<std::string> who;
  if (others > kOthers) who.push_back("other processes had " + report::percent_text(others));
  if (stolen > kStolen) who.push_back("other machines had " + report::percent_text(stolen));
  if (who.empty()) return "";
  return format("{} was busy: {} of its processors' time; these times are not of the training alone",
                base::printable(host), base::join(who, ", "));
}

}  // namespace

double multiply_and_add(int64_t rounds, kernels::SimdLevel level) {
  kernels::run_at(level, [&](auto lanes) LOCKSTEP_INLINE { add_up<decltype(lanes)::value>(rounds); });
  return 2.0 * kSums * lanes_of(level) * static_cast<double>(rounds);
}

void triad(float* a, const float* b, const float* c, int64_t count, kernels::SimdLevel level) {
  kernels::run_at(level, [&](auto lanes) LOCKSTEP_INLINE {
    kernels::for_chunks(lanes, count, [&](auto chunk, int64_t i) LOCKSTEP_INLINE {
      constexpr int kWide = decltype(chunk)::value;
      const auto three = Vector<float, kWide>{} + 3.0F;
      kernels::store_floats<kWide>(
          a + i, kernels::load_floats<kWide>(b + i) + kernels::load_floats<kWide>(c + i) * three);
    });
  });
}

int lanes_of(kernels::SimdLevel level) {
  int count = 0;
  kernels::run_at(level, [&](auto lanes) { count = decltype(lanes)::value; });
  return count;
}

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

ProcessorTime processor_time() {
  ProcessorTime time;
  const double tick = 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  std::istringstream fields(base::field("/proc/stat", "cpu "));
  double field = 0;
  // user, nice, system, idle, waiting for a disk, interrupts of two kinds, stolen
  for (int i = 0; i < 8 && fields >> field; ++i) {
    time.all += field * tick;
    if (i == 3 || i == 4) time.idle += field * tick;
    if (i == 7) time.stolen += field * tick;
  }
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  time.own = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  return time;
}

ProcessorTime operator-(const ProcessorTime& a, const ProcessorTime& b) {
  return {a.all - b.all, a.idle - b.idle, a.stolen - b.stolen, a.own - b.own};
}

std::vector<std::string> busy_nodes(const std::vector<RankTime>& ranks) {
  std::map<std::string, ProcessorTime> nodes;  // the first rank's, with the own time of all
  for (const auto& [host, passed] : ranks) {
    const auto [node, is_new] = nodes.try_emplace(host, passed);
    if (!is_new) node->second.own += passed.own;
  }
  std::vector<std::string> lines;
  for (const auto& [host, passed] : nodes) {
    auto line = described(host, passed);
    if (!line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

bool has_more_ranks_than_cores(const Team& team) {
  std::vector<double> too_many = {
      static_cast<double>(team.job().local_world - launch::own_cpus().machine_cores)};
  team.max(too_many);
  return too_many[0] > 0;
}

}  // namespace lockstep::bench
