// The check folders: the data and run folders from every node, and whether the nodes share the run folder and
// its lock.
#include "tools/doctor/measure.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "tools/doctor/rules.h"
#include "tools/doctor/session.h"
#include "trainer/config/config_text.h"
#include "trainer/config/load.h"
#include "trainer/run_folder/lock.h"

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
constexpr double kSlow = 2;                   // seconds until another node sees a file
constexpr auto kAnswer = 5s;                  // for a file system to answer
constexpr auto kSee = 5s;                     // until a file of another node is seen

// What `work` returns or throws, from a thread; nothing where it takes longer: the thread is left behind with
// all that it holds.
template <class Result>
std::optional<Result> within(std::chrono::milliseconds timeout, std::function<Result()> work) {
  auto promise = std::make_shared<std::promise<Result>>();
  auto future = promise->get_future();
  std::thread([promise, work = std::move(work)] {
    try {
      promise->set_value(work());
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  if (future.wait_for(timeout) != std::future_status::ready) return std::nullopt;
  return future.get();
}

// --- one node's view ---

std::string file_system_name(long magic) {
  static const std::map<long, const char*> names = {
      {0x6969, "nfs"},       {0x0BD00BD0, "lustre"}, {0x47504653, "gpfs"},    {0x19830326, "beegfs"},
      {0x65735546, "fuse"},  {0x00C36400, "ceph"},   {0x01021994, "tmpfs"},   {0xEF53, "ext4"},
      {0x58465342, "xfs"},   {0x9123683E, "btrfs"},  {0x794C7630, "overlay"}, {0x2FC12FC1, "zfs"},
      {0xFF534D42, "cifs"},  {0xFE534D42, "smb"},    {0x01021997, "9p"},      {0x20030528, "orangefs"},
      {0x7461636F, "ocfs2"}, {0x01161970, "gfs2"},   {0x5346414F, "afs"},     {0x73717368, "squashfs"},
      {0xAAD7AAEA, "panfs"}, {0x786F4256, "vboxsf"}, {0x858458F6, "ramfs"},
  };
  const auto found = names.find(magic);
  return found == names.end() ? format("0x{:x}", static_cast<unsigned long>(magic)) : found->second;
}

// Names and sizes in order, whatever order the file system lists them in.
class Listing {
 public:
  explicit Listing(FolderView& view) : view_(view) {}

  void read(const fs::path& place) {
    fs::is_directory(place) ? read(place, place, 1) : take(fs::directory_entry(place), place.parent_path());
    base::Sha256 digest;
    for (const auto& [name, size] : sizes_) {
      const auto line = format("{}\n{}\n", name, size);
      digest.add(line.data(), line.size());
    }
    view_.entries = static_cast<long long>(sizes_.size());
    view_.digest = whole_ ? digest.hex() : "";
  }

 private:
  void read(const fs::path& root, const fs::path& folder, int depth) {
    std::error_code failed;
    std::vector<fs::path> inner;
    for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
         entry.increment(failed)) {
      if (sizes_.size() >= kMostEntries) return void(whole_ = false);  // which of them were seen is by chance
      take(*entry, root);
      std::error_code unknown;
      if (entry->is_directory(unknown)) inner.push_back(entry->path());
    }
    if (failed && view_.unreadable.empty()) view_.unreadable = failed.message();
    if (depth == kDepth) return;
    for (const auto& next : inner) read(root, next, depth + 1);
  }

  void take(const fs::directory_entry& entry, const fs::path& root) {
    std::error_code unknown;
    const bool is_file = entry.is_regular_file(unknown);
    const auto size = is_file ? static_cast<long long>(entry.file_size(unknown)) : -1;
    sizes_[entry.path().lexically_relative(root).string()] = unknown ? -2 : size;
    if (!is_file || opened_++ >= kOpenedFiles || !view_.unreadable.empty()) return;
    const base::Descriptor file(::open(entry.path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    char byte = 0;
    if (!file || ::read(file.number(), &byte, 1) < 0)
      view_.unreadable =
          format("{}: {}", base::printable(entry.path().filename().string()), std::strerror(errno));
  }

  FolderView& view_;
  bool whole_ = true;
  size_t opened_ = 0;
  std::map<std::string, long long> sizes_;
};

// By writing: a file system may be read-only, full or over a quota whatever the permissions say.
std::string why_unwritable(const std::string& folder) {
  try {
    Probe probe(folder, kProbeName, Probe::Kind::file);
    const bool written = base::write_all(probe.file().number(), std::string(kProbeBytes, 'x')) &&
                         (::fsync(probe.file().number()) == 0 || errno == EINVAL) && probe.file().close();
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
    view.unreadable = is_other ? std::strerror(ENOTDIR) : failed ? failed.message() : std::strerror(ENOENT);
    if (!to_read) view.unwritable = view.unreadable;
    return view;
  }
  struct statfs kind {};
  if (::statfs(there.c_str(), &kind) == 0) view.kind = file_system_name(kind.f_type);
  struct statvfs room {};
  if (::statvfs(there.c_str(), &room) == 0 && room.f_blocks > 0)
    view.free = static_cast<long long>(room.f_bavail) * static_cast<long long>(room.f_frsize);
  to_read ? Listing(view).read(there) : void(view.unwritable = why_unwritable(view.there));
  return view;
}

// --- what the views mean ---

std::string hosts_text(const std::vector<std::string>& hosts) {
  const size_t named = std::min(hosts.size(), kNamedHosts);
  const auto text = base::join({hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(named)}, ", ");
  return hosts.size() > named ? format("{} and {} more", text, hosts.size() - named) : text;
}

// One failure for each text that nodes have in common.
void add_by_text(Findings& findings, const Views& views,
                 const std::function<std::string(const FolderView&)>& text, const std::string& what,
                 const std::string& remedy) {
  std::vector<std::pair<std::string, std::vector<std::string>>> texts;
  for (const auto& view : views) {
    const auto own = text(view);
    if (own.empty()) continue;
    const auto same = std::ranges::find_if(texts, [&](const auto& one) { return one.first == own; });
    same == texts.end() ? texts.push_back({own, {view.host}}) : same->second.push_back(view.host);
  }
  for (const auto& [own, hosts] : texts)
    findings.push_back(failure(format("{} on {}: {}", what, hosts_text(hosts), own), remedy));
}

void add_silent(Findings& findings, const std::string& what, const Views& views) {
  add_by_text(
      findings, views,
      [](const FolderView& view) { return view.answered ? "" : "the file system did not answer in time"; },
      what, "look at the mount there (mount, df) and at its file server");
}

void add_problems(Findings& findings, const std::string& what, const Views& views,
                  std::string FolderView::*problem, const std::string& remedy) {
  add_by_text(
      findings, views, [&](const FolderView& view) { return view.answered ? view.*problem : ""; }, what,
      remedy);
}

Finding all_well(const std::string& what, const FolderView& first, const std::string& more) {
  const auto room = first.free < 0 ? "" : format(", {} free", bytes_text(first.free));
  return ok(format("{} ({}{}): {}", what, first.kind, room, more));
}

Finding hanging_lock(const std::string& host, const std::string& folder) {
  return failure(format("the lock of a run in {} did not answer in time on {}", folder, host),
                 "a run would hang there: look at the mount's locks (NFS: rpc.statd and lockd on the node "
                 "and the server, "
                 "firewall), or set run.dir to another file system");
}

Findings findings_of(const FolderAccess& access, const Views& views) {
  const FolderView& first = views.front();
  constexpr const char* kShare = "set run.dir to a folder of a file system that all nodes share";
  if (access.seen_after < 0) {
    const auto own = std::ranges::find(views, access.rank, &FolderView::rank);
    return {
        failure(format("{} is not the same on all nodes: {} ({}) does not see what {} writes there ({})",
                       first.there, access.host, own == views.end() ? "" : own->kind, first.host, first.kind),
                kShare)};
  }
  Findings findings;
  if (!access.unwritten.empty())
    findings.push_back(
        failure(format("{} cannot write beside rank 0's file: {}", access.host, access.unwritten),
                "give the job's user the right to write there on every node"));
  else if (!access.arrived)
    findings.push_back(failure(
        format("{} does not see what {} writes to {}", first.host, access.host, first.there), kShare));
  if (access.seen_after > kSlow)
    findings.push_back(
        warning(format("{} sees a new file after {:.1f} s", access.host, access.seen_after),
                "attributes are cached there (NFS: actimeo, lookupcache): a run waits that long"));
  if (access.lock_hangs)
    findings.push_back(hanging_lock(access.host, first.there));
  else if (!access.lock_held)
    findings.push_back(
        failure(format("locks do not work between nodes: {} gets the run's lock while {} holds it",
                       access.host, first.host),
                "have the file system mounted with locks for the whole cluster (NFS: without local_lock; "
                "Lustre: with -o "
                "flock, not localflock), or never start two jobs with one run.name"));
  else if (!access.lock_error.empty())
    findings.push_back(
        warning(format("the file system has no locks on {}: {}", access.host, access.lock_error),
                "runs then rely on signs of life, which takes up to a minute: have it mounted with locks "
                "(NFS: without "
                "nolock; Lustre: with -o flock)"));
  return findings;
}

// --- probes ---

struct LiveProbes {
  std::mutex mutex;
  std::set<std::string> paths;
};

// never destroyed: a thread that hangs may return at any time
LiveProbes& live_probes() {
  static auto* all = new LiveProbes;
  return *all;
}

void remove_path(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

std::string word_of(int rank, const std::string& folder) {
  return format("{}-{}", fs::path(folder).filename().string(), rank);
}

// The system's reason where it fails.
std::string write_word(const std::string& folder, int rank) {
  const auto file = fs::path(folder) / std::to_string(rank);
  base::Descriptor open(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (open && base::write_all(open.number(), word_of(rank, folder)) && ::fsync(open.number()) == 0 &&
      open.close())
    return "";
  return std::strerror(errno);
}

// Seconds until the rank's file is there; -1 where it is not in time.
double seen_after(const std::string& folder, int rank, Clock::time_point end) {
  const auto begin = Clock::now();
  do {
    std::ifstream text(fs::path(folder) / std::to_string(rank));
    std::string word;
    if (text >> word && word == word_of(rank, folder))
      return std::chrono::duration<double>(Clock::now() - begin).count();
    std::this_thread::sleep_for(20ms);
  } while (Clock::now() < end);
  return -1;
}

// A folder with rank 0's file in it, and a run's lock on it.
struct LockProbe {
  explicit LockProbe(const std::string& there) : folder(there, kProbeName, Probe::Kind::folder) {
    const auto failed = write_word(folder.path(), 0);
    if (!failed.empty()) throw Error(failed, there);
    lock = run_folder::RunLock::take(folder.path());
  }
  Probe folder;
  std::optional<run_folder::RunLock> lock;
};

FolderAccess access_to(const std::string& folder, const Job& job) {
  FolderAccess access{.rank = job.rank, .host = job.host};
  access.seen_after = seen_after(folder, 0, Clock::now() + kSee);
  if (access.seen_after < 0) return access;
  if (job.rank != 0) access.unwritten = write_word(folder, job.rank);
  const auto locks = within<FolderAccess>(kAnswer, [folder, access]() mutable {
    access.lock_held = run_folder::in_use(folder);
    return access;
  });
  if (locks) return *locks;
  access.lock_hangs = true;
  return access;
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

// Rank 0's, on every rank.
Places agreed_places(Session& session) {
  try {
    const auto own = [&] {
      return session.job().rank == 0 ? Session::Json(places_of(session.settings)) : nullptr;
    };
    return session.round(own, [](const auto& values) { return values[0]; }).get<Places>();
  } catch (RoundFailed& failed) {
    for (Finding& finding : failed.findings) finding.names_config = !session.is_broken();
    throw;
  }
}

// Rank 0 puts a folder there, and the first rank of each other node (alone, rank 0 itself) looks at it.
void measure_sharing(Session& session, const Views& views, Findings& findings) {
  const Job& job = session.job();
  std::shared_ptr<LockProbe> probe;
  const auto make = [&]() -> Session::Json {
    if (job.rank != 0) return {};
    const auto there = views.front().there;
    const auto made = within<std::shared_ptr<LockProbe>>(kAnswer, [there] {
      try {
        return std::make_shared<LockProbe>(there);
      } catch (const Error& error) {
        throw Error(format("no folder can be created in {}: {}", there, error.what()), "",
                    "look at the quota of files there, or set run.dir to another folder");
      }
    });
    if (!made) findings.push_back(hanging_lock(job.host, there));
    probe = made.value_or(nullptr);
    return probe ? probe->folder.path() : "";
  };
  const std::string folder = session.round(make, [](const auto& values) { return values[0]; });
  const bool looks = job.nodes == 1 ? job.rank == 0 : job.local_rank == 0 && job.rank != 0;
  session.round(
      [&]() -> Session::Json {
        return looks && !folder.empty() ? Session::Json(access_to(folder, job)) : nullptr;
      },
      [&](const std::vector<Session::Json>& values) -> Session::Json {
        std::vector<FolderAccess> accesses;
        const auto end = Clock::now() + kSee;
        for (const auto& value : values) {
          if (value.is_null()) continue;
          auto& access = accesses.emplace_back(value.get<FolderAccess>());
          access.arrived =
              access.seen_after >= 0 && access.unwritten.empty() && seen_after(folder, access.rank, end) >= 0;
        }
        if (!folder.empty()) append(findings, sharing_findings(views, accesses));
        return {};
      });
}

}  // namespace

FolderView view_of(const std::string& path, Purpose purpose, std::chrono::milliseconds timeout) {
  if (auto seen = within<FolderView>(timeout, [=] { return view_folder(path, purpose); })) return *seen;
  return {.answered = false, .there = path};
}

Findings data_findings(const std::string& path, const Views& views) {
  Findings findings;
  const auto what = "the data folder " + path;
  add_silent(findings, what, views);
  add_problems(findings, what, views, &FolderView::unreadable,
               "put the data there on every node, mount it there, or set data.root");
  std::vector<std::string> others;
  for (const auto& view : views)
    if (!view.digest.empty() && !views.front().digest.empty() && view.digest != views.front().digest)
      others.push_back(view.host);
  if (findings.empty() && !others.empty())
    findings.push_back(failure(format("{} holds other files on {} than on {}, by their names and sizes", what,
                                      hosts_text(others), views.front().host),
                               "copy the data to every node again, or put it where all nodes see the same"));
  if (findings.empty())
    findings.push_back(all_well(what, views.front(),
                                format("read on {}{}, {} entries checked", counted(views.size(), "node"),
                                       views.size() == 1 ? "" : ", the same files", views.front().entries)));
  return findings;
}

Findings runs_findings(const std::string& path, const Views& views) {
  Findings findings;
  const auto what = "the run folder " + path;
  const FolderView& first = views.front();
  add_silent(findings, what, views);
  add_problems(findings, what, views, &FolderView::unwritable,
               "set run.dir to a folder that every node can write to, and that has room");
  for (const auto& view : views)
    if (view.answered && view.there != first.there)
      findings.push_back(failure(
          format("{}: {} has {}, and {} only {}", what, first.host, first.there, view.host, view.there),
          "mount it there, or set run.dir to a folder that all nodes see"));
  const auto small = std::ranges::find_if(views, [](const FolderView& view) {
    return view.free >= 0 && view.free < kLittleRoom && view.unwritable.empty();
  });
  if (small != views.end())
    findings.push_back(
        warning(format("{}: {} are free there on {}", what, bytes_text(small->free), small->host),
                "free disk space, or set run.dir to a larger file system"));
  if (findings.empty())
    findings.push_back(all_well(what, first, format("written on {}", counted(views.size(), "node"))));
  return findings;
}

Findings sharing_findings(const Views& views, const std::vector<FolderAccess>& accesses) {
  Findings findings;
  double slowest = 0;
  for (const auto& access : accesses) {
    append(findings, findings_of(access, views));
    slowest = std::max(slowest, access.seen_after);
  }
  if (findings.empty())
    findings.push_back(ok(views.size() == 1
                              ? "the run's lock works"
                              : format("{} nodes see each other's files within {:.2f} s, and the run's "
                                       "lock works between them",
                                       views.size(), slowest)));
  return findings;
}

Probe::Probe(const std::string& folder, const std::string& name, Kind kind)
    : path_((fs::path(folder) / (name + "XXXXXX")).string()) {
  if (kind == Kind::file) file_ = base::Descriptor(::mkostemp(path_.data(), O_CLOEXEC));
  if (kind == Kind::file ? !file_ : !::mkdtemp(path_.data())) throw Error(std::strerror(errno), folder);
  const std::lock_guard lock(live_probes().mutex);
  live_probes().paths.insert(path_);
}

Probe::~Probe() {
  remove_path(path_);
  const std::lock_guard lock(live_probes().mutex);
  live_probes().paths.erase(path_);
}

void remove_probes() {
  const std::lock_guard lock(live_probes().mutex);
  for (const auto& path : live_probes().paths) remove_path(path);
}

void measure_folders(Session& session, Findings& findings) {
  const auto places = agreed_places(session);
  for (const auto& place : {places.data, places.runs})  // a finding may name any folder above
    for (fs::path path = place; path.has_relative_path(); path = path.parent_path())
      session.private_paths.push_back(path.string());
  if (places.data.empty())
    findings.push_back(ok("no data folder was given: name a config, or --data FOLDER"));
  const auto look = [&]() -> Session::Json {
    if (!session.is_first_of_node()) return nullptr;
    const auto seen = [&](const std::string& path, Purpose purpose) {
      auto view = path.empty() ? FolderView() : view_of(path, purpose, kAnswer);
      view.rank = session.job().rank;
      view.host = session.job().host;
      return view;
    };
    return {seen(places.data, Purpose::to_read), seen(places.runs, Purpose::to_write)};
  };
  Views data, runs;
  const bool may_share = session.round(look, [&](const std::vector<Session::Json>& values) {
    for (const auto& value : values) {
      if (value.is_null()) continue;
      data.push_back(value[0].get<FolderView>());
      runs.push_back(value[1].get<FolderView>());
    }
    if (!places.data.empty()) append(findings, data_findings(places.data, data));
    append(findings, runs_findings(places.runs, runs));
    return runs.front().answered && runs.front().unwritable.empty();
  });
  if (may_share) measure_sharing(session, runs, findings);
}

}  // namespace lockstep::doctor
