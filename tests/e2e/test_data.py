"""`lockstep data` against a server on loopback."""

import functools
import http.server
import re
import shutil
import threading

import pytest

pytestmark = pytest.mark.about("data")

MNIST = ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]


class RangeHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files with Range, and remembers what was asked; `breaks_at` cuts the next answers short."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.translate_path(self.path)
        self.server.asked.append((self.path, self.headers.get("Range")))
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            self.send_error(404)
            return
        if self.server.endless:
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(bytes(1 << 16))
            except OSError:
                return
        begin = 0
        if wanted := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or ""):
            begin = int(wanted[1])
            if begin >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        end = self.server.breaks_at if self.server.breaks_at else len(content)
        self.wfile.write(content[begin:end])
        if self.server.breaks_at:
            self.server.breaks_at = 0
            self.close_connection = True


@pytest.fixture
def serve():
    """serve(folder) -> a server on a port of its own; .url, .asked, .breaks_at."""
    servers = []

    def begin(folder):
        handler = functools.partial(RangeHandler, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.asked, server.breaks_at, server.endless = [], 0, False
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
        return server
    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def data(lockstep, run, source_dir):
    """data(ARG...) -> the Result of `lockstep data ARG...` without any proxy."""
    quiet = {name: None for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")}

    def ask(*args, **env):
        return run(lockstep, "data", *args, env={"LOCKSTEP_HOME": source_dir, **quiet, **env})
    return ask


def test_verify_finds_the_shipped_sets_whole(data):
    result = data("verify")
    assert result.returncode == 0, result.output
    assert result.stdout.count("ok ") == 5


def test_verify_names_what_is_missing_or_damaged(data, source_dir, tmp_path):
    for name in MNIST[1:]:
        shutil.copy(source_dir / "data/mnist" / name, tmp_path)
    damaged = tmp_path / MNIST[1]
    content = bytearray(damaged.read_bytes())
    content[1000] ^= 1
    damaged.write_bytes(content)
    result = data("verify", "mnist", "--root", tmp_path)
    assert result.returncode == 2
    assert f"missing  {tmp_path / MNIST[0]}" in result.stdout
    assert f"damaged  {damaged}" in result.stdout
    assert "2 files missing or damaged" in result.stderr


def test_fetch_brings_the_files(data, serve, source_dir, tmp_path):
    server = serve(source_dir / "data/mnist")
    result = data("fetch", "mnist", "--root", tmp_path / "new/place", "--mirror", server.url)
    assert result.returncode == 0, result.output
    assert sorted(path.name for path in (tmp_path / "new/place").iterdir()) == sorted(MNIST)
    assert data("verify", "mnist", "--root", tmp_path / "new/place").returncode == 0
    # what is there already is not fetched again
    asked = len(server.asked)
    assert data("fetch", "mnist", "--root", tmp_path / "new/place", "--mirror", server.url).returncode == 0
    assert len(server.asked) == asked


def test_fetch_goes_on_where_it_broke_off(data, serve, source_dir, tmp_path):
    server = serve(source_dir / "data/pima")
    server.breaks_at = 9000
    first = data("fetch", "pima", "--root", tmp_path, "--mirror", server.url)
    assert first.returncode == 1
    assert "was interrupted" in first.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["pima-indians-diabetes.csv.part"]
    second = data("fetch", "pima", "--root", tmp_path, "--mirror", server.url)
    assert second.returncode == 0, second.output
    assert server.asked[-1][1] == "bytes=9000-"
    assert [path.name for path in tmp_path.iterdir()] == ["pima-indians-diabetes.csv"]


def test_fetch_takes_the_next_mirror(data, serve, source_dir, tmp_path, free_port):
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "pima-indians-diabetes.csv").write_bytes(b"1,2,3\n")
    empty, right = serve(tmp_path), serve(source_dir / "data/pima")
    result = data("fetch", "pima", "--root", tmp_path / "out", "--mirror", f"http://127.0.0.1:{free_port()}",
                  "--mirror", empty.url, "--mirror", serve(wrong).url, "--mirror", right.url)
    assert result.returncode == 0, result.output
    assert len(empty.asked) == 1 and len(right.asked) == 1
    endless = serve(source_dir / "data/pima")
    endless.endless = True
    mirrors = [word for server in (serve(wrong), empty, endless) for word in ("--mirror", server.url)]
    everything_wrong = data("fetch", "pima", "--root", tmp_path / "none", *mirrors)
    assert everything_wrong.returncode == 1
    assert "wrong SHA-256 digest" in everything_wrong.stderr and "longer than expected" in everything_wrong.stderr
    assert not any((tmp_path / "none").iterdir())


def test_fetch_overwrites_nothing(data, serve, source_dir, tmp_path):
    own = tmp_path / "pima-indians-diabetes.csv"
    own.write_text("my own\n")
    result = data("fetch", "pima", "--root", tmp_path, "--mirror", serve(source_dir / "data/pima").url)
    assert result.returncode == 2
    assert own.read_text() == "my own\n"
