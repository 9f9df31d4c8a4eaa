"""README.md, run as a newcomer would: every command, every output, every policy.

The console blocks run in their order against one gateway with the repository's own policy. In what they
print, `…` stands for anything within a line, and alone on a line for any lines.
"""

import importlib.util
import json
import os
import pathlib
import re
import shlex
import subprocess
import time
import types

import pytest
import yaml

import gateway
from gateway import ROOT, TARGET, eventually

README = (ROOT / "README.md").read_text()

CURLS_OF_MAKE_RUN = 5

WINDOW, ROOM = 60, 15
"""Seconds. The account that is filled has a window of the one, and must not roll for the other."""


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


def commands(block):
    """Lines that a shell would be given; a `\\` at the end of one joins it with the next."""
    return [line.strip() for line in re.sub(r"\\\n\s*", "", block).splitlines()
            if line.strip() and not line.startswith("#")]


def transcripts():
    """(command, what it prints) of every console block."""
    found = []
    for block in blocks("console"):
        joined = re.sub(r"\\\n\s*", "", block)
        for part in re.split(r"^\$ ", joined, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def pattern(output):
    """A regular expression for what a console block shows."""
    lines = []
    for line in output.splitlines():
        if line == "…":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(".*".join(re.escape(part) for part in line.split("…")) + r"\s*\n")
    return "".join(lines)


def command_line():
    """The `tollgate` binary: what `make build` makes, or a debug build that is newer."""
    if os.environ.get("TOLLGATE_CLI"):
        return os.environ["TOLLGATE_CLI"]
    built = [path for path in (TARGET / "release" / "tollgate", TARGET / "debug" / "tollgate") if path.exists()]
    assert built, "`make build` builds the command line"
    return str(max(built, key=lambda path: path.stat().st_mtime))


def policies():
    return [block for block in blocks("yaml") if "version:" in block]


@pytest.fixture(scope="module")
def quickstart(envoys):
    # Whole windows count from the epoch: the refusal must come in the window of what was spent.
    eventually(lambda: time.time() % WINDOW < WINDOW - ROOM, ROOM + 5)
    return envoys(gateway.SHIPPED)


@pytest.fixture(scope="module")
def told(quickstart, tmp_path_factory):
    """Every console command and what it printed, run once and in order."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "policy.yaml").write_text(policies()[0])
    printed = []
    for command, output in transcripts():
        here = (command.replace("127.0.0.1:10000", f"127.0.0.1:{quickstart.port}")
                .replace("127.0.0.1:9901", f"127.0.0.1:{quickstart.admin_port}")
                .replace("target/release/tollgate", shlex.quote(command_line())))
        def run(here=here):
            run = subprocess.run(["bash", "-c", here], cwd=folder, capture_output=True, text=True, check=False,
                                 timeout=60)
            return run.stdout + "\n", run.stderr
        if "/stats/" in command:
            # Workers hand their counts over twice a second.
            eventually(lambda run=run, output=output: shows(output, run()[0]))
        printed.append((command, output, *run()))
    return printed


def shows(shown, printed):
    return re.match(pattern(shown.replace("\n\n", "\n")), printed.replace("\r\n", "\n").replace("\n\n", "\n"))


def test_every_console_block_prints_what_it_shows(told):
    assert len(told) >= CURLS_OF_MAKE_RUN
    for command, shown, printed, errors in told:
        assert shows(shown, printed), f"$ {command}\n--- README.md shows\n{shown}--- it printed\n{printed}{errors}"


def test_the_quick_start_is_what_make_run_prints():
    spec = importlib.util.spec_from_file_location("run", ROOT / "scripts" / "run.py")
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    options = types.SimpleNamespace(port=run.LISTENER, admin_port=run.ADMIN, stub_port=run.STUB, upstream="", store="")
    printed = [shlex.split(line) for line in run.invitation(options).splitlines() if line.startswith("curl ")]
    shown = [shlex.split(command) for command, _ in transcripts() if command.startswith("curl ")]
    assert len(printed) == CURLS_OF_MAKE_RUN and printed == shown[:CURLS_OF_MAKE_RUN]


def test_every_policy_checks(tmp_path):
    assert policies()
    for policy in policies():
        path = tmp_path / "policy.yaml"
        path.write_text(policy)
        checked = subprocess.run([command_line(), "check", path], capture_output=True, text=True, check=False)
        assert checked.returncode == 0 and not checked.stderr, f"{policy}\n{checked.stderr}"


def test_every_other_piece_of_yaml_stands_in_what_make_run_starts():
    shared = subprocess.run(["python3", ROOT / "scripts" / "run.py", "--print-config", "--store", "redis"],
                            capture_output=True, text=True, check=True).stdout
    shipped = [line.strip() for line in [*(ROOT / "envoy.yaml").read_text().splitlines(), *shared.splitlines()]]
    for block in blocks("yaml"):
        if block not in policies():
            assert yaml.safe_load(block)
            for line in commands(block):
                assert line in shipped, line


def targets():
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^\s*make ([a-z-]+) ", listed, re.M))


def test_every_shell_command_is_one_that_works():
    seen = [shlex.split(command) for block in blocks("sh") for command in commands(block)]
    assert ["make", "run"] in seen and ["make", "test"] in seen
    for command in seen:
        match command:
            case ["make", *words]:
                assert {word for word in words if "=" not in word} <= targets(), command
                for name, value in (word.split("=", 1) for word in words if "=" in word):
                    script = ["python3", ROOT / "scripts" / "run.py", "--print-config", f"--{name.lower()}", value]
                    assert subprocess.run(script, capture_output=True, check=False).returncode == 0, command
            case ["func-e", "run", "-c", path]:
                # func-e passes these on to an Envoy that it has fetched.
                check = [gateway.binary(), "--mode", "validate", "-c", path, "--disable-hot-restart"]
                checked = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
                assert checked.returncode == 0, checked.stderr
            case [program, *flags] if program.startswith("target/"):
                usage = subprocess.run([ROOT / program, "--help"], capture_output=True, text=True, check=True).stdout
                assert all(flag in usage for flag in flags if flag.startswith("--")), command
            case _:
                raise AssertionError(f"no test knows how to run {command}")


def test_every_command_that_the_text_names_exists():
    for words in re.findall(r"`make ([a-z -]+)`", README + (ROOT / "CONTRIBUTING.md").read_text()):
        assert set(words.split()) <= targets(), words


def test_the_log_field_is_as_shown(told, quickstart):
    shown, = (json.loads(block) for block in blocks("json"))
    lines = eventually(lambda: [line for line in quickstart.access_log() if '"tenant":"acme"' in line])
    written = json.loads(lines[0][lines[0].index("{"):])
    assert {**written, "hold": ""} == {**shown, "hold": ""}


def test_the_table_of_refusals_is_that_of_the_code():
    code = "".join(pathlib.Path(ROOT / path).read_text() for path in
                   ("src/reply/mod.rs", "src/reply/openai.rs", "src/metrics.rs"))
    rows = re.findall(r"^\| (4\d\d|5\d\d) \| (.*?) \| (.*?) \|", README, re.M)
    assert len(rows) == 8
    for status, kinds, codes in rows:
        assert status in code
        for word in re.findall(r"`(\w+)`", kinds + codes):
            assert f'"{word}"' in code, f"{status}: {word}"
