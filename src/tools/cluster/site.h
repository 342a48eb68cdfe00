#pragma once
// Site files: what is known about a cluster, its scheduler, the form of its directives and its limits.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::cluster {

/// A queue of PBS, or a partition or QOS of Slurm. 0 = not known, no limit.
struct Queue {
  std::string name;
  int64_t gpus_per_node = -1;  // -1 = not known
  int64_t cores_per_node = 0;
  int64_t cores_per_gpu = 0;   // cores that must be requested with each GPU
  int64_t ranks_per_node = 0;  // default without GPUs
  int64_t min_nodes = 0;
  int64_t max_nodes = 0;
  std::chrono::milliseconds max_time{0};
  int64_t memory_gb = 0;  // of a node, requested in proportion to its cores
  std::vector<std::string> directives;
};

struct Site {
  std::string name;  // of its file, without .yaml
  std::string path;
  std::string about;
  std::string scheduler;             // pbs | slurm
  std::string queue;                 // the default; empty = the scheduler's own default
  std::string queue_flag;            // "-q", "--partition", "--qos"
  std::string account = "optional";  // required | optional | none
  std::string account_flag;          // "-A", "-P"
  std::string form = "select";       // PBS: select | totals | nodes
  std::string chunk;                 // PBS: added to each chunk of a select: "system=polaris"
  std::string storage;               // the file systems that a job requests; empty = none
  std::string storage_flag;          // "storage", "filesystems": -l NAME=...
  std::string arrays = "yes";        // no = the scheduler has no job arrays
  int64_t threads_per_core = 0;      // CPUs that the scheduler counts per core; 0 = the job detects it
  std::vector<std::string> directives;
  std::vector<std::string> modules;
  std::string start;     // srun | mpirun | mpiexec; empty = the job chooses
  std::string srun_mpi;  // srun --mpi; empty = the site's default
  std::string scratch;   // the variable that names a node's own disk: "PBS_JOBFS"
  std::vector<Queue> queues;

  bool slurm() const { return scheduler == "slurm"; }
};

/// The queue of that name (empty = the site's default). Without queues in the site file, any name has no
/// limits; otherwise InputError for an unknown name.
Queue find_queue(const Site& site, const std::string& name);

/// A site file's text. InputError with file:line:column and the key.
Site parse_site(const std::string& text, const std::string& file);

/// By name, from site_folders(), or by the path of a file (with a '/' or ending in .yaml).
Site load_site(const std::string& name_or_path);

/// A site file in site_folders(), or why it cannot be read.
struct KnownSite {
  std::string path, about, scheduler, trouble;
  bool is_shipped = false;  ///< with lockstep
};

/// By name; of two with one name, the one in the first folder.
std::map<std::string, KnownSite> known_sites();

/// $LOCKSTEP_SITES, ./sites, ~/.config/lockstep/sites, and job_scripts/sites of lockstep.
std::vector<std::string> site_folders();

/// One word to every scheduler and shell: letters, digits and . _ + - @ : / = , without a leading dash.
bool is_directive_word(const std::string& text);

/// The keys of a site file and of a queue, as two tables in Markdown.
std::string site_reference();

// ---- a site file proposed from the answers of a login node ----

struct FoundSite {
  Site site;
  std::vector<std::string> notes;  ///< for comments in the file
};

/// From sinfo's lines.
FoundSite read_sinfo(const std::string& text);

/// From `qstat -Q -f`, `qstat -B -f` and `pbsnodes -a`; a text is empty where the command failed.
FoundSite read_pbs(const std::string& queues, const std::string& server, const std::string& nodes);

/// The text of the site file.
std::string as_yaml(const FoundSite& found);

/// Queries this machine, at most 10 s for each command. `scheduler` is "slurm" or "pbs", or empty for the
/// first that answers. Error where none does.
std::string detect_site(const std::string& scheduler);

}  // namespace lockstep::cluster
