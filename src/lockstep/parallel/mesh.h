#pragma once
// The ranks as a grid: who shares the data, who a layer, who holds which stage of the layers.

#include <functional>
#include <string>

#include "lockstep/parallel/session.h"
#include "lockstep/parallel/team.h"

namespace lockstep {

/// The number of ranks for each kind of parallelism.
struct MeshShape {
  int data = 0;      ///< ranks with the same parameters; 0 = world / (tensor * pipeline)
  int tensor = 1;    ///< ranks that share each layer
  int pipeline = 1;  ///< stages of the layers

  bool operator==(const MeshShape&) const = default;
};

/// Rank = (stage * data + row) * tensor + column: ranks that share a layer are neighbours, on one node if it
/// has enough ranks.
class Mesh {
 public:
  /// Collective. InputError, on every rank alike, where the shape does not fit the world.
  explicit Mesh(const Session& session, MeshShape shape = {});
  /// The same with another way to split: `split` returns the team of the ranks that give the same part.
  Mesh(const Team& all, MeshShape shape, const std::function<Team(int part, const std::string& name)>& split);
  /// Every rank has the whole model.
  explicit Mesh(const Team& all);

  /// With `data` resolved.
  const MeshShape& shape() const { return shape_; }
  /// Every rank.
  const Team& all() const { return all_; }
  /// The ranks with the same parameters and other samples: DDP's.
  const Team& data() const { return data_; }
  /// The ranks that share this rank's layers; one rank where each has whole layers.
  const Team& tensor() const { return tensor_; }
  /// The ranks with the other stages of this rank's copy of the model, in the order of the stages.
  const Team& pipeline() const { return pipeline_; }
  /// Does every rank hold the whole model?
  bool is_plain() const { return shape_.tensor == 1 && shape_.pipeline == 1; }

 private:
  MeshShape shape_;
  Team all_, data_, tensor_, pipeline_;
};

}  // namespace lockstep
