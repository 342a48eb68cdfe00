#include "tools/bench/measure.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
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
  for (const auto& [name, factor] : units) {
    if (number && text.substr(end) == name) return *number * factor;
  }
  if (number && *number == 0 && end == text.size()) return 0;
  throw InputError(format("'{}' is not a {}", base::printable(text), what), "", hint);
}

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

std::vector<std::vector<double>> medians_in_turns(
    const Team& team, const Turns& turns,
    const std::function<std::vector<double>(size_t method, int round)>& measure) {
  std::vector<double> all;  // round by round, method by method
  for (int round = 0; round < turns.warm_up + turns.rounds; ++round) {
    for (size_t method = 0; method < turns.methods; ++method) {
      const auto numbers = measure(method, round);
      if (round >= turns.warm_up) all.insert(all.end(), numbers.begin(), numbers.end());
    }
  }
  team.max(all);
  const size_t a_round = all.size() / static_cast<size_t>(turns.rounds), a_turn = a_round / turns.methods;
  std::vector<std::vector<double>> medians(turns.methods);
  for (size_t at = 0; at < a_round; ++at) {
    std::vector<double> values;
    for (size_t i = at; i < all.size(); i += a_round) values.push_back(all[i]);
    medians[at / a_turn].push_back(spread_of(std::move(values)).median);
  }
  return medians;
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
    const double bytes = std::min(read(word, units, "size", "bytes, as in 4, 1K, 8M"), 2 * kMost);
    const auto whole = static_cast<int64_t>(bytes);
    const bool grows = sizes.empty() || whole > sizes.back();
    if (whole < 4 || whole % 4 != 0 || bytes > kMost || !grows)
      throw InputError(format("'{}' is not a size to measure", base::printable(word)), "",
                       "a size is a multiple of 4 bytes up to 1024M, and larger than the one before it");
    sizes.push_back(whole);
  }
  if (sizes.empty()) throw InputError("there is no size to measure", "", "as in 4,1K,16K,1M");
  return sizes;
}

std::string delay_text(double latency, double bandwidth) {
  return report::seconds_text(latency) + " a message, " +
         (bandwidth > 0 ? format("{:g} Gbit/s per link", bandwidth * 8 / 1e9) : "no limit of bandwidth");
}

void check_out(const std::string& file) {
  if (file.empty() || file.ends_with(".html")) return;
  throw InputError(format("'{}' is not a page", base::printable(file)), "--out",
                   "name a file that ends in .html");
}

void check_place(const Team& team, const std::string& file) {
  team.from_first([&] {
    if (!file.empty()) base::check_output(file, "name another with --out");
    return std::string();
  });
}

void report_on_first(const Team& team, const std::string& file, const std::function<report::Page()>& page,
                     const std::function<std::string()>& json) {
  team.from_first([&] {
    const auto drawn = page();
    output::print(json ? json() : drawn.as_text());
    if (!file.empty()) base::write_output(file, drawn.html(), "name another file with --out");
    return std::string();
  });
}

}  // namespace lockstep::bench
