"""A stranger's folder is read whole or not at all, nothing outside it is opened, and every fault is named."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rao_envs.core.episodes import parse_json
from rao_leaderboard import reading
from rao_leaderboard.folder import MAX_BYTES, MAX_FILES
from rao_leaderboard.reading import MAX_FAULTS, BrokenSubmissionError, quoted, read_manifest, read_submission
from tests.leaderboard.damage import Json, manifest, result_of

POLICY = "policies/run-0/policy.txt"
posix = pytest.mark.skipif(os.name == "nt", reason="made with system calls of POSIX")


def faults(folder: Path) -> str:
    with pytest.raises(BrokenSubmissionError) as caught:
        read_submission(folder)
    assert 1 <= len(caught.value.problems) <= MAX_FAULTS
    text = "\n".join(map(str, caught.value.problems))
    assert text.replace("\n", "").isprintable()
    return text


def test_a_sound_submission_is_read_whole(pristine: Path) -> None:
    submission, files = read_submission(pristine)
    assert submission.name == "sample"
    assert sorted(files) == sorted(str(p.relative_to(pristine)) for p in pristine.rglob("*") if p.is_file() and p.name != "submission.json")
    assert files[POLICY] == (pristine / POLICY).read_bytes()


def test_it_is_read_from_inside_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert read_submission(".").submission.name == "sample"


# -- what is in the folder -----------------------------------------------------------------------------------


def extra(folder: Path) -> None:
    (folder / "notes.txt").write_text("hello")


def hidden(folder: Path) -> None:
    (folder / "policies" / ".secret").write_text("hello")


def link(folder: Path) -> None:
    (folder / POLICY).unlink()
    (folder / POLICY).symlink_to("/etc/passwd")


def dangling_link(folder: Path) -> None:
    (folder / "notes").symlink_to("nowhere")


def folder_link(folder: Path) -> None:
    shutil.move(folder / "policies", folder.parent / "elsewhere")
    (folder / "policies").symlink_to(folder.parent / "elsewhere")


def loop(folder: Path) -> None:
    (folder / "policies" / "again").symlink_to(folder)


def hard_link(folder: Path) -> None:
    os.link(folder / POLICY, folder.parent / "another-name")


def pipe(folder: Path) -> None:
    (folder / POLICY).unlink()
    os.mkfifo(folder / POLICY)  # whoever opens it waits for ever


def listener(folder: Path) -> None:
    here = os.getcwd()
    os.chdir(folder)  # a socket's path may have some hundred characters at most
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("s")
    os.chdir(here)


def manifest_is_a_link(folder: Path) -> None:
    (folder / "submission.json").rename(folder.parent / "real.json")
    (folder / "submission.json").symlink_to(folder.parent / "real.json")


def no_manifest(folder: Path) -> None:
    (folder / "submission.json").unlink()


def manifest_is_a_folder(folder: Path) -> None:
    (folder / "submission.json").unlink()
    (folder / "submission.json").mkdir()


def file_is_a_folder(folder: Path) -> None:
    (folder / POLICY).unlink()
    (folder / POLICY).mkdir()


def empty_folder(folder: Path) -> None:
    (folder / "traces" / "run-9").mkdir()


def deep(folder: Path) -> None:
    (folder / "a/b/c/d/e/f/g/h").mkdir(parents=True)


def many_files(folder: Path) -> None:
    for k in range(MAX_FILES):
        (folder / f"n{k}").touch()


def many_folders(folder: Path) -> None:
    for k in range(2 * MAX_FILES):
        (folder / f"n{k}").mkdir()


def large(folder: Path) -> None:
    os.truncate(folder / POLICY, MAX_BYTES)  # sparse: no disk is filled


def large_manifest(folder: Path) -> None:
    with (folder / "submission.json").open("ab") as file:
        file.write(b" " * reading.MAX_MANIFEST)


def lost(folder: Path) -> None:
    (folder / POLICY).unlink()


def grown(folder: Path) -> None:
    with (folder / POLICY).open("ab") as file:
        file.write(b"!")


def changed(folder: Path) -> None:
    content = bytearray((folder / POLICY).read_bytes())
    content[0] ^= 1
    (folder / POLICY).write_bytes(bytes(content))


def undecodable_name(folder: Path) -> None:
    with open(os.fsencode(folder) + b"/\xff\x1b[2J\n", "wb"):
        pass


def turned_name(folder: Path) -> None:
    (folder / "\u202egpj.exe").touch()


@posix
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (extra, "notes.txt: is not named in the manifest"),
        (hidden, "policies/.secret: is not named in the manifest"),
        (link, f"{POLICY}: is neither a file nor a folder (links, devices and pipes are refused)"),
        (dangling_link, "notes: is neither a file nor a folder"),
        (folder_link, "policies: is neither a file nor a folder"),
        (loop, "policies/again: is neither a file nor a folder"),
        (hard_link, f"{POLICY}: is a hard link"),
        (pipe, f"{POLICY}: is neither a file nor a folder"),
        (listener, "s: is neither a file nor a folder"),
        (manifest_is_a_link, "submission.json: is neither a file nor a folder"),
        (no_manifest, "sample holds no submission.json"),
        (manifest_is_a_folder, "sample holds no submission.json"),
        (file_is_a_folder, f"{POLICY}: is named in the manifest, but is not there"),
        (empty_folder, "traces/run-9: is a folder without a file that the manifest names"),
        (deep, "a/b/c/d/e/: folders are nested more than 4 deep"),
        (many_files, f"at most {MAX_FILES} are allowed"),
        (many_folders, f"there are more than {2 * MAX_FILES} files and folders"),
        (large, f"at most {MAX_BYTES} are allowed"),
        (large_manifest, f"submission.json: is larger than {reading.MAX_MANIFEST} bytes"),
        (lost, f"{POLICY}: is named in the manifest, but is not there"),
        (grown, f"{POLICY}: has 15 bytes, the manifest says 14"),
        (changed, f"{POLICY}: its SHA-256 is not the manifest's"),
        (undecodable_name, r"\udcff\x1b[2J\n: is not named in the manifest"),
        (turned_name, r"\u202egpj.exe: is not named in the manifest"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_whatever_does_not_belong_there_is_named(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(folder)
    assert message in faults(folder)


@posix
def test_everything_is_named_not_only_the_first(folder: Path) -> None:
    extra(folder)
    changed(folder)
    empty_folder(folder)
    text = faults(folder)
    assert "notes.txt" in text and "SHA-256" in text and "traces/run-9" in text


@posix
def test_a_link_to_a_submission_is_none(folder: Path) -> None:
    other = folder.parent / "x" / "sample"
    other.parent.mkdir()
    other.symlink_to(folder)
    assert "is not a folder (links are not followed)" in faults(other)


@pytest.mark.parametrize("path", ["nowhere", "a\0b", "\udcff", "x" * 5000, "submission.json/x"])
def test_a_path_that_is_no_folder_is_a_fault_not_a_crash(tmp_path: Path, path: str) -> None:
    assert faults(tmp_path / path)


def test_the_folder_is_called_what_the_submission_is(folder: Path) -> None:
    moved = folder.rename(folder.with_name("other"))
    assert "name: it is 'sample', but the folder is called other" in faults(moved)


@posix
@pytest.mark.parametrize("replacement", ["link", "folder link", "file"])
def test_what_is_put_in_a_files_place_while_it_is_read_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch, replacement: str) -> None:
    secret = folder.parent / "secret" / "run-0" / "policy.txt"
    secret.parent.mkdir(parents=True)
    secret.write_bytes((folder / POLICY).read_bytes())
    real = os.open
    done = []

    def swapped(path: Any, *rest: Any) -> int:
        if str(path).endswith(POLICY) and not done:
            done.append(path)
            if replacement == "folder link":
                (folder / "policies").rename(folder.parent / "moved")
                (folder / "policies").symlink_to(secret.parents[1])
            else:
                other = folder / "new"
                other.symlink_to(secret) if replacement == "link" else other.write_bytes(secret.read_bytes())
                other.replace(folder / POLICY)
        return real(path, *rest)

    monkeypatch.setattr(os, "open", swapped)
    text = faults(folder)
    assert done and POLICY in text and ("was replaced while it was read" in text or "cannot be read" in text)


# -- what the manifest says of files -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "/etc/passwd",
        "policies/../../secret",
        "C:\\x",
        "a\\b",
        "~/x",
        "a//b",
        "./a",
        ".git/config",
        "-rf",
        "a/b/c/d/e",
        "a\0b",
        "ﬁle",
        "p\u043elicy",
        "a\u202eb",
        "a b",
        "a\n",
        "",
        "x" * 201,
        "policies/",
        "$HOME",
        "a;b",
        "%2e%2e/x",
    ],
)
def test_paths_that_could_lead_elsewhere_are_refused(folder: Path, path: str) -> None:
    with manifest(folder) as data:
        data["runs"][0]["artefact"]["files"][0]["path"] = path
    assert "runs.0.artefact.files.0.path: String should" in faults(folder)


@pytest.mark.parametrize("path", ["policies/CON", "policies/aux.txt", "com1.onnx", "policies/dot."])
def test_names_that_some_systems_cannot_hold_are_refused(folder: Path, path: str) -> None:
    (folder / POLICY).rename(folder / path)
    with manifest(folder) as data:
        data["runs"][0]["artefact"]["files"][0]["path"] = path
    assert "cannot be a file's name on Windows" in faults(folder)


def test_names_that_differ_in_capitals_only_are_refused(folder: Path) -> None:
    (folder / "policies/run-0/Policy.txt").write_bytes((folder / POLICY).read_bytes())
    with manifest(folder) as data:
        files = data["runs"][0]["artefact"]["files"]
        files.append(dict(files[0], path="policies/run-0/Policy.txt"))
    assert f"differs from {POLICY} only in capitals" in faults(folder)


def test_no_file_is_named_twice(folder: Path) -> None:
    with manifest(folder) as data:
        result_of(data, 0, 1)["trace"] = result_of(data, 0, 0)["trace"]
    assert "is named twice" in faults(folder)


def test_the_manifest_cannot_be_its_own_policy(folder: Path) -> None:
    with manifest(folder) as data:
        data["runs"][0]["artefact"]["files"].append({"path": "submission.json", "sha256": "0" * 64, "bytes": 5})
    assert "submission.json: names itself" in faults(folder)


# -- the manifest as a text ----------------------------------------------------------------------------------

GOOD = '"name": "sample"'


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (GOOD, GOOD + ', "name": "sample"', "the key 'name' occurs twice"),
        ('"training_steps": 0', '"training_steps": NaN', "NaN is not a number"),
        ('"training_steps": 0', '"training_steps": -Infinity', "-Infinity is not a number"),
        ('"training_steps": 0', '"training_steps": 1e999', "1e999 is too large"),
        ('"training_steps": 0', '"training_steps": ' + "9" * 5000, "is not valid JSON"),
        ('"training_steps": 0', '"training_steps": ' + "9" * 400, "runs.0.training_steps"),
        ('"training_steps": 0', '"training_steps": ' + "[" * 100_000, "is nested too deeply"),
        ('"training_steps": 0', '"training_steps": ' + "[" * 300 + "]" * 300, "recursion limit exceeded"),
        ('"training_steps": 0', '"training_steps": true', "runs.0.training_steps: Input should be a valid integer, got True"),
        ('"training_steps": 0', '"training_steps": "0"', "runs.0.training_steps: Input should be a valid integer"),
        ('"training_steps": 0', '"training_steps": 0.0', "runs.0.training_steps: Input should be a valid integer"),
        ('"training_steps": 0', '"training_steps": -1', "runs.0.training_steps: Input should be greater than or equal to 0"),
        ('"training_steps": 0', '"training_steps": null', "runs.0.training_steps"),
        ('"deterministic": true', '"deterministic": 1', "runs.0.deterministic: Input should be a valid boolean"),
        ('"spawn": true', '"spawn": 1', "runs.0.results.0.env_kwargs.spawn"),
        ('"spawn": true', '"budget": true', "env_kwargs.budget"),
        ('"format": "rao-submission-1"', '"format": "rao-submission-2"', "format: Input should be 'rao-submission-1'"),
        ('"protocol": 1', '"protocol": 2', "protocol: Input should be less than or equal to 1"),
        ('"protocol": 1', '"protocol": true', "protocol"),
        (GOOD, '"name": "sample", "more": 1', "more: Extra inputs are not permitted"),
        (GOOD, r'"name": "sampl\u0435"', "name: String should match"),
        (GOOD, r'"name": "..\u002f.."', "name: String should match"),
        (GOOD, r'"name": "\ud800"', "submission.json: Invalid JSON"),
        ('"A. Tester"', r'"A. \u202eretseT"', "authors.0: String should match"),
        ('"A. Tester"', r'"A. Te\u200bster"', "authors.0: String should match"),
        ('"A. Tester"', r'"A.\u0000Tester"', "authors.0: String should match"),
        ('"A. Tester"', r'"\u00a0"', "authors.0: String should match"),
        ('"A. Tester"', r'"\ud83d"', "submission.json: Invalid JSON: unexpected end of hex escape"),
        ('"A. Tester"', '"' + "A" * 100_000 + '"', "authors.0: String should have at most 200 characters"),
        ("https://example.org", "javascript:alert", "code_url: String should match"),
        ("https://example.org", "https://user@example.org", "code_url: String should match"),
        ('"created": "2026-12-01T00:00:00Z"', '"created": 0', "created"),
        ('"created": "2026-12-01T00:00:00Z"', '"created": "2026-12-01T00:00:00"', "created"),
    ],
)
def test_the_manifest_is_strict(folder: Path, before: str, after: str, message: str) -> None:
    text = json.dumps(json.loads((folder / "submission.json").read_text()))
    assert before in text
    (folder / "submission.json").write_text(text.replace(before, after, 1))
    assert message in faults(folder)


@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"[]", b"{}", b'"x"', b"{", b"\xff", b"\xef\xbb\xbf{}", "{}".encode("utf-16"), b"{}{}", b"{} x", b"\0", b"// x\n{}"],
)
def test_what_is_no_manifest_is_said_to_be_none(content: bytes) -> None:
    with pytest.raises(BrokenSubmissionError):
        read_manifest(content)


def test_every_wrong_field_is_named(folder: Path) -> None:
    with manifest(folder) as data:
        data["commit"], data["authors"], data["agent"]["kind"] = "main", [], "clever"
    text = faults(folder)
    assert "commit:" in text and "authors:" in text and "agent.kind:" in text


def test_a_hundred_thousand_faults_take_no_time(folder: Path) -> None:
    with manifest(folder) as data:
        data.update({f"k{k}": 0 for k in range(100_000)})
    assert faults(folder).count("\n") == MAX_FAULTS - 1


def test_a_key_that_occurs_twice_is_found_at_once_among_many() -> None:
    content = "{" + ",".join(f'"{k}":0' for k in range(300_000)) + ',"299999":1}'  # hours, if each were compared with each
    with pytest.raises(ValueError, match="the key '299999' occurs twice"):
        parse_json(content.encode())


@given(st.one_of(st.text(), st.text(st.characters(categories=["C", "Z", "M"])), st.integers(), st.lists(st.text()), st.binary()))
def test_strangers_texts_are_short_and_printable(value: Any) -> None:
    text = quoted(value)
    assert text.isprintable() and len(text) <= 10 * 160
    text.encode("utf-8")


def test_a_manifest_survives_being_written_and_read(folder: Path) -> None:
    submission = read_submission(folder).submission
    assert read_manifest(submission.model_dump_json().encode()) == submission


def test_names_of_people_are_possible(folder: Path) -> None:
    names = [
        "Zoë Müller",
        "李小龙",
        "\u0645\u062d\u0645\u062f",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "O'Brien-\u0160mid",
        "x",
    ]
    with manifest(folder) as data:
        data["authors"] = names
    found: Json = {"authors": list(read_submission(folder).submission.authors)}
    assert found["authors"] == names
