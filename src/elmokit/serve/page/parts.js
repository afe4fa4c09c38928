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
