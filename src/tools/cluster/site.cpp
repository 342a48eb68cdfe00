#include "tools/cluster/site.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string_view>
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "trainer/config/keys.h"
#include "trainer/config/yaml.h"

namespace lockstep::cluster {
namespace {

using config::NodePtr;
using config::YamlNode;

// ---- the keys of a site file, for reading, its errors and the docs ----

// What a text may hold: most end up in a job script's directives.
enum class Text {
  free,
  word,      // see is_directive_word()
  option,    // a dash and letters: "-q", "--qos"
  line,      // one line
  variable,  // the name of an environment variable
};

template <class Owner>
struct SiteKey {
  const char* name;
  config::SettingsField (*field)(Owner&);
  const char* help;
  Text text = Text::line;
  std::vector<std::string> choices = {};  // empty = free
};

#define FIELD(Owner, name) #name, [](Owner & owner) -> config::SettingsField { return &owner.name; }

const std::vector<SiteKey<Site>> kSiteKeys = {
    {FIELD(Site, about), "a line for `lockstep site list`", Text::free},
    {FIELD(Site, scheduler), "`pbs` or `slurm` (required)", Text::word, {"pbs", "slurm"}},
    {FIELD(Site, queue), "the default queue; empty = the scheduler's default", Text::word},
    {FIELD(Site, queue_flag), "the option for the queue: `-q`, `--partition`, `--qos`", Text::option},
    {FIELD(Site, account),
     "`required`: a job without `--account` is rejected; `optional`; `none`: there are no accounts",
     Text::word,
     {"required", "optional", "none"}},
    {FIELD(Site, account_flag), "the option for the account: `-A`, `-P`, `--account`", Text::option},
    {FIELD(Site, form),
     "PBS: `select` = resources per node; `totals` = those of the job (`-l ncpus`, `-l ngpus`); `nodes` = "
     "whole nodes",
     Text::word,
     {"select", "totals", "nodes"}},
    {FIELD(Site, chunk), "PBS: what to add to each chunk of a select", Text::word},
    {FIELD(Site, storage), "the file systems that a job requests without `--storage`", Text::word},
    {FIELD(Site, storage_flag), "PBS: the resource that names them, as in `-l NAME=`", Text::word},
    {FIELD(Site, arrays),
     "`no` if the scheduler has no job arrays, which `--sweep` needs",
     Text::word,
     {"yes", "no"}},
    {FIELD(Site, threads_per_core),
     "CPUs that the scheduler counts per core: 2 if it counts hardware threads; 0 = the job detects it"},
    {FIELD(Site, directives),
     "directives for every job, without `#PBS` or `#SBATCH`; do not rename the log, which `--wait` reads"},
    {FIELD(Site, modules), "modules that a job loads, in this order"},
    {FIELD(Site, start),
     "what starts the ranks; empty = the job chooses",
     Text::word,
     {"srun", "mpirun", "mpiexec"}},
    {FIELD(Site, srun_mpi), "the value of `srun --mpi`; empty = the site's default", Text::word},
    {FIELD(Site, scratch),
     "the variable with the path of a node's local disk, for `${LOCKSTEP_SCRATCH}` in a config",
     Text::variable},
};

const std::vector<SiteKey<Queue>> kQueueKeys = {
    {FIELD(Queue, gpus_per_node), "NVIDIA GPUs of a node, and the default of `--gpus-per-node`; 0 = none"},
    {FIELD(Queue, cores_per_node), "cores per node, the most that a job can request on each"},
    {FIELD(Queue, cores_per_gpu), "cores that must be requested with each GPU"},
    {FIELD(Queue, ranks_per_node), "the default of `--ranks-per-node` without GPUs"},
    {FIELD(Queue, memory_gb), "a node's memory, requested in proportion to the cores; 0 = not requested"},
    {FIELD(Queue, min_nodes), "the fewest nodes of a job"},
    {FIELD(Queue, max_nodes), "the most nodes of a job"},
    {FIELD(Queue, max_time), "the longest job: `48h`, `30m`"},
    {FIELD(Queue, directives), "directives to add to a job in this queue"},
};

bool is_made_of(std::string_view text, std::string_view others) {
  return std::ranges::all_of(text, [&](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) || others.find(static_cast<char>(c)) != others.npos);
  });
}

// What the text should be; empty if it is.
std::string expected_text(const std::string& text, Text kind) {
  if (text.empty() || kind == Text::free) return "";
  const auto is_control = [](unsigned char byte) { return byte < 0x20 || byte == 0x7F; };
  if (std::ranges::any_of(text, is_control)) return "one line without control characters";
  if (kind == Text::word && !is_directive_word(text)) return "one word of letters, digits and ._+-@:/=,";
  const bool is_option = text.starts_with('-') && text.find_first_not_of('-') <= 2 && is_made_of(text, "-_");
  if (kind == Text::option && !is_option) return "an option, such as -q or --partition";
  const bool is_variable = !std::isdigit(static_cast<unsigned char>(text.front())) && is_made_of(text, "_");
  if (kind == Text::variable && !is_variable) return "the name of a variable, without $";
  return "";
}

template <class Owner>
std::string table(const char* head, const std::vector<SiteKey<Owner>>& keys) {
  std::string text = format("| {} | |\n|---|---|\n", head);
  for (const auto& key : keys) text += format("| `{}` | {} |\n", key.name, key.help);
  return text;
}

}  // namespace

bool is_directive_word(const std::string& text) {
  return !text.empty() && text.front() != '-' && is_made_of(text, "._+-@:/=,");
}

std::string site_reference() {
  return table("site key", kSiteKeys) + "\n" + table("queue key, in `queues: {NAME: {...}}`", kQueueKeys);
}

// ---- finding site files ----

namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".yaml";

Site read_site_file(const std::string& path) {
  return parse_site(base::read_small_file(path, 100'000, "the site file"), path);
}

std::string shipped_folder() {
  return (fs::path(base::home_folder()) / "job_scripts/sites").string();
}

KnownSite known_site_at(const fs::path& path) {
  KnownSite known;
  known.path = path.string();
  std::error_code none;
  known.is_shipped = fs::equivalent(path.parent_path(), shipped_folder(), none);
  try {
    const auto site = read_site_file(known.path);
    known.about = site.about;
    known.scheduler = site.scheduler;
  } catch (const InputError& error) {
    known.trouble = format("{} ({})", error.what(), error.where());
  }
  return known;
}

}  // namespace

std::vector<std::string> site_folders() {
  std::vector<std::string> folders = {"sites"};
  if (const char* own = std::getenv("LOCKSTEP_SITES"); own && *own) folders.insert(folders.begin(), own);
  if (const char* user = std::getenv("HOME"); user && *user)
    folders.push_back(std::string(user) + "/.config/lockstep/sites");
  if (!base::home_folder().empty()) folders.push_back(shipped_folder());
  return folders;
}

Site load_site(const std::string& name_or_path) {
  if (name_or_path.find('/') != name_or_path.npos || name_or_path.ends_with(kEnding))
    return read_site_file(name_or_path);
  for (const auto& folder : site_folders()) {
    const auto path = fs::path(folder) / (name_or_path + kEnding);
    std::error_code error;
    if (name_or_path.empty() || !fs::exists(path, error)) continue;
    return read_site_file(path.string());
  }
  std::vector<std::string> names;
  for (const auto& [name, known] : known_sites()) names.push_back(name);
  throw InputError(format("there is no site {}", base::printable(name_or_path)),
                   "looked for in " + base::join(site_folders(), ", "),
                   base::did_you_mean(base::nearest(name_or_path, names).value_or("")) + "choose one of " +
                       base::join(names, ", ") + ", or give the path of a site file");
}

std::map<std::string, KnownSite> known_sites() {
  std::map<std::string, KnownSite> sites;
  for (const auto& folder : site_folders()) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      const auto& path = entry->path();
      if (path.extension() == kEnding && !sites.contains(path.stem().string()))
        sites[path.stem().string()] = known_site_at(path);
    }
  }
  return sites;
}

// ---- reading ----

namespace {

constexpr const char* kEveryKey = "see all keys in docs/how-to/sites.md";

[[noreturn]] void refuse_value(const std::string& key, const std::string& wanted, const YamlNode& node,
                               const std::string& help) {
  throw InputError(format("{} must be {} (got {})", key, wanted, describe(node)), node.place.text(),
                   format("set {} ({}) to {}", key, help, wanted));
}

void require_map(const YamlNode& node, const std::string& what) {
  if (node.kind == YamlNode::Kind::map) return;
  throw InputError(format("{} must be a map of keys (got {})", what, describe(node)), node.place.text(),
                   std::string("write key: value; ") + kEveryKey);
}

template <class Owner>
void read_value(const SiteKey<Owner>& row, const std::string& path, const NodePtr& node, Owner& owner) {
  const auto field = row.field(owner);
  const double most = std::holds_alternative<int64_t*>(field) ? 1e6 : std::numeric_limits<double>::infinity();
  config::read_field({path, nullptr, row.help, {.min = 0, .max = most, .choices = row.choices}}, *node,
                     field);
  for (const auto& one : node->kind == YamlNode::Kind::list ? node->items : std::vector{node})
    if (const auto wanted = expected_text(one->text, row.text); !wanted.empty())
      refuse_value(path, wanted, *one, row.help);
}

// `before` precedes a key's name in errors. `besides` is a key that the caller reads.
template <class Owner>
void read_keys(const YamlNode& map, const std::vector<SiteKey<Owner>>& keys, const std::string& before,
               Owner& owner, const std::string& besides = "") {
  for (const auto& [name, node] : map.entries) {
    const bool is_text = name->kind == YamlNode::Kind::scalar;
    if (is_text && !besides.empty() && name->text == besides) continue;
    std::vector<std::string> names = {besides};
    for (const auto& row : keys) {
      names.emplace_back(row.name);
      if (is_text && name->text == row.name) read_value(row, before + row.name, node, owner);
    }
    if (is_text && std::ranges::count(names, name->text) > 0) continue;
    throw InputError(format("unknown key {}", describe(*name)), name->place.text(),
                     base::did_you_mean(base::nearest(name->text, names).value_or("")) + kEveryKey);
  }
}

Queue read_queue(const YamlNode& name, const YamlNode& node) {
  if (name.kind != YamlNode::Kind::scalar || !is_directive_word(name.text))
    refuse_value("the name of a queue", "one word", name, "as the scheduler knows it");
  Queue queue;
  queue.name = name.text;
  if (node.kind == YamlNode::Kind::null) return queue;
  require_map(node, "queues." + queue.name);
  read_keys(node, kQueueKeys, format("queues.{}.", queue.name), queue);
  return queue;
}

void check_together(const Site& site, const std::string& place) {
  if (site.scheduler.empty())
    throw InputError("scheduler is missing", place, "add scheduler: slurm or scheduler: pbs");
  if (!site.storage.empty() && site.storage_flag.empty())
    throw InputError("storage needs storage_flag", place, "add storage_flag: storage");
  if (site.slurm() && !site.storage_flag.empty())
    throw InputError("storage_flag is only for PBS", place, "remove it, or add a directive");
  if (!site.queue.empty()) find_queue(site, "");
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
  throw InputError(format("the site {} has no queue {}", site.name, base::printable(wanted)), site.path,
                   base::did_you_mean(base::nearest(wanted, names).value_or("")) + "choose one of " +
                       base::join(names, ", "));
}

Site parse_site(const std::string& text, const std::string& file) {
  const auto root = config::parse_yaml(text, file);
  require_map(*root, "a site file");
  Site site;
  site.path = file;
  const auto from = file.rfind('/') + 1;  // npos + 1 is 0
  site.name = file.substr(from, file.rfind(".yaml") - from);
  read_keys(*root, kSiteKeys, "", site, "queues");
  for (const auto& [name, queues] : root->entries) {
    if (name->text != "queues") continue;
    require_map(*queues, "queues");
    for (const auto& [queue, node] : queues->entries) site.queues.push_back(read_queue(*queue, *node));
  }
  if (site.queue_flag.empty()) site.queue_flag = site.slurm() ? "--partition" : "-q";
  if (site.account_flag.empty()) site.account_flag = site.slurm() ? "--account" : "-A";
  check_together(site, root->place.text());
  return site;
}

}  // namespace lockstep::cluster
