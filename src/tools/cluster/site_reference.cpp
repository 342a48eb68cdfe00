#include "tools/cluster/site_reference.h"

#include "lockstep/base/format.h"
#include "tools/cluster/site_keys.h"

namespace lockstep::cluster {
namespace {

template <class Owner>
std::string table(const char* head, const std::vector<SiteKey<Owner>>& keys) {
  std::string text = format("| {} | |\n|---|---|\n", head);
  for (const auto& key : keys) text += format("| `{}` | {} |\n", key.name, key.help);
  return text;
}

}  // namespace

std::string site_reference() {
  return table("of the site", site_keys()) + "\n" +
         table("of a queue, in `queues: {NAME: {...}}`", queue_keys());
}

}  // namespace lockstep::cluster
