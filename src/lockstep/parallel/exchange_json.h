#pragma once
// Objects between ranks as JSON: anything that nlohmann::json can turn into text and back.

#include <nlohmann/json.hpp>

#include "lockstep/parallel/exchange.h"

namespace lockstep::parallel {

/// Root's object on every rank; collective.
template <class T>
T broadcast_object(const T& object, const ProcessGroup& group, int root = 0) {
  const std::string mine = group->getRank() == root ? nlohmann::json(object).dump() : std::string();
  return nlohmann::json::parse(broadcast_text(mine, group, root)).template get<T>();
}

/// Every rank's object, in rank order, on every rank; collective.
template <class T>
std::vector<T> all_gather_objects(const T& object, const ProcessGroup& group) {
  std::vector<T> objects;
  for (const auto& text : all_gather_text(nlohmann::json(object).dump(), group))
    objects.push_back(nlohmann::json::parse(text).template get<T>());
  return objects;
}

}  // namespace lockstep::parallel
