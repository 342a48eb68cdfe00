#pragma once
// The settings of `train` that take one of a few words: a type each, and its words in the type's order.

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class TrainMode { ddp, single, data_parallel };
enum class SameBits { off, required };
enum class Precision { fp32, bf16, fp16 };
enum class ImageLayout { nchw, channels_last, automatic };
enum class KernelChoice { exact, fast };
enum class Tf32 { convolutions, all, none };

template <class Choice>
struct Words;
template <>
struct Words<TrainMode> {
  static constexpr std::string_view kAll[] = {"ddp", "single", "data_parallel"};
};
template <>
struct Words<SameBits> {
  static constexpr std::string_view kAll[] = {"off", "required"};
};
template <>
struct Words<Precision> {
  static constexpr std::string_view kAll[] = {"fp32", "bf16", "fp16"};
};
template <>
struct Words<ImageLayout> {
  static constexpr std::string_view kAll[] = {"nchw", "channels_last", "auto"};
};
template <>
struct Words<KernelChoice> {
  static constexpr std::string_view kAll[] = {"exact", "fast"};
};
template <>
struct Words<Tf32> {
  static constexpr std::string_view kAll[] = {"convolutions", "all", "none"};
};

template <class Choice>
concept OneOfWords = requires {
  Words<Choice>::kAll;
};

/// As it is written in a config.
template <OneOfWords Choice>
std::string word_of(Choice choice) {
  return std::string(Words<Choice>::kAll[static_cast<size_t>(choice)]);
}

/// All words, in the type's order.
template <OneOfWords Choice>
std::vector<std::string> words_of() {
  return {std::begin(Words<Choice>::kAll), std::end(Words<Choice>::kAll)};
}

/// What the word stands for. Throws where it is none of them: a config's words were looked at before.
template <OneOfWords Choice>
Choice choice_of(std::string_view word) {
  const auto found = std::find(std::begin(Words<Choice>::kAll), std::end(Words<Choice>::kAll), word);
  if (found == std::end(Words<Choice>::kAll)) throw std::out_of_range("no such choice: " + std::string(word));
  return static_cast<Choice>(found - std::begin(Words<Choice>::kAll));
}

}  // namespace lockstep
