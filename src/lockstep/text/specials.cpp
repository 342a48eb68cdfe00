#include "lockstep/text/specials.h"

#include <algorithm>

namespace lockstep::text {

void Specials::add(const std::string& token, int32_t id) {
  const auto after = std::find_if(specials_.begin(), specials_.end(), [&](const Special& special) {
    return special.token.size() < token.size();
  });
  specials_.insert(after, {token, id});
  if (leads_.find(token[0]) == std::string::npos) leads_ += token[0];
}

std::optional<Specials::Found> Specials::next(std::string_view text, size_t from) const {
  const auto lead = [&](size_t at) {  // of one byte it is memchr, which is quick
    return leads_.size() == 1 ? text.find(leads_[0], at) : text.find_first_of(leads_, at);
  };
  for (size_t at = lead(from); at != std::string_view::npos; at = lead(at + 1)) {
    for (const Special& special : specials_)
      if (text.substr(at).starts_with(special.token)) return Found{at, special.token.size(), special.id};
  }
  return std::nullopt;
}

}  // namespace lockstep::text
