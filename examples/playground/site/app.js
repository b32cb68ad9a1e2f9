"use strict";

const $ = id => document.getElementById(id);
const state = {stories: [], story: null, values: {}, picture: null, drawn: [], at: Infinity};

function el(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

// ---- The address holds the story and those sliders that were moved.

function readAddress() {
  const q = new URLSearchParams(location.hash.slice(1));
  const story = state.stories.find(s => s.Key === q.get("story")) || state.stories[0];
  const values = {};
  for (const s of story.Sliders) {
    const text = q.get(s.Key), v = Number(text);
    values[s.Key] = text !== null && text !== "" && v >= s.Min && v <= s.Max ? v : s.Value;
  }
  return {story, values};
}

function address(story, values) {
  const q = new URLSearchParams({story: story.Key});
  for (const s of story.Sliders) if (values[s.Key] !== s.Value) q.set(s.Key, values[s.Key]);
  return "#" + q;
}

function show() {
  Object.assign(state, readAddress());
  document.title = state.story.Title + " – Sluice playground";
  $("title").textContent = state.story.Title;
  $("text").textContent = state.story.Text.join(" ");
  for (const a of $("stories").querySelectorAll("a")) {
    if (a.dataset.key === state.story.Key) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  $("sliders").replaceChildren(...state.story.Sliders.map(control));
  compute();
}

// ---- The sliders.

function said(slider, v) {
  if (slider.Choices) return slider.Choices[v];
  return v === 0 && slider.Zero ? slider.Zero : v + slider.Unit;
}

function control(slider) {
  const id = "slider-" + slider.Key, value = state.values[slider.Key];
  const label = el("label", {for: id}, slider.Label);
  if (slider.Choices) {
    const select = el("select", {id}, ...slider.Choices.map((c, i) => el("option", {value: i}, c)));
    select.value = value;
    select.addEventListener("change", () => move(slider, Number(select.value)));
    return el("div", {class: "slider"}, label, select);
  }
  const output = el("output", {for: id}, said(slider, value));
  const input = el("input", {id, type: "range", min: slider.Min, max: slider.Max, step: slider.Step,
    "aria-valuetext": said(slider, value)});
  input.value = value;
  input.addEventListener("input", () => {
    output.textContent = said(slider, Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
    move(slider, Number(input.value));
  });
  return el("div", {class: "slider"}, label, output, input);
}

function move(slider, value) {
  state.values[slider.Key] = value;
  history.replaceState(null, "", address(state.story, state.values));
  compute();
}

// ---- The engine. Only the newest picture counts, and one is computed at a time. A worker
// that takes long for one that does not count any more is replaced.

let patience = 1500; // ms
let worker, wanted = 0, busy = false, asked = Infinity, slow;

function start() {
  worker = new Worker("worker.js");
  worker.onmessage = ({data}) => {
    if (data.ready) asked = performance.now();
    else if (data.error) fail(data.error);
    else answer(data);
  };
  worker.onerror = e => fail(e.message || "the worker has failed");
}

function compute() {
  wanted++;
  if (busy && performance.now() - asked >= patience) {
    worker.terminate();
    asked = Infinity; // until the next one is ready
    start();
    ask();
  } else if (!busy) {
    ask();
  }
}

function ask() {
  busy = true;
  if (asked < Infinity) asked = performance.now();
  $("lanes").classList.add("stale");
  $("picture").setAttribute("aria-busy", "true");
  clearTimeout(slow);
  slow = setTimeout(() => {
    $("verdict").textContent = "Computing …";
    delete $("verdict").dataset.of;
  }, 700);
  worker.postMessage({id: wanted, story: state.story.Key, values: state.values});
}

function answer(data) {
  clearTimeout(slow);
  busy = false;
  document.body.dataset.took = Math.round(data.took);
  document.body.dataset.drawn ||= Math.round(performance.now());
  if (data.id !== wanted) ask();
  else if (data.picture.Error) fail(data.picture.Error);
  else draw(data.picture);
}

function fail(why) {
  clearTimeout(slow);
  $("verdict").textContent = `The picture cannot be computed: ${why}. Reload the page to try again.`;
}

// ---- The picture.

function draw(picture) {
  stop();
  state.picture = picture;
  state.at = Infinity;
  $("at").max = picture.Seconds;
  $("at").step = picture.Seconds / 200;
  $("at").value = picture.Seconds;
  say(picture);
  legend(picture);
  lanes();
  table(picture);
  bars(picture);
  $("lanes").classList.remove("stale");
  $("picture").removeAttribute("aria-busy");
}

// say writes the verdict, which readers of screens announce, once the sliders rest.
let saying;
function say(picture) {
  clearTimeout(saying);
  const of = state.story.Key + JSON.stringify(state.values);
  saying = setTimeout(() => {
    $("verdict").replaceChildren(...picture.Verdicts.map((v, i) =>
      el("span", {}, el("b", {}, picture.Lanes[i].Name + ": "), v)));
    $("verdict").dataset.of = of;
  }, 250);
}

function legend(picture) {
  const items = [["rect", {class: "served", width: 24, height: 12}, "served"],
    ["rect", {class: "refused", width: 24, height: 12}, "refused by the server, and repeated"],
    ["rect", {class: "flight", width: 24, height: 12}, "calls in flight"]];
  if (picture.Limit) items.push(["path", {class: "limit", d: "M0 6H24"}, "what the server grants"]);
  if (picture.Closed[1] > 0) items.push(["rect", {class: "closed", width: 24, height: 12}, "the server refuses all"]);
  if (picture.Lanes.some(l => (l.Pace || []).some(p => p > 0))) items.push(["path", {class: "pace-ink", d: "M0 6H24"}, "the pace that the gate has learned"]);
  $("legend").replaceChildren(...items.map(([shape, attributes, words]) =>
    el("li", {}, chart.svg("svg", {viewBox: "0 0 24 12", "aria-hidden": "true"}, chart.svg(shape, attributes)), words)));
}

function lanes() {
  const picture = state.picture;
  if (!picture) return;
  const width = Math.max(280, $("lanes").clientWidth), scale = chart.scales(picture);
  state.width = $("lanes").clientWidth;
  state.drawn = [];
  $("lanes").replaceChildren(...picture.Lanes.map((lane, i) => {
    const words = `Calls of ${lane.Name} over ${picture.Seconds} seconds. ${picture.Verdicts[i]} The numbers are in the tables below.`;
    const d = chart.draw(picture, lane, scale, width, words), count = el("span");
    state.drawn.push({...d, count, lane});
    return el("section", {class: "lane", "aria-label": lane.Name}, el("h3", {}, lane.Name, count), d.root);
  }));
  until(state.at);
}

function row(kind, cells) {
  return el("tr", {}, ...cells.map((c, i) => {
    const head = kind === "th" || i === 0;
    return el(head ? "th" : "td", head ? {scope: kind === "th" ? "col" : "row"} : {}, String(c));
  }));
}

function table(picture) {
  $("table").replaceChildren(el("table", {}, el("caption", {}, `${picture.Seconds} seconds in numbers`),
    el("thead", {}, row("th", ["", ...picture.Lanes.map(l => l.Name)])),
    el("tbody", {}, ...picture.Table.map(r => row("td", [r.Label, ...r.Values])))));
  $("table").querySelector("th").replaceWith(el("td"));
}

// bars writes the table of the bars, once it is open.
function bars(picture) {
  if (!$("bars").open || !picture) return;
  const measures = ["served", "refused", "in flight", "waiting"];
  const names = el("tr", {}, el("td"), ...picture.Lanes.map(l => el("th", {scope: "colgroup", colspan: measures.length}, l.Name)));
  const rows = picture.Lanes[0].Served.map((_, i) => row("td", [+(i * picture.Bin).toFixed(1) + " s",
    ...picture.Lanes.flatMap(l => [l.Served[i], l.Refused[i], l.InFlight[i].toFixed(1), l.Waiting[i].toFixed(1)])]));
  $("bars").querySelector("div").replaceChildren(el("table", {},
    el("caption", {}, `Calls that left in each ${+picture.Bin.toFixed(1)} s, and how many were in flight and waiting on average`),
    el("thead", {}, names, row("th", ["from", ...picture.Lanes.flatMap(() => measures)])), el("tbody", {}, ...rows)));
}

// ---- The replay.

function until(t) {
  const picture = state.picture, end = picture.Seconds;
  state.at = t = Math.min(t, end);
  $("now").textContent = `${t.toFixed(end > 100 ? 0 : 1)} s`;
  for (const d of state.drawn) {
    d.until(t);
    d.count.textContent = tally(picture, d.lane, t);
  }
}

function tally(picture, lane, t) {
  let served = 0, refused = 0;
  if (lane.Left && lane.Left.length) {
    for (let i = 0; i < lane.Left.length && lane.Left[i] <= t * 1e6; i++) lane.Outcome[i] === "2" ? refused++ : served++;
  } else {
    for (let i = 0; (i + 1) * picture.Bin <= t * 1.0001; i++) {
      served += lane.Served[i];
      refused += lane.Refused[i];
    }
  }
  return `${served + refused} calls left, ${refused} of them refused`;
}

let frame = 0;
function play() {
  const picture = state.picture;
  if (!picture) return;
  if (frame) return stop();
  const speed = Math.max(3, picture.Seconds / 10) / 1000;
  let from = state.at >= picture.Seconds ? 0 : state.at, began;
  $("play").textContent = "Stop";
  $("at").value = from;
  until(from);
  const step = now => {
    began = began || now;
    const t = from + (now - began) * speed;
    $("at").value = t;
    until(t);
    if (t < picture.Seconds) frame = requestAnimationFrame(step);
    else stop();
  };
  frame = requestAnimationFrame(step);
}

function stop() {
  cancelAnimationFrame(frame);
  frame = 0;
  $("play").textContent = "Replay";
}

// ---- The beginning.

start();

$("play").addEventListener("click", play);
$("at").addEventListener("input", () => { stop(); if (state.picture) until(Number($("at").value)); });
$("bars").addEventListener("toggle", () => bars(state.picture));
$("sliders").addEventListener("submit", e => e.preventDefault());
$("reset").addEventListener("click", () => {
  history.replaceState(null, "", "#story=" + state.story.Key);
  show();
});
addEventListener("hashchange", () => { if (new URLSearchParams(location.hash.slice(1)).has("story")) show(); });
new ResizeObserver(() => { if ($("lanes").clientWidth !== state.width) lanes(); }).observe($("lanes"));

fetch("stories.json").then(r => r.json()).then(stories => {
  state.stories = stories;
  $("stories").replaceChildren(...stories.map(s =>
    el("li", {}, el("a", {href: "#story=" + s.Key, "data-key": s.Key}, s.Title))));
  show();
}).catch(e => fail(e.message));
