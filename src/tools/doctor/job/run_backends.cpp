// The checks of the backends: each opens a group of its own, sums, and is timed; one that cannot leaves the
// others their turn.
#include <algorithm>
#include <chrono>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/algorithms/carrier.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/cuda_load.h"
#include "lockstep/comm/mpi/comms.h"
#include "lockstep/launch/device.h"
#include "lockstep/launch/process/grouped.h"
#include "tools/doctor/job/active.h"
#include "tools/doctor/job/nccl.h"
#include "tools/doctor/job/pairs.h"
#include "tools/doctor/job/sums.h"

namespace lockstep::doctor {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kOpen{6000}, kOpenOfRank{100}, kLongestOpen{12'000}, kBehind{3000};
constexpr auto kSum = 6s;            // for one collective
constexpr auto kStagePatience = 9s;  // for the others to come to the same end
constexpr int64_t kSmall = 1 << 10, kMiddle = 1 << 20, kLarge = 16 << 20;
constexpr const char* kFailedReply = "failed";
constexpr int kSmallRounds = 10, kRounds = 3;
constexpr double kLongest = 0.02;  // seconds for a MiB: beyond it 16 of them are not tried

std::string error_text(const std::exception& error) {
  const std::string what = error.what();
  return what.substr(0, what.find('\n'));
}

// Of times as text; whatever else is told counts for nothing.
std::string most_in(const std::vector<std::string>& texts) {
  double most = 0;
  for (const auto& text : texts) most = std::max(most, std::strtod(text.c_str(), nullptr));
  return format("{}", most);
}

// For all ranks to come to the group: many on a busy machine take longer.
std::chrono::milliseconds time_to_open(int world) {
  return std::min<std::chrono::milliseconds>(kOpen + kOpenOfRank * world, kLongestOpen);
}

// One backend on its way through its stages, on one rank.
class Trial {
 public:
  Trial(const Bench& bench, std::string backend, at::Device device)
      : bench_(bench), backend_(std::move(backend)), device_(device) {}

  /// Each rank's own work, then everybody's outcome. False where one failed; all ranks know.
  bool stage(const std::function<std::string()>& work, std::chrono::milliseconds patience = kStagePatience) {
    std::string text;
    try {
      text = base::pack_texts({"", work()});
    } catch (const Error& error) {
      text = base::pack_texts({error_text(error), error.hint()});
    } catch (const std::exception& error) {
      text = base::pack_texts({error_text(error), ""});
    }
    const auto heard = bench_.talk.round(text, patience, [&](const Texts& texts) {
      texts_.clear();
      for (size_t rank = 0; rank < texts.size(); ++rank)
        if (texts[rank]) hear(static_cast<int>(rank), base::unpack_texts(*texts[rank]));
      return std::vector{base::pack_texts({failures_.empty() ? "" : kFailedReply, most_in(texts_)})};
    });
    for (const auto& [what, ranks] : failures_)
      findings_.push_back(fail(launch::with_ranks(what, ranks, heard.texts.size()), remedies_[what]));
    if (!heard.why.empty()) findings_.push_back(silence(bench_, heard));
    if (heard.reply.empty()) return false;
    const auto parts = base::unpack_texts(heard.reply);
    slowest_ = std::strtod(parts.at(1).c_str(), nullptr);
    return parts.at(0).empty() && heard.why.empty();
  }

  /// The largest of what the ranks told last.
  double slowest() const { return slowest_; }

  // A rank that fails at once waits for those that try for long.
  bool open_all() {
    return stage([&] { return open(); }, time_to_open(bench_.talk.world()) + kBehind);
  }

  std::string open() {
    group_ = comm::connect(
        bench_.runtime,
        {.backend = backend_, .join_timeout = time_to_open(bench_.talk.world()), .timeout = kSum}, device_);
    return "";
  }

  std::string sum(int64_t bytes, int rounds) {
    return format("{}", time_of_sums(group_, device_, bytes, rounds));
  }

  std::string time_lines() {
    auto* carrier = dynamic_cast<comm::Carrier*>(group_->getBackend(c10::kCPU).get());
    if (!carrier) return "";
    std::vector<PairTime> times;
    const auto failed = carrier->carry({"timing the lines", 0, kSum}, [&](Messenger& messenger) {
      std::vector<int> nodes;
      for (int rank = 0; rank < messenger.world(); ++rank) nodes.push_back(messenger.node_of(rank));
      times = time_pairs(messenger, pairs_to_time(nodes));
    });
    if (failed) std::rethrow_exception(failed);
    return pack(times);
  }

  void tell_speed(double small, double large, int64_t bytes) {
    const int world = bench_.talk.world();
    findings_.push_back(fine(format("{} ranks, sums right; 1 KiB in {}, {} MiB in {}, bus bandwidth {}",
                                    world, time_text(small), bytes >> 20, time_text(large),
                                    speed_text(bus_bandwidth(bytes, large, world)))));
  }

  void tell_lines() {
    std::vector<PairTime> times;
    for (const auto& text : texts_)
      for (const auto& time : unpack_pairs(text)) times.push_back(time);
    std::vector<std::string> hosts(static_cast<size_t>(bench_.talk.world()));
    for (const RankFacts& facts : bench_.picture.ranks)
      hosts.at(static_cast<size_t>(facts.job.rank)) = facts.job.host;
    if (times.empty()) return;
    for (auto& finding : judge_pairs(times, hosts)) findings_.push_back(std::move(finding));
  }

  void leave() { group_.reset(); }
  /// What carries the group's sums.
  std::string opened() const { return group_->getBackend(device_.type())->getBackendName(); }
  Findings& findings() { return findings_; }
  at::Device device() const { return device_; }

 private:
  void hear(int rank, const std::vector<std::string>& parts) {
    if (parts.at(0).empty()) return void(texts_.push_back(parts.at(1)));
    launch::add(failures_, parts[0], rank);
    remedies_[parts[0]] = parts.at(1);
  }

  const Bench& bench_;
  std::string backend_;
  at::Device device_;
  ProcessGroup group_;
  Findings findings_;
  std::vector<std::string> texts_;
  double slowest_ = 0;
  launch::Grouped failures_;
  std::map<std::string, std::string> remedies_;
};

// Through all stages, as far as it gets.
void measure(Trial& trial) {
  if (!trial.stage([&] { return trial.sum(kSmall, kSmallRounds); })) return;
  const double small = trial.slowest();
  if (!trial.stage([&] { return trial.sum(kMiddle, kRounds); })) return;
  double large = trial.slowest();
  const int64_t bytes = large <= kLongest ? kLarge : kMiddle;
  if (bytes == kLarge) {
    if (!trial.stage([&] { return trial.sum(kLarge, kRounds); })) return;
    large = trial.slowest();
  }
  trial.tell_speed(small, large, bytes);
  // between GPUs no messages of ours go
  if (trial.device().is_cpu() && trial.stage([&] { return trial.time_lines(); })) trial.tell_lines();
}

void go_through(Trial& trial) {
  if (trial.open_all()) measure(trial);
}

Findings conclude(const Bench& bench, Trial& trial) {
  trial.leave();
  return bench.speaks() ? trial.findings() : Findings{};
}

Findings alone(const Bench& bench) {
  if (!bench.speaks()) return {};
  return {fine("one rank has nothing to exchange")};
}

Findings not_tried(const Bench& bench, const std::string& why) {
  if (!bench.speaks()) return {};
  return {fail("not tried: " + why, "see interfaces and reach")};
}

struct Device {
  launch::DeviceChoice choice;
  std::string error;
};

// libtorch keeps what it once believed about CUDA, so the CUDA half comes before the first tensor.
Device take_device(const Bench& bench) {
  Device device;
  try {
    device.choice =
        launch::choose_device(bench.runtime.job(), bench.settings.device, bench.settings.environment);
    if (device.choice.is_cuda()) comm::load_cuda();
  } catch (const std::exception& error) {
    device.error = error_text(error);
  }
  return device;
}

const Device& device_of(const Bench& bench) {
  static const Device device = take_device(bench);
  return device;
}

Nccl own_nccl(const NcclLog& log) {
  Nccl nccl;
  find_library(nccl);
  read_log(log.text(), nccl);
  nccl.fabric = fabric_here();
  return nccl;
}

// Why a rank cannot compute on a GPU, as it says itself.
std::string without_gpu(const Device& device) {
  return !device.error.empty() ? device.error : device.choice.is_cuda() ? "" : "no GPU here";
}

Findings gpus_missing(const Bench& bench, const launch::Grouped& missing, size_t world) {
  if (!bench.speaks()) return {};
  size_t without = 0;
  std::vector<std::string> texts;
  for (const auto& [text, ranks] : missing) {
    without += ranks.size();
    texts.push_back(launch::with_ranks(text, ranks, world));
  }
  const auto text = "not tried: " + base::join(texts, "; ");
  if (without == world) return {fine(text)};
  return {fail(text, "ask the scheduler for a GPU for every rank, or set launch.device to cpu")};
}

// Whether some node has several ranks, and those of each are numbered one after the other.
bool follow_one_another(const Bench& bench) {
  std::vector<int> nodes(static_cast<size_t>(bench.talk.world()));
  for (const RankFacts& facts : bench.picture.ranks)
    nodes.at(static_cast<size_t>(facts.job.rank)) = facts.job.node_rank;
  const std::set<int> all(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes.size() == all.size() && all.size() < static_cast<size_t>(bench.talk.world());
}

}  // namespace

// What `auto` takes.
Findings run_shared(const Bench& bench) {
  device_of(bench);
  if (bench.talk.world() == 1) return alone(bench);
  if (!bench.known.no_gloo.empty()) return not_tried(bench, bench.known.no_gloo);
  Trial trial(bench, "shared", c10::kCPU);
  if (trial.open_all()) {
    if (trial.opened() == "shared") {
      measure(trial);
    } else if (!follow_one_another(bench)) {
      trial.findings().push_back(fine("it is gloo here: no node has ranks that follow one another"));
    } else {
      trial.findings().push_back(warn("the ranks share no memory, so training on CPUs sums over gloo",
                                      "see the check shm: a larger /dev/shm, and one for all ranks"));
    }
  }
  return conclude(bench, trial);
}

Findings run_gloo(const Bench& bench) {
  device_of(bench);
  if (bench.talk.world() == 1) return alone(bench);
  if (!bench.known.no_gloo.empty()) return not_tried(bench, bench.known.no_gloo);
  Trial trial(bench, "gloo", c10::kCPU);
  go_through(trial);
  return conclude(bench, trial);
}

Findings run_mpi(const Bench& bench) {
  if (!bench.runtime.has_mpi()) {
    if (!bench.speaks()) return {};
    return {fine("not tried: the ranks were not started by it")};
  }
  if (bench.talk.world() == 1) return alone(bench);
  if (!bench.known.no_store.empty()) return not_tried(bench, bench.known.no_store);
  Trial trial(bench, "mpi", c10::kCPU);
  const bool ready = trial.stage([] {
    comm::require_threads();
    return std::string();
  });
  if (ready) go_through(trial);
  return conclude(bench, trial);
}

Findings run_nccl(const Bench& bench) {
  const Device& device = device_of(bench);
  launch::Grouped missing;
  const auto heard = bench.talk.round(without_gpu(device), kStagePatience, [&](const Texts& texts) {
    for (size_t rank = 0; rank < texts.size(); ++rank)
      if (!texts[rank].value_or("").empty()) launch::add(missing, *texts[rank], static_cast<int>(rank));
    return std::vector<std::string>{missing.empty() ? "" : kFailedReply};
  });
  if (!heard.why.empty()) return bench.speaks() ? Findings{silence(bench, heard)} : Findings{};
  if (!heard.reply.empty()) return gpus_missing(bench, missing, heard.texts.size());
  if (bench.talk.world() == 1) return alone(bench);
  if (!bench.known.no_gloo.empty()) return not_tried(bench, bench.known.no_gloo);
  const NcclLog log;
  Trial trial(bench, "nccl", at::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device.choice.index)));
  go_through(trial);
  for (auto& finding : judge_nccl(own_nccl(log), bench.runtime.job().nodes))
    trial.findings().push_back(std::move(finding));
  return conclude(bench, trial);
}

}  // namespace lockstep::doctor
