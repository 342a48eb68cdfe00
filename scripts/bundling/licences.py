"""The libraries in a wheel: licences/ has the license of each, and the SBOM (CycloneDX) its version."""

import json
import pathlib
import re
import shutil
import urllib.parse

from . import baseline, yaml_cpp
from .errors import PackagingError, output

# headers and start-up files that are compiled in without a library of their own
COMPILED_IN = ("nlohmann-json3-dev", "libstdc++-12-dev", "libgcc-12-dev", "libc6-dev")


def debian(package, to):
    """A Debian package's copyright file, and the licenses that it refers to."""
    text = pathlib.Path(f"/usr/share/doc/{package}/copyright")
    if not text.exists():
        raise PackagingError(f"{text} is missing", "make the wheel on Debian 12, with its documentation folders")
    shutil.copyfile(text, to / f"{package}.txt")
    for name in set(re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", text.read_text(errors="replace"))):
        if pathlib.Path(f"/usr/share/common-licenses/{name}").exists():
            shutil.copyfile(f"/usr/share/common-licenses/{name}", to / f"{name}.txt")


def packages(tree):
    """{what is in the wheel: its Debian package}"""
    owners = {archive.name: output("dpkg-query", "-S", archive).partition(":")[0] for archive in sorted(tree.archives)}
    return owners | {package: package for package in COMPILED_IN}


def write(tree, root):
    to = tree.root / "licences"
    to.mkdir()
    shutil.copyfile(root / "LICENSE", to / "LICENSE.txt")
    found = packages(tree)
    for package in found.values():
        debian(package, to)
    (to / "README").write_text("".join(f"{name:32}{text}.txt\n" for name, text in {"lockstep": "LICENSE", **found}.items()))


def component(kind, name, version, qualifiers="", **more):
    purl = f"pkg:{kind}/{urllib.parse.quote(name)}@{urllib.parse.quote(version)}{qualifiers}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, **more}


def sbom(tree):
    """The bytes of a CycloneDX document (PEP 770): what is linked or compiled in, and the libtorch that has to be beside it."""
    own = component("pypi", "lockstep-ddp", tree.version())
    parts = [component("pypi", "torch", tree.torch(), description="installed beside the wheel, not in it")]
    for package in sorted(set(packages(tree).values())):
        if package == "libyaml-cpp-dev":  # Debian's archive is not what is linked
            parts.append(component("generic", "yaml-cpp", yaml_cpp.VERSION, "?download_url=" + urllib.parse.quote(yaml_cpp.SOURCE, ":/"),
                                   hashes=[{"alg": "SHA-256", "content": yaml_cpp.DIGEST}]))
        else:
            version = output("dpkg-query", "-W", "-f", "${Version}", package)
            parts.append(component("deb/debian", package, version, "?arch=amd64&distro=debian-12"))
    _, start_up, arch = next(name for name in baseline.PACKAGES if "/libc6-dev_" in name).removesuffix(".deb").split("_")
    parts.append(component("deb/ubuntu", "libc6-dev", start_up, f"?arch={arch}&distro=ubuntu-18.04"))
    return json.dumps({
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": own}, "components": parts,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}]}, indent=1).encode() + b"\n"
