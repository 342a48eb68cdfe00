#include "lockstep/comm/meet/gather_texts.h"

#include "lockstep/comm/meet/mpi_join.h"

namespace lockstep::comm {

std::string ask_rank_zero(const launch::Runtime& runtime, const std::string& text, const AnswerMaker& answer,
                          std::chrono::milliseconds timeout) {
  // MPI's own gather would hold all ranks while one of them is stopped
  if (runtime.has_mpi()) join_over_mpi(runtime, timeout);
  const auto texts = runtime.gather(text);
  return runtime.broadcast(runtime.job().rank == 0 ? answer(texts) : "");
}

}  // namespace lockstep::comm
