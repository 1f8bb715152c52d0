/** `await using` for Node 20 before 20.5, which has no such symbol. */

const symbols = Symbol as { asyncDispose?: symbol };
symbols.asyncDispose ??= Symbol.for("nodejs.asyncDispose");

export {};
