#pragma once
// Numbers with three digits and a unit that suits their size.

#include <string>

namespace lockstep::report {

/// "1.5k"
std::string number_text(double value);
/// "1.5 KiB"
std::string bytes_text(double bytes);
/// "12.3 ms", "24 s", "33.3 min"
std::string seconds_text(double seconds);
/// "1.6 MB", as rates are given
std::string decimal_bytes_text(double bytes);
/// "3.2 GFLOP"
std::string work_text(double operations);
/// "12 %", "-" for nothing
std::string percent_text(double share);

/// In the unit that the label of an axis ends with: "time (s)", "message (bytes)".
std::string axis_text(double value, const std::string& label);
/// The label without that unit.
std::string without_unit(const std::string& label);

}  // namespace lockstep::report
