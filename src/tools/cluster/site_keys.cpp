#include "tools/cluster/site_keys.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>
#include <string_view>

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

}  // namespace lockstep::cluster
