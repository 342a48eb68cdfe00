"""Stand-ins for a scheduler's commands, for what a real one does seldom."""


def fake(folder, **programs):
    """A PATH whose first folder holds these programs, each a text for sh; without those of a scheduler that is installed."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name, text in programs.items():
        (bin_folder / name).write_text("#!/bin/sh\n" + text)
        (bin_folder / name).chmod(0o755)
    plain = folder / "plain"
    plain.mkdir(exist_ok=True)
    for name in ("cat", "sh", "sleep", "touch"):
        if not (plain / name).exists():
            (plain / name).symlink_to(f"/bin/{name}")
    return {"PATH": f"{bin_folder}:{plain}", "PBS_EXEC": "/nowhere"}
