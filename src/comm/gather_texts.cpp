#include "comm/gather_texts.h"

#include "base/error.h"
#include "base/format.h"
#include "comm/store.h"

namespace lockstep::comm {
namespace {

std::vector<std::string> keys_of(const char* name, int world) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world; ++rank) keys.push_back(format("{}/{}", name, rank));
  return keys;
}

// c10d's own text holds its call stack
void wait_for(c10d::Store& store, const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  try {
    store.wait(keys, timeout);
  } catch (const std::exception&) {
    throw Error(format("not all {} ranks answered within {} s", keys.size(), timeout.count() / 1000.0),
                "the job's store", "start all ranks at about the same time");
  }
}

}  // namespace

std::vector<std::string> gather_texts(const Runtime& runtime, const std::string& text,
                                      std::chrono::milliseconds timeout) {
  if (runtime.has_mpi()) return runtime.all_gather(text);
  const Job& job = runtime.job();
  const StorePtr store = open_store(runtime, timeout);
  const auto texts = keys_of("text", job.world), readers = keys_of("read", job.world);
  store->set(texts[static_cast<size_t>(job.rank)], text);
  wait_for(*store, texts, timeout);
  std::vector<std::string> result;
  for (const auto& key : texts) result.push_back(store->get_to_str(key));
  store->set(readers[static_cast<size_t>(job.rank)], "1");
  if (job.rank == 0) wait_for(*store, readers, timeout);  // it may hold the store
  return result;
}

}  // namespace lockstep::comm
