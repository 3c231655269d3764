// The page about the HTTP API: the OpenAPI description as text, and a form for each operation.

import { byId, h } from "./dom.js";
import { storeKey, storedKey } from "./stored_key.js";
import { withCode } from "./text.js";

const LONGEST = 100_000; // characters of a response that are shown

function send(path, options = {}) {
  const key = storedKey();
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${String.fromCharCode(...new TextEncoder().encode(key))}`;
  return fetch(path, { ...options, headers });
}

async function load() {
  byId("description").replaceChildren();
  byId("message").textContent = "";
  try {
    const response = await send("openapi.json");
    const data = await response.json();
    if (response.ok) {
      byId("description").append(...describe(data));
      document.getElementById(location.hash.slice(1))?.scrollIntoView();
    } else {
      byId("message").replaceChildren(...withCode([data.error, data.hint].filter(Boolean).join(". ")));
    }
  } catch {
    byId("message").textContent = "The service does not answer.";
  }
}

function describe({ info, paths, components }) {
  const { schemas } = components;
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, ...operation })),
  );
  const names = Object.keys(schemas).sort();
  const link = (id, ...children) => h("li", {}, h("a", { href: `#${id}` }, ...children));
  const tags = new Set(operations.map((one) => one.tags[0]));
  return [
    h("p", {}, `Recto ${info.version}. ${info.summary ?? ""}`),
    h("nav", { "aria-label": "Contents" },
      h("ul", { class: "contents" },
        operations.map((one) => link(operationId(one), h("span", { class: "method" }, one.method.toUpperCase()), one.path)),
        link("schemas", "Schemas"))),
    ...[...tags].flatMap((tag) => [
      h("h2", {}, `Operations: ${tag}`),
      ...operations.filter((one) => one.tags[0] === tag).map((one) => operationView(one, schemas)),
    ]),
    h("h2", { id: "schemas" }, "Schemas"),
    ...names.map((name) => schemaView(name, schemas[name])),
  ];
}

const operationId = ({ method, path }) => `${method}${path.replace(/[^a-z0-9]+/giu, "-")}`;

function operationView(operation, schemas) {
  const { method, path, summary, parameters = [], requestBody, responses } = operation;
  const id = operationId(operation);
  const body = requestBody?.content["application/json"]?.schema;
  return h("section", { class: "operation", "aria-labelledby": id },
    h("h3", { id, tabindex: "-1" }, h("span", { class: "method" }, method.toUpperCase()), " ", h("code", {}, path)),
    h("p", {}, ...withCode(summary ?? "")),
    parameters.length > 0 && h("h4", {}, "Parameters"),
    parameters.length > 0 && fields(parameters.map((one) => [one.name, one.schema, one.required, one.description, one.in])),
    body && h("h4", {}, "Body"),
    body && h("p", {}, typeView(body)),
    h("h4", {}, "Responses"),
    fields(Object.entries(responses).map(([status, one]) => {
      const content = Object.entries(one.content ?? {});
      const schema = content.find(([, inner]) => inner.schema?.$ref)?.[1].schema;
      return [status, schema, true, one.description, content.map(([type]) => type).join(", ")];
    })),
    tryView(operation, body && example(resolve(body, schemas))));
}

function fields(rows) {
  return h("dl", { class: "fields" }, rows.map(([name, schema, required, description, where]) =>
    h("div", {},
      h("dt", {}, h("code", {}, name), h("span", { class: "type" }, schema && typeView(schema), schema && where && " · ", where)),
      h("dd", {}, ...withCode(description ?? ""), notes(schema, required)))));
}

function notes(schema, required) {
  const known = { default: "default", minimum: "at least", maximum: "at most", maxItems: "entries, at most" };
  const found = Object.entries(known)
    .filter(([name]) => schema?.[name] !== undefined && schema[name] !== null)
    .map(([name, text]) => `${text} ${JSON.stringify(schema[name])}`);
  if (!required) found.unshift("optional");
  return found.length > 0 && h("span", { class: "type" }, found.join(" · "));
}

/** Return the type of a schema; the names of schemas are links. */
function typeView(schema) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1);
    return h("a", { href: `#schema-${name}` }, name);
  }
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return h("span", {}, several.flatMap((one, index) => [index > 0 && " | ", typeView(one)]));
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return h("span", {}, "list of ", typeView(schema.items));
  if (schema.type === "object" && schema.additionalProperties?.type) {
    return h("span", {}, "object of ", typeView(schema.additionalProperties));
  }
  return schema.type ?? "any";
}

function schemaView(name, schema) {
  const required = schema.required ?? [];
  return h("section", { class: "schema", "aria-labelledby": `schema-${name}` },
    h("h3", { id: `schema-${name}`, tabindex: "-1" }, h("code", {}, name)),
    h("p", {}, ...withCode(schema.description ?? "")),
    fields(Object.entries(schema.properties ?? {}).map(([field, inner]) => [field, inner, required.includes(field), inner.description])));
}

const resolve = (schema, schemas) => (schema.$ref ? schemas[schema.$ref.split("/").at(-1)] : schema);
const example = (schema) => JSON.stringify(schema.examples?.[0] ?? {}, null, 2);

function tryView(operation, body) {
  const { method, path, parameters = [] } = operation;
  const id = operationId(operation);
  const inputs = parameters.map((one) => {
    const given = one.examples?.[0] ?? one.schema.examples?.[0] ?? one.example ?? "";
    const input = h("input", { id: `${id}-${one.name}`, name: one.name, value: one.required ? given : "", required: one.required, autocomplete: "off" });
    return { ...one, input };
  });
  const text = body && h("textarea", { id: `${id}-body`, rows: "8", spellcheck: "false" }, body);
  const status = h("p", { role: "status" });
  const output = h("pre", { tabindex: "0", hidden: true, "aria-label": "Response" });
  const form = h("form", { "aria-label": `Try ${method.toUpperCase()} ${path}` },
    inputs.map(({ name, schema, input }) => [
      h("label", { for: input.id }, name, schema.type === "array" && " (several: separate them with commas)"), input,
    ]).flat(),
    text && [h("label", { for: text.id }, "Body"), text],
    h("div", {}, h("button", { type: "submit" }, "Send")), status, output);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    status.textContent = "…";
    output.hidden = true;
    try {
      const options = { method: method.toUpperCase(), headers: {} };
      if (text) Object.assign(options, { body: text.value, headers: { "Content-Type": "application/json" } });
      const response = await send(address(path, inputs), options);
      output.textContent = pretty(await response.text()).slice(0, LONGEST);
      output.hidden = output.textContent === "";
      status.textContent = `${response.status} ${response.statusText} ${response.headers.get("Content-Type") ?? ""}`;
    } catch {
      status.textContent = "The service does not answer.";
    }
  });
  return h("details", {}, h("summary", {}, "Try it"), form);
}

/** Return the address of a request, relative to this page. */
function address(path, inputs) {
  let found = path.slice(1);
  const query = new URLSearchParams();
  for (const { name, in: where, schema, input } of inputs) {
    if (where === "path") found = found.replace(`{${name}}`, encodeURIComponent(input.value));
    else if (input.value) {
      const values = schema.type === "array" ? input.value.split(",") : [input.value];
      for (const value of values) query.append(name, value.trim());
    }
  }
  return query.size ? `${found}?${query}` : found;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  storeKey(byId("key").value.trim());
  byId("key").value = "";
  load();
});
load();
