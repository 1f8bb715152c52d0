/** Lines of the protocol: their encoding and their parts (PROTOCOL.md 1). */

import { Buffer, isUtf8 } from "node:buffer";

import { ProtocolError, UsageError, type Keys } from "./errors.js";

/** A longer line of a broker is an error. The longest is ERR DEADLOCK. */
export const LINE_MAX = 64 * 1024;
const DIGITS_MAX = 16;

/** A name: bytes that are no UTF-8 are U+DC80 to U+DCFF in a string. */
export type Text = string | Uint8Array;

// Every byte outside 0x21..0x7E, `%`, `=`, and a leading `:` are encoded.
const PLAIN = /^(?!:)[!-$&-<>-~]*$/;
const PRINTABLE = /^[ -~]*$/;
const DIGITS = /^[0-9]+$/;
const BAD_ESCAPE = /%(?![0-9A-Fa-f]{2})/;
const HALVES = /[\uDC80-\uDCFF]/;

/** Bytes as a string, of which bytesOf() makes the same bytes. */
export function textOf(text: Text): string {
  if (typeof text === "string") return text;
  const bytes = Buffer.from(text.buffer, text.byteOffset, text.byteLength);
  if (isUtf8(bytes)) return bytes.toString("utf8");
  let found = "";
  for (let at = 0; at < bytes.length;) {
    let next = at + 1;
    while (next < at + 4 && !isUtf8(bytes.subarray(at, next))) next++;
    const part = bytes.subarray(at, next);
    if (isUtf8(part)) {
      found += part.toString("utf8");
      at = next;
    } else {
      found += String.fromCharCode(0xdc00 + (bytes[at++] as number));
    }
  }
  return found;
}

function bytesOf(text: string): Buffer {
  if (!/[\uD800-\uDFFF]/.test(text)) return Buffer.from(text, "utf8");
  const parts = [...text].map((one) => {
    if (HALVES.test(one) && one.length === 1) {
      return Buffer.of(one.charCodeAt(0) - 0xdc00);
    }
    if (one.length === 1 && /[\uD800-\uDFFF]/.test(one)) {
      throw new UsageError("half of a surrogate pair in a name or a value");
    }
    return Buffer.from(one, "utf8");
  });
  return Buffer.concat(parts);
}

/** A name or a value as a word of the wire. */
export function encode(text: string): string {
  if (PLAIN.test(text)) return text;
  let word = "";
  for (const byte of bytesOf(text)) {
    const one = String.fromCharCode(byte);
    word += PLAIN.test(one) || (one === ":" && word !== "") ? one
      : "%" + byte.toString(16).toUpperCase().padStart(2, "0");
  }
  return word;
}

/** The inverse of encode(). */
export function decode(word: string): string {
  if (!word.includes("%")) return word;
  if (BAD_ESCAPE.test(word)) {
    throw new ProtocolError(`a percent sign without two hex digits: ${word}`);
  }
  return textOf(Buffer.from(word.replace(/%(..)/g, (_, hex: string) =>
    String.fromCharCode(parseInt(hex, 16))), "latin1"));
}

/** A duration of the wire, of milliseconds. */
export function duration(ms: number): string {
  return String(Math.round(ms));
}

/** Digits of the wire. ProtocolError: not below 2^53, or no digits. */
export function numberOf(digits: string, what: string): number {
  const value = Number(digits);
  if (!DIGITS.test(digits) || digits.length > DIGITS_MAX ||
      !Number.isSafeInteger(value)) {
    throw new ProtocolError(`no number in ${what}: ${digits.slice(0, 40)}`);
  }
  return value;
}

/** A reply or an event: `TAG WORD [argument] [key=value ...] [:text]`. */
export class Line {
  constructor(readonly tag: string, readonly word: string,
    readonly argument: string, readonly keys: Keys, readonly text: string) {}

  /** The value of a key that must be a number. */
  number(key: string): number {
    return numberOf(this.keys.get(key) ?? "", `${key}= of ${this.word}`);
  }
}

/**
 * A line without its LF, one character for each byte. Unknown keys and further
 * words do no harm.
 */
export function parse(line: string): Line {
  const end = line.indexOf(" :");
  const head = end < 0 ? line : line.slice(0, end);
  const text = end < 0 ? ""
    : Buffer.from(line.slice(end + 2), "latin1").toString("utf8");
  const [tag, word, ...words] = head.split(" ");
  if (tag === undefined || word === undefined || !PRINTABLE.test(head)) {
    throw new ProtocolError("no line of a broker: " +
                            JSON.stringify(line.slice(0, 80)));
  }
  const keys = new Map<string, string>();
  let argument = "";
  for (const one of words) {
    const equals = one.indexOf("=");
    if (equals >= 0) {
      keys.set(one.slice(0, equals), decode(one.slice(equals + 1)));
    } else if (argument === "") {
      argument = decode(one);
    }
  }
  return new Line(tag, word, argument, keys, text);
}

/** Bytes in, lines out. It keeps at most one unfinished line. */
export class Lines {
  private rest = "";

  /** The lines that `data` ends. An empty line is none. */
  *feed(data: Uint8Array): Generator<Line> {
    const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    const parts = (this.rest + bytes.toString("latin1")).split("\n");
    this.rest = parts.pop() as string;
    if (this.rest.length > LINE_MAX ||
        parts.some((part) => part.length > LINE_MAX)) {
      this.rest = "";
      throw new ProtocolError(`a line of more than ${LINE_MAX} bytes`);
    }
    for (const part of parts) {
      const line = part.endsWith("\r") ? part.slice(0, -1) : part;
      if (line !== "") yield parse(line);
    }
  }
}
