#pragma once
// Calls that no Python wrote, for graphs of torch.export: an operator that they may call, with arguments of
// the kinds that it takes.

#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace lockstep::fuzz {

using Json = nlohmann::json;

/// Something below n; 0 where n is 0.
inline size_t below(size_t n, std::mt19937& random) {
  return n == 0 ? 0 : random() % n;
}

/// Mostly small, sometimes at the ends of what integers hold.
int64_t some_integer(std::mt19937& random);
/// As an exported file writes it: some are texts.
Json some_real(std::mt19937& random);
/// "torch.ops.aten.linear.default"
std::string some_operator(std::mt19937& random);

/// A node; `tensors`: the names that it may take, `name`: what its results are called, with a number behind
/// it.
Json some_call(const std::vector<std::string>& tensors, const std::string& name, std::mt19937& random);

}  // namespace lockstep::fuzz
