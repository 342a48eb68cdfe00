// One family's library as its mpi.h declares it, with nothing behind it: each call notes, in the words of
// that mpi.h, what it was given. The plug-in is linked to it: one process can ask those of both families.
#include <mpi.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int kMade = static_cast<int>(0x84000003);  // of a request; MPICH's have the sign's bit

using Named = std::pair<std::intptr_t, const char*>;

// "MPI_COMM_WORLD", or the number that it is
std::string name_in(const std::vector<Named>& names, std::intptr_t value) {
  for (const auto& [known, name] : names)
    if (known == value) return name;
  return std::to_string(static_cast<int>(value));
}

// MPICH's kinds of handles are one C++ type, as all numbers are: each kind has a function of its own
#define KNOWN(handle)                \
  Named {                            \
    (std::intptr_t)(handle), #handle \
  }
#define NAMES(function, Kind, ...)                       \
  std::string function(Kind one) {                       \
    return name_in({__VA_ARGS__}, (std::intptr_t)(one)); \
  }
NAMES(comm, MPI_Comm, KNOWN(MPI_COMM_NULL), KNOWN(MPI_COMM_WORLD), KNOWN(MPI_COMM_SELF))
NAMES(type, MPI_Datatype, KNOWN(MPI_INT), KNOWN(MPI_UNSIGNED_LONG), KNOWN(MPI_UNSIGNED_LONG_LONG),
      KNOWN(MPI_FLOAT), KNOWN(MPI_DOUBLE), KNOWN(MPI_DOUBLE_INT), KNOWN(MPI_CHAR), KNOWN(MPI_BYTE))
NAMES(op, MPI_Op, KNOWN(MPI_SUM), KNOWN(MPI_MIN), KNOWN(MPI_MAX), KNOWN(MPI_BOR), KNOWN(MPI_MAXLOC))
NAMES(request, MPI_Request, KNOWN(MPI_REQUEST_NULL))
NAMES(source, int, KNOWN(MPI_ANY_SOURCE))
NAMES(tag, int, KNOWN(MPI_ANY_TAG))
NAMES(color, int, KNOWN(MPI_UNDEFINED))
NAMES(level, int, KNOWN(MPI_THREAD_SINGLE), KNOWN(MPI_THREAD_FUNNELED), KNOWN(MPI_THREAD_SERIALIZED),
      KNOWN(MPI_THREAD_MULTIPLE))

std::string heard;

template <class... Words>
int note(const Words&... words) {
  ((heard += std::string(heard.empty() ? "" : " ") + words), ...);
  return MPI_SUCCESS;
}

}  // namespace

extern "C" {

// since it was asked last
__attribute__((visibility("default"))) const char* pretend_heard() {
  static std::string told;
  told = std::exchange(heard, "");
  return told.c_str();
}

int MPI_Allreduce(const void* own, void*, int, MPI_Datatype of, MPI_Op by, MPI_Comm all) {
  return note(own == MPI_IN_PLACE ? "MPI_IN_PLACE" : "data", type(of), op(by), comm(all));
}

int MPI_Comm_split(MPI_Comm of, int part, int, MPI_Comm* own) {
  *own = part == MPI_UNDEFINED ? MPI_COMM_NULL : MPI_COMM_SELF;
  return note(comm(of), color(part));
}

int MPI_Irecv(void*, int, MPI_Datatype of, int from, int as, MPI_Comm all, MPI_Request* one) {
  *one = (MPI_Request)(std::uintptr_t)(unsigned)kMade;
  return note(type(of), source(from), tag(as), comm(all));
}

int MPI_Wait(MPI_Request* one, MPI_Status* status) {
  note(request(*one), status == MPI_STATUS_IGNORE ? "MPI_STATUS_IGNORE" : "status");
  if (status != MPI_STATUS_IGNORE) status->MPI_SOURCE = 3, status->MPI_TAG = 44, status->MPI_ERROR = 5;
  *one = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

int MPI_Get_count(const MPI_Status*, MPI_Datatype of, int* count) {
  *count = of == MPI_BYTE ? 24 : MPI_UNDEFINED;
  return MPI_SUCCESS;
}

int MPI_Type_size(MPI_Datatype of, int* size) {
  *size = of == MPI_DOUBLE ? 8 : 1;
  return MPI_SUCCESS;
}

int MPI_Init_thread(int*, char***, int wanted, int* provided) {
  *provided = MPI_THREAD_FUNNELED;
  return note(level(wanted));
}

#ifdef OMPI_MAJOR_VERSION
int OMPI_C_MPI_COMM_NULL_COPY_FN(MPI_Comm, int, void*, void*, void*, int*) {
  return MPI_SUCCESS;
}
// Open MPI's constants are addresses of these; their types are its own
#define EACH(names) __asm__(".irp name," names "\n.globl ompi_\\name\n.comm ompi_\\name,64,16\n.endr\n")
EACH("mpi_comm_null,mpi_comm_world,mpi_comm_self,mpi_win_null,message_null,mpi_info_null,request_null");
EACH("mpi_errhandler_null,mpi_errors_are_fatal,mpi_errors_return,mpi_op_null,mpi_op_sum,mpi_op_min");
EACH("mpi_op_max,mpi_op_bor,mpi_op_maxloc,mpi_datatype_null,mpi_int,mpi_unsigned_long,mpi_float");
EACH("mpi_unsigned_long_long,mpi_double,mpi_double_int,mpi_char,mpi_byte");
#endif
}
