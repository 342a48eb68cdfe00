#include "lockstep/exported/graph.h"

#include <gtest/gtest.h>

#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::exported {
namespace {

constexpr auto kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();

template <class... Values>
c10::IValue computed(const std::string& name, Values... values) {
  const auto* found = find_arithmetic(name);
  if (!found) throw Error("no " + name);
  EXPECT_EQ(found->arguments, sizeof...(values)) << name;
  return found->run({c10::IValue(values)...});
}

template <class... Values>
int64_t whole(const std::string& name, Values... values) {
  return computed(name, values...).toInt();
}

TEST(ExportedArithmetic, DividesAsPython) {
  EXPECT_EQ(whole("_operator.floordiv", 7, 2), 3);
  EXPECT_EQ(whole("_operator.floordiv", -7, 2), -4);
  EXPECT_EQ(whole("_operator.floordiv", 7, -2), -4);
  EXPECT_EQ(whole("_operator.mod", -7, 2), 1);
  EXPECT_EQ(whole("_operator.mod", 7, -2), -1);
  EXPECT_EQ(computed("_operator.truediv", 7, 2).toDouble(), 3.5);
  EXPECT_THROW(computed("_operator.floordiv", 7, 0), Error);
  EXPECT_THROW(computed("_operator.mod", 7, 0), Error);
}

TEST(ExportedArithmetic, StaysDefinedAtTheEndsOfIntegers) {
  EXPECT_EQ(whole("_operator.floordiv", kLeast, int64_t{-1}), kLeast);
  EXPECT_EQ(whole("_operator.mod", kLeast, int64_t{-1}), 0);
  EXPECT_EQ(whole("_operator.add", kMost, int64_t{1}), kLeast);
  EXPECT_EQ(whole("_operator.neg", kLeast), kLeast);
  EXPECT_EQ(whole("_operator.pow", int64_t{2}, kMost), 0);
  EXPECT_EQ(whole("torch.sym_int", 1e300), kMost);
  EXPECT_EQ(whole("math.floor", -1e300), kLeast);
  EXPECT_THROW(computed("math.ceil", std::numeric_limits<double>::quiet_NaN()), Error);
}

TEST(ExportedArithmetic, MixesIntegersAndReals) {
  EXPECT_EQ(computed("_operator.mul", 2, 1.5).toDouble(), 3.0);
  EXPECT_EQ(computed("_operator.pow", 2, -1).toDouble(), 0.5);
  EXPECT_EQ(whole("_operator.pow", 3, 4), 81);
  EXPECT_TRUE(computed("_operator.lt", 1, 1.5).toBool());
  EXPECT_EQ(whole("torch.sym_max", 3, 5), 5);
  EXPECT_EQ(whole("torch.sym_ite", true, 1, 2), 1);
  EXPECT_TRUE(computed("torch.sym_not", false).toBool());
  EXPECT_THROW(computed("_operator.add", "one", 1), Error);
  EXPECT_EQ(find_arithmetic("os.system"), nullptr);
}

}  // namespace
}  // namespace lockstep::exported
