#include "tools/bench/machine.h"

#include <ATen/ATen.h>
#include <sys/resource.h>
#include <unistd.h>

#include <map>
#include <sstream>

#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/cpus.h"
#include "tools/bench/measure.h"

namespace lockstep::bench {
namespace {

// The limits of bench/compare.
constexpr double kOthers = 0.05, kStolen = 0.02;
constexpr double kLeastSeconds = 0.5;  // the kernel counts in hundredths

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

double measure_peak(const Team& team) {
  constexpr int64_t kSize = 512;
  constexpr double kSeconds = 0.2;
  const at::NoGradGuard no_grad;
  const auto left = at::ones({kSize, kSize}), right = at::ones({kSize, kSize});
  auto product = at::mm(left, right);  // warms up
  team.barrier();
  const auto begin = Clock::now();
  double operations = 0;
  while (since(begin) < kSeconds) {
    at::mm_out(product, left, right);
    operations += 2.0 * kSize * kSize * kSize;
  }
  return operations / since(begin);
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
