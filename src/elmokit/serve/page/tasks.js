// Views of single texts and of texts together: search, senses, pairs, and one for each task of elmokit fit.

import { bars, drawMap, fixed, make, marked, meter, percent, points, press, scored, snippet, spaced } from "./parts.js";
import { $, ask, inputs, lines, model, modelFor, need, runFor, saveToAddress, session, state } from "./session.js";

const hue = (place) => `depth${(place % 6) + 1}`;
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

// Runs `work` if there is a model for the task, else shows how to make one.
export async function showTask(task, view, work) {
  const available = Boolean(modelFor(task));
  $(`no-${view}`).hidden = available;
  $(`has-${view}`).hidden = !available;
  if (available) await work();
}

const predict = async (task, signal, body) => ask("/v1/predict", signal, { model: modelFor(task).name, ...body });

// ---- search -----------------------------------------------------------------------------------

export async function search() {
  await runFor("search", async (signal) => {
    const { query, texts } = inputs.search, given = lines(texts);
    need(query, "query");
    const answer = await ask("/v1/search", signal, { model: state.model, query, k: 10, ...(given.length && { texts: given }) });
    saveToAddress();
    $("search-where").textContent = `of ${given.length ? "your " : ""}${plural(answer.n_texts, "text")}${given.length ? "" : ` (${model().search})`}, with the cosine of the sentence vectors`;
    $("search-hits").replaceChildren(...answer.hits.map((one) => scored(one.score, one.text)));
    return `${plural(answer.hits.length, "text")}, the most similar one first.`;
  });
}

// ---- senses -----------------------------------------------------------------------------------

export async function senses() {
  await runFor("senses", async (signal) => {
    const { word, texts, k } = inputs.senses, given = lines(texts);
    need(word, "word");
    const answer = await ask("/v1/senses", signal, { model: state.model, word: word.trim(), ...(given.length && { texts: given }), ...(k && { k: +k }) });
    saveToAddress();
    const count = plural(answer.senses.length, "sense"), names = answer.senses.map((one) => one.name);
    $("senses-count").textContent = count;
    $("senses-of").textContent = `of “${answer.word}” in ${plural(answer.n_found, "sentence")} ${given.length ? "of yours" : `from ${model().corpus}`}, compared by ${answer.compared_by}`;
    $("senses-notes").textContent = [answer.silhouette === null ? "" : `The grouping has a silhouette of ${fixed(answer.silhouette)} (from −1 to 1, the higher the clearer).`, ...answer.notes].join(" ");
    $("senses-list").replaceChildren(...answer.senses.map((one, place) => {
      const typical = new Set(one.examples.map((use) => use.words.join(" ")));
      const others = answer.uses.filter((use) => use.sense === one.name && !typical.has(use.words.join(" ")));
      const list = (uses) => make("ul", {}, ...uses.map((use) => make("li", {}, snippet(use))));
      return make("li", { class: hue(place) }, make("h3", {}, `Sense ${one.name}`, make("span", {}, ` ${percent(one.share)}, ${plural(one.n_uses, "sentence")}`)),
        ...(one.keywords.length ? [make("p", { class: "keywords" }, make("span", { class: "aside" }, "typical words: "), one.keywords.join(", "))] : []), list(one.examples),
        ...(others.length ? [make("details", {}, make("summary", {}, `${plural(others.length, "more sentence")}`), list(others))] : []));
    }));
    const many = answer.uses.length > 60;
    drawMap($("senses-map"), $("senses-point"), answer.uses.map((one, number) => ({
      ...one, kind: `sense ${hue(names.indexOf(one.sense))}`, size: many ? 5.5 : 10, mark: many ? "" : one.sense, whose: `Sense ${one.sense}: `, key: String(number) })));
    $("senses-caption").textContent = `Each dot is a sentence, numbered by sense; near dots are alike. The two axes show ${percent(answer.explained[0] + answer.explained[1])} of the variance. Point at a dot to read it, or use the arrow keys.`;
    return `${count} of “${answer.word}” in ${plural(answer.n_found, "sentence")}.`;
  });
}

// ---- pairs ------------------------------------------------------------------------------------

export async function pairs() {
  const predictor = modelFor("pair");
  $("no-pairs").hidden = Boolean(predictor);
  await runFor("pairs", async (signal) => {
    const { text, other } = inputs.pairs;
    need(text);
    need(other, "second text");
    const contextual = [model(), ...session.server.models].find((one) => one.contextual);
    const [near, predicted] = await Promise.all([
      contextual && ask("/v1/similarity", signal, { model: contextual.name, text, other }),
      predictor && predict("pair", signal, { texts: [{ text, other }] })]);
    saveToAddress();
    const result = predicted?.results[0], chances = result?.probabilities ?? result?.scores;
    $("pairs-prediction").hidden = !predicted;
    if (predicted) {
      $("pairs-label").textContent = String(result.prediction);
      $("pairs-by").textContent = `according to ${predicted.model}`;
      $("pairs-bars").replaceChildren(...bars(Object.entries(chances ?? {}).sort((a, b) => b[1] - a[1]).slice(0, 12), result.probabilities ? percent : fixed));
    }
    $("pairs-similarity").classList.toggle("wide", !predicted);
    for (const id of ["pairs-similarity", "pairs-alignment"]) $(id).hidden = !near;
    if (near) {
      $("pairs-score").textContent = fixed(near.score);
      $("pairs-meter").replaceChildren(meter(near.score));
      $("pairs-notes").textContent = near.notes.join(" ");
      $("pairs-alignment").hidden = !near.pairs.length;
      showAlignment(near);
    }
    return [predicted && `Prediction: ${result.prediction}, according to ${predicted.model}.`, near && `Similarity ${fixed(near.score)}; ${plural(near.pairs.length, "pair")} of words.`].filter(Boolean).join(" ");
  });
}

function showAlignment({ tokens, pairs: found, cosines }) {
  const rows = ["pairs-first", "pairs-second"], nodes = [[], []]; // a button for each word; text for punctuation
  const numbers = [new Map(), new Map()]; // of the pair that a word belongs to
  const isWord = (text) => /[\p{L}\p{N}]/u.test(text);
  found.filter((pair) => pair.every((place, side) => isWord(tokens[side][place]))).forEach((pair, number) => pair.forEach((place, side) => numbers[side].set(place, number)));
  const choose = (side, place) => {
    const cosine = (other) => (side ? cosines[other][place] : cosines[place][other]), others = tokens[1 - side];
    press(nodes[side][place], nodes.flat().filter((node) => node.style));
    nodes[side].forEach((node) => { if (node.style) node.style.background = ""; });
    nodes[1 - side].forEach((node, other) => {
      if (node.style) node.style.background = `rgba(var(--for), calc(var(--strongest) * ${(Math.max(0, cosine(other)) ** 2).toFixed(3)}))`;
    });
    const order = others.map((_, other) => other).filter((other) => isWord(others[other])).sort((a, b) => cosine(b) - cosine(a));
    $("pairs-detail").textContent = $("pairs-status").textContent = `“${tokens[side][place]}” is nearest to ${order.slice(0, 3).map((other) => `“${others[other]}” (${fixed(cosine(other))})`).join(", ")}.`;
  };
  rows.forEach((id, side) => {
    const groups = []; // a word and what follows it without a space stay on one line
    spaced(tokens[side]).forEach(([space, word], place) => {
      const number = numbers[side].get(place), paired = number !== undefined;
      nodes[side][place] = !isWord(word) ? document.createTextNode(word) : make("button", {
        type: "button", class: `w${paired ? ` paired ${hue(number)}` : ""}`, "aria-pressed": "false", onclick: () => choose(side, place),
      }, word, ...(paired ? [make("sub", {}, String(number + 1))] : []));
      if (space || !place) groups.push(" ", make("span", { class: "glued" }));
      groups.at(-1).append(nodes[side][place]);
    });
    $(id).replaceChildren(...groups);
  });
  $("pairs-detail").textContent = "Words with the same number are nearest to each other in context. Choose a word to compare it with each word of the other text.";
}

// ---- classify ---------------------------------------------------------------------------------

export async function classify() {
  await runFor("classify", async (signal) => {
    const texts = [need(inputs.classify.text)];
    const [words] = (await ask("/v1/tokens", signal, { model: modelFor("classify").name, texts })).tokens, most = session.server.limits.influence_words;
    const answer = await predict("classify", signal, { texts, influence: words.length <= most });
    saveToAddress();
    const result = answer.results[0];
    $("label").textContent = result.prediction || "none of the classes";
    $("by").textContent = `according to ${answer.model}`;
    $("classify-notes").textContent = answer.notes.join(" ");
    const rows = Object.entries(result.probabilities ?? result.scores).sort((a, b) => b[1] - a[1]);
    $("bars").replaceChildren(...bars(rows.slice(0, 12), result.probabilities ? percent : fixed));
    $("measure").textContent = result.probabilities ? "probability" : "score";
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

export async function tag() {
  await runFor("tag", async (signal) => {
    const { text } = inputs.tag;
    const answer = await predict("tag", signal, { texts: [need(text)] });
    saveToAddress();
    const { words, tags, probabilities, entities } = answer.results[0];
    const marksSpans = tags.every((name) => name === "O" || /^[BI]-/.test(name));
    const parts = marksSpans ? entities.map((one) => ({ ...one, name: one.label })) : words.map((word, place) =>
      ({ text: word, name: tags[place], probability: probabilities[place] }));
    const names = [...new Set(parts.map((one) => one.name))];
    const button = (part) => make("button", { type: "button", class: `entity ${hue(names.indexOf(part.name))}`, "aria-pressed": "false", onclick: (event) => {
      press(event.currentTarget, $("tagged").querySelectorAll("button"));
      $("tag-status").textContent = $("tag-detail").textContent = `“${part.text}”: ${part.name}, ${percent(part.probability)} certain.`;
    } }, part.text, make("small", {}, part.name));
    $("tagged").replaceChildren(...(marksSpans ? marked(text, parts, button) : parts.flatMap((part) => [button(part), " "])));
    $("tag-legend").replaceChildren(...names.slice(0, 12).map((name, place) => make("span", { class: `key ${hue(place)}` }, name)));
    $("tag-detail").textContent = parts.length ? "" : "Nothing is marked in this text.";
    $("tag-notes").textContent = answer.notes.join(" ");
    return `${parts.length} ${marksSpans ? "spans" : "words"} marked, according to ${answer.model}. ${answer.notes.join(" ")}`;
  });
}

// ---- answer -----------------------------------------------------------------------------------

export async function answer() {
  await runFor("answer", async (signal) => {
    const { question, passage } = inputs.answer;
    need(question, "question");
    need(passage, "passage");
    const reply = await predict("answer", signal, { texts: [{ question, passage }] });
    saveToAddress();
    const { answer: best, start, end, probability, runners_up: others } = reply.results[0];
    const candidates = [{ text: best, start, end, probability }, ...others];
    const name = (one) => one.text || "no answer";
    const button = (one) => {
      const node = make("button", { type: "button", class: `entity ${one.text === best && one.start === start ? "depth1 best" : "depth0"}`, "aria-pressed": "false", onclick: () => {
        press(node, $("answered").querySelectorAll("button"));
        $("answer-detail").textContent = $("answer-status").textContent = `“${one.text}”: ${percent(one.probability)} certain.`;
      } }, one.text);
      return node;
    };
    $("answered").replaceChildren(...marked(passage, candidates.filter((one) => one.start !== null), button));
    $("answer-label").textContent = best || "the passage has none";
    $("answer-by").textContent = `according to ${reply.model}`;
    $("answer-bars").replaceChildren(...bars(candidates.map((one) => [name(one), one.probability])));
    $("answer-detail").textContent = "Choose a marked answer to see how certain it is.";
    $("answer-notes").textContent = reply.notes.join(" ");
    return `Answer: ${$("answer-label").textContent}, ${percent(probability)} certain, according to ${reply.model}.`;
  });
}
