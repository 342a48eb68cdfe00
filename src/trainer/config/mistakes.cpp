#include "trainer/config/mistakes.h"

#include <algorithm>

#include "lockstep/base/format.h"

namespace lockstep::config {
namespace {

constexpr size_t kMostShown = 20;  // a screen of them is enough to begin with

// "\n  1. what", and its other lines below that
std::string numbered(size_t number, const InputError& error) {
  std::string text = format("\n  {}. ", number);
  for (const char c : describe(error)) text += c == '\n' ? std::string("\n   ") : std::string(1, c);
  return text;
}

}  // namespace

void Mistakes::refuse() const {
  if (found_.empty()) return;
  if (found_.size() == 1) throw InputError(found_[0]);
  std::string text = format("{} mistakes in the config", found_.size());
  for (size_t i = 0; i < std::min(found_.size(), kMostShown); ++i) text += numbered(i + 1, found_[i]);
  if (found_.size() > kMostShown) text += format("\n  and {} more", found_.size() - kMostShown);
  throw InputError(text, found_[0].where(), "fix them all; lockstep config CONFIG.yaml looks again");
}

}  // namespace lockstep::config
