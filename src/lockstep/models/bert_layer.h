#pragma once
// One layer of BERT on images: each row of pixels is a token.

#include <memory>
#include <vector>

#include "lockstep/models/bert.h"
#include "lockstep/models/net.h"

namespace lockstep {

/// `embed` and `position` turn rows into tokens, `layer` is BERT's, `classifier` gets the tokens' mean.
class BertLayerNet : public Net {
 public:
  /// `input_shape`: the shape of one image, [channels, rows, columns]. Throws InputError for another shape.
  BertLayerNet(const std::vector<int64_t>& input_shape, int64_t classes, const BertShape& shape,
               std::shared_ptr<const Layers> layers = std::make_shared<Layers>());
  /// Maps [n, channels, rows, columns] to [n, classes].
  at::Tensor forward(const at::Tensor& input) override;

 private:
  double dropout_;
  std::shared_ptr<const Layers> layers_;
  Layer embed_, position_;
  std::shared_ptr<BertLayer> layer_;
  Layer classifier_;
};

}  // namespace lockstep
