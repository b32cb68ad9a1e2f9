// Keeps the page as it is now. The server computes every text; this script replaces them with
// each message, draws the charts and, with a token, sends changes.
"use strict";
(() => {
const seconds = 60;    // that a chart shows
const remembered = 500; // gates whose charts are kept
const $ = (selector, from = document) => from.querySelector(selector);
const body = $("#gates"), form = $("#tools"), statusLine = $("#status"), freeze = $("#freeze");
const access = $("#access");
const rows = new Map();    // id → element
const past = new Map();    // id → [{at, pace, limit, low, high}]
let kept = new Map();      // name → {row, points} of the program before a restart
let start = null, last = 0, source = null, retry = 0, timer = null, silence = null, frozen = false;

// ---- The connection.

function connect() {
	disconnect();
	if (frozen || document.hidden) return;
	const query = new URLSearchParams(new FormData(form));
	query.set("events", "1");
	source = new EventSource("?" + query);
	source.onmessage = event => {
		const message = JSON.parse(event.data);
		retry = 0;
		listen(message.every);
		show(message);
	};
	source.onerror = lost;
	listen(5000);
}

function disconnect() {
	clearTimeout(timer);
	clearTimeout(silence);
	if (source) source.close();
	source = null;
}

// listen takes a long silence for a lost connection.
function listen(every) {
	clearTimeout(silence);
	silence = setTimeout(lost, 5000 + 3 * every);
}

function lost() {
	disconnect();
	say("The connection is lost: these numbers are " + (last ? "of " + new Date(last).toLocaleTimeString() : "old") + ". Trying again.", true);
	const wait = Math.min(10000, 500 * 2 ** retry++);
	timer = setTimeout(connect, wait * (0.75 + Math.random() / 2));
}

// say changes the status only if it is another one: a screen reader reads it aloud.
function say(text, bad) {
	statusLine.classList.toggle("lost", !!bad);
	if (statusLine.textContent !== text) statusLine.textContent = text;
}

// ---- The table.

function show(message) {
	if (start !== null && start !== message.start) restarted();
	if (start === null) body.replaceChildren(); // what the server has rendered
	start = message.start;
	last = message.at;
	say("Live: updated every " + (message.every === 1000 ? "second" : message.every / 1000 + " s") + ".");
	setText($("#total"), message.total + ".");
	setText($("#count"), message.gates.length === 0 ? "No gates match or there are none yet." :
		message.gates.length + " of " + message.matching + " gates are shown" +
		(message.gates.length < message.matching ? ": search for the others." : "."));
	const order = message.gates.map(gate => {
		let row = rows.get(gate.id);
		if (!row) rows.set(gate.id, row = take(gate) || newRow(gate));
		remember(gate, message.at);
		update(row, gate, message.at);
		return row;
	});
	const shown = new Set(order);
	for (const [id, row] of rows) {
		if (shown.has(row)) continue;
		row.remove();
		rows.delete(id);
	}
	arrange(order);
}

// restarted sets aside what there is of the gates of the program before, which had other
// numbers. A gate of the same name goes on with it.
function restarted() {
	kept = new Map();
	for (const [id, row] of rows) {
		row.remove();
		if (!kept.has(row.gate.name)) kept.set(row.gate.name, {row, points: past.get(id) || []});
	}
	rows.clear();
	past.clear();
}

// take returns the row of a gate of this name before the restart, and keeps its chart.
function take(gate) {
	const old = kept.get(gate.name);
	if (!old) return null;
	kept.delete(gate.name);
	past.set(gate.id, old.points);
	return old.row;
}

// arrange puts the rows in order, unless somebody points at them or types there.
function arrange(order) {
	if (body.matches(":hover") || body.querySelector(":focus-visible")) {
		for (const row of order) if (!row.isConnected) body.append(row);
		return;
	}
	order.forEach((row, i) => {
		if (body.children[i] !== row) body.insertBefore(row, body.children[i] || null);
	});
}

function newRow(gate) {
	const row = $("#row").content.firstElementChild.cloneNode(true);
	row.querySelectorAll("dt, dd").forEach(e => e.remove());
	$("details", row).addEventListener("toggle", () => draw(row));
	if (gate.can) $("details", row).append(controls(row, gate));
	return row;
}

function setText(element, text) {
	if (element.textContent !== text) element.textContent = text;
}

function update(row, gate, at) {
	row.gate = gate;
	row.at = at;
	if (row.className !== gate.state) row.className = gate.state;
	for (const element of row.querySelectorAll("[data-f]")) setText(element, gate[element.dataset.f]);
	$("th", row).setAttribute("aria-label", gate.name);
	for (const input of row.querySelectorAll(".change input")) fill(input, gate);
	if ($("details", row).open) facts($("dl", row), gate.facts || []);
	draw(row);
}

function facts(list, all) {
	while (list.children.length > 2 * all.length) list.lastElementChild.remove();
	all.forEach((fact, i) => {
		if (!list.children[2 * i]) list.append(document.createElement("dt"), document.createElement("dd"));
		setText(list.children[2 * i], fact.term);
		setText(list.children[2 * i + 1], fact.text);
	});
}

// ---- The charts.

function remember(gate, at) {
	const points = past.get(gate.id) || [];
	if (!points.length || points[points.length - 1].at < at)
		points.push({at, pace: gate.pace, limit: gate.limit || 0, low: gate.low || 0, high: gate.high || 0});
	while (points.length && points[0].at < at - 1000 * seconds) points.shift();
	past.delete(gate.id); // so that those not seen for the longest time come first
	past.set(gate.id, points);
	if (past.size > remembered) past.delete(past.keys().next().value);
}

function svg(name, attributes, text) {
	const e = document.createElementNS("http://www.w3.org/2000/svg", name);
	for (const key in attributes) e.setAttribute(key, attributes[key]);
	if (text !== undefined) e.textContent = text;
	return e;
}

const digits = x => x >= 1000 ? Math.round(x).toLocaleString("en") : String(+x.toPrecision(3));

// ceiling returns a round number that is at least x.
function ceiling(x) {
	const unit = 10 ** Math.floor(Math.log10(x));
	return unit * [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find(n => n * unit >= x * 0.9999);
}

function draw(row) {
	const points = past.get(row.gate.id) || [];
	if ($("details", row).open) {
		facts($("dl", row), row.gate.facts || []);
		$(".chart", row).replaceChildren(chart(points, row.at, Math.min(560, $(".chart", row).clientWidth || 560), 136, true));
	}
	const spark = $(".spark", row);
	spark.replaceChildren(...(points.some(p => p.pace > 0) ? [chart(points, row.at, 128, 26, false)] : []));
}

// chart draws the pace of the last minute. Its height begins at 0; a time without a message
// is a gap.
function chart(points, now, width, height, large) {
	const left = large ? 52 : 0, bottom = large ? 34 : 0, top = large ? 8 : 2, right = large ? 4 : 40;
	const known = points.filter(p => p.pace >= 0);
	const high = ceiling(Math.max(0.01, ...known.map(p => p.pace), ...(large ? points.map(p => Math.max(p.limit, p.high)) : [])));
	const x = p => left + (width - left - right) * (1 - (now - p.at) / (1000 * seconds));
	const y = v => height - bottom - (height - bottom - top) * Math.min(1, v / high);
	const drawing = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img"});
	const last = known.length ? known[known.length - 1].pace : 0;
	drawing.setAttribute("aria-label", `Calls leaving in the last ${seconds} s: now ${digits(last)} per second, on a scale from 0 to ${digits(high)}`);
	drawing.append(svg("path", {class: "axis", d: `M${left} ${y(high)}V${y(0)}H${width - right}`}));
	if (large) {
		band(drawing, points, x, y, high);
		line(drawing, points, "limit", p => p.limit > 0 ? [x(p), y(p.limit)] : null);
	}
	line(drawing, points, "pace", p => p.pace >= 0 ? [x(p), y(p.pace)] : null);
	if (!large) {
		drawing.append(svg("text", {x: width - right + 4, y: top + 8}, digits(high) + "/s"));
		return drawing;
	}
	const label = (at, to, anchor, text) => drawing.append(svg("text", {x: at, y: to, "text-anchor": anchor}, text));
	label(left - 5, y(high) + 5, "end", digits(high) + "/s");
	label(left - 5, y(0), "end", "0");
	label(left, height - 19, "start", seconds + " s ago");
	label(width - right, height - 19, "end", "now");
	label(left, height - 3, "start", "line: calls leaving" +
		(points.some(p => p.limit) ? ", dashed: pace asked" : "") + (points.some(p => p.high) ? ", shaded: bounds" : ""));
	return drawing;
}

function line(drawing, points, kind, at) {
	let d = "", before = null;
	for (const p of points) {
		const place = at(p);
		if (place) d += (before && p.at - before.at < 5000 ? "L" : "M") + place.map(v => v.toFixed(1)).join(" ");
		before = place ? p : null;
	}
	if (d) drawing.append(svg("path", {class: kind, d}));
}

// band shades what lies between the pace that the server granted and the one it refused.
function band(drawing, points, x, y, high) {
	for (let i = 1; i < points.length; i++) {
		const a = points[i - 1], b = points[i];
		if (!b.low && !b.high || b.at - a.at > 5000) continue;
		const over = y(b.high || high), under = y(b.low);
		drawing.append(svg("rect", {class: "band", x: x(a), y: over, width: x(b) - x(a), height: Math.max(1, under - over)}));
	}
}

// ---- Changes.

// controls returns the form of a row. It says there what a change has done, and takes it back.
function controls(row, gate) {
	const box = document.createElement("form"), said = document.createElement("output");
	box.className = "change";
	box.addEventListener("submit", event => event.preventDefault());
	const button = (text, act) => {
		const b = document.createElement("button");
		b.type = "button";
		b.textContent = text;
		b.addEventListener("click", act);
		return b;
	};
	const undo = button("Undo", () => { if (undo.change) apply(undo.change); });
	undo.hidden = true;
	const tell = (text, bad, change) => {
		said.classList.toggle("bad", bad);
		said.textContent = text;
		undo.change = change;
		if (!change && document.activeElement === undo) $("input, button", box).focus();
		undo.hidden = !change;
	};
	const apply = async change => {
		const answer = await send(row.gate, change);
		tell(answer.said, !answer.ok, answer.undo);
		for (const input of box.querySelectorAll("input")) if (answer.ok && input.does === change.do) input.shown = input.value;
	};
	const field = (name, does, value, hint, read) => {
		const label = document.createElement("label"), input = document.createElement("input");
		Object.assign(input, {does, placeholder: hint, autocomplete: "off", current: value});
		const act = () => {
			const change = read(input.value.trim());
			if (change) apply({do: does, ...change});
			else tell("Nothing is changed: want " + hint + ".", true);
		};
		label.append(name + " ", input);
		input.addEventListener("keydown", event => {
			if (event.key !== "Enter") return;
			event.preventDefault();
			act();
		});
		const set = button("Set", act);
		set.setAttribute("aria-label", "Set " + name.toLowerCase());
		box.append(label, set);
		fill(input, gate);
	};
	if (gate.can.includes("p")) box.append(button("Pause for 1 min", () => apply({do: "pause"})), button("Resume", () => apply({do: "resume"})));
	if (gate.can.includes("r")) field("Rate", "rate", gate => gate.rate, "5/s or none", text => text && {rate: text});
	if (gate.can.includes("c")) field("In flight", "concurrency", gate => gate.most ? String(gate.most) : "none", "a number or none",
		text => text === "none" ? {limit: 0} : /^[0-9]{1,15}$/.test(text) && {limit: Number(text)});
	box.append(undo, said);
	return box;
}

// fill shows the current value in an input, unless somebody has typed another one there.
function fill(input, gate) {
	const value = input.current(gate);
	if (input.shown !== undefined && input.value !== input.shown) return;
	if (document.activeElement === input && input.shown !== undefined) return;
	if (input.value !== value) input.value = value;
	input.shown = value;
}

async function send(gate, change) {
	try {
		const response = await fetch("", {
			method: "POST",
			headers: {"Content-Type": "application/json", "Sluice-Token": access.elements.token.value},
			body: JSON.stringify({start, gate: gate.id, ...change}),
		});
		return {...await response.json(), ok: response.ok};
	} catch {
		return {said: "The change could not be sent.", ok: false};
	}
}

// ---- The tools.

let typing = null;
form.addEventListener("submit", event => { event.preventDefault(); ask(); });
form.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(ask, 250); });

function ask() {
	clearTimeout(typing);
	history.replaceState(null, "", "?" + new URLSearchParams(new FormData(form)));
	connect();
}

freeze.hidden = false;
freeze.addEventListener("click", () => {
	frozen = !frozen;
	freeze.setAttribute("aria-pressed", frozen);
	if (frozen) say("Frozen: these numbers do not change.");
	connect();
});

if (access) {
	access.hidden = false;
	access.addEventListener("submit", event => event.preventDefault());
}
document.addEventListener("visibilitychange", connect); // a page that nobody sees costs nothing
window.addEventListener("pagehide", disconnect);
connect();
})();
