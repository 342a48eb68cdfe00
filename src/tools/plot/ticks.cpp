#include "tools/plot/ticks.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/format.h"

namespace lockstep::plot {
namespace {

struct Scale {
  double from;
  const char* suffix;
};
constexpr std::array<Scale, 6> kPlain = {{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}, {0, ""}}};
constexpr std::array<Scale, 6> kBytes = {{{1099511627776.0, " TiB"},
                                          {1073741824.0, " GiB"},
                                          {1048576, " MiB"},
                                          {1024, " KiB"},
                                          {1, " B"},
                                          {0, " B"}}};
constexpr std::array<Scale, 6> kSeconds = {
    {{3600, " h"}, {60, " min"}, {1, " s"}, {1e-3, " ms"}, {1e-6, " µs"}, {0, " ns"}}};

const std::array<Scale, 6>& scales(Unit unit) {
  return unit == Unit::bytes ? kBytes : unit == Unit::seconds ? kSeconds : kPlain;
}

double divisor(const Scale& scale, Unit unit) {
  return scale.from > 0 ? scale.from : unit == Unit::seconds ? 1e-9 : 1;
}

// 1, 2 or 5 times a power of ten (of two for bytes), so that about `wanted` of them fill the range.
double nice_step(double range, int wanted, Unit unit) {
  const double raw = range / wanted;
  if (unit == Unit::bytes) return std::max(1.0, std::exp2(std::ceil(std::log2(raw))));
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power * 1.0001) return factor * power;
  }
  return 10 * power;
}

constexpr double kTiny = 1e-300, kHuge = 1e300;

}  // namespace

Unit unit_of(const std::string& label) {
  const auto is = [&](const std::string& word) {
    return label == word || label.ends_with("(" + word + ")") || label.ends_with(", " + word);
  };
  if (is("bytes") || is("B")) return Unit::bytes;
  return is("s") || is("seconds") ? Unit::seconds : Unit::plain;
}

std::string without_unit(const std::string& label) {
  const auto bracket = label.rfind(" (");
  return bracket == std::string::npos || unit_of(label) == Unit::plain ? label : label.substr(0, bracket);
}

std::string short_number(double value, Unit unit) {
  if (!std::isfinite(value)) return "–";
  if (value == 0) return "0";
  const double size = std::abs(value) * 1.0000001;
  for (const auto& scale : scales(unit)) {
    if (size < scale.from) continue;
    return format("{:.4g}{}", value / divisor(scale, unit), scale.suffix);
  }
  return format("{:.4g}", value);
}

Axis::Axis(const std::vector<double>& values, bool log, Unit unit, bool from_zero) : log_(log), unit_(unit) {
  bool any = false;
  for (const double value : values) {
    if (!shows(value)) continue;
    low_ = any ? std::min(low_, value) : value;
    high_ = any ? std::max(high_, value) : value;
    any = true;
  }
  if (!any && log) low_ = 1, high_ = 10;
  widen(from_zero);
  if (log_) {
    mark_log();
  } else {
    mark_linear();
  }
}

bool Axis::shows(double value) const {
  return std::isfinite(value) && std::abs(value) < kHuge && (!log_ || value > kTiny);
}

double Axis::scaled(double value) const {
  return log_ ? std::log10(value) : value;
}

double Axis::place(double value) const {
  return (scaled(value) - scaled(low_)) / (scaled(high_) - scaled(low_));
}

// A range of nothing becomes one with the value in the middle.
void Axis::widen(bool from_zero) {
  if (from_zero && !log_) low_ = std::min(low_, 0.0), high_ = std::max(high_, 0.0);
  const double size = std::max(std::abs(low_), std::abs(high_));
  if (log_ ? high_ / low_ > 1 + 1e-9 : high_ - low_ > std::max(kTiny, 1e-12 * size)) return;
  if (log_) {
    low_ /= 2, high_ *= 2;
  } else if (from_zero && size <= kTiny) {
    low_ = 0, high_ = 1;
  } else {
    const double half = low_ == 0 ? 0.5 : std::abs(low_) / 10;
    low_ -= half, high_ += half;
  }
}

// The ends move out to the next mark where that costs little room.
void Axis::mark_linear() {
  const double step = nice_step(high_ - low_, 5, unit_);
  const double first = std::floor(low_ / step + 1e-9), last = std::ceil(high_ / step - 1e-9);
  for (double i = first; i <= last && ticks_.size() < 20; ++i) ticks_.push_back(i * step);
  low_ = std::min(low_, ticks_.front());
  high_ = std::max(high_, ticks_.back());
}

void Axis::mark_log() {
  const double base = unit_ == Unit::bytes ? 4 : 10;
  const double decades = std::log(high_ / low_) / std::log(base);
  const double every = std::max(1.0, std::ceil(decades / 7));
  const std::vector<double> between =
      decades > 2.5 || unit_ == Unit::bytes ? std::vector<double>{1} : std::vector<double>{1, 2, 5};
  for (double power = std::floor(std::log(low_) / std::log(base) - 1e-9); ticks_.size() < 40;
       power += every) {
    const double decade = std::pow(base, power);
    if (decade > high_ * (1 + 1e-9)) break;
    for (const double factor : between) {
      const double tick = decade * factor;
      if (tick >= low_ * (1 - 1e-9) && tick <= high_ * (1 + 1e-9)) ticks_.push_back(tick);
    }
  }
  if (ticks_.size() < 2) ticks_ = {low_, high_};
}

}  // namespace lockstep::plot
