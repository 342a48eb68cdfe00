#pragma once
// What a learner's program shows: a line for the learner, and a fact for `lockstep check`.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace at {
class Tensor;
}

namespace lockstep {

/// "rank 1: mean = 1.5" on standard output; where the program is run by `lockstep check`, it is told the
/// value instead.
void show(std::string_view name, double value);
/// A row of numbers.
void show(std::string_view name, const std::vector<double>& values);
/// Of whole numbers: indices, say.
void show(std::string_view name, const std::vector<int64_t>& values);
/// Of any tensor: its numbers, row after row.
void show(std::string_view name, const at::Tensor& values);
/// A text.
void show(std::string_view name, const std::string& text);

}  // namespace lockstep
