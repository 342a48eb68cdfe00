// The plug-ins' translation, as it arrives in a library with their mpi.h (pretend/family.cpp).
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>

#include "lockstep/base/paths.h"
#include "lockstep/mpi/calls.h"

namespace lockstep::mpi {
namespace {

constexpr Request kRequest{0x84000003};  // pretend/family.cpp makes it

class MpiPlugin : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto file = base::find_beside(std::string("pretend_") + GetParam() + ".so");
    if (file.empty()) GTEST_SKIP() << "built without an mpi.h of " << GetParam();
    void* library = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
    ASSERT_TRUE(library) << ::dlerror();
    heard_ = reinterpret_cast<const char* (*)()>(::dlsym(library, "pretend_heard"));
    const auto table = reinterpret_cast<const PluginTable* (*)()>(::dlsym(library, kPluginSymbol));
    ASSERT_TRUE(heard_ && table);
    ASSERT_EQ(table()->version, kPluginVersion);
    calls_ = table()->calls;
  }
  std::string heard() const { return heard_(); }

  Calls calls_{};

 private:
  const char* (*heard_)() = nullptr;
};

TEST_P(MpiPlugin, NamesEveryTypeAndOperation) {
  const char* const types[] = {"MPI_INT",   "MPI_UNSIGNED_LONG", "MPI_UNSIGNED_LONG_LONG",
                               "MPI_FLOAT", "MPI_DOUBLE",        "MPI_DOUBLE_INT",
                               "MPI_CHAR",  "MPI_BYTE"};
  const char* const* name = types;
  for (const auto type : {Type::int32, Type::unsigned_long, Type::unsigned_long_long, Type::float32,
                          Type::float64, Type::double_int, Type::character, Type::byte}) {
    calls_.allreduce(this, this, 1, type, Op::sum, Comm::world);
    EXPECT_EQ(heard(), std::string("data ") + *name++ + " MPI_SUM MPI_COMM_WORLD");
  }
  const std::pair<Op, std::string> ops[] = {
      {Op::min, "MPI_MIN"}, {Op::max, "MPI_MAX"}, {Op::bor, "MPI_BOR"}, {Op::maxloc, "MPI_MAXLOC"}};
  for (const auto& [op, wanted] : ops) {
    calls_.allreduce(kInPlace, this, 1, Type::byte, op, Comm::self);
    EXPECT_EQ(heard(), "MPI_IN_PLACE MPI_BYTE " + wanted + " MPI_COMM_SELF");
  }
}

TEST_P(MpiPlugin, SplitsByTheLibrarysUndefined) {
  Comm part = Comm::world;
  calls_.comm_split(Comm::world, kUndefined, 0, &part);
  EXPECT_EQ(part, Comm::null);
  calls_.comm_split(Comm::world, 3, 0, &part);
  EXPECT_EQ(part, Comm::self);
  EXPECT_EQ(heard(), "MPI_COMM_WORLD MPI_UNDEFINED MPI_COMM_WORLD 3");
}

TEST_P(MpiPlugin, TellsWhoSentHowMuch) {
  Request request = Request::null;
  calls_.irecv(this, 3, Type::float64, kAnySource, kAnyTag, Comm::world, &request);
  EXPECT_EQ(heard(), "MPI_DOUBLE MPI_ANY_SOURCE MPI_ANY_TAG MPI_COMM_WORLD");
  EXPECT_EQ(request, kRequest);
  Status status{};
  calls_.wait(&request, &status);
  EXPECT_EQ(request, Request::null);
  EXPECT_EQ((std::array{status.source, status.tag, status.error}), (std::array{3, 44, 5}));
  int count = 0;
  EXPECT_EQ(calls_.get_count(&status, Type::float64, &count), kSuccess);
  EXPECT_EQ(count, 3);  // of the 24 bytes
  heard();
  calls_.wait(&request, kIgnore);
  EXPECT_EQ(heard(), "MPI_REQUEST_NULL MPI_STATUS_IGNORE");
}

TEST_P(MpiPlugin, AsksForThreadsInTheLibrarysNumbers) {
  const std::pair<int, const char*> levels[] = {{kThreadSingle, "MPI_THREAD_SINGLE"},
                                                {kThreadFunneled, "MPI_THREAD_FUNNELED"},
                                                {kThreadSerialized, "MPI_THREAD_SERIALIZED"},
                                                {kThreadMultiple, "MPI_THREAD_MULTIPLE"}};
  for (const auto& [level, name] : levels) {
    int provided = -1;
    calls_.init_thread(nullptr, nullptr, level, &provided);
    EXPECT_EQ(heard(), name);
    EXPECT_EQ(provided, kThreadFunneled);
  }
}

INSTANTIATE_TEST_SUITE_P(, MpiPlugin, ::testing::Values("openmpi", "mpich"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace lockstep::mpi
