#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>

#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/comm/algorithms/delayed.h"
#include "lockstep/comm/algorithms/local_ranks.h"
#include "refusal.h"

namespace lockstep {
namespace {

using Rows = std::vector<std::vector<float>>;  // each rank's numbers

Rows random_rows(size_t world, size_t items) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  Rows rows(world, std::vector<float>(items));
  for (auto& row : rows)
    for (auto& value : row) value = normal(random);
  return rows;
}

Rows summed(const Algorithm& algorithm, const std::vector<int>& nodes, Rows rows) {
  run_as_ranks(nodes, [&](Messenger& messenger) {
    all_reduce(*algorithm.run, messenger, std::span(rows[static_cast<size_t>(messenger.rank())]));
  });
  return rows;
}

// The sum where order does not matter: small whole numbers.
void expect_sums(const Algorithm& algorithm, const std::vector<int>& nodes, size_t items) {
  Rows rows(nodes.size(), std::vector<float>(items));
  std::vector<float> sum(items);
  for (size_t rank = 0; rank < rows.size(); ++rank)
    for (size_t i = 0; i < items; ++i) sum[i] += rows[rank][i] = float((i * 7 + rank * 13) % 64);
  for (const auto& row : summed(algorithm, nodes, rows))
    ASSERT_EQ(row, sum) << algorithm.name << " of " << items << " on " << nodes.size();
}

void expect_same_bits(const Algorithm& algorithm, const std::vector<int>& nodes, size_t items) {
  const auto rows = summed(algorithm, nodes, random_rows(nodes.size(), items));
  for (const auto& row : rows)
    ASSERT_EQ(0, std::memcmp(row.data(), rows[0].data(), items * sizeof(float)))
        << algorithm.name << " of " << items << " on " << nodes.size();
}

// A clock that the messages carry: what Delayed sleeps, counted.
class Clocked : public Messenger {
 public:
  Clocked(Messenger& messenger, Network network) : messenger_(messenger), network_(network) {}
  int rank() const override { return messenger_.rank(); }
  int world() const override { return messenger_.world(); }
  int node_of(int rank) const override { return messenger_.node_of(rank); }
  double now() const { return now_; }

 protected:
  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::vector<std::vector<std::byte>> letters;
    size_t sent = 0, received = 0;
    for (const auto& message : out) sent += message.bytes.size();
    if (!out.empty()) now_ += network_.alpha + double(sent) * network_.beta;
    std::vector<Outgoing> with_time;
    for (const auto& message : out) {
      auto& letter = letters.emplace_back(sizeof now_);
      std::memcpy(letter.data(), &now_, sizeof now_);
      letter.insert(letter.end(), message.bytes.begin(), message.bytes.end());
    }
    for (size_t i = 0; i < out.size(); ++i) with_time.push_back({out[i].to, letters[i]});
    std::vector<std::vector<std::byte>> places;
    std::vector<Incoming> into;
    for (const auto& message : in) places.emplace_back(message.bytes.size() + sizeof now_);
    for (size_t i = 0; i < in.size(); ++i) into.push_back({in[i].from, places[i]});
    messenger_.exchange(with_time, into);
    for (size_t i = 0; i < in.size(); ++i) {
      double arrived = 0;
      std::memcpy(&arrived, places[i].data(), sizeof arrived);
      std::copy(places[i].begin() + sizeof arrived, places[i].end(), in[i].bytes.begin());
      now_ = std::max(now_, arrived);
      received += in[i].bytes.size();
    }
    if (!in.empty()) now_ = free_ = std::max(now_, free_ + double(received) * network_.beta);
  }

 private:
  Messenger& messenger_;
  Network network_;
  double now_ = 0, free_ = 0;
};

double clocked(const Algorithm& algorithm, const std::vector<int>& nodes, size_t items, Network network) {
  auto rows = random_rows(nodes.size(), items);
  std::vector<double> ends(nodes.size());
  run_as_ranks(nodes, [&](Messenger& messenger) {
    Clocked clock(messenger, network);
    const auto rank = static_cast<size_t>(messenger.rank());
    all_reduce(*algorithm.run, clock, std::span(rows[rank]));
    ends[rank] = clock.now();
  });
  return *std::max_element(ends.begin(), ends.end());
}

class EachAlgorithm : public ::testing::TestWithParam<Algorithm> {};

TEST_P(EachAlgorithm, SumsInAnyWorldAndSize) {
  for (size_t world = 1; world <= 9; ++world) {
    const std::vector<int> nodes(world, 0);
    for (const size_t items : {size_t{0}, size_t{1}, world - 1, world + 1, size_t{101}})
      expect_sums(GetParam(), nodes, items);
    expect_same_bits(GetParam(), nodes, 101);
  }
}

TEST_P(EachAlgorithm, SumsOverUnevenNodes) {
  for (const auto& nodes : {std::vector<int>{0, 0, 0, 1, 2, 2}, {4, 2, 4, 2, 4}, {0, 1, 2}}) {
    expect_sums(GetParam(), nodes, 50);
    expect_same_bits(GetParam(), nodes, 50);
  }
}

TEST_P(EachAlgorithm, LeavesNobodyWaitingForARankThatFailed) {
  std::atomic<int> ended{0};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(run_as_ranks(5,
                            [&](Messenger& messenger) {
                              const std::shared_ptr<void> end(nullptr, [&](void*) { ++ended; });
                              std::vector<float> data(100);
                              if (messenger.rank() == 3) throw InputError("no power");
                              all_reduce(*GetParam().run, messenger, std::span(data));
                            }),
               InputError);
  EXPECT_EQ(ended, 5);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(2));
}

TEST_P(EachAlgorithm, TakesAsLongAsItsFormulaSays) {
  const Network network{.alpha = 100, .beta = 1};
  for (const int world : {1, 2, 4, 8}) {
    const std::vector<int> nodes(static_cast<size_t>(world), 0);
    EXPECT_DOUBLE_EQ(clocked(GetParam(), nodes, 64, network), GetParam().seconds({world, 1}, 256, network))
        << world;
  }
  for (const int world : {3, 5, 6, 7}) {
    const std::vector<int> nodes(static_cast<size_t>(world), 0);
    const double said = GetParam().seconds({world, 1}, 840 * 4, network);
    const double took = clocked(GetParam(), nodes, 840, network);
    EXPECT_LE(took, said * 1.0001) << world;
    EXPECT_GT(took, said * 0.6) << world;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachAlgorithm, ::testing::ValuesIn(all_reduce_algorithms()),
                         [](const auto& info) { return info.param.name; });

TEST(Algorithms, ThatAddInRankOrderHaveItsBits) {
  const auto rows = random_rows(5, 101);
  auto sum = rows[0];
  for (size_t rank = 1; rank < rows.size(); ++rank)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += rows[rank][i];
  for (const char* name : {"all_to_all", "reduce_broadcast"})
    EXPECT_EQ(summed(find_all_reduce(name), std::vector<int>(5, 0), rows)[0], sum) << name;
}

TEST(Algorithms, TwoLevelCostsLessThanOneOverNodes) {
  const std::vector<int> nodes{0, 0, 1, 1};
  const Network network{.alpha = 100, .beta = 1};
  EXPECT_DOUBLE_EQ(clocked(find_all_reduce("two_level"), nodes, 64, network),
                   find_all_reduce("two_level").seconds({4, 2}, 256, network));
}

TEST(Algorithms, AnUnknownNameNamesTheNearest) {
  EXPECT_TRUE(test::has(test::error_from([] { find_all_reduce("rin"); }).hint(), "did you mean ring?"));
}

TEST(LocalRanks, AMessageOfAnotherSizeIsAnError) {
  const auto unequal = [](Messenger& messenger) {
    std::vector<std::byte> bytes(messenger.rank() == 0 ? 4 : 8);
    messenger.rank() == 0 ? messenger.send(1, bytes) : messenger.receive(0, bytes);
  };
  EXPECT_THROW(run_as_ranks(2, unequal), Error);
}

// Both send first: a message waits for its receiver.
TEST(LocalRanks, RanksThatWaitForEachOtherAreToldWhoWaitsForWhom) {
  const auto both_send = [](Messenger& messenger) {
    std::vector<std::byte> bytes(4);
    if (messenger.rank() < 2) messenger.send(1 - messenger.rank(), bytes);
  };
  EXPECT_STREQ(test::error_from<Error>([&] { run_as_ranks(3, both_send); }).what(),
               "the ranks wait for each other: rank 0 waits until rank 1 receives its message; "
               "rank 1 waits until rank 0 receives its message; rank 2 has ended");
}

TEST(LocalRanks, AMessageThatNobodySendsIsNamedAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const auto one_waits = [](Messenger& messenger) {
    std::vector<std::byte> bytes(4);
    if (messenger.rank() == 1) messenger.receive(0, bytes);
  };
  EXPECT_STREQ(test::error_from<Error>([&] { run_as_ranks(2, one_waits); }).what(),
               "a rank waits for a message that no rank sends: rank 0 has ended; rank 1 waits for a message "
               "from rank 0");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(2));
}

// Two senders, one receiver: its line carries one message at a time.
TEST(DelayedMessenger, AReceiversLineIsBusyWithOneMessageAfterTheOther) {
  const auto begin = std::chrono::steady_clock::now();
  run_as_ranks(3, [](Messenger& messenger) {
    DelayedMessenger slow(messenger, {.latency = 0, .bytes_per_second = 1000});
    std::vector<std::byte> bytes(30);
    if (messenger.rank() != 0) return slow.send(0, bytes);
    slow.receive(1, bytes);
    slow.receive(2, bytes);
  });
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(59));
}

}  // namespace
}  // namespace lockstep
