#pragma once
// Bytes, times and bandwidths as a person writes and reads them.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

inline constexpr int64_t kMiB = 1 << 20;

/// "200us", "1.5ms", "0": seconds. InputError otherwise.
double parse_latency(const std::string& text);
/// "1Gbit", "100Mbit": bytes per second; "0": as fast as they go. InputError otherwise.
double parse_bandwidth(const std::string& text);
/// "4,1K,16K,8M": bytes, whole floats, growing. InputError otherwise.
std::vector<int64_t> parse_sizes(const std::string& text);

/// "1.6 MiB"
std::string bytes_text(double bytes);
/// "1.6 MB": what rates are told in
std::string decimal_bytes_text(double bytes);
/// "3.2 GFLOP"
std::string work_text(double operations);
/// "12 %"; "-" of nothing
std::string percent_text(double share);
/// "12.3 us"
std::string seconds_text(double seconds);
/// "200 us a message, 1 Gbit/s per link"
std::string delay_text(double latency, double bandwidth);

}  // namespace lockstep::bench
