"use strict";
// Plays a recorded episode: the first picture and then patches of it, and the tree of frames beside it.

const MANY = 300; // frames beyond which only those near the acting one are listed
const byId = (id) => document.getElementById(id);
const canvas = byId("canvas");
const paper = canvas.getContext("2d");
let episode = null;
let pictures = [];
let at = 0;
let drawn = -1;
let timer = 0;

function load(source) {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error("a picture cannot be read"));
    image.src = `data:image/png;base64,${source}`;
  });
}

globalThis.raoEpisode = async (key, data) => {
  if (location.hash.slice(1) !== key) return;
  try {
    const first = await load(data.first);
    const patches = await Promise.all(data.steps.map((step) => step.patch && load(step.patch[2])));
    episode = data;
    pictures = [first, ...patches];
  } catch (error) {
    complain(`The episode cannot be shown: ${error.message}.`);
    return;
  }
  [canvas.width, canvas.height] = data.size;
  byId("title").textContent = data.title;
  document.title = `${data.title} - RAO-envs leaderboard`;
  byId("about").textContent = `Seed ${data.seed}, which follows from the policy's files. ${data.frames.length} frames.`;
  byId("slider").max = data.steps.length;
  byId("problem").hidden = true;
  byId("stage").hidden = false;
  drawn = -1;
  show(0);
};

function complain(text) {
  stop();
  byId("stage").hidden = true;
  byId("problem").textContent = text;
  byId("problem").hidden = false;
}

function open() {
  stop();
  const key = location.hash.slice(1);
  for (const link of document.querySelectorAll("#episodes a")) {
    if (link.hash.slice(1) === key) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!key) {
    byId("stage").hidden = true;
    return;
  }
  if (!/^[0-9a-f]{12}$/.test(key)) {
    complain("There is no such episode.");
    return;
  }
  const script = document.createElement("script");
  script.src = `episodes/${key}.js`;
  script.onerror = () => complain("There is no such episode.");
  document.head.append(script);
  script.onload = () => script.remove();
}

function paint(step) {
  if (step < drawn || drawn < 0) {
    paper.drawImage(pictures[0], 0, 0);
    drawn = 0;
  }
  for (let k = drawn + 1; k <= step; k += 1) {
    const patch = episode.steps[k - 1].patch;
    if (patch) paper.drawImage(pictures[k], patch[0], patch[1]);
  }
  drawn = step;
}

function acting(step) {
  return step === 0 ? 0 : episode.steps[step - 1].frame;
}

function words(step) {
  const total = episode.steps.length;
  if (step === 0) return `Step 0 of ${total}: the root frame acts first.`;
  const { action, frame, event } = episode.steps[step - 1];
  const ended = episode.frames.filter((each) => each.close === step);
  let text = `Step ${step} of ${total}: ${action.replaceAll("_", " ")}`;
  if (event === "spawn") text += `; frame ${frame} opens at depth ${episode.frames[frame].depth}`;
  for (const each of ended) text += `; ${each.id === 0 ? "the root" : `frame ${each.id}`} ${each.ok ? "succeeds" : "fails"}`;
  if (step === total) text += `. The episode is over: ${episode.success ? "success" : "failure"}.`;
  else text += `. Frame ${frame} acts next.`;
  return text;
}

function tree(step) {
  const now = acting(step);
  let frames = episode.frames;
  if (frames.length > MANY) frames = frames.filter((each) => Math.abs(each.id - now) < MANY / 2 || each.depth < 2);
  const list = document.createElement("ol");
  for (const each of frames) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.style.paddingLeft = `${0.4 + 0.9 * each.depth}rem`;
    const mark = document.createElement("span");
    mark.setAttribute("aria-hidden", "true");
    const over = each.close !== null && each.close <= step;
    const later = each.open > step;
    mark.textContent = over ? (each.ok ? "\u2713" : "\u2717") : later ? "\u00b7" : "\u25cb";
    if (over) mark.className = each.ok ? "ok" : "failed";
    const name = document.createElement("span");
    name.textContent = `${each.id} ${each.how.replaceAll("_", " ")}`;
    const state = document.createElement("span");
    state.className = "hidden";
    state.textContent = over ? (each.ok ? ", succeeded" : ", failed") : later ? ", not yet open" : ", open";
    button.append(mark, name, state);
    button.className = over ? "closed" : later ? "later" : "open";
    if (each.id === now && step < episode.steps.length) button.setAttribute("aria-current", "step");
    button.addEventListener("click", () => { stop(); show(each.open); });
    item.append(button);
    list.append(item);
  }
  const place = byId("tree");
  const focused = [...place.querySelectorAll("button")].indexOf(document.activeElement);
  place.replaceChildren(list);
  if (focused >= 0) place.querySelectorAll("button")[focused]?.focus();
  const current = place.querySelector("[aria-current]");
  if (current) {
    const above = current.offsetTop - place.offsetTop;
    if (above < place.scrollTop || above > place.scrollTop + place.clientHeight - 40) place.scrollTop = above - place.clientHeight / 2;
  }
}

function show(step) {
  if (!episode) return;
  at = Math.max(0, Math.min(step, episode.steps.length));
  paint(at);
  tree(at);
  byId("slider").value = at;
  byId("slider").setAttribute("aria-valuetext", `step ${at} of ${episode.steps.length}`);
  byId("status").textContent = words(at);
  canvas.setAttribute("aria-label", `The environment's picture. ${words(at)}`);
  if (at === episode.steps.length) stop();
}

function stop() {
  clearInterval(timer);
  timer = 0;
  byId("play").textContent = "Play";
  byId("play").setAttribute("aria-pressed", "false");
}

function play() {
  if (timer || !episode) {
    stop();
    return;
  }
  if (at === episode.steps.length) show(0);
  timer = setInterval(() => show(at + 1), Number(byId("speed").value));
  byId("play").textContent = "Pause";
  byId("play").setAttribute("aria-pressed", "true");
}

byId("play").addEventListener("click", play);
byId("start").addEventListener("click", () => { stop(); show(0); });
byId("end").addEventListener("click", () => { stop(); show(Infinity); });
byId("back").addEventListener("click", () => { stop(); show(at - 1); });
byId("forward").addEventListener("click", () => { stop(); show(at + 1); });
byId("slider").addEventListener("input", () => { stop(); show(Number(byId("slider").value)); });
byId("speed").addEventListener("change", () => { if (timer) { stop(); play(); } });
addEventListener("hashchange", open);
addEventListener("keydown", (event) => {
  if (!episode || event.ctrlKey || event.metaKey || event.altKey) return;
  const field = event.target;
  if (field instanceof HTMLSelectElement || (field instanceof HTMLInputElement && event.key !== " ")) return;
  if (field instanceof HTMLButtonElement && (event.key === " " || event.key === "Enter")) return;
  const far = event.shiftKey ? 10 : 1;
  const moves = { ArrowRight: () => at + far, ArrowLeft: () => at - far, Home: () => 0, End: () => Infinity };
  if (event.key === " ") play();
  else if (moves[event.key]) { stop(); show(moves[event.key]()); }
  else return;
  event.preventDefault();
});
open();
