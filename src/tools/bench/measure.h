#pragma once
// What all benches share: times and their spread, option values, where a page goes.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/parallel/team.h"
#include "tools/report/page.h"

namespace lockstep::bench {

using Clock = std::chrono::steady_clock;

/// In seconds.
inline double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Spread {
  double mean = 0, least = 0, median = 0, most = 0;
  size_t at_most = 0;  // which number it is
};
/// Of at least one number.
Spread spread_of(std::vector<double> numbers);

/// "200us", "1.5ms", "0": seconds. InputError otherwise.
double parse_latency(const std::string& text);
/// "1Gbit", "100Mbit": bytes per second; "0": no limit. InputError otherwise.
double parse_bandwidth(const std::string& text);
/// "4,1K,16K,8M": bytes, whole floats, growing. InputError otherwise.
std::vector<int64_t> parse_sizes(const std::string& text);

/// "200 us a message, 1 Gbit/s per link"
std::string delay_text(double latency, double bandwidth);

/// InputError unless `file` is empty or ends in .html.
void check_out(const std::string& file);
/// InputError where it cannot be written.
void check_place(const std::string& file);
/// Nothing where `file` is empty.
void write_page(const report::Page& page, const std::string& file);
/// Prints the page's text, and writes the page.
void print_and_write(const report::Page& page, const std::string& file);

/// Rank 0 does it; every rank throws its error. Collective.
template <class Action>
void on_first(const Team& team, const Action& action) {
  team.from_first([&] {
    action();
    return std::string();
  });
}

}  // namespace lockstep::bench
