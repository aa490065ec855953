/* A worker that asks for the state of the training as long as the page is there. A browser slows the timers of hidden
   pages down to one a minute, and those of workers not: a page in the background still holds the training that it
   stopped. */
"use strict";
const QUICK_MS = 150, USUAL_MS = 700, LATE_MS = 8000;
let known = -1, quickUntil = 0, timer;

async function beat() {
  clearTimeout(timer);
  try {
    const answer = await fetch("../training", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ do: "look", layers: known }),
      signal: AbortSignal.timeout(LATE_MS),
    });
    postMessage(answer.ok ? await answer.json() : { state: "refused" });
  } catch (_) {
    postMessage({ state: "gone" });
  }
  timer = setTimeout(beat, Date.now() < quickUntil ? QUICK_MS : USUAL_MS);
}

/* The page tells the number of layers that it knows, and asks for quick news after a click. */
onmessage = function ({ data }) {
  known = data.known;
  if (data.quick) {
    quickUntil = Date.now() + 3000;
    beat();
  }
};
beat();
