#include "tools/doctor/job/folders.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/grouped.h"
#include "tools/doctor/node/judging.h"

namespace lockstep::doctor {
namespace {

using Views = std::vector<FolderView>;

constexpr long long kLittleRoom = 1LL << 30;  // a few checkpoints of a small model
constexpr double kSlow = 2;                   // seconds until another node sees a file
constexpr size_t kNamedHosts = 4;

std::string hosts_text(const std::vector<std::string>& hosts) {
  const size_t named = std::min(hosts.size(), kNamedHosts);
  auto text = base::join({hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(named)}, ", ");
  return hosts.size() > named ? format("{} and {} more", text, hosts.size() - named) : text;
}

// What nodes say of themselves, each word once with its hosts.
class ByWord {
 public:
  void add(const std::string& word, const std::string& host) {
    if (word.empty()) return;
    const auto found =
        std::find_if(words_.begin(), words_.end(), [&](const auto& w) { return w.first == word; });
    found == words_.end() ? void(words_.push_back({word, {host}})) : found->second.push_back(host);
  }
  const std::vector<std::pair<std::string, std::vector<std::string>>>& words() const { return words_; }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> words_;
};

void add_silent(Findings& findings, const std::string& what, const Views& views) {
  ByWord silent;
  for (const auto& view : views)
    if (!view.answered) silent.add("the file system did not answer in time", view.host);
  for (const auto& [word, hosts] : silent.words())
    findings.push_back(fail(format("{} on {}: {}", what, hosts_text(hosts), word),
                            "look at the mount there (mount, df) and at its file server"));
}

void add_troubles(Findings& findings, const std::string& what, const Views& views,
                  std::string FolderView::*trouble, const std::string& remedy) {
  ByWord words;
  for (const auto& view : views)
    if (view.answered) words.add(view.*trouble, view.host);
  for (const auto& [word, hosts] : words.words())
    findings.push_back(fail(format("{} on {}: {}", what, hosts_text(hosts), word), remedy));
}

void add_room(Findings& findings, const std::string& what, const Views& views) {
  for (const auto& view : views) {
    if (view.free < 0 || view.free >= kLittleRoom || !view.unwritable.empty()) continue;
    findings.push_back(warn(format("{}: {} are free there on {}", what, bytes(view.free), view.host),
                            "free disk space, or set run.dir to a larger file system"));
    return;  // of a shared one all nodes tell the same
  }
}

// Which of the nodes have other contents than rank 0's.
void add_differences(Findings& findings, const std::string& what, const Views& views) {
  std::vector<std::string> hosts;
  for (const auto& view : views)
    if (view.answered && !view.digest.empty() && !views.front().digest.empty() &&
        view.digest != views.front().digest)
      hosts.push_back(view.host);
  if (hosts.empty()) return;
  findings.push_back(fail(format("{} holds other files on {} than on {}, by their names and sizes", what,
                                 hosts_text(hosts), views.front().host),
                          "copy the data to every node again, or put it where all nodes see the same"));
}

void add_other_places(Findings& findings, const std::string& what, const Views& views) {
  ByWord places;
  for (const auto& view : views)
    if (view.answered && view.there != views.front().there) places.add(view.there, view.host);
  for (const auto& [place, hosts] : places.words())
    findings.push_back(fail(format("{}: {} has {}, and {} only {}", what, views.front().host,
                                   views.front().there, hosts_text(hosts), place),
                            "mount it there, or set run.dir to a folder that all nodes see"));
}

Finding no_lock(const FolderAccess& shared) {
  return warn(format("the file system has no locks on {}: {}", shared.host, shared.lock_error),
              "runs go by signs of life there, which takes up to a minute: have it mounted with locks (NFS: "
              "without nolock; Lustre: with -o flock)");
}

Finding loose_lock(const FolderAccess& shared, const FolderView& first) {
  return fail(
      format("locks do not hold between nodes: {} gets the run's lock while {} holds it", shared.host,
             first.host),
      "have the file system mounted with locks for the whole cluster (NFS: without local_lock; Lustre: "
      "with -o flock, not localflock), or never start two jobs with one run.name");
}

std::string kind_on(const Views& views, int rank) {
  for (const auto& view : views)
    if (view.rank == rank) return view.kind;
  return "";
}

Finding not_shared(const FolderAccess& shared, const FolderView& first, const Views& views) {
  return fail(format("{} is not the same on all nodes: what {} writes there ({}) is not seen on {} ({})",
                     first.there, first.host, first.kind, shared.host, kind_on(views, shared.rank)),
              "set run.dir to a folder of a file system that all nodes share");
}

Findings judge_one(const FolderAccess& shared, const FolderView& first, const Views& views) {
  if (shared.seen_after < 0) return {not_shared(shared, first, views)};
  Findings findings;
  if (!shared.unwritten.empty())
    findings.push_back(fail(format("{} cannot write beside rank 0's file: {}", shared.host, shared.unwritten),
                            "give the job's user the right to write there on every node"));
  else if (!shared.arrived)
    findings.push_back(
        fail(format("what {} writes to {} is not seen on {}", shared.host, first.there, first.host),
             "set run.dir to a folder of a file system that all nodes share"));
  if (shared.seen_after > kSlow)
    findings.push_back(
        warn(format("{} sees a new file after {:.1f} s", shared.host, shared.seen_after),
             "attributes are cached there (NFS: actimeo, lookupcache): expect a run to wait so long"));
  if (shared.lock_hangs)
    findings.push_back(hanging_lock(shared.host, first.there));
  else if (!shared.lock_held)
    findings.push_back(loose_lock(shared, first));
  else if (!shared.lock_error.empty())
    findings.push_back(no_lock(shared));
  return findings;
}

Finding all_well(const std::string& what, const Views& views, const std::string& more) {
  const auto& first = views.front();
  const auto room = first.free < 0 ? "" : format(", {} free", bytes(first.free));
  return fine(format("{} ({}{}): {}", what, first.kind, room, more));
}

}  // namespace

Finding hanging_lock(const std::string& host, const std::string& folder) {
  return fail(
      format("the lock of a run in {} did not answer in time on {}", folder, host),
      "a run would hang there: look at the mount's locks (NFS: rpc.statd and lockd on the node and the "
      "server, firewall), or set run.dir to another file system");
}

std::string pack(const FolderAccess& shared) {
  return base::pack_texts({std::to_string(shared.rank), shared.host, format("{}", shared.seen_after),
                           shared.unwritten, shared.lock_held ? "1" : "0", shared.lock_error,
                           shared.lock_hangs ? "1" : "0"});
}

FolderAccess unpack_shared(const std::string& text) {
  const auto parts = base::unpack_texts(text);
  if (parts.size() != 7) throw Error("this is no word of a shared folder", "lockstep doctor");
  return {.rank = std::stoi(parts[0]),
          .host = parts[1],
          .seen_after = std::stod(parts[2]),
          .unwritten = parts[3],
          .arrived = false,
          .lock_held = parts[4] == "1",
          .lock_error = parts[5],
          .lock_hangs = parts[6] == "1"};
}

Findings judge_data_folder(const std::string& path, const Views& views) {
  Findings findings;
  const auto what = "the data folder " + path;
  add_silent(findings, what, views);
  add_troubles(findings, what, views, &FolderView::unreadable,
               "put the data there on every node, mount it there, or set data.root");
  if (findings.empty()) add_differences(findings, what, views);
  if (!findings.empty()) return findings;
  return {all_well(what, views,
                   format("read on {} node{}, {} entries looked at", views.size(),
                          views.size() == 1 ? "" : "s, the same files", views.front().entries))};
}

Findings judge_run_folder(const std::string& path, const Views& views) {
  Findings findings;
  const auto what = "the run folder " + path;
  add_silent(findings, what, views);
  add_troubles(findings, what, views, &FolderView::unwritable,
               "set run.dir to a folder that every node may write to, and that has room");
  add_other_places(findings, what, views);
  add_room(findings, what, views);
  if (!findings.empty()) return findings;
  return {all_well(what, views, format("written on {} node{}", views.size(), views.size() == 1 ? "" : "s"))};
}

Findings judge_sharing(const FolderView& first, const Views& views, const std::vector<FolderAccess>& shared) {
  Findings findings;
  for (const auto& one : shared)
    for (auto& finding : judge_one(one, first, views)) findings.push_back(std::move(finding));
  if (!findings.empty()) return findings;
  if (views.size() == 1) return {fine("the run's lock holds")};
  double slowest = 0;
  for (const auto& one : shared) slowest = std::max(slowest, one.seen_after);
  return {
      fine(format("{} nodes see each other's files within {:.2f} s, and the run's lock holds between them",
                  views.size(), slowest))};
}

}  // namespace lockstep::doctor
