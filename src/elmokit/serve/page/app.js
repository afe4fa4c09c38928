// The playground: views over the API of this server. No library, nothing from elsewhere.

import { depth, fixed, make, meter, percent, points, snippet, spaced } from "./parts.js";

const EXAMPLES = {
  bank: "He sat on the bank of the river and watched the boats.\nThe bank raised its rates again on Thursday.\nShares in the bank fell after it warned on profits.\nReeds grow along the bank of the stream.",
  strike: "The pilots went on strike over pay.\nThe goal was his first strike of the season.\nThe air strike hit a bridge before dawn.\nMiners voted to end the strike after a week.",
  pitch: "Rain left the pitch heavy and slow.\nThe founders made their pitch to the investors.\nThe pitch of the note rose as the string was tightened.\nFans ran onto the pitch after the final whistle.",
  cell: "Each cell divides into two within an hour.\nHe spent the night in a cell at the station.\nThe company sells more cell phones than anyone.\nThe drug kills the cell but spares the tissue around it.",
};
const SENTENCE = "The bank raised its rates again on Thursday.";
const TEXT = "Shares of the airline fell after its pilots voted to strike over pay.";
const NAMES = "Ada Lovelace met Charles Babbage in London in June 1833 and wrote to the Royal Society.";
const $ = (id) => document.getElementById(id);

const state = { view: "words", model: null, texts: EXAMPLES.bank, at: null, word: null, layer: null, different: false,
                sentence: SENTENCE, text: TEXT, names: NAMES, report: 0 };
const running = {}; // an AbortController for each view
let server = null; // models, reports and limits
let tokens = null; // of state.texts by state.model; null while they are being read

// ---- requests -------------------------------------------------------------------

async function ask(address, signal, body) {
  const headers = { "content-type": "application/json" };
  const token = sessionStorage.getItem("elmokit-token");
  if (token && /^[!-~]+$/.test(token)) headers.authorization = `Bearer ${token}`; // a header cannot hold other characters
  let answer;
  try {
    answer = await fetch(address, { headers, signal, ...(body && { method: "POST", body: JSON.stringify(body) }) });
  } catch {
    throw { message: "The server does not answer.", remedy: "Is elmokit serve still running?" };
  }
  if (answer.ok) return answer.json();
  if (answer.status === 401) $("token-form").hidden = false;
  let problem = { message: `The server answered with code ${answer.status}.`, remedy: "" };
  try { problem = (await answer.json()).error ?? problem; } catch { /* not JSON */ }
  throw problem;
}

function showProblem(problem) {
  const box = $("problem");
  box.replaceChildren(make("b", {}, problem.message ?? String(problem)), problem.remedy ?? "");
  box.hidden = false;
}

// Runs `work` for a view and aborts what the view did before. What `work` returns becomes the view's status;
// without it the result is hidden. Returns true if all went well.
async function runFor(view, work) {
  running[view]?.abort();
  const controller = (running[view] = new AbortController()), place = $(view), result = $(`${view}-result`);
  $("problem").hidden = true;
  place.setAttribute("aria-busy", "true");
  let status = "", problem = null;
  try { status = await work(controller.signal); }
  catch (error) { problem = error; }
  if (running[view] === controller) place.removeAttribute("aria-busy");
  if (controller.signal.aborted) return false;
  if (result) {
    if (!status && result.contains(document.activeElement)) place.focus();
    result.hidden = !status;
    $(`${view}-status`).textContent = status;
  }
  if (problem) showProblem(problem);
  return !problem;
}

// ---- the address holds the view -----------------------------------------------------------

function saveToAddress() {
  const values = new URLSearchParams();
  if (state.model) values.set("model", state.model);
  if (state.view === "words") {
    values.set("texts", state.texts);
    if (state.at) values.set("word", state.at.join("."));
    if (state.layer !== null) values.set("layer", state.layer);
    if (state.different) values.set("different", "1");
  } else if (state.view === "layers") values.set("text", state.sentence);
  else if (state.view === "classify") values.set("text", state.text);
  else if (state.view === "tag") values.set("text", state.names);
  else if (state.report) values.set("report", state.report);
  history.replaceState(null, "", `#${state.view}?${values}`);
}

function readAddress() {
  const [view, rest] = location.hash.slice(1).split(/\?(.*)/s);
  if (!Object.keys(VIEWS).includes(view)) return false; // an anchor on the page
  const values = new URLSearchParams(rest ?? "");
  state.view = view;
  state.model = values.get("model");
  if (view === "words" && values.has("texts")) {
    state.texts = values.get("texts");
    const place = (values.get("word") ?? "").split(".").map(Number);
    state.at = place.length === 2 && place.every(Number.isInteger) ? place : null;
    state.word = null;
    state.layer = /^\d+$/.test(values.get("layer") ?? "") ? +values.get("layer") : null;
    state.different = values.get("different") === "1";
  }
  if (view === "layers" && values.has("text")) state.sentence = values.get("text");
  if (view === "classify" && values.has("text")) state.text = values.get("text");
  if (view === "tag" && values.has("text")) state.names = values.get("text");
  if (view === "compare") state.report = +(values.get("report") ?? 0) || 0;
  return true;
}

// ---- words in context --------------------------------------------------------------------------

function model() { return server.models.find((one) => one.name === state.model); }

async function readWords() {
  tokens = null;
  await runFor("words", async (signal) => {
    $("reading").inert = true;
    try {
      const texts = state.texts.split("\n").map((line) => line.trim()).filter(Boolean);
      if (!texts.length) throw { message: "There is no sentence yet.", remedy: "Type one or more, each on its own line." };
      tokens = { texts, rows: (await ask("/v1/tokens", signal, { model: state.model, texts })).tokens };
    } finally { if (!signal.aborted) { $("reading").hidden = !tokens; $("reading").inert = false; } }
    state.at = chosenPlace(tokens.rows) ?? repeatedWordPlace(tokens.rows);
    state.word = state.at && tokens.rows[state.at[0]][state.at[1]];
    showTokens();
    return state.at ? showSimilar(signal) : "";
  });
}

function chosenPlace(rows) {
  // The place of the chosen word now: models split texts differently. From an address, only the place is known.
  if (!state.at) return null;
  const [text, position] = state.at, row = rows[text] ?? [];
  if (state.word === null) return row[position] === undefined ? null : state.at;
  const places = row.flatMap((word, place) => (word.toLowerCase() === state.word.toLowerCase() ? [place] : []));
  return places.length ? [text, places.sort((a, b) => Math.abs(a - position) - Math.abs(b - position))[0]] : null;
}

function repeatedWordPlace(rows) {
  // The word to begin with: the longest of those that occur in the most sentences.
  const counts = new Map();
  rows.forEach((row) => new Set(row.map((word) => word.toLowerCase())).forEach((word) =>
    /\p{L}{3,}/u.test(word) && counts.set(word, (counts.get(word) ?? 0) + 1)));
  const stop = new Set(["the", "and", "was", "were", "his", "her", "its", "their", "with", "for", "that", "after"]);
  const [best] = [...counts].filter(([word]) => !stop.has(word)).sort((a, b) => b[1] - a[1] || b[0].length - a[0].length);
  if (!best) return rows[0]?.length ? [0, 0] : null;
  const text = rows.findIndex((row) => row.some((word) => word.toLowerCase() === best[0]));
  return [text, rows[text].findIndex((word) => word.toLowerCase() === best[0])];
}

function showTokens() {
  const chosen = state.at && tokens.rows[state.at[0]][state.at[1]].toLowerCase();
  $("tokens").replaceChildren(...tokens.rows.map((row, text) => make("li", {}, ...spaced(row).flatMap(([space, word], position) => {
    const here = state.at && state.at[0] === text && state.at[1] === position;
    return [space, make("button", {
      type: "button", class: `w${word.toLowerCase() === chosen ? " same" : ""}${space || !position ? "" : " tight"}`, "aria-pressed": String(Boolean(here)),
      "data-at": `${text}.${position}`,
      onclick: () => { choose(text, position); $("tokens").querySelector(`[data-at="${text}.${position}"]`)?.focus(); },
    }, word)];
  }))));
}

function choose(text, position) {
  if (!tokens) return; // new sentences are being read
  state.at = [text, position];
  state.word = tokens.rows[text][position];
  showTokens();
  runFor("words", showSimilar);
}

async function showSimilar(signal) {
  const [text, position] = state.at;
  const similar = await ask("/v1/similar", signal, { model: state.model, texts: tokens.texts, text, position, layer: state.layer, k: 10, different: state.different });
  saveToAddress();
  $("chosen").textContent = similar.word;
  $("map-word").textContent = similar.word.toLowerCase();
  $("where").textContent = `as in sentence ${similar.text + 1}; from ${model().corpus_texts.toLocaleString("en")} ${model().corpus}`;
  $("neighbors").replaceChildren(...similar.neighbors.map((one) => {
    const bar = make("i");
    bar.style.width = `${Math.max(0, one.score) * 100}%`;
    return make("li", {}, make("span", { class: "score" }, fixed(one.score, 3), bar), snippet(one, 9));
  }));
  if (!similar.neighbors.length) $("neighbors").replaceChildren(make("li", {}, make("span"), make("span", {}, "The corpus has no other word.")));
  showMap(similar);
  showSiblings(similar);
  return `${similar.neighbors.length} words used like “${similar.word}” in sentence ${similar.text + 1}, by ${layerName(state.layer)}.`;
}

function showMap(similar) {
  const dots = similar.map.points, svg = $("map");
  const focused = svg.contains(document.activeElement) ? document.activeElement.dataset.at : null;
  svg.replaceChildren();
  $("point").replaceChildren();
  svg.toggleAttribute("hidden", !dots.length);
  if (!dots.length) { $("map-caption").textContent = similar.notes.join(" "); return; }
  const range = (values) => { const low = Math.min(...values), high = Math.max(...values); return high - low > 1e-9 ? [low, high] : [low - 1, high + 1]; };
  const [left, right] = range(dots.map((one) => one.x)), [low, high] = range(dots.map((one) => one.y));
  const x = (value) => 22 + (436 * (value - left)) / (right - left), y = (value) => 318 - (296 * (value - low)) / (high - low);
  svg.append(make("line", { class: "axis", x1: x(0), x2: x(0), y1: 8, y2: 332 }), make("line", { class: "axis", x1: 8, x2: 472, y1: y(0), y2: y(0) }));
  const ordered = [...dots].sort((a, b) => (a.source === "yours") - (b.source === "yours"));
  for (const one of ordered) {
    const yours = one.source === "yours";
    const current = yours && one.text === similar.text && one.position === similar.position;
    const whose = yours ? `Your sentence ${one.text + 1}: ` : "Corpus: ";
    const show = () => $("point").replaceChildren(make("span", { class: "aside" }, whose), snippet(one));
    svg.append(make("circle", {
      class: `dot ${one.source}${current ? " current" : ""}`, cx: x(one.x).toFixed(1), cy: y(one.y).toFixed(1), r: yours ? 11 : 5.5,
      tabindex: "-1", role: "button", "aria-label": whose + snippet(one).textContent, "data-at": `${one.source}.${one.text}.${one.position}`,
      onmouseenter: show, onfocus: show, onclick: () => { if (yours) choose(one.text, one.position); else show(); },
    }));
    if (yours) svg.append(make("text", { x: x(one.x).toFixed(1), y: (y(one.y) + 4.2).toFixed(1), "aria-hidden": "true" }, String(one.text + 1)));
  }
  const stop = svg.querySelector(`[data-at="${focused}"]`) ?? svg.querySelector(".current") ?? svg.querySelector(".dot");
  stop.setAttribute("tabindex", "0");
  if (focused) stop.focus();
  const others = dots.filter((one) => one.source === "corpus").length;
  $("map-caption").textContent = `${dots.length - others} of yours (numbered), ${others} from the corpus. The two axes show ${percent(similar.map.explained[0] + similar.map.explained[1])} of the variance. Point at a dot to read it, or use the arrow keys. ${similar.notes.join(" ")}`;
}

function moveOnMap(event) {
  // The Tab key stops at one dot; the arrow keys move to the next one in their direction.
  const dots = [...$("map").querySelectorAll(".dot")], dot = event.target.closest(".dot");
  if (event.type === "focusin") return dots.forEach((one) => one.setAttribute("tabindex", one === dot ? "0" : "-1"));
  const [axis, step] = { ArrowRight: ["cx", 1], ArrowLeft: ["cx", -1], ArrowDown: ["cy", 1], ArrowUp: ["cy", -1] }[event.key] ?? [];
  if (step) {
    dots.sort((a, b) => a.getAttribute(axis) - b.getAttribute(axis));
    dots[dots.indexOf(dot) + step]?.focus();
  } else if (event.key === "Enter" || event.key === " ") dot.dispatchEvent(new MouseEvent("click"));
  else return;
  event.preventDefault();
}

function showSiblings(similar) {
  const block = $("siblings-block");
  block.hidden = !similar.siblings.length;
  if (block.hidden) return;
  const names = similar.siblings[0].layers.map((_, layer) => (layer ? `layer ${layer}` : "layer 0, the word alone"));
  const cell = (value, on) => make("td", { class: "number" }, fixed(value), meter(value, on ? "" : "depth0"));
  $("siblings").replaceChildren(
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "sentence"), ...names.map((name) => make("th", { scope: "col" }, name)), make("th", { scope: "col" }, state.layer === null ? "the mix" : "as chosen"))),
    make("tbody", {}, ...similar.siblings.map((one) => make("tr", {},
      make("th", { scope: "row" }, `${one.text + 1}. `, snippet({ words: similar.tokens[one.text], position: one.position }, 5)),
      ...one.layers.map((value, layer) => cell(value, state.layer === layer)), cell(one.score, true)))));
}

function layerName(layer) { return layer === null ? "the mix of all layers" : layer === 0 ? "layer 0: the word alone" : `LSTM layer ${layer}`; }

function setSlider() {
  const n = model().n_layers;
  $("layer").max = n;
  $("layer").value = state.layer ?? n;
  $("layer").setAttribute("aria-valuetext", layerName(state.layer));
  $("layer-name").textContent = layerName(state.layer);
  $("stops").replaceChildren(...Array.from({ length: n + 1 }, (_, stop) => make("span", {}, stop === n ? "mix" : String(stop))));
  $("different").checked = state.different;
}

// ---- layers -----------------------------------------------------------------------------------

async function showLayers() {
  await runFor("layers", async (signal) => {
    if (!state.sentence.trim()) throw { message: "There is no sentence yet.", remedy: "Type one." };
    const answer = await ask("/v1/layers", signal, { model: state.model, text: state.sentence });
    saveToAddress();
    const kinds = { equal: "mixed in equal parts: no classifier has learned a mix", trainable: "mixed as this classifier has learned", frozen: "mixed with random weights, drawn once", function: "mixed by a learned function; the bars show an equal mix" };
    $("mix-kind").textContent = kinds[answer.mix] ?? answer.mix;
    const classified = answer.label !== null;
    const most = Math.max(...answer.layers.map((one) => Math.abs(one.weight)), 1e-9);
    $("layer-table").replaceChildren(
      make("thead", {}, make("tr", {}, ...["layer", "λ", "share of the vector", "difference from the layer below (1 − cosine)", ...(classified ? [`probability of “${answer.label}” without it`] : [])].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...answer.layers.map((one) => make("tr", {},
        make("th", { scope: "row" }, `${one.layer}: ${one.name}`),
        make("td", { class: "number" }, fixed(one.weight, 3), meter(Math.abs(one.weight) / most, depth(one.layer))),
        make("td", { class: "number" }, percent(one.share), meter(one.share, depth(one.layer))),
        make("td", { class: "number" }, one.turn === null ? "–" : fixed(one.turn), ...(one.turn === null ? [] : [meter(one.turn / 2, depth(one.layer))])),
        ...(classified ? [make("td", { class: "number" }, `${percent(one.without)} (with it ${percent(answer.probability)})`)] : [])))));
    $("layer-legend").replaceChildren(...answer.layers.map((one) => make("span", { class: `key ${depth(one.layer)}` }, `${one.layer}: ${one.name}`)));
    $("word-shares").replaceChildren(...answer.tokens.map((word, place) => {
      const shares = answer.shares[place];
      const stack = make("span", { class: "stack", "aria-hidden": "true" });
      shares.forEach((share, layer) => { const part = make("i", { class: depth(layer) }); part.style.width = `${100 * share}%`; stack.append(part); });
      return make("li", { title: shares.map((share, layer) => `layer ${layer}: ${percent(share)}`).join(", ") }, word, stack);
    }));
    return `${answer.layers.length} layers of ${answer.tokens.length} words, ${$("mix-kind").textContent}.`;
  });
}

// ---- classify ---------------------------------------------------------------------------------

// The chosen model if it can do the task, else the first one that can.
function modelFor(task) { return [model(), ...server.models].find((one) => one.task === task); }

async function showTask(task, kind, work) {
  const available = Boolean(modelFor(task));
  $(`no-${kind}`).hidden = available;
  $(`has-${kind}`).hidden = !available;
  if (available) await work();
}

async function classify() {
  await runFor("classify", async (signal) => {
    if (!state.text.trim()) throw { message: "There is no text yet.", remedy: "Type one." };
    const body = { model: modelFor("classify").name, texts: [state.text] };
    const [words] = (await ask("/v1/tokens", signal, body)).tokens, most = server.limits.influence_words;
    const answer = await ask("/v1/predict", signal, { ...body, influence: words.length <= most });
    saveToAddress();
    const result = answer.results[0];
    $("label").textContent = result.prediction || "none of the classes";
    $("by").textContent = `according to ${answer.model}`;
    $("classify-notes").textContent = answer.notes.join(" ");
    const name = result.probabilities ? "probability" : "score", figure = result.probabilities ? percent : fixed;
    const rows = Object.entries(result.probabilities ?? result.scores).sort((a, b) => b[1] - a[1]);
    $("bars").replaceChildren(...rows.slice(0, 12).flatMap(([label, value], place) => [
      make("span", { class: place ? "" : "best" }, label), meter(value, place ? "depth0" : ""), make("span", { class: "figure" }, figure(value))]));
    $("measure").textContent = name;
    $("likeliest").textContent = rows[0][0];
    $("influence-legend").hidden = !result.influence;
    if (result.influence) showInfluence(result.influence);
    else { $("influence").textContent = `This is computed for texts of up to ${most} words; this one has ${words.length}.`; $("movers").replaceChildren(); }
    return `Prediction: ${$("label").textContent}, according to ${answer.model}. ${answer.notes.join(" ")}`;
  });
}

function showInfluence({ tokens: words, values }) {
  const most = Math.max(...values.map(Math.abs), 0.02);
  $("influence").replaceChildren(...spaced(words).flatMap(([space, word], place) => {
    const value = values[place], span = make("span", { class: space || !place ? "" : "tight", title: points(value) }, word);
    span.style.background = `rgba(var(--${value >= 0 ? "for" : "against"}), calc(var(--strongest) * ${(Math.abs(value) / most).toFixed(3)}))`;
    return [space, span];
  }));
  const order = values.map((value, place) => [value, words[place]]).sort((a, b) => Math.abs(b[0]) - Math.abs(a[0])).slice(0, 5);
  $("movers").replaceChildren(...order.map(([value, word]) => make("li", {}, make("b", {}, word), ` ${points(value)}`)));
}

// ---- tag --------------------------------------------------------------------------------------

async function tag() {
  await runFor("tag", async (signal) => {
    if (!state.names.trim()) throw { message: "There is no text yet.", remedy: "Type one." };
    const answer = await ask("/v1/predict", signal, { model: modelFor("tag").name, texts: [state.names] });
    saveToAddress();
    const { words, tags, probabilities, entities } = answer.results[0];
    const marksSpans = tags.every((name) => name === "O" || /^[BI]-/.test(name));
    const parts = marksSpans ? entities.map((one) => ({ ...one, name: one.label })) : words.map((word, place) =>
      ({ text: word, name: tags[place], probability: probabilities[place] }));
    const names = [...new Set(parts.map((one) => one.name))], hue = (name) => `depth${(names.indexOf(name) % 6) + 1}`;
    const button = (part) => make("button", { type: "button", class: `entity ${hue(part.name)}`, "aria-pressed": "false", onclick: (event) => {
      for (const other of $("tagged").querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === event.currentTarget));
      $("tag-status").textContent = $("tag-detail").textContent = `“${part.text}”: ${part.name}, ${percent(part.probability)} certain.`;
    } }, part.text, make("small", {}, part.name));
    if (marksSpans) {
      const characters = Array.from(state.names); // places count characters, not UTF-16 units
      let end = 0;
      $("tagged").replaceChildren(...parts.flatMap((part) => {
        const between = characters.slice(end, part.start).join("");
        end = part.end;
        return [between, button(part)];
      }));
      $("tagged").append(characters.slice(end).join(""));
    } else $("tagged").replaceChildren(...parts.flatMap((part) => [button(part), " "]));
    $("tag-legend").replaceChildren(...names.slice(0, 12).map((name) => make("span", { class: `key ${hue(name)}` }, name)));
    $("tag-detail").textContent = parts.length ? "" : "Nothing is marked in this text.";
    $("tag-notes").textContent = answer.notes.join(" ");
    return `${parts.length} ${marksSpans ? "spans" : "words"} marked, according to ${answer.model}. ${answer.notes.join(" ")}`;
  });
}

// ---- compare ----------------------------------------------------------------------------------

function showReports() {
  const reports = server.reports;
  $("no-report").hidden = reports.length > 0;
  $("has-report").hidden = !reports.length;
  if (!reports.length) return;
  if (!reports[state.report]) state.report = 0;
  $("report").replaceChildren(...reports.map((one, place) => make("option", { value: place, selected: place === state.report }, one.name)));
  const { address } = reports[state.report];
  $("report-link").href = address;
  if ($("report-frame").getAttribute("src") !== address) $("report-frame").src = address;
  saveToAddress();
}

// ---- views ------------------------------------------------------------------------------------

const VIEWS = { words: readWords, layers: showLayers, compare: async () => showReports(),
                classify: () => showTask("classify", "classifier", classify), tag: () => showTask("tag", "tagger", tag) };

async function show(view, focus = false) {
  state.view = view;
  for (const tab of document.querySelectorAll('[role="tab"]')) {
    const on = tab.id === `tab-${view}`;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !on;
    if (on && focus) tab.focus();
  }
  $("problem").hidden = true;
  Object.values(running).forEach((work) => work.abort()); // of the previous view
  if (!server) return begin(); // the server did not answer before; try again
  if (view === "words") setSlider();
  saveToAddress();
  await VIEWS[view]();
}

function setModel() {
  const facts = model();
  const classes = `${facts.classes.slice(0, 6).join(", ")}${facts.classes.length > 6 ? " …" : ""}`;
  const kind = { classify: `a classifier: ${classes}`, tag: `a tagger: ${classes}`, null: "a language model" }[facts.task] ?? `a model for the task “${facts.task}”`;
  const parts = [kind, facts.n_layers ? `${facts.n_layers} layer${facts.n_layers > 1 ? "s" : ""}, vectors ${facts.dim} wide` : "word counts"];
  if (facts.perplexity) parts.push(`perplexity ${facts.perplexity.toFixed(1)}`);
  $("facts").textContent = `${facts.name} is ${parts.join("; ")}.`;
  if (state.layer !== null && state.layer >= facts.n_layers) state.layer = null;
}

function connect() {
  $("examples").append(...Object.entries(EXAMPLES).map(([name, texts]) => make("button", {
    type: "button", onclick: () => { state.texts = $("sentences").value = texts; state.at = null; if (server) readWords(); else begin(); } }, name)));
  const submit = (form, saveInput, work) => {
    const handle = (event) => { event.preventDefault(); saveInput(); if (server) { saveToAddress(); work(); } else begin(); };
    $(form).addEventListener("submit", handle);
    $(form).querySelector("textarea")?.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) handle(event);
    });
  };
  submit("words-form", () => { state.texts = $("sentences").value; state.at = null; }, readWords);
  submit("layers-form", () => { state.sentence = $("layers-text").value; }, showLayers);
  submit("classify-form", () => { state.text = $("classify-text").value; }, classify);
  submit("tag-form", () => { state.names = $("tag-text").value; }, tag);
  submit("token-form", () => { sessionStorage.setItem("elmokit-token", $("token").value); $("token-form").hidden = true; }, begin);
  $("layer").addEventListener("input", () => {
    const value = +$("layer").value;
    state.layer = value === model().n_layers ? null : value;
    setSlider();
    if (tokens && state.at) runFor("words", showSimilar);
  });
  $("different").addEventListener("change", () => { state.different = $("different").checked; if (tokens && state.at) runFor("words", showSimilar); });
  $("model").addEventListener("change", () => { state.model = $("model").value; setModel(); show(state.view); });
  for (const name of ["keydown", "focusin"]) $("map-block").addEventListener(name, moveOnMap); // with a listener of its own the SVG would be a Tab stop
  $("report").addEventListener("change", () => { state.report = +$("report").value; showReports(); });
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  tabs.forEach((tab, place) => {
    tab.addEventListener("click", () => show(tab.getAttribute("aria-controls")));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const next = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1 : step ? (place + step + tabs.length) % tabs.length : null;
      if (next !== null) { event.preventDefault(); show(tabs[next].getAttribute("aria-controls"), true); }
    });
  });
  window.addEventListener("hashchange", () => {
    if (!readAddress()) { if (server) saveToAddress(); } else if (server) { fill(); show(state.view); } else begin();
  });
}

function fill() {
  if (!server.models.some((one) => one.name === state.model)) state.model = server.models[0].name;
  $("model").value = state.model;
  $("sentences").value = state.texts;
  $("layers-text").value = state.sentence;
  $("classify-text").value = state.text;
  $("tag-text").value = state.names;
  setModel();
}

async function begin() {
  const succeeded = await runFor("main", async (signal) => {
    server = await ask("/v1/models", signal);
    $("model").replaceChildren(...server.models.map((one) => make("option", { value: one.name }, one.name)));
    $("model").disabled = false;
    $("version").textContent = `· elmokit ${server.version}`;
    fill();
  });
  if (succeeded) await show(state.view);
}

readAddress();
connect();
begin();
