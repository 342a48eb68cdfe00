#include "course/workshop/compile.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "course/workshop/compiler_words.h"
#include "course/workshop/judge.h"
#include "lockstep/base/capture.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

using Words = std::vector<std::string>;

// in this order and by this name: the compiler looks for it where it would look for the header
constexpr const char* kProduct = "lockstep/workshop.h.gch";
const ProgramLimits kPrecompiling{.time = std::chrono::minutes(5),
                                  .memory = size_t{8} << 30,
                                  .together = size_t{8} << 30,
                                  .file = size_t{4} << 30};
const ProgramLimits kCompiling{.memory = size_t{8} << 30, .together = size_t{8} << 30};

std::string compiler() {
  const char* chosen = std::getenv("CXX");
  return chosen && *chosen ? chosen : LOCKSTEP_COMPILER;
}

// "g++ -m64" is a compiler and an option, "/opt/my tools/g++" one file
Words compiler_with_options() {
  const auto text = compiler();
  if (fs::exists(text)) return {text};
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

struct Places {
  fs::path headers, library, prefix;
};

// beside the program: PREFIX/bin/lockstep, or SOURCE/build/PRESET/bin/lockstep, whose headers are the
// source's
Places places() {
  const auto prefix = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  const auto source = prefix.parent_path().parent_path() / "src";
  const bool installed = fs::exists(prefix / "include/lockstep/lockstep.h");
  for (const auto* folder : {LOCKSTEP_LIBDIR, "lib"}) {
    if (fs::exists(prefix / folder / "liblockstep.so"))
      return {installed ? prefix / "include" : source, prefix / folder, prefix};
  }
  throw InputError("lockstep's library is not beside its program", prefix,
                   "install lockstep with its library and headers (cmake --install)");
}

// what this was built against; in an environment that pip filled, torch's wheel beside lockstep's
fs::path libtorch() {
  const auto prefix = places().prefix;
  return prefix.filename() == "lockstep_ddp" ? prefix.parent_path() / "torch" : fs::path(LOCKSTEP_LIBTORCH);
}

Words header_flags() {
  const auto torch = libtorch();
  Words flags = {"-std=c++20", "-O0", "-DUSE_DISTRIBUTED", "-DUSE_C10D_GLOO"};
  for (const auto& folder : {places().headers, torch / "include", torch / "include/torch/csrc/api/include"}) {
    if (folder == "/usr/include") continue;  // named, it would come before what has to come before it
    flags.insert(flags.end(), {"-isystem", folder});
  }
  return flags;
}

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// a precompiled header serves one compiler and one set of flags
std::string flags_digest() {
  const auto asked = compiler_with_options() + Words{"--version"};
  const auto version = base::capture(asked, std::chrono::seconds(10)).value_or("");
  std::string text = compiler() + version + LOCKSTEP_VERSION;
  for (const auto& flag : header_flags()) text += flag + "\n";
  base::Sha256 digest;
  digest.add(text.data(), text.size());
  return digest.hex().substr(0, 12);
}

// gcc does not look whether what it has precompiled has changed since
fs::file_time_type newest_header() {
  auto newest = fs::file_time_type::min();
  for (const auto& entry : fs::recursive_directory_iterator(places().headers / "lockstep")) {
    const bool included =
        entry.path().extension() == ".h" && entry.path().parent_path().filename() != "workshop";
    if (included) newest = std::max(newest, entry.last_write_time());
  }
  return newest;
}

// one for all learners: beside the install, or where the site says
fs::path precompiled_place() {
  const char* chosen = std::getenv("LOCKSTEP_WORKSHOP");
  return (chosen && *chosen ? fs::path(chosen) : places().prefix / "workshop") / flags_digest();
}

// The learners read what is made here, whatever the umask of who prepares it. A folder that was there is as
// its owner wants it.
void make_folder_for_all(const fs::path& folder, std::error_code& failed) {
  if (fs::exists(folder, failed) || failed) return;
  make_folder_for_all(folder.parent_path(), failed);
  if (!failed && fs::create_directory(folder, failed)) fs::permissions(folder, fs::perms{0755}, failed);
}

// gcc's words in one language, its temporary files where the next check sweeps
launch::Environment compiler_environment(const std::string& scratch) {
  auto environment = launch::current_environment();
  environment["LC_ALL"] = "C";
  environment["TMPDIR"] = scratch;
  return environment;
}

// by a kernel that has no memory left: gcc itself lives to tell it
bool was_killed(const Ending& ending) {
  return ending.why == Why::signal || ending.printed.find("Killed signal") != std::string::npos;
}

bool found_no_room(const Ending& ending) {
  return ending.printed.find("No space left on device") != std::string::npos ||
         ending.printed.find("Disk quota exceeded") != std::string::npos;
}

}  // namespace

std::optional<std::string> precompiled_folder() {
  const auto folder = precompiled_place();
  std::error_code none;
  const auto made = fs::last_write_time(folder / kProduct, none);
  return !none && made >= newest_header() ? std::optional(folder.string()) : std::nullopt;
}

std::vector<std::string> compile_command(const std::string& source, const std::string& program) {
  const auto [headers, library, prefix] = places();
  const std::string torch = libtorch() / "lib";
  auto command = compiler_with_options();
  if (const auto folder = precompiled_folder()) command = command + Words{"-isystem", *folder};
  return command + header_flags() +
         Words{"-Wall",
               source,
               "-o",
               program,
               "-L" + library.string(),
               "-llockstep_course",
               "-llockstep",
               "-L" + torch,
               "-ltorch_cpu",
               "-lc10",
               "-Wl,-rpath," + library.string() + ":" + torch};
}

std::string precompile() {
  if (const auto there = precompiled_folder()) return *there;
  const auto folder = precompiled_place();
  const auto product = folder / kProduct;
  std::error_code failed;
  make_folder_for_all(fs::absolute(product).parent_path(), failed);
  if (failed || ::access(product.parent_path().c_str(), W_OK) != 0)
    throw InputError(
        "a precompiled header cannot be written there", folder,
        "let who installed lockstep run: lockstep workshop prepare; or name a folder that all learners "
        "read with LOCKSTEP_WORKSHOP");
  const auto header = places().headers / "lockstep/workshop.h";
  const auto partial = product.string() + format(".{}", ::getpid());
  const auto command =
      compiler_with_options() + Words{"-x", "c++-header", header, "-o", partial} + header_flags();
  const auto ending =
      run_confined({{command, compiler_environment(product.parent_path()), folder}}, kPrecompiling).front();
  if (!ending.is_well()) {
    fs::remove(partial, failed);
    throw Error("the header cannot be precompiled: " + compiler_words(ending.printed, header), folder,
                "is there room for 600 MB, and a compiler?");
  }
  fs::permissions(partial, fs::perms{0644});
  fs::rename(partial, product);
  return folder;
}

void compile(const std::string& source, const std::string& program, const std::string& scratch,
             std::chrono::milliseconds longest) {
  auto limits = kCompiling;
  limits.time = longest;
  const auto partial = (fs::path(scratch) / "program").string();
  const auto command = compile_command(source, partial);
  const auto ending = run_confined({{command, compiler_environment(scratch), scratch}}, limits).front();
  if (ending.is_well()) {
    fs::create_directories(fs::path(program).parent_path());
    return fs::rename(partial, program);
  }
  if (ending.status == 127)
    throw InputError(format("there is no compiler '{}' here", compiler()), "",
                     "check on the login node; or load the compiler's module, or name one with CXX");
  if (ending.why == Why::too_long)
    throw Error("the compiler took too long", source, "the machine may be busy: try again");
  if (ending.why == Why::too_much_memory)
    throw Error(format("the compiler took more memory than {} GB", kCompiling.together >> 30), source,
                "is a table or a template in it that grows without end?");
  if (found_no_room(ending))
    throw Error("there is no room for the program", fs::path(program).parent_path(),
                "is the disk full, or your quota (quota -s)? What lies in build/ may be removed");
  if (was_killed(ending))
    throw Error("the compiler was killed", source, "has this machine memory left? Try again in a moment");
  throw NotYet("it does not compile:\n" + compiler_words(ending.printed, source),
               "the first error is the one to fix; the others often follow from it");
}

}  // namespace lockstep::workshop
