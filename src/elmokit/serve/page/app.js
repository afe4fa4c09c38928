// The playground: four views over the API of this server. No library, nothing from elsewhere.

const EXAMPLES = {
  bank: "He sat on the bank of the river and watched the boats.\nThe bank raised its rates again on Thursday.\nShares in the bank fell after it warned on profits.\nReeds grow along the bank of the stream.",
  strike: "The pilots went on strike over pay.\nThe goal was his first strike of the season.\nThe air strike hit a bridge before dawn.\nMiners voted to end the strike after a week.",
  pitch: "Rain left the pitch heavy and slow.\nThe founders made their pitch to the investors.\nThe pitch of the note rose as the string was tightened.\nFans ran onto the pitch after the final whistle.",
  cell: "Each cell divides into two within an hour.\nHe spent the night in a cell at the station.\nThe company sells more cell phones than anyone.\nThe drug kills the cell but spares the tissue around it.",
};
const SENTENCE = "The bank raised its rates again on Thursday.";
const TEXT = "Shares of the airline fell after its pilots voted to strike over pay.";
const CLOSING = new Set([".", ",", ";", ":", "!", "?", "%", ")", "]", "}", "...", "n't", "'s", "'re", "'ve", "'ll", "'d", "'m", "’s"]);
const OPENING = new Set(["(", "[", "{", "$", "£", "€"]);
const $ = (id) => document.getElementById(id);

const state = { view: "words", model: null, texts: EXAMPLES.bank, at: null, layer: null, different: false,
                sentence: SENTENCE, text: TEXT, report: 0 };
let shelf = null;
let tokens = null;
let asked = 0, reading = 0;

function make(name, attributes = {}, ...children) {
  const spaces = name === "svg" || ["circle", "line", "text", "title", "g"].includes(name);
  const node = spaces ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

// ---- talking to the server -------------------------------------------------------------------

async function ask(address, body) {
  const headers = { "content-type": "application/json" };
  const token = sessionStorage.getItem("elmokit-token");
  if (token && /^[!-~]+$/.test(token)) headers.authorization = `Bearer ${token}`; // no header holds others
  let answer;
  try {
    answer = await fetch(address, body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) });
  } catch {
    throw { message: "The server does not answer.", remedy: "Is elmokit serve still running?" };
  }
  if (answer.ok) return answer.json();
  if (answer.status === 401) $("token-form").hidden = false;
  let problem = { message: `The server answered with code ${answer.status}.`, remedy: "" };
  try { problem = (await answer.json()).error ?? problem; } catch { /* not JSON */ }
  throw problem;
}

function complain(problem) {
  const box = $("problem");
  box.replaceChildren(make("b", {}, problem.message ?? String(problem)), problem.remedy ?? "");
  box.hidden = false;
}

async function during(place, work) {
  $("problem").hidden = true;
  place.setAttribute("aria-busy", "true");
  try { await work(); }
  catch (problem) { complain(problem); }
  finally { place.removeAttribute("aria-busy"); }
}

// ---- the address says what is shown -----------------------------------------------------------

function remember() {
  const values = new URLSearchParams();
  if (state.model) values.set("model", state.model);
  if (state.view === "words") {
    values.set("texts", state.texts);
    if (state.at) values.set("word", state.at.join("."));
    if (state.layer !== null) values.set("layer", state.layer);
    if (state.different) values.set("different", "1");
  } else if (state.view === "layers") values.set("text", state.sentence);
  else if (state.view === "classify") values.set("text", state.text);
  else if (state.report) values.set("report", state.report);
  history.replaceState(null, "", `#${state.view}?${values}`);
}

function recall() {
  const [view, rest] = location.hash.slice(1).split(/\?(.*)/s);
  if (!["words", "layers", "classify", "compare"].includes(view)) return false; // a place on the page
  const values = new URLSearchParams(rest ?? "");
  state.view = view;
  state.model = values.get("model");
  if (view === "words" && values.has("texts")) {
    state.texts = values.get("texts");
    const place = (values.get("word") ?? "").split(".").map(Number);
    state.at = place.length === 2 && place.every(Number.isInteger) ? place : null;
    state.layer = /^\d+$/.test(values.get("layer") ?? "") ? +values.get("layer") : null;
    state.different = values.get("different") === "1";
  }
  if (view === "layers" && values.has("text")) state.sentence = values.get("text");
  if (view === "classify" && values.has("text")) state.text = values.get("text");
  if (view === "compare") state.report = +(values.get("report") ?? 0) || 0;
  return true;
}

// ---- words as text ----------------------------------------------------------------------------

function spaced(words) {
  let open = false, last = null;
  return words.map((word) => {
    const closing = CLOSING.has(word) || (word === '"' && open);
    const glued = last === null || closing || OPENING.has(last) || (last === '"' && open);
    if (word === '"') open = !open;
    last = word;
    return [glued ? "" : " ", word];
  });
}

function snippet(words, position, side = 12) {
  const first = Math.max(0, position - side), last = Math.min(words.length, position + side + 1);
  const line = make("span");
  if (first > 0) line.append("… ");
  spaced(words).slice(first, last).forEach(([space, word], offset) => {
    const place = first + offset;
    line.append(place > first ? space : "", place === position ? make("mark", {}, word) : word);
  });
  if (last < words.length) line.append(" …");
  return line;
}

const fixed = (value, digits = 2) => (value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−"));
const percent = (value) => `${(100 * value).toFixed(value > 0.995 || value < 0.1 ? 1 : 0)} %`;

function meter(share, kind = "") {
  const bar = make("i", { class: kind });
  bar.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return make("span", { class: "meter", "aria-hidden": "true" }, bar);
}

// ---- words in context --------------------------------------------------------------------------

function model() { return shelf.models.find((one) => one.name === state.model); }

async function readWords() {
  await during($("words"), async () => {
    const texts = state.texts.split("\n").map((line) => line.trim()).filter(Boolean);
    if (!texts.length) {
      $("reading").hidden = $("words-result").hidden = true;
      throw { message: "There is no sentence yet.", remedy: "Type one or more, each on a line of its own." };
    }
    const mine = ++reading;
    const found = await ask("/v1/tokens", { model: state.model, texts });
    if (mine !== reading) return; // other sentences were given meanwhile
    tokens = { texts, rows: found.tokens };
    if (!state.at || !tokens.rows[state.at[0]]?.[state.at[1]]) state.at = repeated(tokens.rows);
    showTokens();
    $("reading").hidden = false;
    if (state.at) await lookUp();
    else $("words-result").hidden = true;
  });
}

function repeated(rows) {
  // The word to begin with: one that stands in most of the sentences, the longest of them.
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
      onclick: () => { state.at = [text, position]; showTokens(); $("tokens").querySelector(`[data-at="${text}.${position}"]`)?.focus(); during($("words-result"), lookUp); },
    }, word)];
  }))));
}

async function lookUp() {
  const mine = ++asked;
  const body = { model: state.model, texts: tokens.texts, text: state.at[0], position: state.at[1], layer: state.layer, k: 10, different: state.different };
  const found = await ask("/v1/similar", body);
  if (mine !== asked) return; // another word was chosen meanwhile
  remember();
  $("chosen").textContent = found.word;
  $("map-word").textContent = found.word.toLowerCase();
  $("where").textContent = `as in sentence ${found.text + 1}; looked for in ${model().corpus_texts.toLocaleString("en")} ${model().corpus}`;
  $("neighbours").replaceChildren(...found.neighbours.map((one) => {
    const bar = make("i");
    bar.style.width = `${Math.max(0, one.score) * 100}%`;
    return make("li", {}, make("span", { class: "score" }, fixed(one.score, 3), bar), snippet(one.words, one.position, 9));
  }));
  if (!found.neighbours.length) $("neighbours").replaceChildren(make("li", {}, make("span"), make("span", {}, "The corpus holds no other word.")));
  showMap(found);
  showSiblings(found);
  $("words-result").hidden = false;
}

function showMap(found) {
  const points = found.map.points, svg = $("map");
  svg.replaceChildren();
  $("point").replaceChildren();
  svg.toggleAttribute("hidden", !points.length);
  if (!points.length) { $("map-caption").textContent = found.notes.join(" "); return; }
  const range = (values) => { const low = Math.min(...values), high = Math.max(...values); return high - low > 1e-9 ? [low, high] : [low - 1, high + 1]; };
  const [left, right] = range(points.map((one) => one.x)), [low, high] = range(points.map((one) => one.y));
  const x = (value) => 22 + (436 * (value - left)) / (right - left), y = (value) => 318 - (296 * (value - low)) / (high - low);
  svg.append(make("line", { class: "axis", x1: x(0), x2: x(0), y1: 8, y2: 332 }), make("line", { class: "axis", x1: 8, x2: 472, y1: y(0), y2: y(0) }));
  const ordered = [...points].sort((a, b) => (a.source === "yours") - (b.source === "yours"));
  for (const one of ordered) {
    const yours = one.source === "yours";
    const current = yours && one.text === found.text && one.position === found.position;
    const said = `${yours ? `Your sentence ${one.text + 1}` : "Corpus"}: ${one.words.join(" ")}`;
    const show = () => $("point").replaceChildren(make("span", { class: "aside" }, yours ? `Your sentence ${one.text + 1}: ` : "Corpus: "), snippet(one.words, one.position));
    const go = () => { if (yours) { state.at = [one.text, one.position]; showTokens(); during($("words-result"), lookUp); } else show(); };
    svg.append(make("circle", {
      class: `dot ${one.source}${current ? " current" : ""}`, cx: x(one.x).toFixed(1), cy: y(one.y).toFixed(1), r: yours ? 11 : 5.5,
      tabindex: "0", role: "button", "aria-label": said, onmouseenter: show, onfocus: show, onclick: go,
      onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); go(); } },
    }));
    if (yours) svg.append(make("text", { x: x(one.x).toFixed(1), y: (y(one.y) + 4.2).toFixed(1), "aria-hidden": "true" }, String(one.text + 1)));
  }
  const others = points.filter((one) => one.source === "corpus").length;
  $("map-caption").textContent = `${points.length - others} of yours (numbered), ${others} from the corpus. The two axes show ${percent(found.map.explained[0] + found.map.explained[1])} of how they differ. Point at one to read it. ${found.notes.join(" ")}`;
}

function showSiblings(found) {
  const block = $("siblings-block");
  block.hidden = !found.siblings.length;
  if (block.hidden) return;
  const names = found.siblings[0].layers.map((_, depth) => (depth ? `layer ${depth}` : "layer 0, the word alone"));
  const cell = (value, on) => make("td", { class: "number" }, fixed(value), meter(value, on ? "" : "depth0"));
  $("siblings").replaceChildren(
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "sentence"), ...names.map((name) => make("th", { scope: "col" }, name)), make("th", { scope: "col" }, state.layer === null ? "the mix" : "as chosen"))),
    make("tbody", {}, ...found.siblings.map((one) => make("tr", {},
      make("th", { scope: "row" }, `${one.text + 1}. `, snippet(found.tokens[one.text], one.position, 5)),
      ...one.layers.map((value, depth) => cell(value, state.layer === depth)), cell(one.score, true)))));
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

async function lookInside() {
  await during($("layers"), async () => {
    if (!state.sentence.trim()) throw { message: "There is no sentence yet.", remedy: "Type one." };
    const found = await ask("/v1/layers", { model: state.model, text: state.sentence });
    remember();
    const kinds = { equal: "mixed in equal parts: no classifier has learnt to mix them", trainable: "mixed as this classifier has learnt", frozen: "mixed by numbers that were drawn once", function: "mixed by a learned function; the bars show an equal mix" };
    $("mix-kind").textContent = kinds[found.mix] ?? found.mix;
    const classified = found.label !== null;
    const most = Math.max(...found.layers.map((one) => Math.abs(one.weight)), 1e-9);
    $("layer-table").replaceChildren(
      make("thead", {}, make("tr", {}, ...["layer", "λ", "share of the vector", "differs from the layer below (1 − cosine)", ...(classified ? [`chance of “${found.label}” without it`] : [])].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...found.layers.map((one) => make("tr", {},
        make("th", { scope: "row" }, `${one.layer}: ${one.name}`),
        make("td", { class: "number" }, fixed(one.weight, 3), meter(Math.abs(one.weight) / most, `depth${one.layer}`)),
        make("td", { class: "number" }, percent(one.share), meter(one.share, `depth${one.layer}`)),
        make("td", { class: "number" }, one.turn === null ? "–" : fixed(one.turn), ...(one.turn === null ? [] : [meter(one.turn / 2, `depth${one.layer}`)])),
        ...(classified ? [make("td", { class: "number" }, `${percent(one.without)} (with it ${percent(found.probability)})`)] : [])))));
    $("layer-legend").replaceChildren(...found.layers.map((one) => make("span", { class: `key depth${one.layer}` }, `${one.layer}: ${one.name}`)));
    $("word-shares").replaceChildren(...found.tokens.map((word, place) => {
      const shares = found.shares[place];
      const stack = make("span", { class: "stack", "aria-hidden": "true" });
      shares.forEach((share, depth) => { const part = make("i", { class: `depth${depth}` }); part.style.width = `${100 * share}%`; stack.append(part); });
      return make("li", { title: shares.map((share, depth) => `layer ${depth}: ${percent(share)}`).join(", ") }, word, stack);
    }));
    $("layers-result").hidden = false;
  });
}

// ---- classify ---------------------------------------------------------------------------------

function classifier() { const own = model(); return own.kind === "classifier" ? own : shelf.models.find((one) => one.kind === "classifier"); }

async function classify() {
  await during($("classify"), async () => {
    if (!state.text.trim()) throw { message: "There is no text yet.", remedy: "Type one." };
    const body = { model: classifier().name, texts: [state.text] };
    let found, note = "";
    try { found = await ask("/v1/classify", { ...body, influence: true }); }
    catch (problem) {
      found = await ask("/v1/classify", body); // too long for influence, but perhaps not for an answer
      note = problem.message;
    }
    remember();
    const result = found.results[0];
    $("label").textContent = result.label || "none of the classes";
    $("by").textContent = `says ${found.model}`;
    const rows = Object.entries(result.probabilities).sort((a, b) => b[1] - a[1]);
    $("bars").replaceChildren(...rows.slice(0, 12).flatMap(([name, value], place) => [
      make("span", { class: place ? "" : "best" }, name), meter(value, place ? "depth0" : ""), make("span", { class: "figure" }, percent(value))]));
    const block = $("influence-block");
    block.hidden = !result.influence && !note;
    if (!result.influence) { $("influence").textContent = note; $("movers").replaceChildren(); }
    else showInfluence(result.influence);
    $("classify-result").hidden = false;
  });
}

function showInfluence({ tokens: words, values }) {
  const most = Math.max(...values.map(Math.abs), 0.02);
  $("influence").replaceChildren(...spaced(words).flatMap(([space, word], place) => {
    const value = values[place], said = `${value >= 0 ? "+" : "−"}${Math.abs(100 * value).toFixed(1)} points`;
    const span = make("span", { title: said }, word);
    span.style.background = `rgba(var(--${value >= 0 ? "for" : "against"}), ${(0.65 * Math.abs(value) / most).toFixed(3)})`;
    return [space, span];
  }));
  const order = values.map((value, place) => [value, words[place]]).sort((a, b) => Math.abs(b[0]) - Math.abs(a[0])).slice(0, 5);
  $("movers").replaceChildren(...order.map(([value, word]) => make("li", {}, make("b", {}, word), ` ${value >= 0 ? "+" : "−"}${Math.abs(100 * value).toFixed(1)} points`)));
}

// ---- compare ----------------------------------------------------------------------------------

function showReports() {
  const reports = shelf.reports;
  $("no-report").hidden = reports.length > 0;
  $("has-report").hidden = !reports.length;
  if (!reports.length) return;
  if (!reports[state.report]) state.report = 0;
  $("report").replaceChildren(...reports.map((one, place) => make("option", { value: place, selected: place === state.report }, `${one.name}: ${one.title}`)));
  const { address } = reports[state.report];
  $("report-link").href = address;
  if ($("report-frame").getAttribute("src") !== address) $("report-frame").src = address;
  remember();
}

// ---- views ------------------------------------------------------------------------------------

const VIEWS = { words: readWords, layers: lookInside, compare: async () => showReports(),
                classify: async () => { const able = Boolean(classifier()); $("no-classifier").hidden = able; $("has-classifier").hidden = !able; if (able) await classify(); } };

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
  if (!shelf) return begin(); // the server did not answer before; perhaps it does now
  if (view === "words") setSlider();
  remember();
  await VIEWS[view]();
}

function setModel() {
  const facts = model();
  const parts = [facts.kind === "classifier" ? `a classifier: ${facts.classes.slice(0, 6).join(", ")}${facts.classes.length > 6 ? " …" : ""}` : "a language model",
                 `${facts.n_layers} layer${facts.n_layers > 1 ? "s" : ""}, vectors ${facts.dim} wide`];
  if (facts.perplexity) parts.push(`perplexity ${facts.perplexity.toFixed(1)}`);
  $("facts").textContent = `${facts.name} is ${parts.join("; ")}.`;
  if (state.layer !== null && state.layer >= facts.n_layers) state.layer = null;
}

function connect() {
  $("examples").append(...Object.entries(EXAMPLES).map(([name, texts]) => make("button", {
    type: "button", onclick: () => { state.texts = $("sentences").value = texts; state.at = null; if (shelf) readWords(); else begin(); } }, name)));
  const submit = (form, keep, work) => {
    const go = (event) => { event.preventDefault(); keep(); if (shelf) { remember(); work(); } else begin(); };
    $(form).addEventListener("submit", go);
    $(form).querySelector("textarea")?.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go(event);
    });
  };
  submit("words-form", () => { state.texts = $("sentences").value; state.at = null; }, readWords);
  submit("layers-form", () => { state.sentence = $("layers-text").value; }, lookInside);
  submit("classify-form", () => { state.text = $("classify-text").value; }, classify);
  submit("token-form", () => { sessionStorage.setItem("elmokit-token", $("token").value); $("token-form").hidden = true; }, begin);
  $("layer").addEventListener("input", () => {
    const value = +$("layer").value;
    state.layer = value === model().n_layers ? null : value;
    setSlider();
    if (state.at) during($("words-result"), lookUp);
  });
  $("different").addEventListener("change", () => { state.different = $("different").checked; if (state.at) during($("words-result"), lookUp); });
  $("model").addEventListener("change", () => { state.model = $("model").value; setModel(); show(state.view); });
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
    if (!recall()) { if (shelf) remember(); } else if (shelf) { fill(); show(state.view); } else begin();
  });
}

function fill() {
  if (!shelf.models.some((one) => one.name === state.model)) state.model = shelf.models[0].name;
  $("model").value = state.model;
  $("sentences").value = state.texts;
  $("layers-text").value = state.sentence;
  $("classify-text").value = state.text;
  setModel();
}

async function begin() {
  await during(document.body, async () => {
    shelf = await ask("/v1/models");
    $("model").replaceChildren(...shelf.models.map((one) => make("option", { value: one.name }, one.name)));
    $("model").disabled = false;
    $("version").textContent = `· elmokit ${shelf.version}`;
    fill();
    await show(state.view);
  });
}

recall();
connect();
begin();
