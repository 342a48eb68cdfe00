// The small exchanges of training: sums, texts, errors that all ranks meet alike.
#include "lockstep/parallel/team.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "parallel/ranks_group.h"

namespace lockstep {
namespace {

const Team& team() {
  static const Team instance(test::runtime().job(), test::group(), at::kCPU);
  return instance;
}

TEST(Team, SumsAndMaximaAreOverRanks) {
  std::vector<double> values{1, static_cast<double>(team().rank())};
  team().sum(values);
  const int world = team().world();
  EXPECT_EQ(values, (std::vector<double>{1.0 * world, world * (world - 1) / 2.0}));
  std::vector<double> ends{static_cast<double>(team().rank()), -static_cast<double>(team().rank())};
  team().max(ends);
  EXPECT_EQ(ends, (std::vector<double>{world - 1.0, 0}));
}

TEST(Team, TextsOfAnyLengthTravel) {
  const std::string mine(static_cast<size_t>(team().rank()) * 1000, 'x');
  const auto all = team().all_gather(mine);
  ASSERT_EQ(all.size(), static_cast<size_t>(team().world()));
  for (size_t rank = 0; rank < all.size(); ++rank) EXPECT_EQ(all[rank].size(), rank * 1000);
  EXPECT_EQ(team().broadcast(team().first() ? std::string("a\0b", 3) : "mine"), std::string("a\0b", 3));
  EXPECT_EQ(team().broadcast(""), "");
}

TEST(Team, TheFirstRanksErrorIsEverybodys) {
  try {
    team().from_first([]() -> std::string { throw InputError("what", "where", "hint"); });
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(describe(error), describe(InputError("what", "where", "hint")));
  }
  EXPECT_EQ(team().from_first([] { return std::string("done"); }), "done");
}

TEST(Team, OneRanksErrorIsEverybodys) {
  const int last = team().world() - 1;
  try {
    team().together([&] {
      if (team().rank() == last) throw Error("it broke");
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "it broke");
    EXPECT_EQ(error.exit_status(), kFailed);
  }
  EXPECT_NO_THROW(team().together([] {}));
}

TEST(Team, AForeignErrorTravelsToo) {
  EXPECT_THROW(team().from_first([]() -> std::string { throw std::out_of_range("too far"); }), Error);
  EXPECT_THROW(team().together([] {
    if (team().first()) throw InputError("no such file");
  }),
               InputError);
}

TEST(Team, WithoutAGroupEachIsAlone) {
  const Team alone(test::runtime().job(), nullptr, at::kCPU);
  EXPECT_EQ(alone.rank(), 0);
  EXPECT_EQ(alone.world(), 1);
  EXPECT_EQ(alone.broadcast("mine"), "mine");
  EXPECT_EQ(alone.all_gather(std::string("x")), std::vector<std::string>{"x"});
  EXPECT_THROW(alone.from_first([]() -> std::string { throw InputError("what"); }), InputError);
}

}  // namespace
}  // namespace lockstep
