#include "course/workshop/compile.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <vector>

#include "course/workshop/check.h"
#include "course/workshop/judge.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

using Lines = std::vector<std::string>;

constexpr size_t kMostErrorLines = 12;
constexpr size_t kMostErrorBytes = 160;  // of a line
constexpr size_t kExcerpt = 2;           // the line of code, and where in it

bool holds(const std::string& line, const std::string& words) {
  return line.find(words) != std::string::npos;
}

bool is_error(const std::string& line) {
  return holds(line, " error: ") || holds(line, "undefined reference to") ||
         holds(line, "multiple definition of");
}

// "   12 |   code" and "      |   ^~~"
bool is_excerpt(const std::string& line) {
  const auto bar = line.find(" |");
  return bar != std::string::npos && line.find_first_not_of(" 0123456789") > bar;
}

// a template's error lies in its header; this line is where the learner called for it
bool leads_there(const std::string& line, const std::string& source) {
  return line.starts_with(source + ":") && holds(line, "required from here");
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

// a call that matches nothing: what is there to be called, the first of it
std::string candidate_after(const Lines& all, size_t error) {
  const std::string mark = "note: candidate";
  if (!holds(all[error], "no matching function")) return "";
  for (size_t i = error + 1; i < all.size() && !is_error(all[i]); ++i) {
    if (const auto at = all[i].find(mark); at != std::string::npos)
      return "   " + all[i].substr(at + mark.find("candidate"));
  }
  return "";
}

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Lines errors_in(const Lines& all, const std::string& source) {
  Lines chosen;
  std::string caller;
  for (size_t i = 0; i < all.size(); ++i) {
    if (leads_there(all[i], source)) caller = all[i];
    if (!is_error(all[i])) continue;
    if (!caller.empty() && !all[i].starts_with(source)) chosen.push_back(caller);
    caller.clear();
    chosen.push_back(all[i]);
    for (size_t next = i + 1; next < all.size() && next <= i + kExcerpt && is_excerpt(all[next]); ++next)
      chosen.push_back(all[next]);
    if (const auto candidate = candidate_after(all, i); !candidate.empty()) chosen.push_back(candidate);
  }
  return chosen;
}

}  // namespace

std::string compiler_words(const std::string& printed, const std::string& source) {
  const auto all = lines_of(printed);
  auto chosen = errors_in(all, source);
  if (chosen.empty()) chosen = all;
  chosen.resize(std::min(chosen.size(), kMostErrorLines));
  for (auto& line : chosen)
    line = cut_line(replaced(line, source, std::filesystem::path(source).filename()), kMostErrorBytes);
  return base::join(chosen, "\n");
}

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
  std::vector<fs::path> headers;
  fs::path library, prefix;
};

// beside the program: PREFIX/bin, or SOURCE/build/PRESET/bin, whose headers are the source's
Places places() {
  const auto prefix = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  const auto source = prefix.parent_path().parent_path();
  std::vector<fs::path> headers = {source / "course/include", source / "src"};
  if (fs::exists(prefix / "include/lockstep/lockstep.h")) headers = {prefix / "include"};
  for (const auto* folder : {LOCKSTEP_LIBDIR, "lib"}) {
    if (fs::exists(prefix / folder / "liblockstep.so")) return {headers, prefix / folder, prefix};
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
  auto folders = places().headers;
  folders.insert(folders.end(), {torch / "include", torch / "include/torch/csrc/api/include"});
  for (const auto& folder : folders) {
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
  for (const auto& folder : places().headers) {
    for (const auto& entry : fs::recursive_directory_iterator(folder / "lockstep")) {
      if (entry.path().extension() == ".h") newest = std::max(newest, entry.last_write_time());
    }
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
  const auto header = places().headers.front() / "lockstep/workshop.h";
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
