// Building blocks of the pages: elements, words as text, numbers.

const CLOSING = new Set([".", ",", ";", ":", "!", "?", "%", ")", "]", "}", "...", "n't", "'s", "'re", "'ve", "'ll", "'d", "'m", "’s"]);
const OPENING = new Set(["(", "[", "{", "$", "£", "€"]);

export function make(name, attributes = {}, ...children) {
  const spaces = name === "svg" || ["circle", "line", "text", "title", "g"].includes(name);
  const node = spaces ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export function spaced(words) {
  let open = false, last = null;
  return words.map((word) => {
    const closing = CLOSING.has(word) || (word === '"' && open);
    const glued = last === null || closing || OPENING.has(last) || (last === '"' && open);
    if (word === '"') open = !open;
    last = word;
    return [glued ? "" : " ", word];
  });
}

export function snippet({ words, position, start = 0 }, side = 12) {
  position -= start; // `words` may be a part of a text: the words around the word
  const first = Math.max(0, position - side), last = Math.min(words.length, position + side + 1);
  const line = make("span");
  if (start + first > 0) line.append("… ");
  spaced(words).slice(first, last).forEach(([space, word], offset) => {
    const place = first + offset;
    line.append(place > first ? space : "", place === position ? make("mark", {}, word) : word);
  });
  if (last < words.length) line.append(" …");
  return line;
}

export const fixed = (value, digits = 2) => (value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−"));
export const percent = (value) => `${(100 * value).toFixed((value > 0.995 && value < 0.9995) || value < 0.1 ? 1 : 0)}%`;

export function points(value) {
  const size = Math.abs(100 * value).toFixed(1);
  return `${size === "0.0" ? "±" : value > 0 ? "+" : "−"}${size} points`;
}

export function meter(share, kind = "") {
  const bar = make("i", { class: kind });
  bar.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return make("span", { class: "meter", "aria-hidden": "true" }, bar);
}

// A color for each layer: gray for the token encoder, then those of the style sheet in turn.
export const depth = (layer) => `depth${layer && ((layer - 1) % 6) + 1}`;

// A list item with a bar: a score from 0 to 1 and what has it.
export function scored(score, ...children) {
  const bar = make("i");
  bar.style.width = `${Math.max(0, Math.min(1, score)) * 100}%`;
  return make("li", {}, make("span", { class: "score" }, fixed(score, 3), bar), make("span", {}, ...children));
}

// Rows of a label, a bar and a figure, the first one in bold.
export function bars(rows, figure = percent) {
  return rows.flatMap(([label, value], place) => [
    make("span", { class: place ? "" : "best" }, label), meter(value, place ? "depth0" : ""), make("span", { class: "figure" }, figure(value))]);
}

// A text with parts of it as buttons. Places count characters, not UTF-16 units.
export function marked(text, parts, button) {
  const characters = Array.from(text), nodes = [];
  let end = 0;
  for (const part of [...parts].sort((a, b) => a.start - b.start)) {
    nodes.push(characters.slice(end, part.start).join(""), button(part));
    end = part.end;
  }
  return [...nodes, characters.slice(end).join("")];
}

// Presses one of some buttons.
export function press(button, others) {
  for (const other of others) other.setAttribute("aria-pressed", String(other === button));
}

// ---- maps: occurrences of a word as dots ------------------------------------------------------------

// Draws `dots` ({ x, y, kind, size, mark, whose, key, choose }, and a snippet); pointing at one shows it in `line`.
export function drawMap(svg, line, dots) {
  const focused = svg.contains(document.activeElement) ? document.activeElement.dataset.at : null;
  svg.replaceChildren();
  line.replaceChildren();
  svg.toggleAttribute("hidden", !dots.length);
  if (!dots.length) return;
  const range = (values) => { const low = Math.min(...values), high = Math.max(...values); return high - low > 1e-9 ? [low, high] : [low - 1, high + 1]; };
  const [left, right] = range(dots.map((one) => one.x)), [low, high] = range(dots.map((one) => one.y));
  const x = (value) => 22 + (436 * (value - left)) / (right - left), y = (value) => 318 - (296 * (value - low)) / (high - low);
  svg.append(make("line", { class: "axis", x1: x(0), x2: x(0), y1: 8, y2: 332 }), make("line", { class: "axis", x1: 8, x2: 472, y1: y(0), y2: y(0) }));
  for (const one of dots) {
    const show = () => line.replaceChildren(make("span", { class: "aside" }, one.whose), snippet(one));
    svg.append(make("circle", {
      class: `dot ${one.kind}`, cx: x(one.x).toFixed(1), cy: y(one.y).toFixed(1), r: one.size, tabindex: "-1", role: "button",
      "aria-label": one.whose + snippet(one).textContent, "data-at": one.key, onmouseenter: show, onfocus: show, onclick: one.choose ?? show,
    }));
    if (one.mark) svg.append(make("text", { x: x(one.x).toFixed(1), y: (y(one.y) + 4.2).toFixed(1), "aria-hidden": "true" }, one.mark));
  }
  const stop = svg.querySelector(`[data-at="${focused}"]`) ?? svg.querySelector(".current") ?? svg.querySelector(".dot");
  stop.setAttribute("tabindex", "0");
  if (focused) stop.focus();
}

// The Tab key stops at one dot; the arrow keys move to the next one in their direction. The listeners belong to the
// block around the map: with one of its own the SVG would be a Tab stop.
export function moveOnMap(event) {
  const dot = event.target.closest(".dot"), dots = [...(dot?.closest("svg").querySelectorAll(".dot") ?? [])];
  if (!dot) return;
  if (event.type === "focusin") return dots.forEach((one) => one.setAttribute("tabindex", one === dot ? "0" : "-1"));
  const [axis, step] = { ArrowRight: ["cx", 1], ArrowLeft: ["cx", -1], ArrowDown: ["cy", 1], ArrowUp: ["cy", -1] }[event.key] ?? [];
  if (step) {
    dots.sort((a, b) => a.getAttribute(axis) - b.getAttribute(axis));
    dots[dots.indexOf(dot) + step]?.focus();
  } else if (event.key === "Enter" || event.key === " ") dot.dispatchEvent(new MouseEvent("click"));
  else return;
  event.preventDefault();
}
