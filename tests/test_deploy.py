"""What deploy/ holds: exact versions with hashes, no root, read-only file systems, valid files, no crash loop."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from recto import __version__
from tests.running import ROOT

DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
COMPOSE = ("compose.yaml", "cluster/compose.yaml")
FILES = ("requirements.txt", "build-requirements.txt")
EXTRAS = {"cloud", "crawl", "mcp", "serve"}
COMMAND = re.compile(r"# {4}uv export [a-z -]+--output-file deploy/[a-z-]+\.txt")
ENTRY = re.compile(r"([a-z0-9-]+==[0-9][\w.]*(?: ; [\w ().'=!<>]+)?)((?: --hash=sha256:[0-9a-f]{64})+)")


def lines(name: str) -> list[str]:
    """Return the lines of a file in deploy/, joined where they are continued."""
    text = (DEPLOY / name).read_text("utf-8")
    return [re.sub(r" *\\\n *", " ", line) for line in re.split(r"(?<!\\)\n", text) if line]


def pins(name: str) -> dict[Requirement, set[str]]:
    """Return the requirements of a file with their hashes."""
    entries = filter(None, map(ENTRY.fullmatch, lines(name)))
    return {Requirement(entry[1]): set(re.findall(r"sha256:\w+", entry[2])) for entry in entries}


def exact(requirements: list[Requirement]) -> set[tuple[str, str]]:
    return {(one.name, str(one.specifier).removeprefix("==")) for one in requirements}


def required(name: str) -> list[Requirement]:
    """Return the requirements of the project that a file is made for."""
    if name == "build-requirements.txt":
        return [*map(Requirement, PROJECT["build-system"]["requires"])]
    extras = PROJECT["project"]["optional-dependencies"]
    chosen = [*PROJECT["project"]["dependencies"], *(one for extra in EXTRAS for one in extras[extra])]
    return [*map(Requirement, chosen)]


@pytest.mark.parametrize("name", FILES)
def test_every_line_is_a_pinned_version_with_hashes_and_names_no_host(name: str) -> None:
    _, command, *entries = lines(name)
    assert COMMAND.fullmatch(command)
    assert entries
    assert [entry for entry in entries if not ENTRY.fullmatch(entry)] == []
    versions = exact([*pins(name)])
    assert versions <= exact([*map(Requirement, PROJECT["tool"]["uv"]["constraint-dependencies"])])
    for one in required(name):
        allowed = [one.specifier.contains(version) for package, version in versions if package == one.name]
        assert allowed, one
        assert all(allowed), one


def test_requirements_are_exported_with_all_extras_of_the_image() -> None:
    assert set(re.findall(r"--extra (\w+)", lines("requirements.txt")[1])) == EXTRAS
    assert PROJECT["dependency-groups"]["build"] == PROJECT["build-system"]["requires"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("name", FILES)
def test_hashes_include_wheels_for_both_architectures(name: str, machine: str) -> None:
    if not (ROOT / "uv.lock").exists():
        pytest.skip("needs uv.lock, which uv makes")
    packages = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]
    wheels = {
        wheel["hash"]: parse_wheel_filename(wheel["url"].rpartition("/")[2])[3]
        for package in packages
        for wheel in package.get("wheels", ())
    }
    image = {"sys_platform": "linux", "platform_machine": machine, "python_full_version": "3.12.0"}
    for one, hashes in pins(name).items():
        if one.marker is None or one.marker.evaluate({**image, "python_version": "3.12"}):
            tags = {tag for digest in hashes for tag in wheels.get(digest, ())}
            assert any(
                (tag.interpreter in {"py3", "cp312"} or tag.abi == "abi3")
                and (tag.platform == "any" or re.fullmatch(rf"manylinux\w*_{machine}", tag.platform))
                for tag in tags
            ), one


@pytest.mark.parametrize(
    "name",
    [
        *("cohere", "fastapi", "httpcore", "markdown-it-py", "mcp", "numpy", "onnxruntime", "qdrant-client"),
        *("qdrant-edge-py", "selectolax", "starlette", "tokenizers", "tree-sitter", "uvicorn"),
    ],
)
def test_packages_that_break_compatibility_have_an_upper_bound(name: str) -> None:
    (one,) = (one for one in required("requirements.txt") if one.name == name)
    assert {"<", "=="} & {specifier.operator for specifier in one.specifier}


def test_image_installs_only_checked_packages() -> None:
    text = " ".join(lines("Dockerfile"))
    installs = [part.split("&&")[0] for part in re.split(r"(?=/pip (?:install|wheel) )", text)[1:]]
    checked = {name for part in installs for name in re.findall(r"-r /(\S+)", part)}
    assert checked == set(FILES)
    for part in installs:
        hashed = "--require-hashes" in part and "--only-binary :all:" in part
        local = "--no-index" in part and "--no-deps" in part
        assert hashed or local, part


def test_image_runs_without_root() -> None:
    stage = [line.split() for line in lines("Dockerfile")]
    starts = [number for number, words in enumerate(stage) if words[0] == "FROM"]
    (user,) = (words[1] for words in stage[starts[-1] :] if words[0] == "USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), "a number, so that Kubernetes can check it"


@pytest.mark.parametrize("name", ["index", "serve"])
def test_containers_are_read_only_and_unprivileged(name: str) -> None:
    service = compose("compose.yaml")["services"][name]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    writable = [volume for volume in service["volumes"] if not volume.endswith(":ro")]
    assert writable == ["recto:/home/recto/.recto"]


def compose(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


@pytest.mark.parametrize("name", COMPOSE)
def test_services_have_limits_health_checks_and_local_ports(name: str) -> None:
    for one, service in compose(name)["services"].items():
        assert "mem_limit" in service, one
        assert one == "index" or "healthcheck" in service, one
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), one


def test_the_book_is_indexed_before_the_service_starts() -> None:
    assert "**/.env" in (ROOT / ".dockerignore").read_text("utf-8").split(), "no keys get into the image"
    services = compose("compose.yaml")["services"]
    assert services["serve"]["depends_on"]["index"] == {"condition": "service_completed_successfully"}
    assert services["index"]["restart"] == "no"
    assert services["index"]["command"][0] == "index"
    (book,) = (one for one in services["index"]["volumes"] if one.endswith(":/book:ro"))
    assert (DEPLOY / book.removeprefix("${BOOK:-").partition("}")[0]).is_dir()


def test_compose_stops_with_a_message_if_a_key_is_not_set() -> None:
    """Otherwise `serve` would refuse to start, again and again."""
    used = set()
    for name in COMPOSE:
        for variable, default in re.findall(r"\$\{(\w+)(:?[-?]?[^}]*)\}", (DEPLOY / name).read_text("utf-8")):
            used.add(variable)
            assert default.startswith(":?set " if variable.endswith("_KEY") else ":-"), variable
    example = (DEPLOY / "env.example").read_text("utf-8")
    assert used == set(re.findall(r"(?m)^(?:# )?([A-Z_]+)=", example))
    assert set(re.findall(r"(?m)^([A-Z_]+)=$", example)) == {"RECTO_API_KEY", "QDRANT_API_KEY"}


def test_settings_of_the_cluster_name_every_node_and_one_version_of_qdrant() -> None:
    files = [*DEPLOY.rglob("*.yaml"), ROOT / "docs" / "how-to" / "cloud.md"]
    versions = {one for path in files for one in re.findall(r"\b1\.16\.\d+\b", path.read_text("utf-8"))}
    assert versions == {"1.16.3"}
    variables = (DEPLOY / "cluster" / "recto.env").read_text("utf-8")
    settings = dict(re.findall(r"(?m)^([A-Z_]+)=(.*)$", variables))
    services = compose("cluster/compose.yaml")["services"].values()
    ports = [port for service in services for port in service["ports"]]
    assert settings["QDRANT_URL"].split(",") == [f"http://{port.rpartition(':')[0]}" for port in ports]
    assert int(settings["QDRANT_WRITE_CONSISTENCY"]) <= int(settings["QDRANT_REPLICATION"]) < len(ports)


KUBERNETES = DEPLOY / "kubernetes"
MANIFESTS = [
    pytest.param(path.name, one, id=f"{one['kind']}-{one['metadata']['name']}")
    for path in sorted(KUBERNETES.glob("*.yaml"))
    if path.name not in ("kustomization.yaml", "qdrant-values.yaml")
    for one in yaml.safe_load_all(path.read_text("utf-8"))
]


@pytest.mark.parametrize("version", ["1.29", pytest.param("1.36", marks=pytest.mark.slow)])
def test_manifests_are_valid(version: str) -> None:
    for one in MANIFESTS:
        kubernetes_validate.validate(one.values[1], version, strict=True)


def manifest(kind: str, name: str) -> Any:
    """Return a manifest; if it makes pods, its pod template."""
    (manifest,) = (one.values[1] for one in MANIFESTS if one.id == f"{kind}-{name}")
    assert isinstance(manifest, dict)
    spec = manifest.get("spec", {})
    return spec.get("jobTemplate", {}).get("spec", spec).get("template", manifest)


def test_kustomization_lists_every_manifest_but_the_secret() -> None:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text("utf-8"))["resources"]
    assert {*listed, "secret.example.yaml"} == {str(one.values[0]) for one in MANIFESTS}
    assert set(manifest("Secret", "recto-keys")["stringData"].values()) == {""}


@pytest.mark.parametrize(("kind", "name"), [("Deployment", "recto"), ("CronJob", "recto-index")])
def test_pods_are_unprivileged_and_read_only(kind: str, name: str) -> None:
    pod = manifest(kind, name)["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"requests", "limits"} == container["resources"].keys()
    keys = manifest("Secret", "recto-keys")["stringData"]
    for variable in container["env"]:
        secret = variable.get("valueFrom", {}).get("secretKeyRef", {"key": variable["name"]})
        assert secret["key"] == variable["name"]
        assert variable["name"] in {*keys, "RECTO_THREADS"}


def test_objects_select_the_pods_of_the_service() -> None:
    labels = manifest("Deployment", "recto")["metadata"]["labels"]
    assert manifest("Service", "recto")["spec"]["selector"] == labels
    assert manifest("PodDisruptionBudget", "recto")["spec"]["selector"] == {"matchLabels": labels}
    assert manifest("NetworkPolicy", "recto-serve")["spec"]["podSelector"] == {"matchLabels": labels}
    jobs = manifest("CronJob", "recto-index")["metadata"]["labels"]
    assert manifest("NetworkPolicy", "recto-index")["spec"]["podSelector"] == {"matchLabels": jobs}
    assert jobs != labels


def test_settings_exist_and_an_engine_that_is_down_does_not_restart_pods() -> None:
    (container,) = manifest("Deployment", "recto")["spec"]["containers"]
    for probe, path in {"startup": "/healthz", "readiness": "/readyz", "liveness": "/healthz"}.items():
        assert container[f"{probe}Probe"]["httpGet"]["path"] == path
    documented = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    names = [
        *manifest("ConfigMap", "recto-settings")["data"],
        *manifest("Secret", "recto-keys")["stringData"],
        *re.findall(r"(?m)^([A-Z_]+)=", (DEPLOY / "cluster" / "recto.env").read_text("utf-8")),
    ]
    assert [name for name in names if f"`{name}`" not in documented] == []


EXAMPLE = "docs/how-to/examples/book-ci.yml"
LINTED = ".pre-commit-config.yaml .yamllint.yaml action.yml deploy docs/how-to/examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        f"yamllint --strict {LINTED}",
        "check-jsonschema --builtin-schema vendor.github-actions action.yml",
        f"check-jsonschema --builtin-schema vendor.github-workflows {EXAMPLE}",
        *(f"check-jsonschema --builtin-schema vendor.compose-spec deploy/{name}" for name in COMPOSE),
        "hadolint deploy/Dockerfile",
        f"shellcheck .ci/run {' '.join(map(str, sorted(DEPLOY.rglob('*.sh'))))}",
    ],
)
def test_linters_have_no_complaints(command: str) -> None:
    name, *arguments = command.split()
    program = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if program is None and (name == "shellcheck" or sys.platform == "win32"):
        pytest.skip(f"needs {name}; .ci/run installs it")
    assert program, name
    done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_of_the_guide_uses_the_action() -> None:
    inputs = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))["inputs"]
    (job,) = yaml.safe_load((ROOT / EXAMPLE).read_text("utf-8"))["jobs"].values()
    (step,) = (step for step in job["steps"] if step["uses"].startswith("OWNER/REPO@"))
    assert step["uses"] == f"OWNER/REPO@v{__version__}"
    required = {name for name, one in inputs.items() if one.get("required")}
    assert required <= set(step["with"]) <= set(inputs)
    guide = (ROOT / "docs" / "how-to" / "ci.md").read_text("utf-8")
    assert [name for name in inputs if f"| `{name}` |" not in guide] == []


def test_systemd_unit_is_unprivileged_and_writes_only_its_state_directory() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(DEPLOY / "recto.service")
    service = unit["Service"]
    for setting in ("DynamicUser", "NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome"):
        assert service[setting] == "yes", setting
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["LimitNOFILE"] == "65536"
    assert service["Environment"] == f"RECTO_HOME=/var/lib/{service['StateDirectory']}"
    assert "ReadWritePaths" not in service


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_knows_every_setting_of_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "recto.service").read_text("utf-8")
    unit = tmp_path / "recto.service"
    unit.write_text(re.sub(r"(?m)^ExecStart=.*$", "ExecStart=/bin/true", text))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []
