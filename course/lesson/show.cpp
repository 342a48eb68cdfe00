// show(): a line for the learner, or a fact for `lockstep check`.
#include "lockstep/lesson/show.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"

namespace lockstep {
namespace {

// where `lockstep check` listens; -1: nobody does
int listener() {
  static const int found = [] {
    const char* text = std::getenv("LOCKSTEP_FACTS_FD");
    if (!text) return -1;
    const int number = std::atoi(text);
    if (::fcntl(number, F_SETFD, FD_CLOEXEC) != 0)
      return -1;  // whatever this program starts keeps it open else
    return number;
  }();
  return found;
}

void tell(const nlohmann::json& fact) {
  base::write_all(listener(), base::as_line(fact) + "\n");
}

// JSON has no word for these
nlohmann::json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

// as few digits as bring back the same number
std::string shortest(double value) {
  char text[40];
  const auto end = std::to_chars(std::begin(text), std::end(text), value).ptr;
  return {text, end};
}

void print(std::string_view name, const std::string& value) {
  const char* rank = nullptr;
  for (const char* variable : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (!rank) rank = std::getenv(variable);
  output::line(format("rank {}: {} = {}", rank ? rank : "0", name, value));
}

}  // namespace

void show(std::string_view name, const std::vector<double>& values) {
  if (listener() >= 0) {
    auto row = nlohmann::json::array();
    for (const double value : values) row.push_back(number(value));
    return tell({{"name", name}, {"numbers", row}});
  }
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : " ") + shortest(value);
  print(name, text);
}

void show(std::string_view name, double value) {
  show(name, std::vector{value});
}

void show(std::string_view name, const std::vector<int64_t>& values) {
  show(name, std::vector<double>(values.begin(), values.end()));
}

void show(std::string_view name, const at::Tensor& values) {
  const auto row = values.detach().to(at::kCPU, at::kDouble).contiguous();
  show(name, std::vector<double>(row.data_ptr<double>(), row.data_ptr<double>() + row.numel()));
}

void show(std::string_view name, const std::string& text) {
  if (listener() >= 0) return tell({{"name", name}, {"text", text}});
  print(name, text);
}

}  // namespace lockstep
