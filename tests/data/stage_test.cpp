#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/data/catalog.h"
#include "peer.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Stage, CopiesOnce) {
  test::TempFolder folder;
  const std::string content(3'000'000, 'q');
  const auto path = folder.write("set.bin", content), stage = folder / "node/local";
  EXPECT_EQ(data::stage_file(path, ""), path);
  const auto copy = data::stage_file(path, stage);
  EXPECT_EQ(fs::path(copy).parent_path(), stage);
  EXPECT_EQ(text_of(copy), content);
  struct stat first, second;
  ::stat(copy.c_str(), &first);
  EXPECT_EQ(data::stage_file(path, stage), copy);
  ::stat(copy.c_str(), &second);
  EXPECT_EQ(first.st_ino, second.st_ino) << "copied again for nothing";
  EXPECT_EQ(first.st_mode & 077, 0U) << "others can read it";
  fs::resize_file(copy, 10);
  EXPECT_EQ(text_of(data::stage_file(path, stage)), content) << "a copy that was cut";
  EXPECT_EQ(data::stage_file(copy, stage), copy) << "a file already there is not copied onto itself";
  EXPECT_EQ(std::distance(fs::directory_iterator(stage), {}), 1) << "a temporary file was left";
  folder.write("set.bin", std::string(3'000'000, 'r'));
  EXPECT_EQ(text_of(data::stage_file(path, stage))[0], 'r') << "the file has changed";
}

TEST(Stage, KeepsFilesWithTheSameNameApart) {
  test::TempFolder one, other;
  const auto stage = one / "stage";
  const auto first = data::stage_file(one.write("set.bin", "1"), stage);
  const auto second = data::stage_file(other.write("set.bin", "2"), stage);
  EXPECT_EQ(text_of(first), "1");
  EXPECT_EQ(text_of(second), "2");
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
  try {
    data::fetch_file({}, file, folder.path(), {.mirrors = {mirror}, .stall_seconds = 1});
    ADD_FAILURE() << "fetched";
  } catch (const Error& error) {
    EXPECT_EQ(error.where(), mirror + "/: it took too long");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  ::shutdown(listener.number(), SHUT_RDWR);  // ends accept4() if nothing connected
}

TEST(FindDataFile, LooksWhereDownloadersPutFiles) {
  test::TempFolder folder;
  fs::create_directories(folder / "MNIST/raw");
  const auto path = folder.write("MNIST/raw/labels.gz", "x");
  EXPECT_EQ(data::find_data_file(folder.path(), {"labels", "labels.gz"}), path);
  const auto nearer = folder.write("labels.gz", "x");
  EXPECT_EQ(data::find_data_file(folder.path(), {"labels", "labels.gz"}), nearer);
  EXPECT_THROW(data::find_data_file(folder.path(), {"nothing"}), InputError);
  EXPECT_THROW(data::find_data_file(folder / "nowhere", {"labels"}), InputError);
}

}  // namespace
}  // namespace lockstep
