// A task of one's own in one file: which of two rings does a point lie on? Built as a shared library.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "lockstep/data/table_set.h"
#include "lockstep/tasks/task.h"

namespace {

class RingsTask : public lockstep::Task {
 public:
  lockstep::TaskData data(const lockstep::TaskConfig& settings, const lockstep::NodeShare&) override {
    lockstep::TaskData data;
    data.train = rings(600, settings.seed);
    data.eval = rings(200, settings.seed + 1);
    data.input_shape = {2};
    data.class_names = {"inner", "outer"};
    return data;
  }

 private:
  static std::shared_ptr<const lockstep::Dataset> rings(int64_t points, int64_t seed) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
    const auto label = at::arange(points).remainder(2);
    const auto angle = at::rand({points}, generator) * 6.2831853;
    const auto radius = label + 1 + 0.1 * at::randn({points}, generator);
    return std::make_shared<lockstep::TableSet>(at::stack({radius * angle.cos(), radius * angle.sin()}, 1),
                                                label);
  }
};

}  // namespace

LOCKSTEP_TASK(RingsTask)
