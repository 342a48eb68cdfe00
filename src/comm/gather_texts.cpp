#include "comm/gather_texts.h"

#include "base/error.h"
#include "base/format.h"
#include "comm/quiet.h"
#include "comm/store.h"

namespace lockstep::comm {
namespace {

const char* const kAnswer = "answer";

std::vector<std::string> keys_of(const char* name, int world) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world; ++rank) keys.push_back(format("{}/{}", name, rank));
  return keys;
}

// c10d's own text holds its call stack
void wait_for(c10d::Store& store, const std::vector<std::string>& keys, int world,
              std::chrono::milliseconds timeout) {
  try {
    store.wait(keys, timeout);
  } catch (const std::exception&) {
    throw Error(format("not all {} ranks answered within {} s", world, timeout.count() / 1000.0),
                "the job's store", "start all ranks at about the same time");
  }
}

std::string answer_in(c10d::Store& store, const Job& job, const Answer& answer,
                      std::chrono::milliseconds timeout) {
  const auto keys = keys_of("text", job.world);
  wait_for(store, keys, job.world, timeout);
  std::vector<std::string> texts;
  for (const auto& key : keys) texts.push_back(store.get_to_str(key));
  std::string said = answer(texts);
  store.set(kAnswer, said);
  auto readers = keys_of("read", job.world);
  readers.erase(readers.begin());                // its own
  wait_for(store, readers, job.world, timeout);  // rank 0 may hold the store
  return said;
}

std::string hear_in(c10d::Store& store, const Job& job, std::chrono::milliseconds timeout) {
  wait_for(store, {kAnswer}, job.world, timeout);
  std::string said = store.get_to_str(kAnswer);
  store.set(format("read/{}", job.rank), "1");
  return said;
}

}  // namespace

std::string ask_rank_zero(const Runtime& runtime, const std::string& text, const Answer& answer,
                          std::chrono::milliseconds timeout) {
  const Job& job = runtime.job();
  if (runtime.has_mpi()) {
    const auto texts = runtime.gather(text);
    return runtime.broadcast(job.rank == 0 ? answer(texts) : "");
  }
  const QuietJoin quiet;
  const StorePtr store = open_store(runtime, timeout);
  store->set(format("text/{}", job.rank), text);
  return job.rank == 0 ? answer_in(*store, job, answer, timeout) : hear_in(*store, job, timeout);
}

}  // namespace lockstep::comm
