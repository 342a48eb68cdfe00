#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/data/catalog.h"
#include "lockstep/data/node_share.h"
#include "refusal.h"
#include "temp_folder.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

TEST(Stage, CopiesOnce) {
  test::TempFolder folder;
  const std::string content(3'000'000, 'q');
  const auto path = folder.write("set.bin", content), stage = folder / "node/local";
  EXPECT_EQ(data::stage_file(path, ""), path);
  const auto copy = data::stage_file(path, stage);
  EXPECT_EQ(fs::path(copy).parent_path(), stage);
  EXPECT_EQ(base::read_text(copy), content);
  struct stat first, second;
  ::stat(copy.c_str(), &first);
  EXPECT_EQ(data::stage_file(path, stage), copy);
  ::stat(copy.c_str(), &second);
  EXPECT_EQ(first.st_ino, second.st_ino) << "copied again for nothing";
  EXPECT_EQ(first.st_mode & 077, 0U) << "others can read it";
  fs::resize_file(copy, 10);
  EXPECT_EQ(base::read_text(data::stage_file(path, stage)), content) << "a copy that was cut";
  EXPECT_EQ(data::stage_file(copy, stage), copy) << "a file already there is not copied onto itself";
  EXPECT_EQ(std::distance(fs::directory_iterator(stage), {}), 1) << "a temporary file was left";
  folder.write("set.bin", std::string(3'000'000, 'r'));
  EXPECT_EQ(base::read_text(data::stage_file(path, stage))[0], 'r') << "the file has changed";
}

TEST(Stage, KeepsFilesWithTheSameNameApart) {
  test::TempFolder one, other;
  const auto stage = one / "stage";
  const auto first = data::stage_file(one.write("set.bin", "1"), stage);
  const auto second = data::stage_file(other.write("set.bin", "2"), stage);
  EXPECT_EQ(base::read_text(first), "1");
  EXPECT_EQ(base::read_text(second), "2");
}

TEST(Stage, TakesNoOtherUsersCopyAndFollowsNoLink) {
  test::TempFolder folder;
  const auto path = folder.write("set.bin", "content"), stage = folder / "stage";
  const auto copy = data::stage_file(path, stage);
  const auto other = folder.write("other.bin", "content");
  fs::remove(copy), fs::create_symlink(other, copy);
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(data::stage_file(path, stage))));
  if (::chown(copy.c_str(), 1, 1) == 0) {  // root alone can give a file away
    EXPECT_EQ(data::stage_file(path, stage), copy);
    struct stat facts;
    ASSERT_EQ(::stat(copy.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_uid, ::geteuid()) << "another user's copy was taken";
  }
  fs::permissions(stage, fs::perms::all);
  EXPECT_THROW(data::stage_file(path, stage), InputError) << "every user can replace the copy";
}

TEST(Stage, SaysWhatItCannotDo) {
  test::TempFolder folder;
  const auto path = folder.write("set.bin", "x");
  EXPECT_THROW(data::stage_file(path, path), InputError) << "the folder is a file";
  EXPECT_THROW(data::stage_file(folder / "missing", folder / "stage"), InputError);
  EXPECT_TRUE(fs::is_empty(folder / "stage"));
}

TEST(Fetch, EndsWithAnErrorIfTheServerSendsTwoBytesASecond) {
  if (std::system("curl --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "curl is not installed";
  for (const char* name : {"http_proxy", "all_proxy", "ALL_PROXY"}) ::unsetenv(name);
  const base::Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener.number(), place, size), 0);
  ASSERT_EQ(::listen(listener.number(), 1), 0);
  ASSERT_EQ(::getsockname(listener.number(), place, &size), 0);
  const std::jthread server([&] {
    const base::Descriptor client(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string head = "HTTP/1.0 200 OK\r\nContent-Length: 1000\r\n\r\n";
    ::send(client.number(), head.data(), head.size(), MSG_NOSIGNAL);
    while (::send(client.number(), "x", 1, MSG_NOSIGNAL) == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
  });
  test::TempFolder folder;
  const data::KnownFile file{.name = "set.bin", .bytes = 1000, .sha256 = std::string(64, '0')};
  const auto mirror = format("http://127.0.0.1:{}", ntohs(address.sin_port));
  const auto begin = std::chrono::steady_clock::now();
  const auto error = test::error_from<Error>(
      [&] { data::fetch_file({}, file, folder.path(), {.mirrors = {mirror}, .stall_seconds = 1}); });
  EXPECT_EQ(error.where(), mirror + "/: it took too long");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  ::shutdown(listener.number(), SHUT_RDWR);  // ends accept4() if nothing connected
}

TEST(FindDataFile, LooksWhereDownloadersPutFiles) {
  test::TempFolder folder;
  fs::create_directories(folder / "MNIST/raw");
  const auto path = folder.write("MNIST/raw/labels.gz", "x");
  EXPECT_EQ(data::find_data_file(folder.path(), {"labels", "labels.gz"}, "mnist"), path);
  const auto nearer = folder.write("labels.gz", "x");
  EXPECT_EQ(data::find_data_file(folder.path(), {"labels", "labels.gz"}, "mnist"), nearer);
  EXPECT_THROW(data::find_data_file(folder.path(), {"nothing"}, "mnist"), InputError);
  EXPECT_THROW(data::find_data_file(folder / "nowhere", {"labels"}, "mnist"), InputError);
}

/// Runs `body` in a thread for each rank of a job whose nodes have so many ranks each. e2e has processes.
void all_ranks(const std::vector<int>& nodes, const std::function<void(const NodeShare&)>& body) {
  const int world = std::accumulate(nodes.begin(), nodes.end(), 0);
  std::vector<std::string> texts(world);
  std::barrier meeting(world);
  std::vector<std::jthread> ranks;
  for (int node = 0, rank = 0; node < std::ssize(nodes); ++node) {
    for (int local = 0; local < nodes[node]; ++local, ++rank) {
      const auto exchange = [&, rank](const std::string& text) {
        texts[rank] = text;
        meeting.arrive_and_wait();
        const auto all = texts;
        meeting.arrive_and_wait();
        return all;
      };
      ranks.emplace_back([=, &body] { body({local, nodes[node], node, exchange}); });
    }
  }
}

// One tensor in the arena, a view of it, one from elsewhere, and one of no elements.
SharedSet example(Arena& arena) {
  auto whole = arena.empty({3, 4}, at::kFloat);
  for (int i = 0; i < 12; ++i) whole.mutable_data_ptr<float>()[i] = static_cast<float>(i);
  return {{whole, whole.slice(0, 1, 3), at::tensor({7, 8}, at::kLong), at::empty({0, 5}, at::kByte)},
          "a text"};
}

void expect_example(const SharedSet& set) {
  const auto whole = at::arange(12, at::kFloat).view({3, 4});
  EXPECT_EQ(set.text, "a text");
  ASSERT_EQ(set.tensors.size(), 4u);
  EXPECT_TRUE(at::equal(set.tensors[0], whole));
  EXPECT_TRUE(at::equal(set.tensors[1], whole.slice(0, 1, 3)));
  EXPECT_TRUE(at::equal(set.tensors[2], at::tensor({7, 8}, at::kLong)));
  EXPECT_EQ(set.tensors[3].sizes(), at::IntArrayRef({0, 5}));
  EXPECT_EQ(set.tensors[3].scalar_type(), at::kByte);
}

TEST(NodeShare, LoadsOnTheFirstRankOfEachNodeAndMapsOnTheOthers) {
  for (const auto& nodes : std::vector<std::vector<int>>{{3}, {2, 1}, {1, 3}, {1, 1}}) {
    std::atomic<int> loads = 0;
    all_ranks(nodes, [&](const NodeShare& node) {
      for (int round = 0; round < 3; ++round)
        expect_example(share_on_node(node, [&](Arena& arena) {
          EXPECT_EQ(node.local_rank, 0);
          ++loads;
          return example(arena);
        }));
    });
    EXPECT_EQ(loads, 3 * std::ssize(nodes));
  }
  expect_example(share_on_node({}, example));
}

TEST(NodeShare, TheOthersMapTheMemoryReadOnly) {
  all_ranks({2}, [](const NodeShare& node) {
    const auto set = share_on_node(node, example);
    std::ifstream maps("/proc/self/maps");
    const auto address = reinterpret_cast<uintptr_t>(set.tensors[0].const_data_ptr());
    for (std::string line; std::getline(maps, line);) {
      uintptr_t begin = 0, end = 0;
      char mode[5] = {};
      if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, mode) == 3 && begin <= address &&
          address < end) {
        EXPECT_STREQ(mode, "r--s");
      }
    }
  });
}

TEST(NodeShare, AnErrorIsEveryRanks) {
  for (const int bad_node : {0, 1}) {
    all_ranks({1, 2}, [&](const NodeShare& node) {
      const auto load = [&](Arena& arena) -> SharedSet {
        if (node.node_rank == bad_node) throw InputError("bad row", "t.csv:3", "fix it");
        return example(arena);
      };
      EXPECT_EQ(test::refusal_of([&] { share_on_node(node, load); }), "bad row / t.csv:3 / fix it");
    });
  }
  all_ranks({2}, [](const NodeShare& node) {
    const auto load = [](Arena&) -> SharedSet { throw std::runtime_error("no memory"); };
    EXPECT_EQ(test::error_of([&] { share_on_node(node, load); }), "no memory");
  });
}

}  // namespace
}  // namespace lockstep
