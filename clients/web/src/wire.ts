/** Protobuf by tables of fields (tools/protoc-gen-tables.mjs) and @bufbuild's reader and writer. */
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { MalformedMessage } from "./errors.js";

/** What a message holds beside its fields: those that this client does not know. */
export interface Message {
  $unknown?: [number, WireType, Uint8Array][];
}

interface Field {
  name: string;
  number: number;
  kind: string; // a letter: see SCALARS; "m" is a message
  repeated: boolean;
  nested?: () => Schema<Message>;
  group: string; // of a oneof, or empty
}

export interface Schema<T extends Message> {
  fields: Map<number, Field>;
  example?: T;
}

type Values = Record<string, unknown> & Message;

const VARINT: readonly string[] = ["u", "i", "n", "o"];
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const EMPTY = new Uint8Array();
const DEFAULTS: Record<string, unknown> = { u: 0n, i: 0n, f: 0n, n: 0, o: false, s: "", b: EMPTY };

export function schema<T extends Message>(
  table: string,
  // Any message: which one is said by the table.
  nested: (() => Schema<any>)[],
): Schema<T> {
  const fields = new Map<number, Field>();
  for (const row of table ? table.split(",") : []) {
    const [name, number, code] = row.split(" ") as [string, string, string];
    const [kind, group = ""] = code.split("/") as [string, string?];
    const letter = kind[0]!.toLowerCase();
    fields.set(Number(number), {
      name,
      number: Number(number),
      kind: letter,
      repeated: letter !== kind[0],
      nested: nested[Number(kind.slice(1))]!,
      group,
    });
  }
  return { fields };
}

/** Make a message; what is left out is absent or zero, as after reading. */
export function create<T extends Message>(type: Schema<T>, values: Partial<T> = {}): T {
  return { ...blank(type), ...values } as unknown as T;
}

function blank(type: Schema<any>): Values {
  const values: Values = {};
  for (const field of type.fields.values()) {
    if (field.repeated) values[field.name] = [];
    else if (field.kind !== "m" && !field.group) values[field.name] = DEFAULTS[field.kind];
  }
  return values;
}

export function decode<T extends Message>(type: Schema<T>, body: Uint8Array): T {
  try {
    const reader = new BinaryReader(body, (raw) => strict.decode(raw));
    const values = blank(type);
    merge(type as Schema<Message>, values, reader, body.length);
    return values as T;
  } catch {
    throw new MalformedMessage("a message is garbled");
  }
}

function wireType(kind: string): WireType {
  if (VARINT.includes(kind)) return WireType.Varint;
  return kind === "f" ? WireType.Bit64 : WireType.LengthDelimited;
}

function merge(type: Schema<Message>, values: Values, reader: BinaryReader, end: number): void {
  while (reader.pos < end) {
    const [number, wire] = reader.tag();
    const field = type.fields.get(number);
    const due = field && wireType(field.kind);
    if (field && wire === due) take(type, field, values, reader);
    else if (field?.repeated && wire === WireType.LengthDelimited) {
      const last = reader.uint32() + reader.pos;
      while (reader.pos < last) (values[field.name] as unknown[]).push(scalar(field.kind, reader));
      if (reader.pos > last) throw new RangeError();
    } else (values.$unknown ??= []).push([number, wire, reader.skip(wire, number)]);
  }
  if (reader.pos > end) throw new RangeError();
}

function take(type: Schema<Message>, field: Field, values: Values, reader: BinaryReader): void {
  const { name } = field;
  if (field.group) {
    for (const other of type.fields.values()) {
      if (other.group === field.group && other !== field) delete values[other.name];
    }
  }
  if (field.kind !== "m") {
    const value = scalar(field.kind, reader);
    if (field.repeated) (values[name] as unknown[]).push(value);
    else values[name] = value;
    return;
  }
  const inner = field.nested!();
  const known = field.repeated ? undefined : (values[name] as Values | undefined);
  const message = known ?? blank(inner);
  const size = reader.uint32();
  if (size > reader.len - reader.pos) throw new RangeError();
  merge(inner, message, reader, reader.pos + size);
  if (field.repeated) (values[name] as unknown[]).push(message);
  else values[name] = message;
}

function scalar(kind: string, reader: BinaryReader): unknown {
  switch (kind) {
    case "u":
      return BigInt(reader.uint64());
    case "i":
      return BigInt(reader.int64());
    case "f":
      return BigInt(reader.fixed64());
    case "n":
      return reader.uint32();
    case "o":
      return reader.bool();
    case "s":
      return reader.string();
    default:
      return reader.bytes().slice();
  }
}

/** Write a message, its fields in ascending order and those it does not know at the end. */
export function encode<T extends Message>(type: Schema<T>, message: T): Uint8Array {
  const writer = new BinaryWriter();
  write(type as Schema<Message>, message as Values, writer);
  return writer.finish();
}

function write(type: Schema<Message>, values: Values, writer: BinaryWriter): void {
  for (const field of type.fields.values()) {
    const value = values[field.name];
    const listed = field.repeated ? (value as unknown[]) : [value];
    if (field.repeated && wireType(field.kind) === WireType.Varint && listed.length) {
      writer.tag(field.number, WireType.LengthDelimited).fork();
      for (const one of listed) put(field.kind, one, writer);
      writer.join();
      continue;
    }
    for (const one of listed) {
      if (one === undefined || (!field.repeated && !field.group && isDefault(one))) continue;
      writer.tag(field.number, wireType(field.kind));
      if (field.kind === "m") {
        writer.fork();
        write(field.nested!(), one as Values, writer);
        writer.join();
      } else put(field.kind, one, writer);
    }
  }
  for (const [number, wire, raw] of values.$unknown ?? []) writer.tag(number, wire).raw(raw);
}

function isDefault(value: unknown): boolean {
  return !value || (value instanceof Uint8Array && !value.length);
}

function put(kind: string, value: unknown, writer: BinaryWriter): void {
  switch (kind) {
    case "u":
      return void writer.uint64(value as bigint);
    case "i":
      return void writer.int64(value as bigint);
    case "f":
      return void writer.fixed64(value as bigint);
    case "n":
      return void writer.uint32((value as number) >>> 0);
    case "o":
      return void writer.bool(value as boolean);
    case "s":
      return void writer.string(value as string);
    default:
      return void writer.bytes(value as Uint8Array);
  }
}
