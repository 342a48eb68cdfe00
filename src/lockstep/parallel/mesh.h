#pragma once
// The ranks as a grid: who shares the data, who a layer, who holds which stage of the layers.

#include <functional>
#include <string>

#include "lockstep/parallel/session.h"
#include "lockstep/parallel/team.h"

namespace lockstep {

/// How many ranks each way of being parallel takes.
struct MeshShape {
  int data = 0;      ///< 0 = what the others leave of the world
  int tensor = 1;    ///< share each layer
  int pipeline = 1;  ///< hold a stage of the layers each

  bool operator==(const MeshShape&) const = default;
};

/// Rank = (stage * data + row) * tensor + column: ranks that share a layer are neighbours, and on one node
/// where it holds that many.
class Mesh {
 public:
  /// Collective. InputError, on every rank alike, where the shape does not fit the world.
  explicit Mesh(const Session& session, MeshShape shape = {});
  /// The same for ranks that come by their parts in another way: `split` gives the team of those that name
  /// the same part.
  Mesh(const Team& all, MeshShape shape, const std::function<Team(int part, const std::string& name)>& split);
  /// Every rank has the whole model.
  explicit Mesh(const Team& all);

  /// With `data` resolved.
  const MeshShape& shape() const { return shape_; }
  /// Every rank.
  const Team& all() const { return all_; }
  /// The ranks that hold the same parameters as this one, and take other samples: DDP's.
  const Team& data() const { return data_; }
  /// The ranks that share this rank's layers; alone where each has them whole.
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
