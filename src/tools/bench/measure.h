#pragma once
// What all benches share: times and their spread, methods that take turns, option values, the page.

#include <chrono>
#include <cstdint>
#include <functional>
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

struct Turns {
  size_t methods = 0;
  int rounds = 0;
  int warm_up = 0;  // rounds before these, which do not count
};
/// In each round every method takes its turn, so that other load on the machine affects all alike. `measure`
/// returns the numbers of one turn on this rank, the same count for all. Returns for each method the medians
/// over the rounds of each number's largest value over the ranks. Collective.
std::vector<std::vector<double>> medians_in_turns(
    const Team& team, const Turns& turns,
    const std::function<std::vector<double>(size_t method, int round)>& measure);

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
/// On rank 0: InputError where `file` cannot be written. Every rank throws it. Collective.
void check_place(const Team& team, const std::string& file);
/// On rank 0: prints the page's text, or `json` where it is not empty, and writes the page if `file` is not
/// empty. Collective.
void report_on_first(const Team& team, const std::string& file, const std::function<report::Page()>& page,
                     const std::function<std::string()>& json = {});

}  // namespace lockstep::bench
