#include "tools/bench/measure.h"

#include <ATen/ATen.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/cpus.h"
#include "trainer/config/numbers.h"

namespace lockstep::bench {
namespace {

struct Unit {
  const char* name;
  double factor;
};

double read(const std::string& text, const std::vector<Unit>& units, const char* what, const char* hint) {
  const auto end = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto number = config::parse_number(text.substr(0, end));
  for (const auto& [name, factor] : units)
    if (number && text.substr(end) == name) return *number * factor;
  if (number && *number == 0 && end == text.size()) return 0;
  throw InputError(format("'{}' is not a {}", base::printable(text), what), "", hint);
}

// The limits of bench/compare.
constexpr double kOthers = 0.05, kStolen = 0.02;
constexpr double kLeastSeconds = 0.5;  // the kernel counts in hundredths

}  // namespace

Spread spread_of(std::vector<double> numbers) {
  const auto at_most = std::max_element(numbers.begin(), numbers.end()) - numbers.begin();
  const size_t count = numbers.size();
  std::sort(numbers.begin(), numbers.end());
  return {.mean = std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(count),
          .least = numbers.front(),
          .median = (numbers[(count - 1) / 2] + numbers[count / 2]) / 2,
          .most = numbers.back(),
          .at_most = static_cast<size_t>(at_most)};
}

std::vector<std::vector<double>> interleaved_medians(
    const Team& team, size_t methods, int warm_up, int rounds,
    const std::function<std::vector<double>(size_t method, int round)>& measure) {
  std::vector<double> all;  // round by round, method by method
  for (int round = 0; round < warm_up + rounds; ++round) {
    for (size_t method = 0; method < methods; ++method) {
      const auto numbers = measure(method, round);
      if (round >= warm_up) all.insert(all.end(), numbers.begin(), numbers.end());
    }
  }
  team.max(all);
  const size_t a_round = all.size() / static_cast<size_t>(rounds), a_turn = a_round / methods;
  std::vector<std::vector<double>> medians(methods);
  for (size_t at = 0; at < a_round; ++at) {
    std::vector<double> values;
    for (size_t i = at; i < all.size(); i += a_round) values.push_back(all[i]);
    medians[at / a_turn].push_back(spread_of(std::move(values)).median);
  }
  return medians;
}

TrainingSteps::TrainingSteps(const train::Setup& setup)
    : learner_(train::make_learner(setup)),
      step_(setup, learner_),
      feed_(learner_.source->feed(setup.settings)) {
  clock_.time_on(setup.team->device());
}

void TrainingSteps::make_ready() {
  if (epoch_ && !epoch_->is_over()) return;
  if (epoch_) {
    read_pending();
    ++state_.epoch;
  }
  clock_.enter(train::Phase::data);
  epoch_.reset();  // its workers end before new ones start
  learner_.source->prepare(learner_.model->net(), state_);
  epoch_.reset(new train::EpochFeed(feed_.epoch(state_)));
  clock_.enter(train::Phase::other);
}

void TrainingSteps::take() {
  make_ready();
  epoch_->next_step();
  step_.run(++state_.step, *epoch_, losses_, clock_);
  samples_ += epoch_->samples();
}

double parse_latency(const std::string& text) {
  return read(text, {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}, "latency", "write 3us, 3ms, 3s or 0");
}

double parse_bandwidth(const std::string& text) {
  return read(text, {{"Mbit", 1e6 / 8}, {"Gbit", 1e9 / 8}}, "bandwidth", "write 3Mbit, 3Gbit or 0");
}

std::vector<int64_t> parse_sizes(const std::string& text) {
  constexpr double kMost = 1 << 30;
  const std::vector<Unit> units = {{"", 1}, {"K", 1024}, {"M", 1024 * 1024}};
  std::vector<int64_t> sizes;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const double bytes = std::min(read(word, units, "size", "give bytes, as in 4, 1K, 8M"), 2 * kMost);
    const auto whole = static_cast<int64_t>(bytes);
    const bool grows = sizes.empty() || whole > sizes.back();
    if (whole < 4 || whole % 4 != 0 || bytes > kMost || !grows)
      throw InputError(format("'{}' is not a size to measure", base::printable(word)), "",
                       "give multiples of 4 bytes up to 1024M, each larger than the one before");
    sizes.push_back(whole);
  }
  if (sizes.empty()) throw InputError("there is no size to measure", "", "give sizes, as in 4,1K,16K,1M");
  return sizes;
}

std::string delay_text(double latency, double bandwidth) {
  return report::seconds_text(latency) + " per message, " +
         (bandwidth > 0 ? format("{:g} Gbit/s per link", bandwidth * 8 / 1e9) : "unlimited bandwidth");
}

void check_out(const std::string& file) {
  if (file.empty() || file.ends_with(".html")) return;
  throw InputError(format("'{}' is not an HTML file", base::printable(file)), "--out",
                   "name a file that ends in .html");
}

void check_place(const Team& team, const std::string& file) {
  team.from_first([&] {
    if (!file.empty()) base::check_output(file, "name another with --out");
    return std::string();
  });
}

void report_on_first(const Team& team, const std::string& file, const report::Page& page,
                     const std::string& json) {
  team.from_first([&] {
    output::print(json.empty() ? page.as_text() : json);
    if (!file.empty()) base::write_output(file, page.html(), "name another file with --out");
    return std::string();
  });
}

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
  timespec own{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  time.own = static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec);
  return time;
}

ProcessorTime operator-(const ProcessorTime& a, const ProcessorTime& b) {
  return {a.all - b.all, a.idle - b.idle, a.stolen - b.stolen, a.own - b.own};
}

std::vector<std::string> busy_nodes(const std::vector<RankSteps>& ranks) {
  std::map<std::string, ProcessorTime> nodes;  // the first rank's, with the own time of all
  for (const auto& rank : ranks) {
    const auto [node, is_new] = nodes.try_emplace(rank.host, rank.processors);
    if (!is_new) node->second.own += rank.processors.own;
  }
  std::vector<std::string> lines;
  for (const auto& [host, passed] : nodes) {
    if (passed.all < kLeastSeconds) continue;
    const double others = (passed.all - passed.idle - passed.stolen - passed.own) / passed.all;
    const double stolen = passed.stolen / passed.all;
    std::vector<std::string> who;
    if (others > kOthers) who.push_back("other processes used " + report::percent_text(others));
    if (stolen > kStolen) who.push_back("other virtual machines took " + report::percent_text(stolen));
    if (!who.empty())
      lines.push_back(format("{} was busy: {} of its processor time; these times include that work",
                             base::printable(host), base::join(who, ", ")));
  }
  return lines;
}

bool has_more_ranks_than_cores(const Team& team) {
  return is_on_any_rank(team, team.job().local_world > launch::own_cpus().machine_cores);
}

bool is_on_any_rank(const Team& team, bool holds) {
  std::vector<double> most = {holds ? 1.0 : 0.0};
  team.max(most);
  return most[0] > 0;
}

}  // namespace lockstep::bench
