#include "tools/bench/units.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "trainer/config/numbers.h"

namespace lockstep::bench {
namespace {

struct Unit {
  const char* name;
  double factor;
};
using Units = std::vector<Unit>;  // the smallest first

const Units kTimes = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
const Units kRates = {{"Mbit", 1e6 / 8}, {"Gbit", 1e9 / 8}};
const Units kBytes = {{"", 1}, {"K", 1024}, {"M", 1024 * 1024}};

double read(const std::string& text, const Units& units, const char* what, const char* hint) {
  const auto end = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto number = config::parse_number(text.substr(0, end));
  for (const auto& [name, factor] : units) {
    if (number && text.substr(end) == name) return *number * factor;
  }
  if (number && *number == 0 && end == text.size()) return 0;
  throw InputError(format("'{}' is no {}", base::printable(text), what), "", hint);
}

std::string scaled(double value, const Units& units) {
  const Unit* unit = &units[0];
  for (const auto& larger : units)
    if (value >= larger.factor) unit = &larger;
  const double number = value / unit->factor;
  return format("{:.{}f} {}", number, number >= 100 || number == std::floor(number) ? 0 : 1, unit->name);
}

}  // namespace

double parse_latency(const std::string& text) {
  return read(text, kTimes, "latency", "write 3us, 3ms, 3s or 0");
}

double parse_bandwidth(const std::string& text) {
  return read(text, kRates, "bandwidth", "write 3Mbit, 3Gbit or 0");
}

std::vector<int64_t> parse_sizes(const std::string& text) {
  constexpr double kMost = 1 << 30;
  std::vector<int64_t> sizes;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const double bytes = std::min(read(word, kBytes, "size", "bytes, as in 4, 1K, 8M"), 2 * kMost);
    const auto whole = static_cast<int64_t>(bytes);
    const bool grows = sizes.empty() || whole > sizes.back();
    if (whole < 4 || whole % 4 != 0 || bytes > kMost || !grows)
      throw InputError(format("'{}' is no size to measure", base::printable(word)), "",
                       "a size is a multiple of 4 bytes up to 1024M, and larger than the one before it");
    sizes.push_back(whole);
  }
  if (sizes.empty()) throw InputError("there is no size to measure", "", "as in 4,1K,16K,1M");
  return sizes;
}

std::string bytes_text(double bytes) {
  return scaled(bytes, {{"B", 1}, {"KiB", 1024}, {"MiB", 1024 * 1024}});
}

std::string decimal_bytes_text(double bytes) {
  return scaled(bytes, {{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}});
}

std::string work_text(double operations) {
  return scaled(operations, {{"FLOP", 1}, {"kFLOP", 1e3}, {"MFLOP", 1e6}, {"GFLOP", 1e9}, {"TFLOP", 1e12}});
}

std::string percent_text(double share) {
  return share > 0 ? format("{:.0f} %", 100 * share) : "-";
}

std::string seconds_text(double seconds) {
  return scaled(seconds, kTimes);
}

std::string delay_text(double latency, double bandwidth) {
  return format(
      "{} a message, {}", seconds_text(latency),
      bandwidth > 0 ? format("{:g} Gbit/s per link", bandwidth * 8 / 1e9) : "bytes as fast as they go");
}

}  // namespace lockstep::bench
