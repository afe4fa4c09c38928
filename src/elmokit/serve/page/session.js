// What all views share: their inputs, the server, requests and problems.

import { make } from "./parts.js";
import { INPUTS, SENTENCES } from "./examples.js";

export const $ = (id) => document.getElementById(id);

export const state = { view: "words", model: null, texts: SENTENCES.bank, at: null, word: null, layer: null, different: false, report: 0 };
export const inputs = INPUTS; // by view and name; the element of `inputs.tag.text` is #tag-text
export const session = { server: null }; // models, reports and limits
const running = {}; // an AbortController for each view

export function model() { return session.server.models.find((one) => one.name === state.model); }

// The chosen model if it can do the task, else the first one that can.
export function modelFor(task) { return [model(), ...session.server.models].find((one) => one.task === task); }

export async function ask(address, signal, body) {
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

export function stopAll() { Object.values(running).forEach((work) => work.abort()); }

// Runs `work` for a view and aborts what the view did before. What `work` returns becomes the view's status;
// without it the result is hidden. Returns true if all went well.
export async function runFor(view, work) {
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

// The lines of a text that are not blank.
export const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

// Throws a problem unless there is a text.
export function need(text, name = "text") {
  if (!text.trim()) throw { message: `There is no ${name} yet.`, remedy: "Type one." };
  return text;
}

// ---- the address holds the view ---------------------------------------------------------------

export function saveToAddress() {
  const values = new URLSearchParams();
  if (state.model) values.set("model", state.model);
  if (state.view === "words") {
    values.set("texts", state.texts);
    if (state.at) values.set("word", state.at.join("."));
    if (state.layer !== null) values.set("layer", state.layer);
    if (state.different) values.set("different", "1");
  } else if (state.view === "compare") {
    if (state.report) values.set("report", state.report);
  } else for (const [name, value] of Object.entries(inputs[state.view])) values.set(name, value);
  const address = `#${state.view}?${values}`;
  history.replaceState(null, "", address.length < 100000 ? address : `#${state.view}`); // browsers limit addresses
}

export function readAddress(views) {
  const [view, rest] = location.hash.slice(1).split(/\?(.*)/s);
  if (!views.includes(view)) return false; // an anchor on the page
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
  if (view === "compare") state.report = +(values.get("report") ?? 0) || 0;
  for (const name of Object.keys(inputs[view] ?? {})) if (values.has(name)) inputs[view][name] = values.get(name);
  return true;
}
