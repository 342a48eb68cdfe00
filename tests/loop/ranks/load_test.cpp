// A load may take longer than a collective may.
#include <thread>

#include "lockstep/base/libtorch.h"
#include "lockstep/tasks/collective/sets.h"
#include "loop/ranks/team.h"

namespace lockstep::train {
namespace {

using namespace std::chrono_literals;

TEST(Load, MayTakeLongerThanACollective) {
  for (const auto* backend : {"gloo", "shared"}) {
    const auto group = comm::connect(test::runtime(), {.backend = backend, .timeout = 60s});
    const Team team(test::runtime().job(), group, at::kCPU);
    const auto share = tasks::node_share(team);
    base::set_timeout(*group->getBackend(c10::kCPU), 200ms);
    if (team.first()) std::this_thread::sleep_for(1s);
    EXPECT_NO_THROW(share.exchange("")) << backend;
  }
}

}  // namespace
}  // namespace lockstep::train
