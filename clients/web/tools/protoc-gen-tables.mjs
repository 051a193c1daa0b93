#!/usr/bin/env node
// A plugin of protoc: writes each message as an interface and a short table of its fields,
// which src/wire.ts reads. @bufbuild's own classes would be two thirds of the client's size.
import { createEcmaScriptPlugin, runNodeJs } from "@bufbuild/protoplugin";
import { ScalarType } from "@bufbuild/protobuf";

const SCALARS = {
  [ScalarType.UINT64]: ["u", "bigint"],
  [ScalarType.INT64]: ["i", "bigint"],
  [ScalarType.FIXED64]: ["f", "bigint"],
  [ScalarType.UINT32]: ["n", "number"],
  [ScalarType.BOOL]: ["o", "boolean"],
  [ScalarType.STRING]: ["s", "string"],
  [ScalarType.BYTES]: ["b", "Uint8Array"],
};

function kindOf(field) {
  if (field.message) return ["m", field.message.name];
  if (field.enum) return ["n", "number"];
  const known = SCALARS[field.scalar];
  if (!known) throw new Error(`${field}: no such field in src/wire.ts yet`);
  return known;
}

function generate(schema) {
  const f = schema.generateFile("messages.ts");
  f.print("// Generated from proto/ by tools/protoc-gen-tables.mjs.");
  f.print('import { type Message, type Schema, schema } from "../wire.js";');
  const messages = schema.files
    .flatMap((file) => file.messages)
    .filter((message) => !message.fields.some((field) => field.fieldKind === "map"));
  for (const message of messages) print(f, message);
}

function print(f, message) {
  const nested = [];
  const table = [];
  f.print(`export interface ${message.name} extends Message {`);
  for (const field of message.fields) {
    const repeated = field.fieldKind === "list";
    const [letter, type] = kindOf(field);
    const absent = !repeated && (field.message || field.oneof) ? "?" : "";
    f.print(`  ${field.localName}${absent}: ${type}${repeated ? "[]" : ""};`);
    const group = field.oneof ? `/${message.oneofs.indexOf(field.oneof)}` : "";
    const place = field.message ? nested.push(field.message.name) - 1 : "";
    const kind = repeated ? letter.toUpperCase() : letter;
    table.push(`${field.localName} ${field.number} ${kind}${place}${group}`);
  }
  f.print("}");
  const links = nested.map((name) => `() => ${name}`).join(", ");
  f.print(
    `export const ${message.name}: Schema<${message.name}> = /* @__PURE__ */ schema("${table.join(",")}", [${links}]);`,
  );
}

runNodeJs(createEcmaScriptPlugin({ name: "tables", version: "v1", generateTs: generate }));
