"""A distillation report as one HTML file with everything in it: no script, no network."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from typing import Any

STYLE = """
:root { --ink: #1c2430; --soft: #5b6675; --line: #e3e7ec; --paper: #ffffff; --wash: #f5f7fa; --good: #007a56; --bad: #b34700; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--wash); color: var(--ink); font: 15px/1.55 system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 36px 20px 60px; }
h1 { font-size: 27px; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 18px; margin: 0 0 6px; }
p { margin: 0 0 12px; color: var(--soft); max-width: 78ch; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 14px; margin: 24px 0; }
.tile, section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 14px 16px; }
.tile b { display: block; font-size: 25px; line-height: 1.25; font-variant-numeric: tabular-nums; letter-spacing: -0.01em; }
.tile span { color: var(--soft); font-size: 13px; }
.tile .name { text-transform: uppercase; letter-spacing: 0.05em; font-size: 11px; }
.good { color: var(--good); } .bad { color: var(--bad); }
section { padding: 20px 22px; margin: 0 0 18px; }
img { display: block; width: 100%; height: auto; margin: 8px 0 4px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
tr:last-child td { border-bottom: 0; }
small, .soft { color: var(--soft); font-weight: 400; }
footer { color: var(--soft); font-size: 13px; margin-top: 26px; }
code { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; background: var(--wash); padding: 1px 5px; border-radius: 4px; }
"""


def page(measured: Mapping[str, Any], pictures: Mapping[str, bytes], skills: Sequence[str] = ()) -> str:
    """The report.

    Args:
        measured: of `distill_measure.measure`.
        pictures: PNG files by name: "rounds", and where they were made "learning", "map", "importance" and "skills".
        skills: a line for each skill of the library.
    """
    run = measured["run"]
    parts = [_tiles(measured), _zero_shot(measured, pictures)]
    if measured["learning"] is not None:
        parts.append(_learning(measured, pictures))
    parts.append(_rounds(measured))
    if measured["knowledge"] is not None and "importance" in pictures:
        text = (
            f"The {measured['knowledge']['kind']} knowledge of the last round: how much its answers change with each part of what it sees."
        )
        parts.append(_section("What the knowledge reads", text, pictures["importance"]))
    if "skills" in pictures:
        text = _skills_text(measured["knowledge"]["figures"])
        listed = "".join(f"<li>{html.escape(line)}</li>" for line in skills)
        parts.append(_section("Skills", text, pictures["skills"], f'<ul class="soft">{listed}</ul>' if listed else ""))
    if "map" in pictures:
        text = (
            f"The {len(measured['map']['x']):,} states of the last policy's own episodes that decide most what it does (the divergence of "
            f"its choice there from its average choice among what is allowed), placed by t-SNE of {measured['map']['of']}: what is close "
            "is alike to the network. Distances between far groups, and their sizes, mean nothing."
        )
        parts.append(_section("Decisive states", text, pictures["map"]))
    title = f"Self-distillation of {run['algorithm']} on {run['env_id']}"
    head = f"<h1>{html.escape(title)}</h1><p>Run <code>{html.escape(run['path'])}</code>, seed {run['seed']}, {_count(measured)}.</p>"
    foot = (
        f"Scores are means over {measured['options']['episodes']} fixed seeds, each episode played to its end, actions sampled, with 95 % "
        "intervals. One run is one seed: differences between rounds are also those of more training; what distillation adds is the "
        "difference to the same run without it."
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n<body><main>{head}{''.join(parts)}<footer>{foot}</footer></main></body></html>\n"
    )


def _count(measured: Mapping[str, Any]) -> str:
    made = [one for one in measured["rounds"] if one["round"]]
    lost = sum(bool(one.get("rolled_back")) for one in made)
    return f"{len(made)} rounds" + (f", {lost} taken back" if lost else "")


def _tiles(measured: Mapping[str, Any]) -> str:
    points, tiles = measured["zero_shot"], []
    own = measured["tasks"][0]["name"]
    tiles.append(_change("on its own task", _main(points[0], own), _main(points[-1], own)))
    others = [task["name"] for task in measured["tasks"][1:]]
    if others:
        first, last = (sum(_main(point, name) for name in others) / len(others) for point in (points[0], points[-1]))
        tiles.append(_change(f"zero-shot, mean of {len(others)} tasks", first, last))
    if measured["learning"] is not None:
        found = measured["learning"]["rounds"]
        reached = [one["steps_to_threshold"] for one in (found[0], found[-1])]
        texts = ["not reached" if steps is None else f"{steps / 1000:.1f} k" for steps in reached]
        better = reached[1] is not None and (reached[0] is None or reached[1] < reached[0])
        name = f"steps to {measured['options']['threshold']:.0%} on a new task"
        tiles.append(_tile(name, texts[1], f"first round shown: {texts[0]}", "good" if better else ""))
    about = [one["knowledge"] for one in measured["rounds"] if one["knowledge"] is not None]
    if about:
        share = about[-1]["parameters"] / max(measured["policy_parameters"], 1)
        text = f"{share:.0%} of the policy's {measured['policy_parameters']:,}; {about[-1]['depth']} layers"
        tiles.append(_tile("parameters of the knowledge", f"{about[-1]['parameters']:,}", text))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _main(point: Mapping[str, Any], task: str) -> float:
    found = point["scores"][task]
    return float(found["return"] if found["success"] is None else found["success"])


def _change(name: str, first: float, last: float) -> str:
    """A tile of a success that went from `first` to `last`."""
    kind = "good" if last > first + 0.02 else "bad" if last < first - 0.02 else ""
    return _tile(name, f"{last:.2f}", f"{first:.2f} in the first round shown", kind)


def _tile(name: str, value: str, text: str, kind: str = "") -> str:
    name, value, text = map(html.escape, (name, value, text))
    return f'<div class="tile"><span class="name">{name}</span><b class="{kind}">{value}</b><span>{text}</span></div>'


def _skills_text(figures: Mapping[str, float]) -> str:
    """What skills are, and whether these are any."""
    gain = figures["elbo"] - figures["memoryless"]
    verdict = (
        "there is more than one way of acting in what the frames did"
        if gain > 0.02
        else "that is next to nothing: the frames act in one way that depends on the state alone, and the skills below are hardly apart"
    )
    return (
        "Ways of acting that explain pieces of what the frames did: what each does, and where it is used. Knowing the skill of a piece "
        f"explains {max(gain, 0.0):.3f} nats per step of what was done: {verdict}."
    )


def _zero_shot(measured: Mapping[str, Any], pictures: Mapping[str, bytes]) -> str:
    text = (
        "Each round's policy on the task of the training, on other sizes (dashed) and on other members of the family (dash-dotted), none "
        "of which it has trained on."
    )
    rows = [
        [_label(point["round"], point["timesteps"]), *(_interval(point["scores"][task["name"]]) for task in measured["tasks"])]
        for point in measured["zero_shot"]
    ]
    head = ["round", *(html.escape(task["name"]) for task in measured["tasks"])]
    return _section("Zero-shot, round by round", text, pictures["rounds"], _table(head, rows))


def _interval(found: Mapping[str, Any]) -> str:
    key = "success" if found["summary"].get("success") is not None else "return"
    one = found["summary"][key]
    return f"{one['mean']:.2f} <small>{one['low']:.2f}-{one['high']:.2f}</small>"


def _label(number: int, timesteps: int) -> str:
    return f"{'start' if number == 0 else number} <small>{timesteps:,} steps</small>"


def _learning(measured: Mapping[str, Any], pictures: Mapping[str, bytes]) -> str:
    task = html.escape(measured["learning"]["task"])
    text = (
        f"Policies of several rounds go on learning on {task} with the run's algorithm and settings, without distillation, for at most "
        f"{measured['options']['learn_steps']:,} steps. If the agent gets better at learning, later rounds need fewer."
    )
    return _section(f"Learning a new task: {task}", text, pictures["learning"], escaped=True)


def _rounds(measured: Mapping[str, Any]) -> str:
    head, rows = ["round", "held-out score", "strength", "knowledge", "parameters", "layers", "what came of it"], []
    for one in measured["rounds"]:
        about, held_out = one["knowledge"], one.get("held_out")
        rows.append(
            [
                _label(one["round"], one["timesteps"]),
                "" if held_out is None else f"{held_out:.2f}",
                "" if one.get("strength") is None else f"{one['strength']:g}",
                "" if about is None else html.escape(about["kind"]),
                "" if about is None else f"{about['parameters']:,}",
                "" if about is None else str(about["depth"]),
                '<span class="bad">taken back</span>' if one.get("rolled_back") else _figures(about),
            ]
        )
    text = (
        "What was distilled in each round, how large it is, and how its distillation went (the figures are explained in the documentation)."
    )
    return _section("Rounds", text, None, _table(head, rows))


def _figures(about: Mapping[str, Any] | None) -> str:
    if about is None:
        return ""
    return f"<small>{html.escape(', '.join(f'{name} {value:.3g}' for name, value in list(about['figures'].items())[:4]))}</small>"


def _section(title: str, text: str, picture: bytes | None, more: str = "", escaped: bool = False) -> str:
    name = title if escaped else html.escape(title)
    image = "" if picture is None else f'<img alt="{name}" src="data:image/png;base64,{base64.b64encode(picture).decode("ascii")}">'
    return f"<section><h2>{name}</h2><p>{text if escaped else html.escape(text)}</p>{image}{more}</section>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
