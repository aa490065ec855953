/* What the browser does by itself: it follows clicks by changing the address, and tells whether it is dark.
   Names of a run are only ever put into the address or into document.title, both of which are text. */
(function () {
  "use strict";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const scheme = () => (dark.matches ? "dark" : "light");

  /* A theme that was chosen with the button holds for this browser; else that of the settings, or of the system. */
  const CHOSEN = "neuraldbg theme";
  const themed = () => document.documentElement.dataset.theme;

  function theme(setting) {
    let chosen = null;
    try {
      chosen = window.localStorage.getItem(CHOSEN);
    } catch (_) {} // a browser may forbid it
    document.documentElement.dataset.theme = chosen === "dark" || chosen === "light" ? chosen : setting;
    return shownTheme();
  }

  function shownTheme() {
    const now = themed() === "auto" ? scheme() : themed();
    const button = document.getElementById("themes");
    if (button) button.textContent = now === "dark" ? "Light" : "Dark";
    return now;
  }

  function turn() {
    const next = (themed() === "auto" ? scheme() : themed()) === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try {
      window.localStorage.setItem(CHOSEN, next);
    } catch (_) {}
    window.dash_clientside.set_props("theme", { data: shownTheme() });
  }

  /* Copy the address of what is shown; where the browser forbids it, say the address. */
  function copy(link) {
    const told = (words) => {
      link.textContent = words;
      setTimeout(() => (link.textContent = "Copy link"), 2000);
    };
    const { clipboard } = navigator;
    if (!clipboard) return window.prompt("The address of what is shown", link.href);
    clipboard.writeText(link.href).then(
      () => told("Copied"),
      () => window.prompt("The address of what is shown", link.href),
    );
  }
  const silent = () => window.dash_clientside.no_update;

  /* The address with some fields changed; null takes a field away. */
  function changed(fields) {
    const query = new URLSearchParams(window.location.search);
    for (const [name, value] of Object.entries(fields)) {
      if (value === null || value === undefined) query.delete(name);
      else query.set(name, String(value));
    }
    const search = "?" + query.toString();
    return search === window.location.search ? silent() : search;
  }

  /* A point that was clicked: customdata = [layer or null, first step], as neuraldbg.show.interactive.draw says.
     Dash hands no customdata of cells on; what these stand for is in meta (see figures.py). */
  function fromPoint(point, meta) {
    if (!point) return silent();
    const at = meta.starts ? fromCell(point, meta) : point.customdata;
    if (!Array.isArray(at)) return silent();
    const [layer, step] = at;
    return changed(clean({ layer: layer, step: Number.isInteger(step) ? step : null }));
  }

  function fromCell(point, meta) {
    const column = meta.starts.findLastIndex((start) => start - 0.5 <= point.x);
    const layer = meta.rows ? meta.rows[meta.labels.indexOf(point.y)] : meta.layer;
    return column < 0 ? null : [layer, meta.starts[column]];
  }

  /* Zooming along the steps is choosing a range of steps. */
  function fromRange(layout, meta) {
    if (!meta.time) return silent();
    if (layout["xaxis.autorange"]) return changed({ first: null, last: null });
    const range = layout["xaxis.range"] || [layout["xaxis.range[0]"], layout["xaxis.range[1]"]];
    if (!range.every((end) => typeof end === "number")) return silent();
    const first = Math.max(0, Math.ceil(range[0]));
    return changed({ first: first, last: Math.max(first, Math.floor(range[1])) });
  }

  /* Several things may have happened since the page was asked last: the newest that leads somewhere is followed. */
  function follow(_clicks, _ranges, _taps, _layer, _step, _fields, figures, shown) {
    const context = window.dash_clientside.callback_context;
    const at = { figures: figures, shown: shown, ids: context.inputs_list[0].map((one) => one.id.pane) };
    const ways = shown ? context.triggered.map((one) => way(one.prop_id, one.value, at)) : [];
    return ways.reverse().find((search) => search !== silent()) || silent();
  }

  function way(id, value, { figures, shown, ids }) {
    const [shownLayer, shownStep] = shown.looked || [];
    if (id === "layer.value") return value === shownLayer ? silent() : changed({ layer: value });
    if (id === "step.value") return String(value || "") === String(shownStep ?? "") ? silent() : changed({ step: value || null });
    if (!value) return silent();
    if (id === '{"field":"with"}.value') return value === shown.with ? silent() : changed({ with: value });
    if (id.endsWith(".tapNodeData")) return changed(clean({ layer: value.layer, step: value.step }));
    const figure = figures[ids.indexOf(paneOf(id))];
    const meta = (figure && figure.layout && figure.layout.meta) || {};
    if (meta.alone) return silent(); // of other runs: their steps are not those of this one
    return id.endsWith(".clickData") ? fromPoint(value.points && value.points[0], meta) : fromRange(value, meta);
  }

  const paneOf = (id) => JSON.parse(id.slice(0, id.lastIndexOf("."))).pane;

  /* Zooming along the values is kept here, by what is shown there: see zoomed in figures.py. */
  function zoom(_ranges, figures, zooms) {
    const context = window.dash_clientside.callback_context;
    const panes = context.inputs_list[0].map((one) => one.id.pane);
    return context.triggered.reduce(function (kept, { prop_id: id, value }) {
      const figure = figures[panes.indexOf(paneOf(id))];
      const of = figure && figure.layout && figure.layout.yaxis && figure.layout.yaxis.uirevision;
      return (of && value && zoomedIn(kept === silent() ? zooms || {} : kept, of, value)) || kept;
    }, silent());
  }

  /* The zooms with that of one figure changed; nothing where it was not along the values. */
  function zoomedIn(zooms, of, value) {
    const range = value["yaxis.range"] || [value["yaxis.range[0]"], value["yaxis.range[1]"]];
    const others = Object.fromEntries(Object.entries(zooms).filter(([name]) => name !== of));
    if (value["yaxis.autorange"]) return others;
    return range.every((end) => typeof end === "number") ? Object.assign(others, { [of]: range }) : null;
  }

  /* Panes in sight are drawn first. The answer that brings a new tab has them watched anew. */
  const sight = new Map();
  let place;
  const watcher = new IntersectionObserver(function (entries) {
    for (const { target, isIntersecting, boundingClientRect: box } of entries)
      sight.set(target.dataset.pane, isIntersecting || !box.height); // what is hidden now may have something to show
    window.dash_clientside.set_props("sight", { data: [...sight.keys()].filter((name) => sight.get(name)) });
    setTimeout(readPlotly, 20); // while the server draws
  });

  /* The filter is a field of the page's own: Dash's sets the caret back a moment after each key, so that keys which
     follow one another fast change places. It is followed once no key came for a moment. */
  const TYPING_MS = 350;
  let typing;
  function filterField() {
    const room = document.getElementById("filter-room");
    if (!room || room.firstChild) return room && room.firstChild;
    const field = document.createElement("input");
    Object.assign(field, { id: "filter", type: "text", className: "dash-input-element", autocomplete: "off" });
    Object.assign(field, { maxLength: Number(room.dataset.longest), placeholder: room.dataset.placeholder });
    field.addEventListener("input", function () {
      clearTimeout(typing);
      typing = setTimeout(function () {
        const search = changed({ filter: field.value || null });
        if (search !== silent()) window.dash_clientside.set_props("address", { search: search });
      }, TYPING_MS);
    });
    return room.appendChild(field);
  }

  /* The filter of the address stands in its field, but nothing is put there while a person types. */
  function filtered(wanted) {
    const field = filterField();
    if (field && field !== document.activeElement) field.value = wanted;
  }

  function watch(shown) {
    if (!shown) return;
    filtered(shown.filter || "");
    if (!performance.getEntriesByName("neuraldbg answered").length) performance.mark("neuraldbg answered");
    if (!shown.place) setTimeout(readPlotly, 1000);
    if (shown.place === place) return;
    place = shown.place;
    find(place);
  }

  /* The panes of an answer come onto the page a moment after it. */
  function find(wanted) {
    const frame = document.querySelector(".panes");
    if (!wanted || wanted !== place) return;
    if (!frame || frame.dataset.place !== wanted) return requestAnimationFrame(() => find(wanted));
    for (const observer of [watcher, fitter]) observer.disconnect();
    sight.clear();
    widths.clear();
    for (const pane of frame.querySelectorAll("section[data-pane]"))
      for (const observer of [watcher, fitter]) observer.observe(pane);
  }

  /* A graph is fitted anew where its pane became wider or narrower. (Dash's own way to do so asks for the size of graphs
     that have gone, which is an error.) */
  const widths = new Map();
  const fitter = new ResizeObserver(function (entries) {
    for (const { target: pane, contentRect: box } of entries) {
      const graph = pane.querySelector(".network");
      const drawn = graph && graph._cyreg && graph._cyreg.cy;
      const padding = Number(pane.closest(".panes").dataset.padding);
      if (drawn && widths.has(pane) && widths.get(pane) !== box.width) drawn.resize().fit(undefined, padding);
      widths.set(pane, box.width);
    }
  });

  /* The library that draws is large. It is fetched while the page starts, and read while the server draws what is in
     sight. */
  const ROOT = JSON.parse(document.getElementById("_dash-config").textContent).requests_pathname_prefix;
  const PLOTLY = ROOT + "_dash-component-suites/plotly/package_data/plotly.min.js";

  document.addEventListener("DOMContentLoaded", function () {
    document.head.append(Object.assign(document.createElement("link"), { rel: "preload", as: "script", href: PLOTLY }));
  });

  let reading = false;
  function readPlotly() {
    if (!window.Plotly && !reading) document.body.append(Object.assign(document.createElement("script"), { src: PLOTLY }));
    reading = true;
  }

  /* Dash has every new figure drawn a second time to fit its place: one that fits is let be. */
  function fits(graph) {
    const { width, height } = graph.getBoundingClientRect();
    const drawn = graph._fullLayout || {};
    return Math.abs(drawn.width - width) < 1 && Math.abs(drawn.height - height) < 1;
  }

  function loaded(event) {
    if (event.target.tagName !== "SCRIPT" || !window.Plotly || Plotly.told) return;
    const { react } = Plotly, { resize } = Plotly.Plots;
    Plotly.told = true;
    Plotly.react = (graph, ...rest) => react(graph, ...rest).then((made) => (drawn(graph), made));
    Plotly.Plots.resize = (graph) => (fits(graph) ? Promise.resolve(graph) : resize(graph));
  }

  /* Marks for who measures the page: when a pane was drawn first, and last. */
  function drawn(graph) {
    const pane = graph.closest("[data-pane]");
    if (!pane) return;
    const [first, last] = ["first", "last"].map((word) => `neuraldbg ${word} ${pane.dataset.pane}`);
    if (!performance.getEntriesByName(first).length) performance.mark(first);
    performance.clearMarks(last);
    performance.mark(last);
  }

  document.addEventListener("load", loaded, true); // before Dash hears of it, and draws

  function clean(fields) {
    return Object.fromEntries(Object.entries(fields).filter(([, v]) => v !== null && v !== undefined));
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    neuraldbg: {
      follow: follow,
      zoom: zoom,
      watch: watch,
      theme_auto: () => theme("auto"),
      theme_light: () => theme("light"),
      theme_dark: () => theme("dark"),
      title: function () {
        const run = document.querySelector("#run .run-name");
        const tab = document.querySelector("#tabs [aria-current]");
        const bar = tab && tab.closest("nav"); // on a narrow page the tabs scroll
        if (bar) bar.scrollLeft = Math.max(0, tab.offsetLeft + tab.offsetWidth + 24 - bar.clientWidth);
        document.title = [run && run.textContent, tab && tab.textContent, "NeuralDBG"].filter(Boolean).join(" · ");
        return silent();
      },
    },
  });

  dark.addEventListener("change", function () {
    if (themed() === "auto") window.dash_clientside.set_props("theme", { data: shownTheme() });
  });

  /* The wheel scrolls the page, over a graph too; with Ctrl it zooms there. */
  const wheel = (event) => !event.ctrlKey && event.target.closest && event.target.closest(".network") && event.stopPropagation();
  document.addEventListener("wheel", wheel, { capture: true, passive: true });

  /* A dashboard beside a training ends with it: what is shown then is old, and must not look as if it went on. */
  const { fetch } = window;
  window.fetch = (...asked) =>
    fetch(...asked).then(
      (answer) => (lost(false), answer),
      (error) => {
        lost(true);
        throw error;
      },
    );

  function lost(gone) {
    const said = document.getElementById("lost");
    if (said) said.hidden = !gone;
  }

  /* Links within the page change the address and load nothing; with a modifier they are ordinary links. */
  document.addEventListener("click", function (event) {
    if (event.target.id === "themes") turn();
    if (event.target.id === "link" && !(event.button || event.metaKey || event.ctrlKey)) {
      event.preventDefault();
      copy(event.target);
    }
    const link = event.target.closest && event.target.closest("a.go");
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const search = new URL(link.href).search;
    if (search !== window.location.search) window.dash_clientside.set_props("address", { search: search });
  });
})();
