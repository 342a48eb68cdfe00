"""Programs of others around the library: held as a source tree, found by pkg-config, beside another libtorch, and those that
ddp() does not take."""

import shutil

import pytest
from conftest import SOURCE, cache_value
from process_kit import LONG_PATIENCE
from examples_kit import build_against
from examples_kit import precompiled  # noqa: F401  (fixture)

pytestmark = pytest.mark.about("cmake", "packaging", "parallel")

MAIN = """#include <lockstep/parallel/session.h>
int main() {
  return lockstep::run([] {
    lockstep::Session session;
    session.print("world {}", session.world());
  });
}
"""


@pytest.fixture
def project(tmp_path):
    """project(how lockstep is had) -> the folder of a small program's project."""
    def make(how):
        (tmp_path / "main.cpp").write_text(MAIN)
        (tmp_path / "CMakeLists.txt").write_text(
            f"cmake_minimum_required(VERSION 3.24)\nproject(own LANGUAGES C CXX)\n{how}\n"
            "add_executable(own main.cpp)\ntarget_link_libraries(own PRIVATE lockstep::lockstep)\n")
        return tmp_path
    return make


@pytest.mark.parametrize("how", [
    # CMake's FetchContent ends in the same add_subdirectory
    pytest.param('add_subdirectory("{source}" lockstep)', id="add_subdirectory", marks=pytest.mark.full),
    pytest.param('include(FetchContent)\nFetchContent_Declare(lockstep SOURCE_DIR "{source}" BINARY_DIR lockstep)\n'
                 "FetchContent_MakeAvailable(lockstep)", id="FetchContent")])
def test_a_project_may_hold_it(how, project, build_dir, mpirun, run):
    """Its program is compiled as CMake says; it is linked to the library that is built already."""
    folder = project(how.format(source=SOURCE))
    build = folder / "build"
    words = [f"-D{name}={cache_value(build_dir, name)}" for name in ("CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS", "LIBTORCH_ROOT")]
    run("cmake", "-S", folder, "-B", build, "-G", "Ninja", *words, check=True)
    assert not (build / "bin").exists() and not list(build.glob("unity")), "its folders are its own"
    run("ninja", "-C", build, "CMakeFiles/own.dir/main.cpp.o", check=True, timeout=LONG_PATIENCE)
    (build / "lockstep/lib").mkdir(exist_ok=True)
    for library in (build_dir / "lib").iterdir():
        (build / "lockstep/lib" / library.name).symlink_to(library)
    link = run("ninja", "-C", build, "-t", "commands", "own", check=True).stdout.splitlines()[-1]
    run("sh", "-c", link, cwd=build, check=True)
    assert "world 2" in mpirun(2, build / "own", check=True).stdout
    assert "lockstep" not in run("cmake", "--install", build, "--prefix", folder / "prefix", check=True).stdout.replace(
        str(folder), "")


def test_a_built_tree_is_a_package(project, build_dir, lockstep, mpirun, tmp_path):
    """What scripts/run leaves is enough to build a program of one's own, or a row of a table."""
    build_against(build_dir, build_dir, project("find_package(lockstep REQUIRED)"), tmp_path / "build")
    assert "world 2" in mpirun(2, tmp_path / "build/own", check=True).stdout


def test_pkg_config_knows_it(installed, build_dir, mpirun, run, tmp_path):
    if " " in str(SOURCE):
        pytest.skip("pkg-config quotes no folder with a space after -isystem and -Wl,-rpath")
    (tmp_path / "main.cpp").write_text(MAIN)
    files = list(installed.rglob("lockstep.pc"))
    assert len(files) == 1
    moved = tmp_path / "moved"
    shutil.copytree(installed, moved, symlinks=True)
    env = {"PKG_CONFIG_PATH": str(moved / files[0].parent.relative_to(installed))}
    flags = run("pkg-config", "--cflags", "--libs", "lockstep", env=env, check=True).stdout.split()
    compiler = cache_value(build_dir, "CMAKE_CXX_COMPILER")
    run(compiler, *cache_value(build_dir, "CMAKE_CXX_FLAGS").split(), tmp_path / "main.cpp", "-o", tmp_path / "own", *flags,
        check=True, timeout=LONG_PATIENCE)
    assert "world 2" in mpirun(2, tmp_path / "own", check=True).stdout


OTHER_FMT = """#pragma once
// Another fmt, of a version that there is none of: nothing of it goes with lockstep's.
#define FMT_VERSION 40000
namespace fmt { inline namespace v4 {
struct string_view { const char* text; };
template <class... Args> struct format_string { format_string() = delete; };
inline const char* format(const char* text) { return text; }
} }
"""


@pytest.mark.full  # a minute, for a header that seldom changes
def test_a_program_may_have_another_fmt(installed, build_dir, mpirun, tmp_path):
    (tmp_path / "other/fmt").mkdir(parents=True)
    for name in ("base.h", "core.h", "format.h"):
        (tmp_path / "other/fmt" / name).write_text(OTHER_FMT)
    (tmp_path / "main.cpp").write_text("#include <fmt/format.h>\n" + MAIN.replace('"world {}"', '"{} {}", fmt::format("world")'))
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\nproject(own LANGUAGES CXX)\nfind_package(lockstep REQUIRED)\n"
        "add_executable(own main.cpp)\ntarget_include_directories(own BEFORE PRIVATE other)\n"
        "target_link_libraries(own PRIVATE lockstep::lockstep)\n")
    build_against(installed, build_dir, tmp_path, tmp_path / "build")
    assert "world 2" in mpirun(2, tmp_path / "build/own", check=True).stdout


@pytest.mark.parametrize("call, words", [
    ('"{} {}", 1', "format_has_fewer_arguments_than_fields"), ('"{}", 1, 2', "format_has_more_arguments_than_fields"),
    ('"{", 1', "format_has_a_brace_without_its_partner"), ('"{:.2f}", 1', "format_has_a_field_for_another_type"),
    ('"{}", std::vector<int>()', "format() knows numbers, texts, booleans and pointers to void")])
def test_a_format_that_does_not_fit_is_the_compilers_error(call, words, build_dir, run):
    program = f"#include <vector>\n#include <lockstep/base/format.h>\nauto text = lockstep::format({call});\n"
    compiler = [cache_value(build_dir, "CMAKE_CXX_COMPILER"), "-std=c++20", "-fsyntax-only", "-x", "c++", "-I", SOURCE / "src", "-"]
    result = run(*compiler, input=program)
    assert result.returncode != 0 and words in result.stderr, result.stderr
    right = program.replace(call, '"{:.2f}", 1.0')
    assert run(*compiler, input=right).returncode == 0


TORCH = """set(TORCH_INSTALL_PREFIX ${CMAKE_CURRENT_LIST_DIR})
add_library(torch_cpu SHARED IMPORTED)
set_target_properties(torch_cpu PROPERTIES IMPORTED_CONFIGURATIONS RELEASE IMPORTED_LOCATION_RELEASE "%s")
"""


@pytest.mark.parametrize("first, second", [("Torch", "lockstep"), ("lockstep", "Torch")])
def test_two_libtorchs_are_refused_by_their_paths(first, second, project, installed, build_dir, run):
    folder = project(f"find_package({first} REQUIRED)\nfind_package({second} REQUIRED)")
    (folder / "torch").mkdir()
    ours = next(line.split('"')[1] for line in next(installed.rglob("lockstepConfig.cmake")).read_text().splitlines()
                if "LIBTORCH_HINTS" in line)
    for library, status in ((folder / "torch/libtorch_cpu.so", 1), (f"{ours}/lib/libtorch_cpu.so", 0)):
        (folder / "torch/TorchConfig.cmake").write_text(TORCH % library)
        result = run("cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}",
                     f"-DTorch_DIR={folder}/torch")
        assert result.returncode == status, result.output
        if status:
            words = " ".join(result.stderr.split())
            assert "two libtorchs in one project" in words and f"{ours}/lib" in words and " ".join(str(library).split()) in words, words


REFUSED = {
    "Net net; lockstep::ddp(net, session)->forward(x);": "this module stays the caller's: write ddp(std::move(net), session)",
    "auto net = std::make_unique<Net>(); lockstep::ddp(std::move(net), session)->forward(x);":
        "a unique_ptr cannot be shared: write ddp(std::shared_ptr<Net>(std::move(net)), session)",
    "torch::nn::AnyModule net; lockstep::ddp(net, session)->forward(x);":
        "an AnyModule hides its forward: write ddp(any.ptr<Net>(), session)",
    "torch::jit::Module net; lockstep::ddp(net, session)->forward(x);": "write ddp(std::make_shared<lockstep::TorchScriptNet>",
    "int net = 0; lockstep::ddp(net, session)->forward(x);": "this is no torch::nn module: write ddp(Net(), session)",
    "lockstep::ddp(Net(), session)->forward({x, x});": "write the type before the braces",
    "Net net; lockstep::data_parallel(net)->forward(x);": "this module stays the caller's",
}


def test_what_ddp_does_not_take_is_said_in_one_error(installed, build_dir, precompiled, tmp_path):  # noqa: F811
    """All in one run of the compiler, which tells of each by its line."""
    head = ("#include <lockstep/parallel/data_parallel.h>\n#include <torch/torch.h>\n#include <torch/script.h>\n"
            "struct Net : torch::nn::Module { torch::Tensor forward(const torch::Tensor& x) { return x; } };\n"
            "const torch::Tensor x;\n")
    pieces = "".join(f"void piece_{i}(const lockstep::Session& session) {{ (void)session; {code} }}\n"
                     for i, code in enumerate(REFUSED))
    (tmp_path / "main.cpp").write_text(head + pieces)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\nproject(own LANGUAGES CXX)\nfind_package(lockstep REQUIRED)\n"
        "add_library(own OBJECT main.cpp)\ntarget_link_libraries(own PRIVATE lockstep::lockstep)\n"
        "target_compile_options(own PRIVATE -fsyntax-only)\n")
    built = build_against(installed, build_dir, tmp_path, tmp_path / "build", precompiled, flags="", check=False)
    assert built.returncode != 0
    errors = [line for line in built.output.splitlines() if "error:" in line]
    for words in REFUSED.values():
        assert any(words in line for line in errors), (words, errors)
    assert all("static assertion" in line for line in errors), errors
