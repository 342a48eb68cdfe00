#include "tools/cluster/site.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "tools/cluster/detect.h"
#include "trainer/config/numbers.h"
#include "trainer/config/value.h"
#include "trainer/config/yaml.h"

namespace lockstep::cluster {
namespace {

const std::vector<SiteKey<Site>> kSiteKeys = {
    {"about", &Site::about, "a line for `lockstep site list`", Text::free},
    {"scheduler", &Site::scheduler, "`pbs` or `slurm`; a site has to say", Text::word, "pbs slurm"},
    {"queue", &Site::queue, "where a job goes that names no queue; empty = where the scheduler puts it",
     Text::word},
    {"queue_flag", &Site::queue_flag, "the option that names it: `-q`, `--partition`, `--qos`", Text::option},
    {"account", &Site::account,
     "`required`: a job without `--account` is refused; `optional`, or `none`: there are no accounts",
     Text::word, "required optional none"},
    {"account_flag", &Site::account_flag, "the option that names it: `-A`, `-P`, `--account`", Text::option},
    {"form", &Site::form,
     "PBS: `select` = so much of each node; `totals` = sums over the job (`-l ncpus`, `-l ngpus`); `nodes` = "
     "whole nodes",
     Text::word, "select totals nodes"},
    {"chunk", &Site::chunk, "PBS: what each chunk of a select asks for besides", Text::word},
    {"storage", &Site::storage, "the file systems that a job asks for where `--storage` says none",
     Text::word},
    {"storage_flag", &Site::storage_flag, "PBS: the resource that names them, as in `-l NAME=`", Text::word},
    {"arrays", &Site::arrays, "`no` where the scheduler takes no job arrays: there is no `--sweep`",
     Text::word, "yes no"},
    {"threads_per_core", &Site::threads_per_core,
     "CPUs of the scheduler in a core: 2 where it counts hardware threads; 0 = the job counts"},
    {"directives", &Site::directives,
     "further directives of every job, each as after `#PBS` or `#SBATCH`; none that moves its log"},
    {"modules", &Site::modules, "modules that a job loads, in order"},
    {"start", &Site::start, "what starts the ranks; empty = the job looks what is there", Text::word,
     "srun mpirun mpiexec"},
    {"srun_mpi", &Site::srun_mpi, "the value of `srun --mpi`; empty = the site's own default", Text::word},
    {"scratch", &Site::scratch,
     "the variable that names a node's own disk, for `${LOCKSTEP_SCRATCH}` in a config", Text::variable},
};

const std::vector<SiteKey<Queue>> kQueueKeys = {
    {"gpus_per_node", &Queue::gpus_per_node,
     "NVIDIA GPUs of a node: what a job gets that does not say; 0 = none"},
    {"cores_per_node", &Queue::cores_per_node, "cores of a node, and the most that a job may ask of one"},
    {"cores_per_gpu", &Queue::cores_per_gpu, "the cores that go with a GPU, where the site has that rule"},
    {"ranks_per_node", &Queue::ranks_per_node,
     "ranks of a node where no GPU is asked for and the job does not say"},
    {"memory_gb", &Queue::memory_gb,
     "a node's memory, asked for in proportion to the cores; 0 = not asked for"},
    {"min_nodes", &Queue::min_nodes, "the fewest nodes of a job"},
    {"max_nodes", &Queue::max_nodes, "the most nodes of a job"},
    {"max_time", &Queue::max_time, "the longest job: `48h`, `30m`"},
    {"directives", &Queue::directives, "further directives of a job in this queue"},
};

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char byte) { return byte < 0x20 || byte == 0x7F; });
}

bool all_of(std::string_view text, std::string_view others) {
  return std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) || others.find(static_cast<char>(c)) != others.npos);
  });
}

bool is_option(std::string_view text) {
  return text.starts_with('-') && text.find_first_not_of('-') <= 2 && all_of(text, "-_");
}

bool is_variable(std::string_view text) {
  return !std::isdigit(static_cast<unsigned char>(text.front())) && all_of(text, "_");
}

struct LogOptions {
  const char* scheduler;
  const char* flags;    // letters without a value, which others may follow in a word: -Hofile
  const char* letters;  // those that are refused
  std::vector<std::string_view> words;
};
const LogOptions kLogOptions[] = {
    {"slurm", "hHIkOQsuvVX", "oeJD", {"--output", "--error", "--job-name", "--chdir"}},
    {"pbs", "fhIVXz", "oeNjC", {}}};

// sbatch takes "--out" for "--output"
bool is_short_for(std::string_view word, std::string_view option) {
  constexpr size_t kShortest = 4;
  return word.size() >= kShortest && option.starts_with(word);
}

bool is_refused(std::string_view word, const LogOptions& options) {
  if (word.starts_with("--")) {
    const auto name = word.substr(0, word.find('='));
    return std::any_of(options.words.begin(), options.words.end(),
                       [&](auto option) { return is_short_for(name, option); });
  }
  if (!word.starts_with('-')) return false;
  const auto letter = word.find_first_not_of(options.flags, 1);
  return letter != word.npos &&
         std::string_view(options.letters).find(word[letter]) != std::string_view::npos;
}

}  // namespace

std::string moves_log(const std::string& scheduler, const std::string& directive) {
  if (directive == "-j oe") return "";  // as we say it ourselves
  std::istringstream words(directive);
  for (std::string word; words >> word;) {
    for (const auto& options : kLogOptions) {
      if (scheduler == options.scheduler && is_refused(word, options)) return word;
    }
  }
  return "";
}

const std::vector<SiteKey<Site>>& site_keys() {
  return kSiteKeys;
}

const std::vector<SiteKey<Queue>>& queue_keys() {
  return kQueueKeys;
}

bool is_directive_word(const std::string& text) {
  return !text.empty() && text.front() != '-' && all_of(text, "._+-@:/=,");
}

std::vector<std::string> choices_of(const char* choices) {
  std::istringstream words(choices ? choices : "");
  return {std::istream_iterator<std::string>(words), {}};
}

std::string not_of_kind(const std::string& text, Text kind) {
  if (text.empty() || kind == Text::free) return "";
  if (has_control(text)) return "one line without control characters";
  if (kind == Text::word && !is_directive_word(text)) return "one word of letters, digits and ._+-@:/=,";
  if (kind == Text::option && !is_option(text)) return "an option, such as -q or --partition";
  if (kind == Text::variable && !is_variable(text)) return "the name of a variable, without $";
  return "";
}

// Where site files are looked for, and by which name.

namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".yaml";
constexpr size_t kMaxBytes = 100'000;

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(kEnding);
}

Site read_site_file(const std::string& path) {
  return parse_site(base::read_small_file(path, kMaxBytes, "the site file"), path);
}

// unreadable folders hold nothing for us
std::vector<fs::path> files_of(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == kEnding) files.push_back(entry->path());
  }
  return files;
}

std::string shipped_folder() {
  return (fs::path(base::home_folder()) / "job_scripts/sites").string();
}

// The file that ships and that this one came before; empty where it is that one, or there is none.
std::string hidden_by(const fs::path& path) {
  const auto shipped = fs::path(shipped_folder()) / path.filename();
  std::error_code none;
  return fs::exists(shipped, none) && !fs::equivalent(path, shipped, none) ? shipped.string() : "";
}

KnownSite known_site_at(const fs::path& path) {
  KnownSite known;
  known.name = path.stem().string();
  known.path = path.string();
  try {
    const auto site = read_site_file(known.path);
    known.about = site.about;
    known.scheduler = site.scheduler;
    known.hides = hidden_by(path);
  } catch (const InputError& error) {
    known.trouble = error.what();
    known.where = error.where();
  }
  return known;
}

void add_folder(std::vector<std::string>& folders, const char* base, const char* below) {
  if (base && *base) folders.push_back(*below ? (fs::path(base) / below).string() : base);
}

[[noreturn]] void unknown_site(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& known : known_sites()) names.push_back(known.name);
  const auto near = base::nearest(name, names);
  throw InputError(format("no site is called {}", base::printable(name)),
                   "looked for in " + base::join(site_folders(), ", "),
                   (near ? format("did you mean {}? ", *near) : "") + "known: " + base::join(names, ", ") +
                       "; or give the path of a file");
}

}  // namespace

std::vector<std::string> site_folders() {
  std::vector<std::string> folders;
  add_folder(folders, std::getenv("LOCKSTEP_SITES"), "");
  folders.emplace_back("sites");
  add_folder(folders, std::getenv("HOME"), ".config/lockstep/sites");
  if (!base::home_folder().empty()) folders.push_back(shipped_folder());
  return folders;
}

Site load_site(const std::string& name_or_path) {
  if (is_path(name_or_path)) return read_site_file(name_or_path);
  for (const auto& folder : site_folders()) {
    const auto path = fs::path(folder) / (name_or_path + kEnding);
    std::error_code error;
    if (name_or_path.empty() || !fs::exists(path, error)) continue;
    auto site = read_site_file(path.string());
    site.hides = hidden_by(path);
    return site;
  }
  unknown_site(name_or_path);
}

std::vector<KnownSite> known_sites() {
  std::vector<KnownSite> sites;
  for (const auto& folder : site_folders()) {
    for (const auto& path : files_of(folder)) {
      const auto same = [&](const KnownSite& site) { return site.name == path.stem().string(); };
      if (std::none_of(sites.begin(), sites.end(), same)) sites.push_back(known_site_at(path));
    }
  }
  std::sort(sites.begin(), sites.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return sites;
}

// A site file's text from what was found.

namespace {

constexpr size_t kLongestNote = 300;

// a field as it is where nobody has set it is left out
template <class Owner>
struct Written {
  const Owner& owner;
  const Owner untouched = {};

  std::string operator()(std::string Owner::*field) const {
    return owner.*field == untouched.*field ? "" : config::yaml_text(owner.*field);
  }
  std::string operator()(int64_t Owner::*field) const {
    return owner.*field == untouched.*field ? "" : format("{}", owner.*field);
  }
  std::string operator()(std::chrono::milliseconds Owner::*field) const {
    return owner.*field == untouched.*field ? "" : config::duration_text(owner.*field);
  }
  std::string operator()(std::vector<std::string> Owner::*field) const {
    std::vector<std::string> texts;
    for (const auto& text : owner.*field) texts.push_back(config::yaml_text(text));
    return texts.empty() ? "" : "[" + base::join(texts, ", ") + "]";
  }
};

template <class Owner>
std::vector<std::string> key_lines(const std::vector<SiteKey<Owner>>& keys, const Owner& owner) {
  std::vector<std::string> lines;
  for (const auto& key : keys) {
    const auto value = std::visit(Written<Owner>{owner}, key.field);
    if (!value.empty()) lines.push_back(format("{}: {}", key.name, value));
  }
  return lines;
}

}  // namespace

std::string as_yaml(const FoundSite& found) {
  std::string text =
      "# Proposed by lockstep site detect. What this machine did not tell: whether a job needs an account,\n"
      "# modules or file systems of its own, and whether its cores follow from its GPUs "
      "(docs/how-to/sites.md).\n";
  for (const auto& note : found.notes) text += "# " + base::printable(note, kLongestNote) + "\n";
  for (const auto& line : key_lines(site_keys(), found.site)) text += line + "\n";
  if (!found.site.queues.empty()) text += "queues:\n";
  for (const auto& queue : found.site.queues)
    text += format("  {}: {{{}}}\n", config::yaml_text(queue.name),
                   base::join(key_lines(queue_keys(), queue), ", "));
  return text;
}

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

namespace {

using config::YamlNode;

constexpr const char* kEveryKey = "every key: docs/how-to/sites.md";

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
