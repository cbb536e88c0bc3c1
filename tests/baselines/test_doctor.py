"""`rao doctor` sees what is there and what is wrong, and says what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json

import pytest

from rao_baselines import doctor
from rao_baselines.cli import main


def found(subject: str) -> doctor.Finding:
    return next(finding for finding in doctor.examine() if finding.subject == subject)


def test_every_finding_of_a_sound_machine_is_ok_or_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    main_exit = 0
    try:
        main(["doctor", "--json"])
    except SystemExit as stop:
        main_exit = stop.code or 0  # type: ignore[assignment]
    answer = json.loads(capsys.readouterr().out)
    findings = {finding["subject"]: finding for finding in answer["findings"]}
    assert answer["ok"] and main_exit == 0
    assert findings["numpy"]["text"].startswith(importlib.metadata.version("numpy"))
    assert "steps/s" in findings["environment"]["text"]
    assert {"python", "torch", "device", "kernels", "display", "folder"} <= findings.keys()


def test_a_package_out_of_range_is_a_problem_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1" if name == "gymnasium" else real(name))
    finding = found("gymnasium")
    assert finding.state == "problem"
    assert "0.1, but >=1.2 is needed" in finding.text
    assert finding.cure == 'pip install "gymnasium>=1.2"'


@pytest.mark.parametrize(("name", "state", "cure"), [("ray", "note", "rao-envs[ray]"), ("numba", "problem", "pip install rao-envs")])
def test_a_missing_package_is_a_problem_only_where_the_environments_need_it(
    monkeypatch: pytest.MonkeyPatch, name: str, state: str, cure: str
) -> None:
    real = importlib.metadata.version

    def version(asked: str) -> str:
        if asked == name:
            raise importlib.metadata.PackageNotFoundError(asked)
        return real(asked)

    monkeypatch.setattr(importlib.metadata, "version", version)
    finding = found(name)
    assert (finding.state, finding.text.startswith("not installed")) == (state, True)
    assert cure in finding.cure


def test_what_breaks_is_a_finding_and_the_rest_is_still_looked_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    monkeypatch.setattr(doctor, "SMALLEST", "RAO/Maze-0x0-v0")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as stop:
        main(["doctor"])
    out = capsys.readouterr().out
    assert stop.value.code == 1
    assert "NUMBA_DISABLE_JIT is set" in out and "unset NUMBA_DISABLE_JIT" in out
    assert "Maze-0x0" in out
    assert 'pip install "rao-envs[render]"' in out
    assert "runs go to" in out
