#include "lockstep/comm/watch/peer_monitor.h"

#include <pthread.h>
#include <torch/csrc/distributed/c10d/debug.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/files/shared_memory.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/run_for.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/launch/process/leave.h"

namespace lockstep::comm {

/// Memory that the ranks of a node share. A collective writes one number there; errors read the rest.
class NodePage {
 public:
  struct Rank {
    alignas(128) std::atomic<uint64_t> begun;  // collectives; neighbors are fetched in pairs of cache lines
    std::atomic<uint32_t> what;                // the kind of the newest
    std::atomic<bool> present, left;           // joined this page; left the group in order
  };

  static size_t bytes_for(int world) { return sizeof(Head) + static_cast<size_t>(world) * sizeof(Rank); }
  NodePage(base::SharedMemory memory, int world) : memory_(std::move(memory)) {
    static_assert(std::atomic<uint64_t>::is_always_lock_free, "processes cannot share a process's lock");
    if (memory_.size() < bytes_for(world))
      throw Error("the shared page of this node is for another world size");
  }

  Rank& of(int rank) const { return reinterpret_cast<Rank*>(&head() + 1)[rank]; }

  /// The node's first finding remains: later deaths follow from it. Returns the one that remains.
  std::string agree_on(const std::string& finding) {
    uint32_t nothing = kNothing;
    if (head().written.compare_exchange_strong(nothing, kWriting, std::memory_order_acq_rel)) {
      const size_t bytes = std::min(finding.size(), kTextBytes - 1);
      std::memcpy(head().text, finding.data(), bytes);
      head().text[bytes] = '\0';
      head().written.store(kWritten, std::memory_order_release);
      return finding;
    }
    const std::string first = agreed();
    return first.empty() ? finding : first;
  }
  std::string agreed() const {
    // the writer may still be writing, or may have been killed there
    for (int i = 0; i < 100 && head().written.load(std::memory_order_acquire) == kWriting; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return head().written.load(std::memory_order_acquire) == kWritten ? head().text : "";
  }

  void unlink() { memory_.unlink(); }
  const std::string& name() const { return memory_.name(); }

 private:
  static constexpr size_t kTextBytes = 16368;
  enum Written : uint32_t { kNothing, kWriting, kWritten };
  struct Head {
    alignas(128) std::atomic<uint32_t> written;
    char text[kTextBytes];
  };

  Head& head() const { return *static_cast<Head*>(memory_.data()); }

  base::SharedMemory memory_;
};

namespace {

constexpr size_t kMostRanks = 32, kMostStateBytes = 150;  // as data; the words name the rest

// A Fault without words names nobody.
bool is_any(const Fault& found) {
  return !found.what.empty();
}

// Appends `more`.
void add(Fault& found, const Fault& more) {
  if (!is_any(more)) return;
  if (!is_any(found) || more.code == Code::rank_lost) found.code = more.code;
  found.what += (is_any(found) ? "; " : "") + more.what;
  found.ranks.insert(found.ranks.end(), more.ranks.begin(), more.ranks.end());
  found.seen.insert(found.seen.end(), more.seen.begin(), more.seen.end());
}

// All of these ranks are at fault, in one way.
Fault finding(const std::vector<Peer>& peers, Code code, const std::string& what, RankCall like) {
  Fault found{.code = code, .what = what};
  for (const auto& peer : peers) {
    like.rank = peer.rank_in_job();
    found.ranks.push_back(like.rank);
    found.seen.push_back(like);
  }
  return found;
}

// The text in the page and the store, with the first ranks. A page may cut the words, which come last.
std::string packed(const Fault& found) {
  if (!is_any(found)) return "";
  Fault data{.code = found.code, .ranks = found.ranks, .seen = found.seen};
  data.ranks.resize(std::min(data.ranks.size(), kMostRanks));
  data.seen.resize(std::min(data.seen.size(), kMostRanks));
  for (auto& seen : data.seen) {
    seen.call.resize(std::min(seen.call.size(), kMostStateBytes));
    seen.state.resize(std::min(seen.state.size(), kMostStateBytes));
  }
  auto json = base::to_json(data);
  for (const char* words : {"what", "where", "hint"}) json.erase(words);
  return base::as_line(json) + "\n" + found.what;
}

// Names nobody if the text is not from packed().
Fault unpacked(const std::string& text) {
  const auto end = text.find('\n');
  auto found = end == std::string::npos ? std::nullopt : base::fault_in(text.substr(0, end));
  if (!found) return {};
  found->what = text.substr(end + 1);
  return std::move(*found);
}

using Milliseconds = std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// a socket closes a moment before /proc shows the process as a zombie
constexpr Milliseconds kDeathNotice{500};
// other nodes reach the same timeout at another moment
constexpr Milliseconds kOtherNodes{1200};
constexpr Milliseconds kStoreAnswers{1800};
constexpr Milliseconds kPoll{5};
const char* const kAgreedKey = "monitor/agreed";
const char* const kLookAtRank = "see the log for an earlier error, then rerun with --resume auto";
const char* const kLookAtLateRank =
    "see the log for an earlier error; if a rank is stopped, rerun with --resume auto; otherwise look for "
    "calls that only some ranks make (to run a model on one rank, use model->module()->forward()); raise "
    "launch.timeout if a rank is only slow";
const char* const kLookAtCalls =
    "look for calls that only some ranks make, or make in another order (to run a model on one rank, use "
    "model->module()->forward())";
const char* const kLookAtNode =
    "check that node and its network, then rerun with --resume auto; raise LOCKSTEP_SILENCE (seconds) if "
    "long network interruptions are normal here";

// What to do about the group's death.
const char* hint_for(const Fault& death) {
  if (death.code == Code::calls_differ) return kLookAtCalls;
  return death.code == Code::rank_late ? kLookAtLateRank : kLookAtRank;
}

bool same_node(const Peer& a, const Peer& b) {
  return a.node == b.node && a.host == b.host;
}

std::vector<Peer> peers_on_node_of(const std::vector<Peer>& peers, int rank) {
  std::vector<Peer> mates;
  for (const auto& peer : peers)
    if (same_node(peer, peers[static_cast<size_t>(rank)])) mates.push_back(peer);
  return mates;
}

std::unique_ptr<NodePage> create_page(c10d::Store& store, const std::string& key, int world) {
  try {
    auto page = std::make_unique<NodePage>(base::SharedMemory::create(NodePage::bytes_for(world)), world);
    store.set(key, page->name());
    return page;
  } catch (const Error& error) {
    log::warning(format("later errors will not name the ranks at fault: {}", error.what()));
    store.set(key, std::string("none"));
    return nullptr;
  }
}

std::unique_ptr<NodePage> open_page(const std::string& name, int world) {
  auto memory = base::SharedMemory::open(name);
  return memory ? std::make_unique<NodePage>(std::move(*memory), world) : nullptr;
}

void wait_for(c10d::Store& store, const std::string& key) {
  try {
    store.wait({key});
  } catch (const std::exception&) {  // a late rank finds no page, and its errors name no rank
  }
}

// The lowest rank of a node creates the page. It removes the name once all have opened it: /dev/shm is clean.
std::unique_ptr<NodePage> share_page(c10d::Store& store, const std::vector<Peer>& peers, int rank) {
  const auto mates = peers_on_node_of(peers, rank);
  const int world = static_cast<int>(peers.size());
  const std::string key = format("monitor/page/{}", mates.front().rank);
  const bool first = mates.front().rank == rank;
  auto page = first ? create_page(store, key, world) : open_page(store.get_to_str(key), world);
  if (page) page->of(rank).present = true;
  // the last rank to open it wakes the first
  if (store.add(key + "/open", 1) == static_cast<int64_t>(mates.size()))
    store.set(key + "/all", std::string());
  if (first) wait_for(store, key + "/all");
  if (page) page->unlink();
  return page;
}

// All ranks use rank 0's level: the launcher may not have passed the variable to each node.
bool agree_to_compare(c10d::Store& store, int rank) {
  const std::string key = "monitor/compare";
  if (rank == 0) store.set(key, c10d::debug_level() == c10d::DebugLevel::Detail ? "yes" : "no");
  return store.get_to_str(key) == "yes";
}

double seconds_of(Milliseconds time) {
  return static_cast<double>(time.count()) / 1000;
}

// "all-reduce (collective 9) timed out after 8 s"
std::string in_words(const Collective& collective, bool timed_out) {
  const auto number = collective.number == 0 ? "" : format(" (collective {})", collective.number);
  const auto how = timed_out ? format("timed out after {} s", seconds_of(collective.timeout)) : "failed";
  return format("{}{} {}", collective.what, number, how);
}

// What the error says if no rank is known to be at fault.
std::string who_else(const Collective& collective, const std::string& cause, bool timed_out) {
  if (timed_out && collective.number != 0) return "no rank is known to be at fault";
  return collective.is_message() ? collective.waits_for : cause;
}

// What a rank at fault has done; `at` joins it to the number of its newest collective: " at" + " collective
// 3".
struct RankFault {
  const char *of_one, *of_several, *at;
  Code code;
};
enum { kLeft, kDied, kStopped, kLate };
constexpr RankFault kRankFaults[] = {
    {"left the group", "left the group", " after", Code::rank_lost},
    {"has died", "have died", " at", Code::rank_lost},
    {"is stopped (SIGSTOP?)", "are stopped (SIGSTOP?)", ", at", Code::rank_late},
    {"did not call it", "did not call it", "; the last call was", Code::rank_late}};

// The name of the rank's newest collective.
std::string newest_call(const NodePage& page, int rank) {
  return op_name(static_cast<c10d::OpType>(page.of(rank).what.load()));
}

// What is wrong with a rank that others wait for in collective `number` (0: not counted), or null. Without a
// timeout only a rank that has ended is at fault.
const RankFault* look_at(const NodePage& page, const Peer& peer, bool pid_counts, uint64_t number,
                         bool timed_out) {
  const auto& rank = page.of(peer.rank);
  const auto begun = rank.begun.load();
  const auto process = pid_counts ? process_state(peer.pid) : ProcessState::running;
  if (rank.left && (number == 0 || begun < number)) return &kRankFaults[kLeft];
  if (process == ProcessState::gone) return &kRankFaults[kDied];
  if (!timed_out) return nullptr;
  if (process == ProcessState::stopped) return &kRankFaults[kStopped];
  return begun < number ? &kRankFaults[kLate] : nullptr;
}

std::string in_words(const std::vector<Peer>& ranks, const RankFault& fault) {
  return format("{} {}", names_of(ranks), ranks.size() == 1 ? fault.of_one : fault.of_several);
}

const char* const kNoReport = "-";
constexpr Code kWaits = Code::failed;  // marks a report about waiting ranks, none of them at fault

std::string report_key(int node) {
  return format("monitor/report/{}", node);
}

// The first finding of the job remains.
Fault agree_in(c10d::Store& store, const Fault& found) {
  if (is_any(found)) return unpacked(store.compareSet(kAgreedKey, std::string(), packed(found)));
  return store.check({kAgreedKey}) ? unpacked(store.get_to_str(kAgreedKey)) : found;
}

// The ranks at the address where, by gloo's error, a connection broke.
std::vector<Peer> at_broken_end(const std::vector<Peer>& peers, const std::string& cause) {
  std::vector<Peer> there;
  for (const auto& peer : peers) {
    const bool named = cause.find("[" + peer.address + "]") != std::string::npos;
    if (!peer.address.empty() && named) there.push_back(peer);
  }
  return there;
}

// If no rank is known to be at fault, what each rank waits for may explain it.
Fault waiting_in_vain(Fault waits) {
  if (!is_any(waits)) return {};
  waits.what = "every rank is in a collective, but none received a result: " + waits.what;
  waits.code = Code::calls_differ;
  return waits;
}

// Collects the reports of other nodes that come in time, and names the nodes without a report.
Fault gather_reports(c10d::Store& store, const std::map<int, std::vector<Peer>>& others,
                     const std::string& cause, bool timed_out, Fault& waits) {
  const base::Deadline deadline(kOtherNodes);
  Fault found;
  std::vector<Peer> silent;
  for (const auto& [node, ranks] : others) {
    while (!store.check({report_key(node)}) && !deadline.passed()) std::this_thread::sleep_for(kPoll);
    if (!store.check({report_key(node)})) {
      silent.insert(silent.end(), ranks.begin(), ranks.end());
      continue;
    }
    const auto report = unpacked(store.get_to_str(report_key(node)));  // kNoReport is empty
    add(report.code == kWaits ? waits : found, report);
  }
  if (!timed_out) silent = at_broken_end(silent, cause);  // the other nodes may not have noticed yet
  if (!is_any(found) && !silent.empty())
    return finding(silent, Code::rank_lost, names_of(silent) + " did not respond (a node may be down)",
                   {.state = "sent no report"});
  return found;
}

// A store on a dead host may never answer.
Fault bounded(std::function<Fault()> question, const Fault& otherwise) {
  try {
    return base::run_for(kStoreAnswers, std::move(question)).value_or(otherwise);
  } catch (const std::exception&) {
    return otherwise;
  }
}

// The monitors of this process.
struct Monitors {
  std::mutex mutex;
  std::set<PeerMonitor*> all;

  static Monitors& get() {
    static auto* const kept = [] {
      ::pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                       [] {
                         for (auto* monitor : get().all) monitor->become_copy();
                         get().mutex.unlock();
                       });
      return new Monitors;
    }();
    return *kept;
  }
};

}  // namespace

PeerMonitor::PeerMonitor(StorePtr store, std::vector<Peer> peers, int rank,
                         std::shared_ptr<const PeerMonitor> whole)
    : store_(std::move(store)),
      peers_(std::move(peers)),
      rank_(rank),
      whole_(std::move(whole)),
      page_(share_page(*store_, peers_, rank)),
      compares_calls_(agree_to_compare(*store_, rank)),
      end_hook_(launch::on_uncaught_error([this](const std::string& what) { return report_end(what); })) {
  const std::lock_guard<std::mutex> guard(Monitors::get().mutex);
  Monitors::get().all.insert(this);
}

PeerMonitor::~PeerMonitor() {
  end_hook_.reset();
  leave();
}

std::atomic<uint64_t>& PeerMonitor::counter() const {
  return page_ ? page_->of(rank_).begun : own_count_;
}

bool PeerMonitor::knows_death() const {
  return host_is_silent() || (page_ && !page_->agreed().empty());
}

void PeerMonitor::become_copy() {
  is_copy_ = dead_ = true;
  for (auto* backend : kept_in_forks_) c10::raw::intrusive_ptr::incref(backend);
}

void PeerMonitor::require_alive() {
  if (!dead_.load(std::memory_order_relaxed)) return;
  if (is_copy_)
    throw Error("a forked process cannot use the process group of its parent, " +
                    name_of(peers_[static_cast<size_t>(rank_)]),
                where(), "start the process with spawn and let it join a group of its own");
  const std::lock_guard<std::mutex> guard(mutex_);
  auto fault = death_;
  fault.what = "the process group failed earlier: " + fault.what;
  fault.where = where();
  fault.hint = hint_for(fault);
  throw Error(std::move(fault));
}

uint64_t PeerMonitor::begin(c10d::OpType type) {
  require_alive();
  constexpr auto order = std::memory_order_relaxed;
  if (page_) page_->of(rank_).what.store(static_cast<uint32_t>(type), order);
  return counter().fetch_add(1, order) + 1;
}

void PeerMonitor::on_death(std::function<void()> call) {
  const std::lock_guard<std::mutex> guard(mutex_);
  on_death_ = std::move(call);
}

void PeerMonitor::cancel_begin() {
  counter().fetch_sub(1, std::memory_order_relaxed);
}

void PeerMonitor::leave() {
  silence_timer_.reset();
  const std::lock_guard<std::mutex> guard(Monitors::get().mutex);
  Monitors::get().all.erase(this);
  if (page_ && !is_copy_) page_->of(rank_).left = true;
}

Fault PeerMonitor::own_error(const std::string& what) const {
  const Peer& own = peers_[static_cast<size_t>(rank_)];
  return finding({own}, Code::rank_lost, format("{} reported an error: {}", name_of(own), what),
                 {.number = begun(), .state = "reported an error: " + what.substr(0, what.find('\n'))});
}

Fault PeerMonitor::agreed_on_node() const {
  return page_ ? unpacked(page_->agreed()) : Fault{};
}

Fault PeerMonitor::agree_on_node(const Fault& found) const {
  return page_ && is_any(found) ? unpacked(page_->agree_on(packed(found))) : found;
}

void PeerMonitor::publish_error(const std::string& what) {
  const auto found = own_error(what);
  agree_on_node(found);
  if (peers_on_node_of(peers_, rank_).size() == peers_.size()) return;
  bounded([store = store_, found] { return agree_in(*store, found); }, {});
}

// Names the newest collective of this rank: libtorch numbers those under way differently.
std::exception_ptr PeerMonitor::diagnose_nccl(const std::string& what) {
  const Collective newest{.what = page_ ? newest_call(*page_, rank_) : "a collective over NCCL",
                          .number = begun(),
                          .timeout = nccl_timeout_};
  return diagnose(newest, what, what.find("timeout") != std::string::npos);
}

std::exception_ptr PeerMonitor::diagnose_stall(const std::string& what, Milliseconds limit) {
  const Collective stalled{
      .what = what, .number = begun(), .timeout = limit, .waits_for = "no rank of this node has failed"};
  return diagnose(stalled, "", /*timed_out=*/!misses_rank());
}

// Each group over NCCL has a watchdog. Its message names the group; other groups do not report it.
std::exception_ptr PeerMonitor::report_end(const std::string& what) {
  if (is_copy_) return nullptr;
  if (nccl_timeout_.count() == 0 || what.find("watchdog thread terminated") == std::string::npos)
    return publish_error(what), nullptr;
  const auto names = [&what](const std::string& name) {
    return what.find("PG GUID " + name + " ") != std::string::npos ||
           what.find("PG GUID " + name + "(") != std::string::npos;
  };
  return names(nccl_name_) || what.find("PG GUID ") == std::string::npos ? diagnose_nccl(what) : nullptr;
}

bool PeerMonitor::is_lost(int rank, uint64_t number) const {
  if (!page_ || !page_->of(rank).present) return false;
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return look_at(*page_, peer, pid_counts(peer), number, false) != nullptr;
}

bool PeerMonitor::misses_rank() const {
  return waits_for_lost_rank({.what = "", .number = std::numeric_limits<uint64_t>::max()});
}

bool PeerMonitor::waits_for_lost_rank(const Collective& collective) const {
  if (!page_) return false;
  return std::any_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    if (peer.rank == rank_ || !page_->of(peer.rank).present) return false;
    if (collective.peer >= 0 && peer.rank != collective.peer) return false;
    if (page_->of(peer.rank).left) return page_->of(peer.rank).begun.load() < collective.number;
    return pid_counts(peer) && process_state(peer.pid) == ProcessState::gone;
  });
}

bool PeerMonitor::pid_counts(const Peer& peer) const {
  return peer.pid_space == peers_[static_cast<size_t>(rank_)].pid_space;
}

void PeerMonitor::watch(PeerConnections connections, OnSilence on_silence) {
  if (connections.empty()) return;
  const auto period = connections.period();
  silence_timer_ = std::make_unique<base::Timer>(period, [this, on_silence, all = std::move(connections)] {
    const auto silent = all.silent();
    if (silent.empty()) return true;
    mark_silent(silent, all.silence());
    if (on_silence == OnSilence::cut_and_log) log::error(silence_.what + "\n  hint: " + kLookAtNode);
    if (on_silence != OnSilence::note) all.cut(silent);
    return false;
  });
}

void PeerMonitor::mark_silent(const std::vector<std::string>& addresses, Milliseconds silence) {
  std::vector<Peer> lost;
  for (const auto& peer : peers_)
    if (std::find(addresses.begin(), addresses.end(), peer.address) != addresses.end()) lost.push_back(peer);
  const std::string who = lost.empty() ? "the host at " + addresses.front() : "the node of " + names_of(lost);
  const auto state =
      format("has not answered for {} s: the host or its network may be down", seconds_of(silence));
  silence_ = finding(lost, Code::rank_lost, who + " " + state, {.state = state});
  host_is_silent_.store(true, std::memory_order_release);
}

std::string PeerMonitor::where() const {
  const Peer& own = peers_[static_cast<size_t>(rank_)];
  return format("rank {} on host {}", own.rank_in_job(), own.host);
}

// The first death seen here remains: ranks that leave because of it have not died.
Fault PeerMonitor::find_dead() const {
  if (!page_) return {};
  if (auto agreed = agreed_on_node(); is_any(agreed)) return agreed;
  std::vector<Peer> dead;
  for (const auto& peer : peers_) {
    if (!page_->of(peer.rank).present || page_->of(peer.rank).left || !pid_counts(peer)) continue;
    if (process_state(peer.pid) == ProcessState::gone) dead.push_back(peer);
  }
  if (dead.empty()) return {};
  const auto& died = kRankFaults[kDied];
  return agree_on_node(finding(dead, died.code, in_words(dead, died), {.state = died.of_one}));
}

Fault PeerMonitor::find_on_node(const Collective& collective, bool timed_out) const {
  if (auto dead = whole_ ? whole_->find_dead() : Fault{}; is_any(dead)) return dead;
  if (!page_) return {};
  std::map<std::pair<uint64_t, const RankFault*>, std::vector<Peer>>
      at_fault;  // one sentence for ranks in the same state
  for (const auto& peer : peers_) {
    if (peer.rank == rank_ || !page_->of(peer.rank).present) continue;
    if (collective.peer >= 0 && peer.rank != collective.peer) continue;
    const auto* fault = look_at(*page_, peer, pid_counts(peer), collective.number, timed_out);
    if (fault) at_fault[{page_->of(peer.rank).begun.load(), fault}].push_back(peer);
  }
  Fault found;
  for (const auto& [kind, ranks] : at_fault) {
    const auto& [begun, fault] = kind;
    const bool is_late = fault == &kRankFaults[kLate];
    const auto at = begun > 0 ? format("{} collective {}", fault->at, begun)
                    : is_late ? ", or any collective before it"
                              : " before the first collective";
    const auto state = is_late ? format("did not call collective {}", collective.number) : fault->of_one;
    add(found,
        finding(ranks, fault->code, in_words(ranks, *fault) + at, {.number = begun, .state = state + at}));
  }
  return found;
}

Fault PeerMonitor::calls_on_node() const {
  Fault waits;
  if (!page_) return waits;
  std::map<std::pair<std::string, uint64_t>, std::vector<Peer>> waiting;
  for (const auto& peer : peers_) {
    if (!page_->of(peer.rank).present) continue;
    waiting[{newest_call(*page_, peer.rank), page_->of(peer.rank).begun.load()}].push_back(peer);
  }
  for (const auto& [call, ranks] : waiting) {
    const auto& [what, number] = call;
    add(waits, finding(ranks, kWaits, format("{} in {} (collective {})", names_of(ranks), what, number),
                       {.call = what, .number = number}));
  }
  waits.ranks.clear();  // none of them is at fault
  return waits;
}

Fault PeerMonitor::ask_other_nodes(const std::string& cause, bool timed_out, const Fault& found_here) const {
  std::map<int, std::vector<Peer>> others;
  const Peer& own = peers_[static_cast<size_t>(rank_)];
  for (const auto& peer : peers_)
    if (!same_node(peer, own)) others[peer.node].push_back(peer);
  const Fault calls_on_node = timed_out && !is_any(found_here) ? this->calls_on_node() : Fault{};
  if (others.empty()) return is_any(found_here) ? found_here : waiting_in_vain(calls_on_node);
  const auto question = [store = store_, others, cause, timed_out, found_here, calls_on_node,
                         node = own.node] {
    if (auto agreed = agree_in(*store, {}); is_any(agreed)) return agreed;
    const auto& report = is_any(found_here) ? found_here : calls_on_node;
    store->set(report_key(node), is_any(report) ? packed(report) : kNoReport);
    if (is_any(found_here) && !timed_out) return agree_in(*store, found_here);
    auto all = found_here;
    auto waits = calls_on_node;
    add(all, gather_reports(*store, others, cause, timed_out, waits));
    return agree_in(*store, is_any(all) ? all : waiting_in_vain(waits));
  };
  const Fault otherwise = finding({peers_[0]}, Code::rank_lost,
                                  format("the job's store on {} does not answer", name_of(peers_[0])),
                                  {.state = "has the job's store, which does not answer"});
  return bounded(question, is_any(found_here) || own.rank == 0 ? found_here : otherwise);
}

Fault PeerMonitor::find_fault(const Collective& collective, const std::string& cause, bool timed_out) const {
  if (auto agreed = agreed_on_node(); is_any(agreed)) return agreed;
  if (host_is_silent()) return agree_on_node(silence_);
  auto found = find_on_node(collective, timed_out);
  const base::Deadline deadline(kDeathNotice);
  while (!is_any(found) && !timed_out && page_ && !deadline.passed()) {
    std::this_thread::sleep_for(kPoll);
    if (auto agreed = agreed_on_node(); is_any(agreed)) return agreed;
    found = find_on_node(collective, timed_out);
  }
  // a late message does not concern other ranks
  if (!collective.is_message() || !timed_out) found = ask_other_nodes(cause, timed_out, found);
  // other ranks of this node report why this one left
  if (!is_any(found) && !timed_out) found = own_error(cause);
  return agree_on_node(found);
}

std::exception_ptr PeerMonitor::diagnose(const Collective& collective, const std::string& cause,
                                         bool timed_out) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!dead_) {
    death_ = find_fault(collective, cause, timed_out);
    const bool is_own = death_.ranks == std::vector{peers_[static_cast<size_t>(rank_)].rank_in_job()};
    if (!is_any(death_)) death_.code = Code::rank_late;
    if (is_own) death_.code = Code::failed;
    death_.met_in = {collective.what, collective.number, timed_out ? seconds_of(collective.timeout) : 0};
    const auto who = is_any(death_) ? death_.what : who_else(collective, cause, timed_out);
    death_.what = in_words(collective, timed_out) + ": " + who;
    dead_ = true;
  }
  die();  // also if end_at() declared the group dead: ranks that still wait get an error now
  const bool says_cause = cause.empty() || death_.what.find(cause) != std::string::npos;
  auto fault = death_;
  fault.where = where() + (says_cause ? "" : format(" ({})", cause));
  fault.hint = host_is_silent() ? kLookAtNode : hint_for(fault);
  return std::make_exception_ptr(Error(std::move(fault)));
}

// Under the lock.
void PeerMonitor::die() {
  if (const auto call = std::exchange(on_death_, {})) call();
}

std::exception_ptr PeerMonitor::end_at(uint64_t collective, Difference difference) {
  std::string own = page_ ? newest_call(*page_, rank_) : "a collective";
  for (auto& seen : difference.calls) {
    if (seen.rank == rank_) own = seen.call;  // the page has the newest call, which may be another
    seen.rank = peers_[static_cast<size_t>(seen.rank)].rank_in_job();
    seen.number = collective;
  }
  const Fault found_here = {.code = Code::calls_differ,
                            .what = format("collective {}: {}", collective, difference.words),
                            .seen = std::move(difference.calls)};
  auto fault = agree_on_node(found_here);
  if (fault.code == Code::rank_late) fault = found_here;  // a rank that makes another call looks late
  if (fault.code != Code::calls_differ) fault = {.code = Code::calls_differ, .what = fault.what};
  fault.met_in = {.call = own, .number = collective};
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    death_ = fault;
    dead_ = true;
  }
  fault.where = "the process group";
  fault.hint = kLookAtCalls;
  return std::make_exception_ptr(Error(std::move(fault)));
}

std::exception_ptr PeerMonitor::end_all_at(uint64_t collective, Difference difference) {
  auto error = end_at(collective, std::move(difference));
  const std::lock_guard<std::mutex> guard(mutex_);
  bounded([store = store_, found = death_] { return agree_in(*store, found); }, {});
  die();
  return error;
}

}  // namespace lockstep::comm
