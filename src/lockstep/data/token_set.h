#pragma once
// Texts as token ids, padded to the longest in a batch: the input of a language model.

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep {

/// The token ids of all texts, concatenated.
struct Tokens {
  at::Tensor ids;      ///< int32 [tokens of all samples]
  at::Tensor starts;   ///< int64 [samples + 1]: where each text begins, and the end
  at::Tensor seconds;  ///< int32 [samples]: number of tokens before the second text
  at::Tensor targets;  ///< int64 [samples], float [samples, 1], or undefined

  /// The number of samples.
  int64_t size() const { return seconds.size(0); }
};

/// A set with batches of int64 [samples, 3, tokens]: input_ids, token_type_ids, attention_mask.
class TokenSet : public Dataset {
 public:
  /// Concatenates `parts`; `pad` is the id of [PAD].
  TokenSet(std::vector<Tokens> parts, int64_t pad);
  /// These rows of one part, in this order.
  TokenSet(Tokens part, std::vector<int64_t> rows, int64_t pad);
  int64_t size() const override { return size_; }
  Batch get(at::ArrayRef<int64_t> indices, bool pinned = false) const override;
  std::vector<int64_t> lengths() const override;

 private:
  struct Place {
    const Tokens* part;
    int64_t row;
  };
  Place place(int64_t index) const;

  std::vector<Tokens> parts_;
  std::vector<int64_t> ends_;  // the end of each part, in samples
  std::vector<int64_t> rows_;  // the selected rows, if there is one part
  int64_t pad_, size_;
  bool picked_ = false;
};

}  // namespace lockstep
