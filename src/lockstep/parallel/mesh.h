#pragma once
// The ranks as a grid: which ranks share samples, layers, and pipeline stages.

#include <functional>
#include <string>

#include "lockstep/parallel/session.h"
#include "lockstep/parallel/team.h"

namespace lockstep {

/// The number of ranks for each kind of parallelism.
struct MeshShape {
  int data = 0;      ///< ranks with the same parameters; 0 = world / (tensor * pipeline)
  int tensor = 1;    ///< ranks that each layer is split over
  int pipeline = 1;  ///< number of pipeline stages

  bool operator==(const MeshShape&) const = default;
};

/// A grid with rank = (stage * data + row) * tensor + column: ranks that share a layer are neighbors, on one
/// node if it has enough ranks.
class Mesh {
 public:
  /// Collective. Throws InputError on every rank if the shape does not match the world size.
  explicit Mesh(const Session& session, MeshShape shape = {});
  /// The same with another way to split: `split` returns the team of ranks that pass the same `part`.
  Mesh(const Team& all, MeshShape shape, const std::function<Team(int part, const std::string& name)>& split);
  /// A grid in which every rank has the whole model.
  explicit Mesh(const Team& all);

  /// The shape, with the actual value of `data`.
  const MeshShape& shape() const { return shape_; }
  /// All ranks.
  const Team& all() const { return all_; }
  /// The ranks with the same parameters and different samples, over which DDP averages gradients.
  const Team& data() const { return data_; }
  /// The ranks that share this rank's layers; this rank alone if layers are not split.
  const Team& tensor() const { return tensor_; }
  /// The ranks with the other stages of this rank's copy of the model, in the order of the stages.
  const Team& pipeline() const { return pipeline_; }
  /// Whether every rank has the whole model.
  bool is_plain() const { return shape_.tensor == 1 && shape_.pipeline == 1; }

 private:
  MeshShape shape_;
  Team all_, data_, tensor_, pipeline_;
};

}  // namespace lockstep
