// A task of one's own: which of two spirals does a point lie on?
#include <ATen/ATen.h>
#include <lockstep/data/table_set.h>
#include <lockstep/tasks/task.h>

namespace {

class Spirals : public lockstep::Task {
 public:
  // Small enough for each rank to make. A large set is made once a node: share_on_node() in
  // docs/how-to/tasks.md.
  lockstep::TaskData data(const lockstep::TaskConfig& settings, const lockstep::NodeShare&) override {
    const auto turns = lockstep::option(settings.task.options, "turns", 1.0);
    lockstep::TaskData data;
    data.train = points(600, turns, 0);
    data.eval = points(200, turns, 0.5);
    data.input_shape = {2};
    data.class_names = {"left", "right"};
    return data;
  }

 private:
  static std::shared_ptr<const lockstep::Dataset> points(int64_t count, double turns, double shift) {
    const auto number = at::arange(count, at::kFloat) + shift;
    const auto label = at::arange(count).remainder(2);
    const auto radius = (number + 1) / static_cast<double>(count);
    const auto angle = radius * (turns * 6.28125) + label * 3.140625;
    return std::make_shared<lockstep::TableSet>(at::stack({radius * angle.cos(), radius * angle.sin()}, 1),
                                                label);
  }
};

}  // namespace

// The model that it takes where the config names none is Task::model's: the mlp.
LOCKSTEP_TASK(
    spirals, .help = "which of two spirals does a point lie on?", .reads = {"options.turns"},
    .defaults = {{"model.name", "mlp"}}, .make = [] { return std::make_unique<Spirals>(); })
