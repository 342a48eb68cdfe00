#pragma once
// What is known of a cluster, read from a site file: its scheduler, how it wants to be asked, and its limits.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cluster {

/// A kind of node that a site lends: a queue of PBS, a partition or QOS of Slurm. 0 = not known, no limit.
struct Queue {
  std::string name;
  int64_t gpus_per_node = -1;  // -1 = not known
  int64_t cores_per_node = 0;
  int64_t cores_per_gpu = 0;   // the site's rule: so many cores are asked for with each GPU
  int64_t ranks_per_node = 0;  // where no GPU is asked for, and the job does not say
  int64_t min_nodes = 0;
  int64_t max_nodes = 0;
  std::chrono::milliseconds max_time{0};
  int64_t memory_gb = 0;                // of a node, asked for in proportion to its cores
  std::vector<std::string> directives;  // further ones: "-C gpu"
};

struct Site {
  std::string name;  // of its file, without .yaml
  std::string path;
  std::string hides;  // the file of that name that ships with lockstep, where this one came before it
  std::string about;
  std::string scheduler;             // pbs | slurm
  std::string queue;                 // taken where a job names none; empty = the scheduler's own default
  std::string queue_flag;            // "-q", "--partition", "--qos"
  std::string account = "optional";  // required | optional | none: must a job name one?
  std::string account_flag;          // "-A", "-P"
  std::string form = "select";       // PBS: select | totals | nodes
  std::string chunk;                 // PBS: what each chunk of a select asks for besides: "system=polaris"
  std::string storage;               // the file systems that a job asks for; empty = none
  std::string storage_flag;          // "storage", "filesystems": -l NAME=...
  std::string arrays = "yes";        // no = the scheduler takes no job arrays
  int64_t threads_per_core = 0;      // of what the scheduler counts as CPUs; 0 = the job counts
  std::vector<std::string> directives;
  std::vector<std::string> modules;
  std::string start;     // srun | mpirun | mpiexec; empty = what the job finds
  std::string srun_mpi;  // srun --mpi; empty = the site's default
  std::string scratch;   // the variable that names a node's own disk: "PBS_JOBFS"
  std::vector<Queue> queues;

  bool slurm() const { return scheduler == "slurm"; }
};

/// The queue of that name (empty = the site's default). One that the file does not describe has no limits;
/// InputError where the file describes some and the name is none of theirs.
Queue find_queue(const Site& site, const std::string& name);

/// A site file's text. A mistake is an InputError with file:line:column, the key and what to do.
Site parse_site(const std::string& text, const std::string& file);

/// By name, looked for in the folders of site_folders(), or by the path of a file (a '/' in it, or .yaml at
/// its end). InputError with the nearest name.
Site load_site(const std::string& name_or_path);

/// A site that was found, or why its file cannot be read.
struct KnownSite {
  std::string name, path, about, scheduler, trouble, where, hides;
};

/// Every site file in site_folders(), by name; of two of one name the first folder's counts.
std::vector<KnownSite> known_sites();

/// Where site files lie: $LOCKSTEP_SITES, ./sites, ~/.config/lockstep/sites, job_scripts/sites of lockstep.
std::vector<std::string> site_folders();

/// One word that no scheduler and no shell takes for more: letters, digits and . _ + - @ : / = , and no dash
/// in front.
bool is_directive_word(const std::string& text);

/// What of a directive would move the job's log, its name or its folder away from where it is followed: the
/// option; empty where there is none.
std::string moves_log(const std::string& scheduler, const std::string& directive);

/// The keys of a site file as a page has them: two tables in Markdown, a site's keys and a queue's.
std::string site_reference();

}  // namespace lockstep::cluster
