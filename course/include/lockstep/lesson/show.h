#pragma once
// Prints a result for the learner, or reports it to `lockstep check`.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace at {
class Tensor;
}

namespace lockstep {

/// Prints "rank 1: mean = 1.5" on standard output. Under `lockstep check`, sends the value to the check
/// instead.
void show(std::string_view name, double value);
/// The same for a list of numbers.
void show(std::string_view name, const std::vector<double>& values);
/// The same for a list of integers, for example indices.
void show(std::string_view name, const std::vector<int64_t>& values);
/// The same for the elements of a tensor, row by row.
void show(std::string_view name, const at::Tensor& values);
/// The same for a string.
void show(std::string_view name, const std::string& text);

}  // namespace lockstep
