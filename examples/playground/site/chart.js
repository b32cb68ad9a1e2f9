"use strict";

// Charts as plain SVG. All lanes of a picture have the same axes, which begin at 0.
const chart = (() => {
  const left = 56, right = 10, top = 8, bars = 104, strip = 26, flight = 34, gap = 8, foot = 20;
  const height = top + bars + gap + strip + gap + flight + foot;

  function svg(name, attributes = {}, ...children) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    e.append(...children);
    return e;
  }

  // nice returns a step of 1, 2 or 5 times a power of ten, of which about n fit into most.
  function nice(most, n) {
    const raw = most / n, power = 10 ** Math.floor(Math.log10(raw));
    return power * [1, 2, 5, 10].find(m => m * power >= raw * .999);
  }

  // scales returns the axes that all lanes of a picture share.
  function scales(picture) {
    const perSecond = picture.Lanes.flatMap(l => l.Served.map((n, i) => (n + l.Refused[i]) / picture.Bin));
    const most = Math.max(1, ...perSecond, ...(picture.Limit || []).map(s => s.Value));
    const flying = Math.ceil(Math.max(1, ...picture.Lanes.flatMap(l => l.InFlight)));
    const step = nice(most * 1.05, 4);
    return {step, most: Math.ceil(most * 1.02 / step) * step, flying};
  }

  // draw returns the SVG of a lane, which is width pixels wide.
  function draw(picture, lane, scale, width, words) {
    const x = t => left + (width - left - right) * t / picture.Seconds;
    const y = v => top + bars * (1 - v / scale.most);
    const root = svg("svg", {viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": words});
    if (picture.Closed[1] > 0) {
      root.append(svg("rect", {class: "closed", x: x(picture.Closed[0]), y: top, height: bars,
        width: x(Math.min(picture.Closed[1], picture.Seconds)) - x(picture.Closed[0])}));
    }
    for (let v = 0; v <= scale.most * 1.001; v += scale.step) {
      root.append(svg("line", {class: v ? "grid" : "axis", x1: left, x2: width - right, y1: y(v), y2: y(v)}));
      root.append(svg("text", {x: left - 6, y: y(v) + 4, "text-anchor": "end"}, +v.toPrecision(4) + (v + scale.step > scale.most * 1.001 ? "/s" : "")));
    }
    bar(root, picture, lane, x, y);
    lines(root, picture, lane, x, y);
    const stripTop = top + bars + gap, flightTop = stripTop + strip + gap;
    ticks(root, lane, x, stripTop);
    inFlight(root, picture, lane, scale, x, flightTop);
    seconds(root, picture, x, width, flightTop + flight);
    const future = svg("rect", {class: "future", y: top - 2, height: height - foot - top + 2, width: 0, x: 0});
    const head = svg("line", {class: "head", y1: top - 4, y2: height - foot, visibility: "hidden"});
    root.append(future, head);
    return {root, until(t) {
      const all = t >= picture.Seconds;
      future.setAttribute("x", x(t));
      future.setAttribute("width", all ? 0 : x(picture.Seconds) - x(t) + right);
      head.setAttribute("x1", x(t));
      head.setAttribute("x2", x(t));
      head.setAttribute("visibility", all ? "hidden" : "visible");
    }};
  }

  function bar(root, picture, lane, x, y) {
    let served = "", refused = "";
    const box = (i, from, to) => {
      const x0 = x(i * picture.Bin) + .5, x1 = x(Math.min((i + 1) * picture.Bin, picture.Seconds)) - .5;
      return `M${x0.toFixed(1)} ${y(from).toFixed(1)}H${x1.toFixed(1)}V${y(to).toFixed(1)}H${x0.toFixed(1)}z`;
    };
    lane.Served.forEach((n, i) => {
      const a = n / picture.Bin, b = a + lane.Refused[i] / picture.Bin;
      if (a > 0) served += box(i, 0, a);
      if (b > a) refused += box(i, a, b);
    });
    root.append(svg("path", {class: "served", d: served}), svg("path", {class: "refused", d: refused}));
  }

  function lines(root, picture, lane, x, y) {
    if (picture.Limit) {
      let d = "";
      picture.Limit.forEach((s, i) => {
        const end = i + 1 < picture.Limit.length ? picture.Limit[i + 1].At : picture.Seconds;
        d += `${i ? "L" : "M"}${x(s.At).toFixed(1)} ${y(s.Value).toFixed(1)}H${x(end).toFixed(1)}`;
      });
      root.append(svg("path", {class: "limit", d}));
    }
    let d = "", drawn = false;
    (lane.Pace || []).forEach((p, i) => {
      const at = y(p);
      if (p > 0 && at >= 0) d += `${drawn ? "L" : "M"}${x(Math.min((i + 1) * picture.Bin, picture.Seconds)).toFixed(1)} ${at.toFixed(1)}`;
      drawn = p > 0 && at >= 0;
    });
    if (d) root.append(svg("path", {class: "pace", d}), svg("path", {class: "pace-ink", d}));
  }

  // ticks draws each call that left: a served one in the upper half, a refused one below.
  function ticks(root, lane, x, at) {
    root.append(svg("text", {x: left - 6, y: at + strip / 2 + 4, "text-anchor": "end"}, "calls"));
    root.append(svg("line", {class: "grid", x1: x(0), x2: x(0), y1: at, y2: at + strip}));
    if (!lane.Left || !lane.Left.length) {
      root.append(svg("text", {x: left + 6, y: at + strip / 2 + 4}, "too many to be drawn one by one"));
      return;
    }
    const d = ["", ""], seen = new Set();
    lane.Left.forEach((us, i) => {
      const refused = lane.Outcome[i] === "2" ? 1 : 0;
      const line = `M${x(us / 1e6).toFixed(1)} ${at + refused * (strip / 2 + 1)}v${strip / 2 - 1}`;
      if (!seen.has(line)) d[refused] += line;
      seen.add(line);
    });
    root.append(svg("path", {class: "tick-served", d: d[0]}), svg("path", {class: "tick-refused", d: d[1]}));
  }

  function inFlight(root, picture, lane, scale, x, at) {
    const y = v => at + flight * (1 - v / scale.flying);
    let d = `M${x(0)} ${at + flight}`;
    lane.InFlight.forEach((n, i) => {
      d += `V${y(n).toFixed(1)}H${x(Math.min((i + 1) * picture.Bin, picture.Seconds)).toFixed(1)}`;
    });
    root.append(svg("path", {class: "flight", d: d + `V${at + flight}z`}));
    root.append(svg("text", {x: left - 6, y: at + 10, "text-anchor": "end"}, scale.flying));
    root.append(svg("text", {x: left - 6, y: at + flight - 2, "text-anchor": "end"}, "in flight"));
  }

  function seconds(root, picture, x, width, at) {
    const step = nice(picture.Seconds, Math.max(3, Math.min(10, width / 90)));
    root.append(svg("line", {class: "axis", x1: left, x2: width - right, y1: at, y2: at}));
    for (let t = 0; t <= picture.Seconds * 1.001; t += step) {
      const last = t + step > picture.Seconds * 1.001;
      root.append(svg("line", {class: "axis", x1: x(t), x2: x(t), y1: at, y2: at + 4}));
      root.append(svg("text", {x: x(t), y: at + 17, "text-anchor": last ? "end" : "middle"}, t + (last ? " s" : "")));
    }
  }

  return {draw, scales, svg};
})();
