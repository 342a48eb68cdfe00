"""A class on a cluster: learners' folders, each with another answer, checked by queued jobs at the same time."""

import pytest
from conftest import SOURCE, run_process
from process_kit import LONG_PATIENCE
from slurm_kit import lab, log_of  # noqa: F401  (a fixture among them)

pytestmark = pytest.mark.about("workshop", "job_scripts", "tutorials")

# what a learner may have written, and what each is told
ANSWERS = (
    ("std::vector<double> numbers = {loss};\n  session.team().sum(numbers);\n  return numbers[0] / session.world();",
     "  pass"),
    ("return session.loss();", "does not compile"),
)


def learners_folder(lockstep, folder, answer):
    run_process([lockstep, "workshop", "init", folder], check=True)
    file = folder / "exercises/groups.1.cpp"
    text = file.read_text()
    begin, end = text.index("  // TODO"), text.index("}\n\n// LOSSES")
    file.write_text(f"{text[:begin]}  {answer}\n{text[end:]}")
    return folder


@pytest.mark.full
def test_a_few_learners_at_once_are_each_told_what_is_theirs(lab, prepared, tmp_path):  # noqa: F811
    settings = {"LOCKSTEP_PROGRAM": str(prepared), "LOCKSTEP_HOME": str(SOURCE)}
    folders = [learners_folder(prepared, tmp_path / f"learner {i}", answer) for i, (answer, _) in enumerate(ANSWERS)]
    jobs = [lab.submit(str(SOURCE / "job_scripts/check.slurm"), "groups.1", cwd=folder, env=settings) for folder in folders]
    for folder, job, (_, words) in zip(folders, jobs, ANSWERS):
        state = lab.wait(job, within=LONG_PATIENCE)["JobState"]
        log = log_of(folder, job)
        assert words in log and state == ("COMPLETED" if words == "  pass" else "FAILED"), log
