#pragma once
// The built-in tasks' data, as `lockstep train` loads it.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/node_share.h"
#include "lockstep/parallel/session.h"
#include "lockstep/parallel/team.h"

namespace lockstep {

/// The sets of the built-in tasks.
namespace data {

/// A set by value: copies share the samples.
class Samples : public Dataset {
 public:
  explicit Samples(std::shared_ptr<const Dataset> set) : set_(std::move(set)) {}
  int64_t size() const override { return set_->size(); }
  Batch get(at::ArrayRef<int64_t> indices, bool pinned = false) const override {
    return set_->get(indices, pinned);
  }

 private:
  std::shared_ptr<const Dataset> set_;
};

/// The training and evaluation sets of a task.
struct Sets {
  Samples train, eval;
  std::vector<std::string> class_names;
};

/// Diabetes among Pima women: 8 measurements and a class. A fifth of each class is the `eval` set, and zeros
/// that mean a missing value are replaced. `path` is the file or its folder, in the working directory or in
/// lockstep's share folder.
Sets pima(const std::string& path = "data/pima");
/// Handwritten digits, 28 x 28 and normalized.
Sets mnist(const std::string& path = "data/mnist");

/// The same, but read once per node into memory that its ranks share. If reading fails, all ranks throw the
/// same error. Collective.
Sets pima(const std::string& path, const Session& session);
/// Like pima(path, session).
Sets mnist(const std::string& path, const Session& session);

}  // namespace data

namespace tasks {

/// For loading data once per node. The team must outlive it. While it exists, this process ends if a rank on
/// its node dies.
NodeShare node_share(const Team& team);

}  // namespace tasks
}  // namespace lockstep
