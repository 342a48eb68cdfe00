"""A folder of images by class: trained, evaluated and predicted from, alike however many ranks and workers; what is wrong is named."""

import csv
import io
import shutil

import pytest

from conftest import run_process
from train_kit import assert_same_run, sets, write_config
from process_kit import PATIENCE

pytestmark = pytest.mark.about("data", "tasks")

numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

CONFIG = """
run: {{name: {name}}}
task: {{name: folder, size: [12, 12], augment: [crop, flip]}}
data: {{root: {root}, batch_size: 4, workers: 1}}
model: {{name: mlp, hidden: [8]}}
optim: {{name: sgd, lr: 0.05}}
train: {{epochs: 2, log_every: 1}}
"""


def draw(path, kind, number):
    """Dark at the left, or dark at the top."""
    noise = numpy.random.default_rng(number).integers(0, 40, (16 + number % 5, 20 - number % 3, 3))
    ramp = numpy.linspace(0, 200, noise.shape[1 - kind])
    pixels = noise + (ramp[:, None, None] if kind else ramp[None, :, None])
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(numpy.uint8)).save(path)


def write_images(root, train=12, val=5):
    for split, count in (("train", train), ("val", val)):
        for kind, name in enumerate(("left to right", "töp")):
            for number in range(count):
                draw(root / split / name / f"{number:02}.{('png', 'jpg', 'JPEG')[number % 3]}", kind, number)
    return root


@pytest.fixture(scope="module")
def lacks(lockstep, tmp_path_factory):
    """Skips where this build reads no JPEG."""
    folder = tmp_path_factory.mktemp("lacks")
    config = write_config(folder, CONFIG.format(name="lacks", root=write_images(folder / "images", train=4, val=1)))
    result = run_process([lockstep, "train", config, "--dry-run"], cwd=folder)
    if "was built without lib" in result.stderr:
        pytest.skip("this lockstep reads no PNG or no JPEG")
    assert result.returncode == 0, result.output


@pytest.fixture
def images(lacks, tmp_path):
    return write_images(tmp_path / "images")


@pytest.fixture
def train(lockstep, mpiexec, images, tmp_path):
    """train("name", world, key=value, ...) on them; the process's end."""
    def run(name, world=1, check=True, words=(), timeout=PATIENCE, **values):
        config = tmp_path / f"{name}.yaml"
        config.write_text(CONFIG.format(name=name, root=images))
        command = [lockstep, "train", config, *sets(**values), *words]
        return run_process(([mpiexec, "-n", world] if world > 1 else []) + command, cwd=tmp_path, check=check, timeout=timeout)
    return run


@pytest.mark.mpi
def test_a_run_that_stopped_inside_an_epoch_goes_on_to_the_same_bits(train, tmp_path):
    train("whole", 2)
    (tmp_path / "runs/whole").rename(tmp_path / "whole")
    train("whole", 2, train__max_steps=4)  # in the middle of epoch 1
    train("whole", 2, words=["--resume", "auto"])
    assert_same_run(tmp_path / "whole", tmp_path / "runs/whole")


@pytest.mark.mpi
def test_a_run_goes_on_to_the_same_bits_with_the_images_in_one_file(train, images, lockstep, tmp_path):
    train("whole", 2)
    (tmp_path / "runs/whole").rename(tmp_path / "whole")
    train("whole", 2, train__max_steps=4)
    run_process([lockstep, "data", "pack", "whole.yaml", "--out", "images.zip"], cwd=tmp_path, check=True)
    shutil.rmtree(images)
    train("whole", 2, words=["--resume", "runs/whole"], data__root="images.zip")
    assert_same_run(tmp_path / "whole", tmp_path / "runs/whole")


def test_eval_and_predict_need_no_training_images(train, images, lockstep, tmp_path):
    train("shapes")
    shutil.rmtree(images / "train")
    for number in range(3):
        (images / "train" / str(number)).mkdir(parents=True)  # the layout stays
    done = run_process([lockstep, "eval", "shapes.yaml", "--checkpoint", "runs/shapes"], cwd=tmp_path, check=True)
    assert "10 samples" in done.stdout
    predicted = run_process([lockstep, "predict", "shapes.yaml", "--checkpoint", "runs/shapes", "--input", images / "val"],
                            cwd=tmp_path, check=True).stdout
    rows = list(csv.DictReader(io.StringIO(predicted)))
    assert [row["name"] for row in rows][:2] == ["left to right/00.png", "left to right/01.jpg"] and len(rows) == 10
    assert set(rows[0]) == {"sample", "name", "class", "p(left to right)", "p(töp)"}
    one = run_process([lockstep, "predict", "shapes.yaml", "--checkpoint", "runs/shapes", "--input", images / "val/töp/02.JPEG",
                       "--format", "json"], cwd=tmp_path, check=True).stdout
    assert f'"name": "{images}/val/töp/02.JPEG"' in one
    (tmp_path / "none").mkdir()
    none = run_process([lockstep, "predict", "shapes.yaml", "--checkpoint", "runs/shapes", "--input", tmp_path / "none"], cwd=tmp_path)
    assert none.returncode == 2 and "there are no images in the folder" in none.stderr


def test_without_an_evaluation_folder_a_share_of_each_class_is_kept(train, images):
    shutil.rmtree(images / "val")
    for kind in ("left to right", "töp"):
        (images / "train" / kind).rename(images / kind)
    (images / "train").rmdir()
    said = train("split", words=["--dry-run"], task__eval_fraction=0.25).output
    assert "25 % of each class's images are used for evaluation" in said
    assert "train: 18 samples; class left to right: 9 (50.0 %), class töp: 9 (50.0 %)" in said
    assert "eval: 6 samples; class left to right: 3 (50.0 %), class töp: 3 (50.0 %)" in said


def test_damaged_images_are_refused_by_name_at_the_start_or_left_out_where_that_is_asked_for(train, images):
    """Four ways; the one inside has whole ends."""
    cut, inside = images / "train/töp/02.JPEG", images / "train/left to right/09.png"
    cut.write_bytes(cut.read_bytes()[:-20])
    (images / "train/töp/03.png").write_bytes(b"GIF89a, a cat")
    (images / "val/töp/00.png").write_bytes(b"")
    content = bytearray(inside.read_bytes())
    content[len(content) // 2] ^= 1
    inside.write_bytes(content)
    said = train("bad", 2, check=False)
    assert said.returncode == 2 and "2 of 24 images cannot be read" in said.stderr
    assert "töp/02.JPEG (the JPEG is cut off)" in said.stderr.replace("\\xc3\\xb6", "ö")
    assert "03.png (the file is neither a PNG nor a JPEG, but a GIF)" in said.stderr and "task.damaged: skip" in said.stderr
    said = train("bad", task__damaged="skip").output
    assert "3 of 24 images cannot be read, and are left out" in said and "train: 21 samples" in said
    assert "1 of 10 images cannot be read, and are left out" in said and "eval: 9 samples" in said
