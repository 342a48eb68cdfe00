#include "lockstep/data/node_share.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <numeric>
#include <set>

#include "lockstep/base/error.h"
#include "peer.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

/// A barrier between forked processes.
class Barrier {
 public:
  explicit Barrier(int count)
      : barrier_(static_cast<pthread_barrier_t*>(::mmap(
            nullptr, sizeof(pthread_barrier_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier_, &attributes, count);
  }
  void wait() const { pthread_barrier_wait(barrier_); }

 private:
  pthread_barrier_t* barrier_;
};

std::string unique_name() {
  return "share-test/" + std::to_string(::getpid());
}

/// What this process's tests left; another process may be running other tests of this file beside it.
std::set<std::string> leftovers() {
  const auto own = "lockstep-share-test_" + std::to_string(::getpid());
  std::set<std::string> names;
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      const auto name = entry.path().filename().string();
      const bool begins = name.compare(0, own.size(), own) == 0;
      if (begins && !std::isdigit(static_cast<unsigned char>(name[own.size()]))) names.insert(name);
    }
  }
  return names;
}

int64_t size_of_leftover(const std::string& name) {
  std::error_code none;
  const auto here = fs::path("/dev/shm") / name;
  return static_cast<int64_t>(fs::file_size(fs::exists(here) ? here : fs::path("/tmp") / name, none));
}

/// The ranks of a job whose nodes hold so many of them each.
std::vector<NodeShare> places(const std::vector<int>& layout, const Barrier& barrier) {
  std::vector<NodeShare> nodes;
  for (size_t number = 0; number < layout.size(); ++number) {
    const auto name = unique_name() + (number == 0 ? "" : "-" + std::to_string(number));
    for (int rank = 0; rank < layout[number]; ++rank)
      nodes.push_back({rank, layout[number], name, [&] { barrier.wait(); }});
  }
  return nodes;
}

/// Runs `body` as a process for each rank; true where every one of them says so. A rank that hangs fails the
/// test; the death of one by a signal ends the others, as a launcher does.
bool all_ranks_of(const std::vector<int>& layout, const std::function<bool(const NodeShare&)>& body) {
  const int ranks = std::accumulate(layout.begin(), layout.end(), 0);
  const Barrier barrier(ranks);
  std::vector<pid_t> children;
  for (const auto& node : places(layout, barrier)) {
    children.push_back(::fork());
    if (children.back() == 0) {
      ::alarm(60);
      bool good = false;
      try {
        good = body(node);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "local rank %d: %s\n", node.local_rank, error.what());
      }
      ::_exit(good ? 0 : 1);
    }
  }
  bool good = true;
  while (!children.empty()) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    good = good && status == 0;
    children.erase(std::find(children.begin(), children.end(), ended));
    if (!WIFSIGNALED(status)) continue;
    for (pid_t child : children) ::kill(child, SIGKILL);
  }
  return good;
}

bool all_ranks(int ranks, const std::function<bool(const NodeShare&)>& body) {
  return all_ranks_of({ranks}, body);
}

// One tensor in the arena, a view of it, one from elsewhere, and one of no elements.
SharedSet example(Arena& arena) {
  auto whole = arena.empty({3, 4}, at::kFloat);
  for (int i = 0; i < 12; ++i) whole.mutable_data_ptr<float>()[i] = static_cast<float>(i);
  return {{whole, whole.slice(0, 1, 3), at::tensor({7, 8}, at::kLong), at::empty({0, 5}, at::kByte)},
          "a text"};
}

bool is_example(const SharedSet& set) {
  const auto whole = at::arange(12, at::kFloat).view({3, 4});
  return set.text == "a text" && set.tensors.size() == 4 && at::equal(set.tensors[0], whole) &&
         at::equal(set.tensors[1], whole.slice(0, 1, 3)) &&
         at::equal(set.tensors[2], at::tensor({7, 8}, at::kLong)) &&
         set.tensors[3].sizes() == at::IntArrayRef({0, 5}) && set.tensors[3].scalar_type() == at::kByte;
}

TEST(NodeShare, LoadsOnTheFirstRankAndMapsOnTheOthers) {
  EXPECT_TRUE(all_ranks(3, [](const NodeShare& node) {
    bool loaded = false;
    for (int round = 0; round < 3; ++round) {
      const auto set = share_on_node(node, [&](Arena& arena) {
        loaded = true;
        return example(arena);
      });
      if (!is_example(set)) return false;
    }
    return loaded == (node.local_rank == 0);
  }));
  EXPECT_TRUE(leftovers().empty());
}

TEST(NodeShare, IsOneMemoryAndReadOnly) {
  // A rank's own memory grows by the set only once on the node: the others' pages are shared ones.
  EXPECT_TRUE(all_ranks(2, [](const NodeShare& node) {
    const auto set = share_on_node(node, [](Arena& arena) {
      auto big = arena.empty({64 << 20}, at::kByte);
      std::memset(big.mutable_data_ptr<uint8_t>(), 7, big.numel());
      return SharedSet{{big}, {}};
    });
    std::ifstream maps("/proc/self/maps");
    const auto address = reinterpret_cast<uintptr_t>(set.tensors[0].const_data_ptr());
    for (std::string line; std::getline(maps, line);) {
      uintptr_t begin = 0, end = 0;
      char mode[5] = {};
      if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, mode) != 3) continue;
      if (begin <= address && address < end) return std::string(mode) == "r--s";
    }
    return false;
  }));
}

TEST(NodeShare, NodesNeedNotBeFilledAlike) {
  for (const auto& layout : std::vector<std::vector<int>>{{2, 1}, {1, 3}, {1, 1}, {1, 2, 1}}) {
    EXPECT_TRUE(all_ranks_of(layout,
                             [](const NodeShare& node) {
                               bool loaded = false;
                               for (int round = 0; round < 2; ++round) {
                                 const auto set = share_on_node(node, [&](Arena& arena) {
                                   loaded = true;
                                   return example(arena);
                                 });
                                 if (!is_example(set)) return false;
                               }
                               return loaded == (node.local_rank == 0);
                             }))
        << layout.size() << " nodes, " << layout[0] << " on the first";
  }
  EXPECT_TRUE(leftovers().empty());
}

TEST(NodeShare, AnErrorOnALoneRankHoldsNobodyUp) {
  EXPECT_TRUE(all_ranks_of({1, 2}, [](const NodeShare& node) {
    const bool lone = node.local_world == 1;
    try {
      const auto set = share_on_node(node, [&](Arena& arena) -> SharedSet {
        if (lone) throw InputError("bad row", "t.csv:3", "fix it");
        return example(arena);
      });
      return !lone && is_example(set);
    } catch (const InputError&) {
      return lone;
    }
  }));
}

TEST(NodeShare, GivesTheFirstRanksErrorToAll) {
  EXPECT_TRUE(all_ranks(3, [](const NodeShare& node) {
    try {
      share_on_node(node, [](Arena&) -> SharedSet { throw InputError("bad row", "t.csv:3", "fix it"); });
    } catch (const InputError& error) {
      return std::string(error.what()) == "bad row" && error.where() == "t.csv:3" && error.hint() == "fix it";
    }
    return false;
  }));
  EXPECT_TRUE(all_ranks(2, [](const NodeShare& node) {
    try {
      share_on_node(node, [](Arena&) -> SharedSet { throw std::runtime_error("no memory"); });
    } catch (const InputError&) {
      return false;
    } catch (const std::exception& error) {
      return std::string(error.what()) == "no memory";
    }
    return false;
  }));
  EXPECT_TRUE(leftovers().empty());
}

TEST(NodeShare, AKillAtAMeetingLeavesNoDataAndTheNextStartSweeps) {
  for (int fatal : {1, 2, 3}) {
    all_ranks(2, [fatal](const NodeShare& node) {
      auto doomed = node;
      int met = 0;
      doomed.barrier = [&] {
        if (node.local_rank == 0 && ++met == fatal) ::raise(SIGKILL);
        node.barrier();
      };
      share_on_node(doomed, example);
      return true;
    });
    for (const auto& name : leftovers()) EXPECT_EQ(size_of_leftover(name), 0) << name << " at " << fatal;
    EXPECT_TRUE(
        all_ranks_of({1, 2}, [](const NodeShare& node) { return is_example(share_on_node(node, example)); }));
    EXPECT_TRUE(leftovers().empty()) << "after a kill at meeting " << fatal;
  }
}

}  // namespace
}  // namespace lockstep
