#include "lockstep/tasks/tokenise.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

namespace lockstep::tasks {
namespace {

SharedSet three_samples() {
  Tokenised made;
  made.tokens = {.ids = at::tensor({5, 6, 7, 8}, at::kInt),
                 .starts = at::tensor({0, 2, 3, 4}, at::kLong),
                 .seconds = at::tensor({1, 0, 1}, at::kInt),
                 .targets = at::tensor({0, 1, 1}, at::kLong)};
  made.names = {"bad", "good"};
  made.first_seen = {2, 3};
  return packed(made);
}

// A kept file whose sums are right may have been written by anything.
TEST(Tokenised, LeadsToNoTokenAndNoClassThatIsNotThere) {
  EXPECT_TRUE(is_sound(three_samples()));
  enum { ids, starts, seconds, targets };
  const std::vector<std::pair<const char*, std::function<void(std::vector<at::Tensor>&)>>> wrong = {
      {"a start behind the end", [](auto& set) { set[starts][1] = int64_t{1} << 40; }},
      {"a start before the one before", [](auto& set) { set[starts][2] = 1; }},
      {"a start below 0", [](auto& set) { set[starts][1] = -1; }},
      {"another end", [](auto& set) { set[starts][3] = 3; }},
      {"a token below 0", [](auto& set) { set[ids][0] = -1; }},
      {"a second text behind its sample", [](auto& set) { set[seconds][1] = 2; }},
      {"a class that has no name", [](auto& set) { set[targets][0] = 2; }},
      {"a class below 0", [](auto& set) { set[targets][0] = -1; }},
      {"a target too few", [](auto& set) { set[targets] = set[targets].slice(0, 0, 2); }},
      {"no samples", [](auto& set) { set[seconds] = set[seconds].slice(0, 0, 0); }},
      {"starts of another type", [](auto& set) { set[starts] = set[starts].to(at::kInt); }},
      {"a tensor too few", [](auto& set) { set.pop_back(); }},
  };
  for (const auto& [what, spoil] : wrong) {
    auto set = three_samples();
    spoil(set.tensors);
    EXPECT_FALSE(is_sound(set)) << what;
  }
}

}  // namespace
}  // namespace lockstep::tasks
