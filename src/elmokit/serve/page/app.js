// The playground: views over the API of this server. No library, nothing from elsewhere.

import { depth, drawMap, fixed, make, meter, moveOnMap, percent, scored, snippet, spaced } from "./parts.js";
import { NEWS, SENTENCES, USES } from "./examples.js";
import { $, ask, inputs, lines, model, need, readAddress, runFor, saveToAddress, session, state, stopAll } from "./session.js";
import { answer, classify, pairs, search, senses, showTask, tag } from "./tasks.js";

let tokens = null; // of state.texts by state.model; null while they are being read

// ---- words in context --------------------------------------------------------------------------

async function readWords() {
  tokens = null;
  await runFor("words", async (signal) => {
    $("reading").inert = true;
    try {
      const texts = lines(state.texts);
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
  $("neighbors").replaceChildren(...similar.neighbors.map((one) => scored(one.score, snippet(one, 9))));
  if (!similar.neighbors.length) $("neighbors").replaceChildren(make("li", {}, make("span"), make("span", {}, "The corpus has no other word.")));
  showMap(similar);
  showSiblings(similar);
  return `${similar.neighbors.length} words used like “${similar.word}” in sentence ${similar.text + 1}, by ${layerName(state.layer)}.`;
}

function showMap(similar) {
  const dots = [...similar.map.points].sort((a, b) => (a.source === "yours") - (b.source === "yours"));
  drawMap($("map"), $("point"), dots.map((one) => {
    const yours = one.source === "yours", current = yours && one.text === similar.text && one.position === similar.position;
    return { ...one, kind: `${one.source}${current ? " current" : ""}`, size: yours ? 11 : 5.5, mark: yours ? String(one.text + 1) : "",
             whose: yours ? `Your sentence ${one.text + 1}: ` : "Corpus: ", key: `${one.source}.${one.text}.${one.position}`,
             choose: yours ? () => choose(one.text, one.position) : null };
  }));
  const others = dots.filter((one) => one.source === "corpus").length, [across, down] = similar.map.explained;
  $("map-caption").textContent = !dots.length ? similar.notes.join(" ")
    : `${dots.length - others} of yours (numbered), ${others} from the corpus. The two axes show ${percent(across + down)} of the variance. Point at a dot to read it, or use the arrow keys. ${similar.notes.join(" ")}`;
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
    const text = need(inputs.layers.text, "sentence");
    const answer = await ask("/v1/layers", signal, { model: state.model, text });
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

// ---- compare ----------------------------------------------------------------------------------

function showReports() {
  const { reports } = session.server;
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

const VIEWS = {
  words: readWords, layers: showLayers, search, senses, pairs, compare: async () => showReports(),
  classify: () => showTask("classify", "classifier", classify), tag: () => showTask("tag", "tagger", tag),
  answer: () => showTask("answer", "reader", answer),
};

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
  stopAll(); // the work of the previous view
  if (!session.server) return begin(); // the server did not answer before; try again
  if (view === "words") setSlider();
  saveToAddress();
  await VIEWS[view]();
}

function setModel() {
  const facts = model();
  const classes = `${facts.classes.slice(0, 6).join(", ")}${facts.classes.length > 6 ? " …" : ""}`;
  const pair = classes ? `a model of pairs of texts: ${classes}` : "a model that scores pairs of texts";
  const kind = { classify: `a classifier: ${classes}`, tag: `a tagger: ${classes}`, answer: "a reader: it answers questions from a passage", pair, null: "a language model" }[facts.task] ?? `a model for the task “${facts.task}”`;
  const parts = [kind, facts.n_layers ? `${facts.n_layers} layer${facts.n_layers > 1 ? "s" : ""}, vectors ${facts.dim} wide` : "word counts"];
  if (facts.perplexity) parts.push(`perplexity ${facts.perplexity.toFixed(1)}`);
  $("facts").textContent = `${facts.name} is ${parts.join("; ")}.`;
  if (state.layer !== null && state.layer >= facts.n_layers) state.layer = null;
  const leave = (count, name) => (count ? `Leave it empty for ${count.toLocaleString("en")} ${name}.` : "");
  $("search-hint").textContent = leave(facts.search_texts, `texts (${facts.search})`);
  $("senses-hint").textContent = leave(facts.corpus_texts, facts.corpus);
}

// Buttons that fill in an example and use it.
function offer(place, names, choose, work) {
  $(place).append(...names.map((name) => make("button", { type: "button", onclick: () => {
    choose(name);
    if (session.server) work(); else begin();
  } }, name)));
}

function connect() {
  const submit = (form, saveInput, work) => {
    const handle = (event) => { event.preventDefault(); saveInput(); if (session.server) { saveToAddress(); work(); } else begin(); };
    $(form).addEventListener("submit", handle);
    for (const area of $(form).querySelectorAll("textarea")) area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) handle(event);
    });
  };
  submit("words-form", () => { state.texts = $("sentences").value; state.at = null; }, readWords);
  for (const [view, fields] of Object.entries(inputs)) {
    submit(`${view}-form`, () => { for (const name of Object.keys(fields)) fields[name] = $(`${view}-${name}`).value; }, VIEWS[view]);
  }
  submit("token-form", () => { sessionStorage.setItem("elmokit-token", $("token").value); $("token-form").hidden = true; }, begin);
  offer("examples", Object.keys(SENTENCES), (name) => { state.texts = $("sentences").value = SENTENCES[name]; state.at = null; }, readWords);
  offer("senses-examples", Object.keys(USES), (name) => {
    $("senses-word").value = inputs.senses.word = name;
    $("senses-texts").value = inputs.senses.texts = USES[name];
  }, senses);
  $("layer").addEventListener("input", () => {
    const value = +$("layer").value;
    state.layer = value === model().n_layers ? null : value;
    setSlider();
    if (tokens && state.at) runFor("words", showSimilar);
  });
  $("different").addEventListener("change", () => { state.different = $("different").checked; if (tokens && state.at) runFor("words", showSimilar); });
  $("model").addEventListener("change", () => { state.model = $("model").value; setModel(); show(state.view); });
  for (const name of ["keydown", "focusin"]) for (const block of ["map-block", "senses-map-block"]) $(block).addEventListener(name, moveOnMap);
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
    if (!readAddress(Object.keys(VIEWS))) { if (session.server) saveToAddress(); } else if (session.server) { fill(); show(state.view); } else begin();
  });
}

function fill() {
  const { models } = session.server;
  if (!models.some((one) => one.name === state.model)) state.model = models[0].name;
  $("model").value = state.model;
  $("sentences").value = state.texts;
  inputs.search.texts ??= model().search ? "" : NEWS;
  for (const [view, fields] of Object.entries(inputs)) for (const [name, value] of Object.entries(fields)) $(`${view}-${name}`).value = value;
  setModel();
}

async function begin() {
  const succeeded = await runFor("main", async (signal) => {
    const server = (session.server = await ask("/v1/models", signal));
    $("model").replaceChildren(...server.models.map((one) => make("option", { value: one.name }, one.name)));
    $("model").disabled = false;
    $("version").textContent = `· elmokit ${server.version}`;
    fill();
  });
  if (succeeded) await show(state.view);
}

readAddress(Object.keys(VIEWS));
connect();
begin();
