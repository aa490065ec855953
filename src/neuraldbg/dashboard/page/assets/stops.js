/* The buttons by which the page stops the training beside which the dashboard runs. heartbeat.js brings the state. Names
   of layers and lines of code are only ever put into textContent. */
(function () {
  "use strict";
  const ROOT = JSON.parse(document.getElementById("_dash-config").textContent).requests_pathname_prefix;
  const MOST = 300; // rows of layers that are shown at once
  const NAMED = 5; // breakpoints that are named above the list
  const MOMENTS = [["after_layer", "Output"], ["after_backward", "Gradient"]];
  const COLUMNS = ["", "shape", "dtype", "values", "NaN or infinite", "zero", "mean", "std", "rms", "min", "max", "norm"];
  const parts = {};
  let worker, state = { state: "waiting" }, layers = [], drawnStop = 0, drawnList = "";

  function made(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {}))
      if (name === "text") node.textContent = value;
      else if (name === "on") node.addEventListener("click", value);
      else node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  const button = (text, on, more) => made("button", { type: "button", class: "tool", text: text, on: on, ...more });

  /* A button that cannot be used now keeps the focus: Enter on "Next layer" may be pressed again at the next stop. */
  function usable(node, may) {
    node.setAttribute("aria-disabled", String(!may));
  }
  const may = (node) => node.getAttribute("aria-disabled") !== "true";

  function build(room) {
    parts.room = room;
    parts.said = made("span", { role: "status" });
    parts.far = made("span", {}); // apart: a screen reader must not read every step
    parts.go = button("Pause", () => may(parts.go) && ask(state.state === "paused" ? "continue" : "pause"));
    parts.layer = button("Next layer", () => may(parts.layer) && ask("layer"));
    parts.step = button("Next step", () => may(parts.step) && ask("step"));
    parts.chosen = button("", () => toggle(parts.chosen.dataset.layer, "after_layer"), { hidden: "" });
    parts.note = made("p", { class: "note", role: "status" });
    parts.stop = made("div", { class: "stops-at" });
    parts.count = made("summary", { text: "Breakpoints" });
    parts.filter = made("input", { type: "text", class: "stops-filter", "aria-label": "Filter layers", placeholder: "name or type" });
    parts.filter.addEventListener("input", () => (list(), (parts.scroll.scrollTop = 0)));
    parts.clear = button("Clear all", () => ask("clear all"));
    parts.rows = made("tbody");
    const head = made("tr", {}, ...["Stop at", "Layer", "Type"].map((text) => made("th", { text: text, scope: "col" })));
    const table = made("table", {}, made("thead", {}, head), parts.rows);
    parts.scroll = made("div", { class: "scroll stops-layers", tabindex: "0" }, table);
    parts.more = made("p", { class: "note" });
    parts.list = made("details", { class: "stops-list" }, parts.count,
      made("div", { class: "stops-tools" }, parts.filter, parts.clear),
      parts.scroll, parts.more);
    parts.list.addEventListener("toggle", list);
    const tools = made("div", { class: "stops-tools", role: "group", "aria-label": "Stop the training" },
      parts.go, parts.layer, parts.step, parts.chosen);
    parts.section = made("section", { class: "stops", "aria-label": "Stops of the training", hidden: "" },
      made("div", { class: "stops-head" }, made("p", { class: "stops-state" }, parts.said, parts.far), tools), parts.note, parts.stop, parts.list);
    room.append(parts.section);
  }

  async function ask(what, more) {
    const body = { do: what, layers: layers.length, ...more };
    if (["continue", "layer", "step"].includes(what)) {
      if (!state.at) return;
      body.stop = state.at.number;
    }
    try {
      const answer = await fetch(ROOT + "training", {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
      });
      if (answer.ok) show(await answer.json());
    } catch (_) {} // page.js says that the dashboard has ended
    worker.postMessage({ known: layers.length, quick: true });
  }

  const isSet = (layer, moment) => (state.breakpoints || []).some(([a, b]) => a === layer && b === moment);
  const toggle = (layer, moment) => ask(isSet(layer, moment) ? "clear" : "set", { layer: layer, moment: moment });
  const named = (layer) => layer || "(model)";

  /* The run of the address; page.js and the server keep the whole address in the link that copies it. */
  function shownRun() {
    const link = document.getElementById("link");
    const href = link && link.getAttribute("href");
    return href ? new URLSearchParams(href).get("run") : null;
  }

  function shownLayer() {
    const layer = new URLSearchParams(window.location.search).get("layer");
    return layer !== null && layers.some(([path]) => path === layer) ? layer : null;
  }

  function words() {
    switch (state.state) {
      case "paused": return `Paused at ${state.at.where}`;
      case "terminal": return `Stopped in the terminal at ${state.where}`;
      case "late": return "The training does not answer: it may be in one long operation";
      case "failed": return state.said;
      default: return state.waits ? `Running, ${state.waits}` : "Running";
    }
  }

  function set(node, text) {
    if (node.textContent !== text) node.textContent = text; // a screen reader reads every change
  }

  function show(news) {
    if (news.state === "late" && state.state !== "waiting") news = { ...state, state: "late" };
    if (news.layers) layers = news.layers;
    if (news.layers && worker) worker.postMessage({ known: layers.length });
    state = news;
    draw();
  }

  function draw() {
    if (!parts.section) return;
    const live = ["running", "paused", "terminal", "late", "failed"].includes(state.state);
    const run = shownRun();
    const hidden = !live || (run !== null && Boolean(state.run) && run !== state.run);
    parts.section.hidden = hidden;
    document.documentElement.toggleAttribute("data-paused", !hidden && state.state === "paused");
    if (hidden) return;
    const paused = state.state === "paused";
    parts.section.dataset.state = state.state;
    set(parts.said, words());
    set(parts.far, state.state === "running" ? ` \u00b7 ${Number(state.step).toLocaleString("en")} steps` : "");
    set(parts.go, paused ? "Continue" : "Pause");
    usable(parts.go, paused || (state.state === "running" && !state.waits));
    for (const node of [parts.layer, parts.step]) usable(node, paused);
    set(parts.note, state.state === "running" && state.said ? `The training ${state.said}.` : "");
    const layer = shownLayer();
    parts.chosen.hidden = layer === null;
    if (layer !== null) {
      parts.chosen.dataset.layer = layer;
      set(parts.chosen, `${isSet(layer, "after_layer") ? "No stop" : "Stop"} after ${named(layer)}`);
    }
    stop(paused ? state.at : null);
    list();
    mark();
  }

  function stop(at) {
    const number = at ? at.number : 0;
    if (number === drawnStop) return;
    drawnStop = number;
    parts.stop.replaceChildren();
    if (!at) return;
    const facts = [];
    if (at.why) facts.push(at.why);
    if (at.loss) facts.push(`loss of step ${at.loss_of.toLocaleString("en")}: ${at.loss}`);
    if (facts.length) parts.stop.append(made("p", { text: facts.join(" · ") }));
    if (at.tensors.length) {
      const head = made("tr", {}, ...COLUMNS.map((text, i) => made("th", { text: text, scope: "col", class: i > 2 ? "number" : "" })));
      const rows = at.tensors.map((one) => {
        const cells = one.cells.length ? one.cells : COLUMNS.slice(3).map(() => "");
        return made("tr", {}, made("th", { text: one.name, scope: "row" }), made("td", { text: one.shape.join(" \u00d7 ") || "a scalar" }),
          made("td", { text: one.dtype }), ...cells.map((text, i) => made("td", { text: text, class: i === 1 && text !== "0" ? "number bad" : "number" })));
      });
      parts.stop.append(made("div", { class: "scroll", tabindex: "0" },
        made("table", { class: "stops-tensors" }, made("thead", {}, head), made("tbody", {}, ...rows))));
    }
    if (at.lines.length) {
      const lines = at.lines.map(([place, name, source]) => `${place} in ${name}\n    ${source}`);
      parts.stop.append(made("pre", { text: lines.join("\n"), tabindex: "0", "aria-label": "Lines of your code that lead here" }));
    }
  }

  function list() {
    const every = state.breakpoints || [], count = every.length;
    const told = every.slice(0, NAMED).map(([layer, moment]) => (moment === "after_layer" ? "" : "gradient of ") + named(layer));
    const more = count > NAMED ? ", \u2026" : "";
    set(parts.count, count ? `Breakpoints (${count}): ${told.join(", ")}${more}` : "Breakpoints");
    parts.clear.hidden = !count;
    if (!parts.list.open) return;
    const wanted = parts.filter.value.trim().toLowerCase();
    const found = layers.filter(([path, type]) => `${named(path)} ${type}`.toLowerCase().includes(wanted));
    const here = state.at ? state.at.layer : null;
    const drawn = JSON.stringify([found.slice(0, MOST), state.breakpoints, here]);
    if (drawn === drawnList) return;
    drawnList = drawn;
    const focus = document.activeElement && document.activeElement.dataset.spot;
    parts.rows.replaceChildren(...found.slice(0, MOST).map(([path, type]) => row(path, type, path === here)));
    if (focus) for (const node of parts.rows.querySelectorAll("button")) if (node.dataset.spot === focus) node.focus();
    set(parts.more, found.length > MOST ? `${MOST} of ${found.length.toLocaleString("en")} layers: filter for the others.` : "");
  }

  function row(path, type, here) {
    const buttons = MOMENTS.map(([moment, title]) =>
      button(title, () => toggle(path, moment), {
        class: "stops-spot", "aria-pressed": String(isSet(path, moment)), "data-spot": `${moment} ${path}`,
        "aria-label": `${title} of ${named(path)}`,
      }));
    return made("tr", here ? { "aria-current": "true" } : {}, made("td", { class: "stops-spots" }, ...buttons),
      made("td", { text: named(path) }), made("td", { text: type }));
  }

  /* Breakpoints are marked in the graphs of layers, too; a double click there sets and clears them. */
  function mark() {
    for (const graph of document.querySelectorAll(".network")) {
      const drawn = graph._cyreg && graph._cyreg.cy;
      if (!drawn) continue;
      drawn.nodes().forEach((node) => {
        const layer = node.data("layer");
        node.toggleClass("stop", MOMENTS.some(([moment]) => isSet(layer, moment)));
        node.toggleClass("here", state.state === "paused" && state.at.layer === layer && layer !== "");
      });
      if (drawn.scratch("_stops")) continue;
      graph.title = "Double click on a layer: stop after it, or no longer";
      drawn.scratch("_stops", true);
      drawn.on("dbltap", "node", (event) => {
        const layer = event.target.data("layer");
        if (layers.some(([path]) => path === layer)) toggle(layer, "after_layer");
      });
    }
  }

  function begin() {
    const room = document.getElementById("stops");
    if (!room) return requestAnimationFrame(begin);
    if (room.firstChild) return;
    build(room);
    worker = new Worker(ROOT + "assets/heartbeat.js");
    worker.onmessage = ({ data }) => show(data);
    setInterval(draw, 300); // the address may have changed
  }
  document.addEventListener("DOMContentLoaded", begin);
})();
