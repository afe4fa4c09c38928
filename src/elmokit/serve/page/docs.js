// The API as a page, from the server's own schema.

import { make } from "./parts.js";

const place = document.getElementById("operations");
let schema = { paths: {} };
try {
  const answer = await fetch("/openapi.json");
  if (!answer.ok) throw answer.status;
  schema = await answer.json();
} catch {
  place.append(make("p", { class: "problem", role: "alert" },
    make("b", {}, "The description of the API cannot be read."), "Check that elmokit serve is running, then reload this page."));
}

const resolved = (node) => (node?.$ref ? schema.components.schemas[node.$ref.split("/").pop()] : node ?? {});

function kind(node) {
  if (node.$ref) return node.$ref.split("/").pop();
  if (node.anyOf) return node.anyOf.map(kind).join(" or ");
  if (node.enum) return node.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (node.const !== undefined) return JSON.stringify(node.const);
  if (node.type === "array") return `list of ${kind(node.items ?? {})}`;
  return node.type ?? "anything";
}

function fields(node, request = true) {
  const rows = Object.entries(node.properties ?? {}).map(([name, field]) => make("tr", {},
    make("th", { scope: "row" }, name), make("td", {}, kind(field)),
    make("td", {}, [field.description, field.default !== undefined && field.default !== null ? `Default ${JSON.stringify(field.default)}.` : "",
      request && (node.required ?? []).includes(name) ? "Required." : ""].filter(Boolean).join(" "))));
  return make("div", { class: "scroll", tabindex: "0" }, make("table", {}, make("tbody", {}, ...rows)));
}

function example(node) {
  const withExample = Object.entries(node.properties ?? {}).filter(([, field]) => field.examples);
  return Object.fromEntries(withExample.map(([name, field]) => [name, field.examples[0]]));
}

for (const [address, methods] of Object.entries(schema.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    const request = resolved(operation.requestBody?.content["application/json"].schema);
    const answer = resolved(operation.responses["200"]?.content?.["application/json"]?.schema);
    const body = make("div");
    if (request.properties) {
      const command = `curl ${location.origin}${address} -H 'content-type: application/json' -d '${JSON.stringify(example(request))}'`;
      body.append(make("p", {}, request.description ?? ""), fields(request), make("pre", {}, command));
    } else body.append(make("pre", {}, `curl ${location.origin}${address}`));
    body.append(make("h2", {}, "Answer"), make("p", {}, answer.description ?? ""), fields(answer, false));
    place.append(make("details", { class: "operation card" }, make("summary", {},
      make("span", { class: "method" }, method.toUpperCase()), make("code", {}, address), ` ${operation.description ?? operation.summary ?? ""}`), body));
  }
}
