#include "course/workshop/compile.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "course/workshop/attempt.h"
#include "course/workshop/check.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostErrorLines = 12, kMostErrorBytes = 160;
constexpr size_t kExcerpt = 2;  // the line of code, and where in it

// gcc looks for it under this name, before the header itself
constexpr const char* kPrecompiledHeader = "lockstep/workshop.h.gch";
const ProgramLimits kCompiling{.memory = size_t{8} << 30, .file = size_t{4} << 30};

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

Words errors_in(const Words& lines, const std::string& source) {
  Words chosen;
  std::string caller;  // the learner's line that led to an error in a header
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with(source + ":") && holds(lines[i], "required from here")) caller = lines[i];
    if (!is_error(lines[i])) continue;
    if (!caller.empty() && !lines[i].starts_with(source)) chosen.push_back(caller);
    caller.clear();
    chosen.push_back(lines[i]);
    for (size_t next = i + 1; next < lines.size() && next <= i + kExcerpt && is_excerpt(lines[next]); ++next)
      chosen.push_back(lines[next]);
  }
  return chosen;
}

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string compiler() {
  const char* chosen = std::getenv("CXX");
  return chosen && *chosen ? chosen : LOCKSTEP_COMPILER;
}

// "g++ -m64" is a compiler and an option, "/opt/my tools/g++" is one file.
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

// Beside the program: PREFIX/bin, or SOURCE/build/PRESET/bin, whose headers are in the source tree.
Places places() {
  const auto prefix = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  const auto source = prefix.parent_path().parent_path();
  std::vector<fs::path> headers = {source / "course/include", source / "src"};
  if (fs::exists(prefix / "include/lockstep/lockstep.h")) headers = {prefix / "include"};
  for (const auto* folder : {LOCKSTEP_LIBDIR, "lib"})
    if (fs::exists(prefix / folder / "liblockstep.so")) return {headers, prefix / folder, prefix};
  throw InputError("lockstep's library is not next to its program", prefix,
                   "install lockstep with its library and headers (cmake --install)");
}

// In an environment that pip filled, torch's wheel beside lockstep's. Otherwise the one of the build: the
// program itself does not name it, so that it has the same bytes wherever it was built.
fs::path libtorch() {
  const auto [headers, library, prefix] = places();
  if (prefix.filename() == "lockstep_ddp") return prefix.parent_path() / "torch";
  const auto built = prefix / "lockstep.pc",
             file = fs::exists(built) ? built : library / "pkgconfig/lockstep.pc";
  constexpr std::string_view kName = "libtorch=";
  for (const auto& line :
       base::split(base::read_small_file(file, 1 << 16, "lockstep's pkg-config file"), '\n'))
    if (line.starts_with(kName)) return line.substr(kName.size());
  throw InputError("the libtorch of this lockstep is not named", file,
                   "install lockstep again (cmake --install)");
}

Words header_flags() {
  const auto torch = libtorch();
  Words flags = {"-std=c++20", "-O0", "-DUSE_DISTRIBUTED", "-DUSE_C10D_GLOO"};
  auto folders = places().headers;
  folders.insert(folders.end(), {torch / "include", torch / "include/torch/csrc/api/include"});
  for (const auto& folder : folders) {
    if (folder != "/usr/include")
      flags = flags + Words{"-isystem", folder};  // which has to stay the last one
  }
  return flags;
}

// A precompiled header serves one compiler and one set of flags.
std::string flags_digest() {
  const auto version = base::capture(compiler_with_options() + Words{"--version"}, std::chrono::seconds(10));
  const auto text = compiler() + version.value_or("") + LOCKSTEP_VERSION + base::join(header_flags(), "\n");
  base::Sha256 digest;
  digest.add(text.data(), text.size());
  return digest.hex().substr(0, 12);
}

fs::path precompiled_place() {
  const char* chosen = std::getenv("LOCKSTEP_WORKSHOP");
  return (chosen && *chosen ? fs::path(chosen) : places().prefix / "workshop") / flags_digest();
}

// gcc does not check whether the headers behind a precompiled one have changed.
fs::file_time_type newest_header() {
  auto newest = fs::file_time_type::min();
  for (const auto& folder : places().headers) {
    for (const auto& entry : fs::recursive_directory_iterator(folder / "lockstep"))
      if (entry.path().extension() == ".h") newest = std::max(newest, entry.last_write_time());
  }
  return newest;
}

Ending run_compiler(const Words& command, const std::string& scratch, std::chrono::milliseconds longest) {
  auto environment = launch::current_environment();
  environment["LC_ALL"] = "C";
  environment["TMPDIR"] = scratch;
  auto limits = kCompiling;
  limits.time = longest;
  return run_limited({{command, environment, scratch}}, limits).front();
}

}  // namespace

std::string compiler_errors(const std::string& printed, const std::string& source) {
  const auto lines = base::split(printed, '\n');
  auto chosen = errors_in(lines, source);
  if (chosen.empty()) chosen = lines;
  chosen.resize(std::min(chosen.size(), kMostErrorLines));
  const std::string name = fs::path(source).filename();
  for (auto& line : chosen) {
    for (size_t at = 0; (at = line.find(source, at)) != std::string::npos; at += name.size())
      line.replace(at, source.size(), name);
    line = cut_line(line, kMostErrorBytes);
  }
  return base::join(chosen, "\n");
}

std::optional<std::string> precompiled_folder() {
  const auto folder = precompiled_place();
  std::error_code none;
  const auto made = fs::last_write_time(folder / kPrecompiledHeader, none);
  return !none && made >= newest_header() ? std::optional(folder.string()) : std::nullopt;
}

std::string precompile() {
  if (const auto there = precompiled_folder()) return *there;
  const auto folder = precompiled_place(), product = folder / kPrecompiledHeader;
  const auto former = ::umask(022);  // for learners to read, whatever the umask here
  std::error_code failed;
  fs::create_directories(product.parent_path(), failed);
  if (failed || ::access(product.parent_path().c_str(), W_OK) != 0)
    throw InputError(
        "cannot write the precompiled header there", folder,
        "ask whoever installed lockstep to run: lockstep workshop prepare; or name a folder that all "
        "learners read with LOCKSTEP_WORKSHOP");
  const auto header = places().headers.front() / "lockstep/workshop.h";
  const auto partial = product.string() + format(".{}", ::getpid());
  const auto command =
      compiler_with_options() + Words{"-x", "c++-header", header, "-o", partial} + header_flags();
  const auto ending = run_compiler(command, product.parent_path(), std::chrono::minutes(5));
  ::umask(former);
  if (!ending.is_well()) {
    fs::remove(partial, failed);
    throw Error("cannot precompile the header: " + compiler_errors(ending.printed, header), folder,
                "check for 600 MB of free disk space and a compiler");
  }
  fs::rename(partial, product);
  return folder;
}

void compile(const std::string& source, const std::string& program, const std::string& scratch,
             std::chrono::milliseconds longest) {
  const auto partial = (fs::path(scratch) / "program").string();
  const auto [headers, library, prefix] = places();
  const std::string torch = libtorch() / "lib";
  auto command = compiler_with_options();
  if (const auto folder = precompiled_folder()) command = command + Words{"-isystem", *folder};
  command = command + header_flags() + Words{"-Wall", source, "-o", partial, "-L" + library.string()} +
            Words{"-llockstep_course", "-llockstep", "-L" + torch, "-ltorch_cpu", "-lc10"} +
            Words{"-Wl,-rpath," + library.string() + ":" + torch};
  const auto ending = run_compiler(command, scratch, longest);
  if (ending.is_well()) {
    fs::create_directories(fs::path(program).parent_path());
    return fs::rename(partial, program);
  }
  if (ending.status == 127)
    throw InputError(format("there is no compiler '{}' on this machine", compiler()), "",
                     "check the exercise on the login node, load the compiler's module, or set CXX");
  if (ending.why == Why::too_long)
    throw Error("the compiler took too long", source, "try again: the machine may be busy");
  if (holds(ending.printed, "No space left on device") || holds(ending.printed, "Disk quota exceeded"))
    throw Error("there is no disk space for the program", fs::path(program).parent_path(),
                "check the disk and your quota (quota -s); you may remove build/");
  if (ending.why == Why::signal || holds(ending.printed, "Killed signal"))
    throw Error("the compiler was killed", source, "check the free memory, and try again");
  throw CheckFailure("it does not compile:\n" + compiler_errors(ending.printed, source),
                     "fix the first error; the others often follow from it");
}

}  // namespace lockstep::workshop
