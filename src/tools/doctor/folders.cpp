// The check folders: the data and run folders from every node, and whether the nodes share the run folder and
// its lock.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/run_for.h"
#include "tools/doctor/session.h"
#include "trainer/config/config_text.h"
#include "trainer/config/load.h"
#include "trainer/run_folder/folder.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Views = std::vector<FolderView>;

constexpr const char* kProbeName = ".lockstep-doctor-";
constexpr size_t kMostEntries = 1000, kOpenedFiles = 32, kNamedHosts = 4;
constexpr size_t kProbeBytes = 256 << 10;
constexpr int kDepth = 2;                     // torchvision's MNIST/raw
constexpr long long kLittleRoom = 1LL << 30;  // a few checkpoints of a small model
constexpr auto kAnswer = 5s;                  // for a file system to respond
constexpr auto kSee = 5s;                     // until another node's file is seen: NFS caches attributes

// --- the doctor's own files in the run folder ---

struct LiveProbes {
  std::mutex mutex;
  std::set<std::string> paths;
};

// Never destroyed: a thread that hangs may return at any time.
LiveProbes& live_probes() {
  static auto* all = new LiveProbes;
  return *all;
}

void remove_path(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// A new folder, removed with this object or by remove_probes(). Error with the system's reason.
struct Probe {
  explicit Probe(const std::string& folder) : path((fs::path(folder) / kProbeName).string() + "XXXXXX") {
    if (!::mkdtemp(path.data()))
      throw Error(format("cannot create a folder: {}", std::strerror(errno)), folder,
                  "check the file quota there, or set run.dir to another folder");
    const std::lock_guard live(live_probes().mutex);
    live_probes().paths.insert(path);
  }
  ~Probe() {
    lock.reset();
    remove_path(path);
    const std::lock_guard live(live_probes().mutex);
    live_probes().paths.erase(path);
  }
  Probe(Probe&&) = delete;

  std::string path;
  std::optional<run_folder::RunLock> lock = {};
};

// --- one node's view ---

std::string file_system_name(long magic) {
  static const std::map<long, const char*> names = {
      {0x6969, "nfs"},      {0x0BD00BD0, "lustre"}, {0x47504653, "gpfs"},  {0x19830326, "beegfs"},
      {0x65735546, "fuse"}, {0x00C36400, "ceph"},   {0x01021994, "tmpfs"}, {0xEF53, "ext4"},
      {0x58465342, "xfs"},  {0x9123683E, "btrfs"},  {0x2FC12FC1, "zfs"},   {0x794C7630, "overlay"}};
  const auto found = names.find(magic);
  return found == names.end() ? format("0x{:x}", static_cast<unsigned long>(magic)) : found->second;
}

// Why a byte of the file cannot be read; empty where it can.
std::string why_unreadable(const fs::path& path) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  char byte = 0;
  if (file && ::read(file.number(), &byte, 1) >= 0) return "";
  return format("{}: {}", base::printable(path.filename().string()), std::strerror(errno));
}

// Names and sizes in order, whatever order the file system lists them in.
void read_entries(const fs::path& place, FolderView& view) {
  std::map<std::string, long long> sizes;
  size_t opened = 0;
  const auto take = [&](const fs::directory_entry& entry) {
    std::error_code unknown;
    const bool is_file = entry.is_regular_file(unknown);
    sizes[entry.path().lexically_relative(place).string()] =
        is_file ? static_cast<long long>(entry.file_size(unknown)) : -1;
    if (is_file && opened++ < kOpenedFiles && view.problem.empty())
      view.problem = why_unreadable(entry.path());
  };
  std::error_code failed;
  fs::recursive_directory_iterator at;
  if (fs::is_directory(place))
    at = fs::recursive_directory_iterator(place, fs::directory_options::follow_directory_symlink, failed);
  else
    take(fs::directory_entry(place));
  for (; !failed && at != end(at) && sizes.size() < kMostEntries; at.increment(failed)) {
    if (at.depth() + 1 == kDepth) at.disable_recursion_pending();
    take(*at);
  }
  if (failed && view.problem.empty()) view.problem = failed.message();
  base::Sha256 digest;
  for (const auto& [name, size] : sizes) {
    const auto line = format("{}\n{}\n", name, size);
    digest.add(line.data(), line.size());
  }
  view.entries = static_cast<long long>(sizes.size());
  if (sizes.size() < kMostEntries) view.digest = digest.hex();  // of more it is chance which were listed
}

// By writing: a file system may be read-only, full or over a quota whatever the permissions say.
std::string why_unwritable(const std::string& folder) {
  try {
    const Probe probe(folder);
    auto name = probe.path + "/XXXXXX";
    base::Descriptor file(::mkostemp(name.data(), O_CLOEXEC));
    const bool written = file && base::write_all(file.number(), std::string(kProbeBytes, 'x')) &&
                         (::fsync(file.number()) == 0 || errno == EINVAL) && file.close();
    return written ? "" : std::strerror(errno);
  } catch (const Error& error) {
    return error.what();
  }
}

FolderView view_folder(const std::string& path, Purpose purpose) {
  FolderView view;
  const bool to_read = purpose == Purpose::to_read;
  std::error_code failed;
  fs::path there = path;
  while (!to_read && there.has_relative_path() && !fs::exists(there, failed) && !failed)
    there = there.parent_path();
  view.there = there.string();
  const auto type = fs::status(there, failed).type();
  if (type != fs::file_type::directory && !(to_read && type == fs::file_type::regular)) {
    const bool is_other = type != fs::file_type::not_found && type != fs::file_type::none;
    view.problem = is_other ? std::strerror(ENOTDIR) : failed ? failed.message() : std::strerror(ENOENT);
    return view;
  }
  struct statfs system {};
  if (::statfs(there.c_str(), &system) == 0) {
    view.kind = file_system_name(system.f_type);
    if (system.f_blocks > 0) view.free = static_cast<long long>(system.f_bavail) * system.f_frsize;
  }
  if (to_read) {
    read_entries(there, view);
  } else {
    view.problem = why_unwritable(view.there);
  }
  return view;
}

// --- what the views mean ---

// One failure for each problem, which names the hosts that have it.
Findings problems_of(const std::string& what, const Views& views, const std::string& remedy) {
  std::map<std::string, std::vector<std::string>> hosts_by_problem;
  for (const auto& view : views)
    if (!view.problem.empty()) hosts_by_problem[view.problem].push_back(view.host);
  Findings findings;
  for (const auto& [problem, hosts] : hosts_by_problem)
    findings.push_back(
        failure(format("{} on {}: {}", what, some_of(hosts, kNamedHosts), problem),
                problem == kNoAnswer ? "check the mount there (mount, df) and its file server" : remedy));
  return findings;
}

std::string room_of(const FolderView& view) {
  return view.free < 0 ? view.kind : format("{}, {} free", view.kind, bytes_text(view.free));
}

Finding lock_hangs(const std::string& host, const std::string& folder) {
  return failure(format("locking a run in {} did not finish in time on {}", folder, host),
                 "check the mount's locks (NFS: rpc.statd and lockd on node and server, firewall), or set "
                 "run.dir to another file system: a run would hang there");
}

// --- the measurement ---

struct Places {
  std::string data, runs;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Places, data, runs)

Places places_of(const DoctorSettings& asked) {
  Places places{asked.data, asked.runs.empty() ? RunSettings().dir : asked.runs};
  if (!asked.config.empty()) {
    const auto read = config::read_config_text(asked.config);
    const auto settings = config::load_settings(read.text, read.name, {}, asked.environment).settings;
    if (asked.data.empty()) places.data = settings.data.root;
    if (asked.runs.empty()) places.runs = settings.run.dir;
  }
  if (!places.data.empty()) places.data = fs::absolute(base::find_path(places.data)).string();
  places.runs = fs::absolute(places.runs).string();
  return places;
}

bool sees_file_of(int rank, const std::string& folder, Clock::time_point end) {
  std::error_code ignored;
  while (!fs::exists(fs::path(folder) / std::to_string(rank), ignored)) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(20ms);
  }
  return true;
}

FolderAccess access_to(const std::string& folder, const Job& job, const std::string& kind) {
  FolderAccess access{.host = job.host, .kind = kind};
  access.sees_file = sees_file_of(0, folder, Clock::now() + kSee);
  if (!access.sees_file) return access;
  std::ofstream(fs::path(folder) / std::to_string(job.rank)) << "x";
  const auto held = base::run_for(kAnswer, [folder] { return run_folder::in_use(folder); });
  access.hangs = !held;
  access.sees_lock = held.value_or(false);
  return access;
}

// Rank 0 makes a folder there, and the first rank of each other node (alone, rank 0 itself) looks at it.
void measure_sharing(Session& session, const FolderView& first, const std::string& own_kind,
                     Findings& findings) {
  const Job& job = session.job();
  std::shared_ptr<Probe> probe;  // with rank 0's file in it, and a run's lock on it
  const auto make = [&]() -> Session::Json {
    if (job.rank != 0) return {};
    const auto made = base::run_for(kAnswer, [there = first.there] {
      auto own = std::make_shared<Probe>(there);
      std::ofstream(fs::path(own->path) / "0") << "x";
      own->lock = run_folder::RunLock::take(own->path);
      return own;
    });
    if (!made) findings.push_back(lock_hangs(job.host, first.there));
    probe = made.value_or(nullptr);
    return probe ? probe->path : "";
  };
  const std::string folder = session.round(make, [](const auto& values) { return values[0]; });
  const bool looks = job.nodes == 1 ? job.rank == 0 : job.local_rank == 0 && job.rank != 0;
  session.round(
      [&]() -> Session::Json {
        return looks && !folder.empty() ? Session::Json(access_to(folder, job, own_kind)) : nullptr;
      },
      [&](const std::vector<Session::Json>& values) -> Session::Json {
        std::vector<FolderAccess> accesses;
        const auto end = Clock::now() + kSee;
        for (size_t rank = 0; rank < values.size(); ++rank) {
          if (values[rank].is_null()) continue;
          auto& access = accesses.emplace_back(values[rank].get<FolderAccess>());
          access.is_seen = access.sees_file && sees_file_of(static_cast<int>(rank), folder, end);
        }
        if (!folder.empty()) append(findings, sharing_findings(first, accesses));
        return {};
      });
}

}  // namespace

FolderView view_of(const std::string& path, Purpose purpose, std::chrono::milliseconds timeout) {
  if (auto seen = base::run_for(timeout, [=] { return view_folder(path, purpose); })) return *seen;
  return {.there = path, .problem = kNoAnswer};
}

Findings data_findings(const std::string& path, const Views& views) {
  const auto what = "the data folder " + path;
  const FolderView& first = views.front();
  Findings findings =
      problems_of(what, views, "copy the data to that path on every node, mount it there, or set data.root");
  if (!findings.empty()) return findings;
  std::vector<std::string> others;
  for (const auto& view : views)
    if (!view.digest.empty() && !first.digest.empty() && view.digest != first.digest)
      others.push_back(view.host);
  if (!others.empty())
    return {failure(format("{} has different files on {} and {} (names or sizes differ)", what, first.host,
                           some_of(others, kNamedHosts)),
                    "copy the data to every node again, or put it on a shared file system")};
  return {
      ok(format("{} ({}): read on {}{}, {} entries checked", what, room_of(first),
                counted(views.size(), "node"), views.size() == 1 ? "" : ", the same files", first.entries))};
}

Findings runs_findings(const std::string& path, const Views& views) {
  const auto what = "the run folder " + path;
  const FolderView& first = views.front();
  Findings findings =
      problems_of(what, views, "set run.dir to a folder with free space that every node can write to");
  for (const auto& view : views) {
    if (view.problem != kNoAnswer && view.there != first.there)
      findings.push_back(failure(
          format("{}: {} has {}, and {} only {}", what, first.host, first.there, view.host, view.there),
          "mount it there, or set run.dir to a folder that all nodes see"));
    else if (view.free >= 0 && view.free < kLittleRoom && view.problem.empty())
      findings.push_back(warning(format("{}: only {} are free on {}", what, bytes_text(view.free), view.host),
                                 "free disk space, or set run.dir to a larger file system"));
  }
  if (findings.empty())
    findings.push_back(
        ok(format("{} ({}): written on {}", what, room_of(first), counted(views.size(), "node"))));
  return findings;
}

Findings sharing_findings(const FolderView& first, const std::vector<FolderAccess>& accesses) {
  constexpr const char* kShare = "set run.dir to a folder of a file system that all nodes share";
  Findings findings;
  for (const auto& access : accesses) {
    if (!access.sees_file)
      findings.push_back(
          failure(format("{} is not the same on all nodes: {} ({}) does not see what {} writes there ({})",
                         first.there, access.host, access.kind, first.host, first.kind),
                  kShare));
    else if (!access.is_seen)
      findings.push_back(failure(
          format("{} does not see what {} writes to {}", first.host, access.host, first.there), kShare));
    else if (access.hangs)
      findings.push_back(lock_hangs(access.host, first.there));
    else if (!access.sees_lock)
      findings.push_back(
          failure(format("locks do not work between nodes: {} got the run's lock while {} held it",
                         access.host, first.host),
                  "ask for a mount with cluster-wide locks (NFS: without local_lock; Lustre: -o flock, not "
                  "localflock), or never start two jobs with the same run.name"));
  }
  if (findings.empty())
    findings.push_back(
        ok(accesses.size() == 1 && accesses[0].host == first.host
               ? "the run's lock works"
               : format("{} nodes see each other's files, and the run's lock works between them",
                        accesses.size() + 1)));
  return findings;
}

void remove_probes() {
  const std::lock_guard lock(live_probes().mutex);
  for (const auto& path : live_probes().paths) remove_path(path);
}

void measure_folders(Session& session, Findings& findings) {
  const auto own_places = [&] {
    return session.job().rank == 0 ? Session::Json(places_of(session.settings)) : nullptr;
  };
  const auto places = session.round(own_places, [](const auto& values) { return values[0]; }).get<Places>();
  if (places.data.empty()) findings.push_back(ok("no data folder was given: pass a config or --data FOLDER"));
  std::string own_kind;
  const auto look = [&]() -> Session::Json {
    if (!session.is_first_of_node()) return nullptr;
    const auto seen = [&](const std::string& path, Purpose purpose) {
      auto view = path.empty() ? FolderView() : view_of(path, purpose, kAnswer);
      view.host = session.job().host;
      return view;
    };
    const auto data = seen(places.data, Purpose::to_read), runs = seen(places.runs, Purpose::to_write);
    own_kind = runs.kind;
    return {data, runs};
  };
  const auto answer = session.round(look, [&](const std::vector<Session::Json>& values) -> Session::Json {
    Views data, runs;
    for (const auto& value : values) {
      if (value.is_null()) continue;
      data.push_back(value[0].get<FolderView>());
      runs.push_back(value[1].get<FolderView>());
    }
    if (!places.data.empty()) append(findings, data_findings(places.data, data));
    append(findings, runs_findings(places.runs, runs));
    return runs.front();
  });
  const auto first = answer.get<FolderView>();
  if (first.problem.empty()) measure_sharing(session, first, own_kind, findings);
}

}  // namespace lockstep::doctor
