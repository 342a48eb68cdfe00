#pragma once
// Tokens that are tokens wherever they stand in a text: [SEP] typed by a person is a [SEP].

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::text {

class Specials {
 public:
  struct Found {
    size_t at, size;
    int32_t id;
  };

  void add(const std::string& token, int32_t id);
  /// The next one from `from` on; the longest where several begin at one place.
  std::optional<Found> next(std::string_view text, size_t from) const;

 private:
  struct Special {
    std::string token;
    int32_t id;
  };
  std::vector<Special> specials_;  // longer ones first
  std::string leads_;              // their first bytes
};

}  // namespace lockstep::text
