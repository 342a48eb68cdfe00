#include "tools/cluster/site.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/cluster/site_keys.h"
#include "trainer/config/numbers.h"
#include "trainer/config/yaml.h"

namespace lockstep::cluster {
namespace {

using config::YamlNode;

constexpr const char* kEveryKey = "every key: docs/sites.md";

struct Flags {
  const char *scheduler, *queue, *account;
};
constexpr Flags kFlags[] = {{"pbs", "-q", "-A"}, {"slurm", "--partition", "--account"}};

[[noreturn]] void refuse_value(const std::string& key, const std::string& wanted, const YamlNode& node,
                               const char* help) {
  throw InputError(format("{} must be {}, not {}", key, wanted, describe(node)), node.place.text(),
                   format("it is {}", help));
}

const std::string& scalar_text(const YamlNode& node, const std::string& key, const char* help) {
  if (node.kind != YamlNode::Kind::scalar) refuse_value(key, "a text", node, help);
  return node.text;
}

// One value, by the type of its field.
template <class Owner>
class Value {
 public:
  Value(const SiteKey<Owner>& key, std::string name, const YamlNode& node, Owner& owner)
      : key_(key), name_(std::move(name)), node_(node), owner_(owner) {}

  void operator()(std::string Owner::*field) const { owner_.*field = checked(node_); }

  void operator()(int64_t Owner::*field) const {
    const auto number = config::parse_int(scalar_text(node_, name_, key_.help));
    if (!number || node_.quoted || *number < 0 || *number > 1'000'000)
      refuse_value(name_, "a whole number from 0 to 1000000", node_, key_.help);
    owner_.*field = *number;
  }

  void operator()(std::chrono::milliseconds Owner::*field) const {
    const auto time = config::parse_duration(scalar_text(node_, name_, key_.help));
    if (!time || time->count() < 0) refuse_value(name_, "a time, such as 48h or 30m", node_, key_.help);
    owner_.*field = *time;
  }

  void operator()(std::vector<std::string> Owner::*field) const {
    if (node_.kind != YamlNode::Kind::list) refuse_value(name_, "a list", node_, key_.help);
    for (const auto& item : node_.items) (owner_.*field).push_back(checked(*item));
  }

 private:
  std::string checked(const YamlNode& node) const {
    const auto& text = scalar_text(node, name_, key_.help);
    const auto choices = choices_of(key_.choices);
    if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
      const auto near = base::nearest(text, choices);
      throw InputError(
          format("{} must be one of {}, not {}", name_, base::join(choices, ", "), describe(node)),
          node.place.text(), near ? format("did you mean {}?", *near) : std::string(key_.help));
    }
    const auto wanted = not_of_kind(text, key_.text);
    if (!wanted.empty()) refuse_value(name_, wanted, node, key_.help);
    return text;
  }

  const SiteKey<Owner>& key_;
  std::string name_;
  const YamlNode& node_;
  Owner& owner_;
};

template <class Owner>
std::vector<std::string> names_of(const std::vector<SiteKey<Owner>>& keys) {
  std::vector<std::string> names;
  for (const auto& key : keys) names.emplace_back(key.name);
  return names;
}

void once(const YamlNode& map, size_t index) {
  const auto& name = *map.entries[index].first;
  for (size_t i = 0; i < index; ++i) {
    const auto& other = *map.entries[i].first;
    if (other.text == name.text)
      throw InputError(format("{} stands twice", base::printable(name.text)), name.place.text(),
                       format("keep one of them: the other is at {}", other.place.text()));
  }
}

[[noreturn]] void unknown_key(const YamlNode& name, const std::vector<std::string>& names) {
  const auto near = base::nearest(name.text, names);
  throw InputError(format("unknown key {}", describe(name)), name.place.text(),
                   (near ? format("did you mean {}? ", *near) : "") + kEveryKey);
}

template <class Owner>
void read_key(const std::vector<SiteKey<Owner>>& keys, const std::string& before, const YamlNode& name,
              const YamlNode& value, Owner& owner, std::vector<std::string> names) {
  const auto key =
      std::find_if(keys.begin(), keys.end(), [&](const auto& row) { return name.text == row.name; });
  if (name.kind != YamlNode::Kind::scalar || key == keys.end()) unknown_key(name, names);
  std::visit(Value<Owner>(*key, before + key->name, value, owner), key->field);
}

void require_map(const YamlNode& node, const std::string& what) {
  if (node.kind == YamlNode::Kind::map) return;
  throw InputError(format("{} must be a map of keys, not {}", what, describe(node)), node.place.text(),
                   std::string("write key: value; ") + kEveryKey);
}

Queue read_queue(const YamlNode& name, const YamlNode& node) {
  const auto wanted = not_of_kind(name.text, Text::word);
  if (name.kind != YamlNode::Kind::scalar || name.text.empty() || !wanted.empty())
    refuse_value("a queue's name", "one word", name, "as in the job's directives");
  Queue queue;
  queue.name = name.text;
  if (node.kind == YamlNode::Kind::null) return queue;
  require_map(node, "queues." + queue.name);
  for (size_t i = 0; i < node.entries.size(); ++i) {
    once(node, i);
    const auto& [key, value] = node.entries[i];
    read_key(queue_keys(), format("queues.{}.", queue.name), *key, *value, queue, names_of(queue_keys()));
  }
  return queue;
}

void read_queues(const YamlNode& node, Site& site) {
  require_map(node, "queues");
  for (size_t i = 0; i < node.entries.size(); ++i) {
    once(node, i);
    site.queues.push_back(read_queue(*node.entries[i].first, *node.entries[i].second));
  }
}

void read_site(const YamlNode& root, Site& site) {
  auto names = names_of(site_keys());
  names.emplace_back("queues");
  for (size_t i = 0; i < root.entries.size(); ++i) {
    once(root, i);
    const auto& [name, value] = root.entries[i];
    if (name->text == "queues")
      read_queues(*value, site);
    else
      read_key(site_keys(), "", *name, *value, site, names);
  }
}

void fill_flags(Site& site) {
  for (const auto& row : kFlags) {
    if (site.scheduler != row.scheduler) continue;
    if (site.queue_flag.empty()) site.queue_flag = row.queue;
    if (site.account_flag.empty()) site.account_flag = row.account;
  }
}

// --wait and the words that follow a submission know one place for the log
void check_directives(const Site& site, const std::vector<std::string>& directives, const std::string& key) {
  for (const auto& line : directives) {
    const auto option = moves_log(site.scheduler, line);
    if (option.empty()) continue;
    throw InputError(format("{}: {} would move the job's log, which is followed where lockstep put it", key,
                            base::printable(option)),
                     site.path, "leave it out; lockstep submit --name names the job and its log");
  }
}

// what no key says alone
void check_together(const Site& site, const YamlNode& root) {
  const auto place = root.place.text();
  if (site.scheduler.empty())
    throw InputError("a site file must say its scheduler", place,
                     "add  scheduler: slurm  or  scheduler: pbs");
  if (!site.storage.empty() && site.storage_flag.empty())
    throw InputError("storage is set, and storage_flag is not", place, "add  storage_flag: storage");
  if (site.slurm() && !site.storage_flag.empty())
    throw InputError("storage_flag is PBS's", place, "remove it, or write a directive");
  if (!site.queue.empty()) find_queue(site, "");
  check_directives(site, site.directives, "directives");
  for (const auto& queue : site.queues)
    check_directives(site, queue.directives, format("queues.{}.directives", queue.name));
}

}  // namespace

Queue find_queue(const Site& site, const std::string& name) {
  const auto& wanted = name.empty() ? site.queue : name;
  std::vector<std::string> names;
  for (const auto& queue : site.queues) {
    if (queue.name == wanted) return queue;
    names.push_back(queue.name);
  }
  if (wanted.empty() || names.empty()) return {.name = wanted, .directives = {}};
  const auto near = base::nearest(wanted, names);
  throw InputError(
      format("the site {} has no queue {}", site.name, base::printable(wanted)), site.path,
      (near ? format("did you mean {}? ", *near) : "") + "its queues: " + base::join(names, ", "));
}

Site parse_site(const std::string& text, const std::string& file) {
  const auto root = config::parse_yaml(text, file);
  require_map(*root, "a site file");
  Site site;
  site.path = file;
  const auto from = file.rfind('/') + 1;  // npos + 1 is 0
  site.name = file.substr(from, file.rfind(".yaml") - from);
  read_site(*root, site);
  fill_flags(site);
  check_together(site, *root);
  return site;
}

}  // namespace lockstep::cluster
