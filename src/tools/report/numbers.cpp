#include "tools/report/numbers.h"

#include <cmath>
#include <initializer_list>

#include "lockstep/base/format.h"

namespace lockstep::report {
namespace {

struct Unit {
  double size;
  const char* name;
};

// `units` begins with the largest; what is smaller than all of them has the last.
std::string scaled(double value, std::initializer_list<Unit> units) {
  if (!std::isfinite(value)) return "–";
  auto unit = units.begin();
  while (unit + 1 != units.end() && std::abs(value) * 1.0005 < unit->size) ++unit;
  const double number = value / unit->size;
  const bool whole = std::abs(number) >= 100 && std::abs(number) < 1e6;
  return (whole ? format("{:.0f}", number) : format("{:.3g}", number)) + unit->name;
}

bool has_unit(const std::string& label, const std::string& unit) {
  return label == unit || label.ends_with("(" + unit + ")");
}

}  // namespace

std::string number_text(double value) {
  return scaled(value, {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}});
}

std::string bytes_text(double bytes) {
  return scaled(bytes, {{0x1p40, " TiB"}, {0x1p30, " GiB"}, {0x1p20, " MiB"}, {1024, " KiB"}, {1, " B"}});
}

std::string seconds_text(double seconds) {
  if (seconds == 0) return "0 s";
  return scaled(seconds, {{3600, " h"}, {60, " min"}, {1, " s"}, {1e-3, " ms"}, {1e-6, " us"}});
}

std::string decimal_bytes_text(double bytes) {
  return scaled(bytes, {{1e9, " GB"}, {1e6, " MB"}, {1e3, " kB"}, {1, " B"}});
}

std::string work_text(double operations) {
  return scaled(operations,
                {{1e12, " TFLOP"}, {1e9, " GFLOP"}, {1e6, " MFLOP"}, {1e3, " kFLOP"}, {1, " FLOP"}});
}

std::string percent_text(double share) {
  return share > 0 ? format("{:.0f} %", 100 * share) : "-";
}

std::string axis_text(double value, const std::string& label) {
  if (has_unit(label, "bytes")) return bytes_text(value);
  return has_unit(label, "s") ? seconds_text(value) : number_text(value);
}

std::string without_unit(const std::string& label) {
  return has_unit(label, "bytes") || has_unit(label, "s") ? label.substr(0, label.rfind(" (")) : label;
}

}  // namespace lockstep::report
