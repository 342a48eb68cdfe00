#pragma once
// Where an axis has its marks, and what stands beside them.

#include <string>
#include <vector>

namespace lockstep::plot {

/// What an axis counts, by its label: "seconds a step (s)" and "bytes" have units of their own.
enum class Unit { plain, bytes, seconds };
Unit unit_of(const std::string& label);

/// The label without its "(s)" or "(bytes)": the marks have units of their own, "ms" or "KiB".
std::string without_unit(const std::string& label);

/// 1500 as "1.5k", bytes as "64 KiB", seconds as "2 ms".
std::string short_number(double value, Unit unit = Unit::plain);

/// An axis from its data: its ends, its marks, and where a value lies between the ends, from 0 to 1.
class Axis {
 public:
  /// `values` need not be finite; on a logarithmic axis those that are not positive do not count.
  Axis(const std::vector<double>& values, bool log, Unit unit, bool from_zero = false);

  /// Can it be drawn at all?
  bool shows(double value) const;
  double place(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }
  std::string label(double tick) const { return short_number(tick, unit_); }

 private:
  double scaled(double value) const;
  void widen(bool from_zero);
  void mark_linear();
  void mark_log();

  bool log_;
  Unit unit_;
  double low_ = 0, high_ = 1;
  std::vector<double> ticks_;
};

}  // namespace lockstep::plot
