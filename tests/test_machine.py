"""The machine besides its GPU: tools that do not work are told in words, and never waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudareduce import machine


def tool(folder: Path, script: str, name: str = "nvcc") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(script)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "limit_s", "problem"),
    [
        ("#!/bin/sh\nexit 1\n", 60, "exits with 1"),
        ("#!/bin/sh\n", 60, "prints nothing"),
        ("\x7fELF", 60, "cannot be run: Exec format error"),
        ("#!/no/such/shell\n", 60, "cannot be run: No such file or directory"),
        ("#!/bin/sh\nsleep 9999; echo 1\n", 0.1, "does not end within 0.1 s"),
        ("#!/bin/sh\ncat /dev/zero\n", 0.1, "does not end within 0.1 s"),
    ],
)
def test_the_problem_of_a_broken_tool_is_reported(
    tmp_path: Path, script: str, limit_s: float, problem: str
) -> None:
    said = machine.run_version(str(tool(tmp_path, script)), limit_s).problem
    # One that never stops talking ends as it finds no one who listens, or at its time limit.
    assert said == problem or ("/dev/zero" in script and said is not None)


def test_what_is_not_text_is_read(tmp_path: Path) -> None:
    answer = machine.run_version(str(tool(tmp_path, "#!/bin/sh\nprintf '\\377\\376 1.2'\n")))
    assert (answer.text, answer.problem) == ("�� 1.2", None)


def test_a_compiler_that_does_not_work_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path / "bin", "#!/bin/sh\necho V12.4.1; exit 1\n")
    packaged = tool(
        tmp_path / "nvidia" / "cu13" / "bin", "#!/bin/sh\necho release 13.0, V13.0.88\n"
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(machine, "packaged", lambda path: [packaged])
    assert list(machine.installed("nvcc")) == [(str(packaged), "13.0.88")]
    tool(tmp_path / "bin", "#!/bin/sh\necho V12.4.1\n")
    assert [version for _, version in machine.installed("nvcc")] == ["12.4.1", "13.0.88"]


def test_facts_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = (machine.cpu_model(), machine.host_name(), machine.system())
    assert all(fact and "\n" not in fact for fact in facts)
    assert machine.cpu_count() >= 1
    tool(tmp_path, "#!/bin/sh\necho 'g++ (Some) 14.2.0'; echo more\n", "g++")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.compiler_version() == "g++ (Some) 14.2.0"
    monkeypatch.setenv("PATH", "")
    assert machine.compiler_version() is None
