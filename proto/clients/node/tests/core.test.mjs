import assert from "node:assert/strict";
import { test } from "node:test";

import * as errors from "../dist/esm/errors.js";
import { Hold } from "../dist/esm/model.js";
import { decode, encode, Lines, LINE_MAX, parse, textOf }
  from "../dist/esm/wire.js";
import { Rig } from "./rig.mjs";

test("names are bytes", () => {
  for (const [text, word] of [["café =%+:", "caf%C3%A9%20%3D%25+:"],
    [":x", "%3Ax"], ["\0", "%00"], ["plain/1", "plain/1"]]) {
    assert.equal(encode(text), word);
    assert.equal(decode(word), text);
  }
  const bytes = Buffer.from([0xff, 0x61, 0xc3, 0xa9, 0xc3]);
  assert.equal(encode(textOf(bytes)), "%FFa%C3%A9%C3");
  assert.equal(encode(decode("%FFa%C3%A9%C3")), "%FFa%C3%A9%C3");
  assert.throws(() => encode("\ud800"), errors.UsageError);
});

test("lines come in any parts, and have a longest one", () => {
  const lines = new Lines();
  assert.deepEqual([...lines.feed(Buffer.from("1 O"))], []);
  const [line] = [...lines.feed(Buffer.from("K a=1 :x y\r\n\n2"))];
  assert.deepEqual([line.tag, line.word, line.number("a"), line.text],
    ["1", "OK", 1, "x y"]);
  assert.throws(() => line.number("b"), errors.ProtocolError);
  assert.throws(() => [...lines.feed(Buffer.alloc(LINE_MAX + 1, "x"))],
    errors.ProtocolError);
  assert.throws(() => parse("one"), errors.ProtocolError);
  assert.equal(parse("* LOST a __proto__=1").keys.get("__proto__"), "1");
});

test("numbers are exact", () => {
  const largest = parse("* X n=9007199254740991");
  assert.equal(largest.number("n"), Number.MAX_SAFE_INTEGER);
  for (const bad of ["9007199254740992", "-1", "1.5", "", "0x1", "1e3"]) {
    assert.throws(() => parse(`* X n=${bad}`).number("n"),
      errors.ProtocolError, bad);
  }
});

test("errors have classes, codes and keys", () => {
  const deadlock = errors.ofCode("DEADLOCK",
    new Map([["cycle", "a%2Cb,c%25"], ["retry", "1"]]), "text");
  assert.ok(deadlock instanceof errors.DeadlockError);
  assert.deepEqual(deadlock.cycle, ["a,b", "c%"]);
  assert.deepEqual([deadlock.code, deadlock.retry, deadlock.name],
    ["DEADLOCK", true, "DeadlockError"]);
  const strange = errors.ofCode("STRANGE", new Map([["retry", "1"]]), "");
  assert.deepEqual([strange.constructor, strange.code, strange.retry],
    [errors.HoldfastError, "STRANGE", true]);
});

test("a deadline counts from the sending", () => {
  const rig = new Rig().open();
  const call = rig.core.lock(["a"]);
  rig.now += 500;
  rig.says(`${call.tag} OK fence=7 ttl_ms=6000 count=1 renewed=1`);
  const [hold] = call.holds;
  assert.equal(Math.round(hold.left(rig.now)), 5940 - 500);
  rig.pass(5500);
  assert.equal(hold.lost, "deadline");
  assert.deepEqual(rig.seen("lost").map((event) => event.hold), [hold]);
});

test("an overdue hold is given back", () => {
  const rig = new Rig({ keep: 0 }).open();
  const hold = rig.grant();
  rig.sent();
  rig.pass(6000);
  assert.match(rig.sent().at(-1), /^\d+ UNLOCK a fence=7 owner=~1$/);
  assert.equal(hold.left(rig.now), 0);
});

test("PING comes at a third, and moves the deadline on", () => {
  const rig = new Rig().open();
  const hold = rig.grant();
  for (let round = 0; round < 10; round++) {
    rig.pass(2000);
    const [line] = rig.sent();
    assert.match(line, / PING$/);
    rig.says(`${line.split(" ")[0]} OK ttl_ms=6000`);
  }
  assert.equal(hold.lost, null);
  assert.equal(Math.round(hold.left(rig.now)), 5940);
});

test("a grant that is old is told after a PING", () => {
  const rig = new Rig().open();
  const call = rig.core.lock(["a"]);
  rig.now += 4000;
  rig.says(`${call.tag} OK fence=7 ttl_ms=6000 count=1 renewed=1`);
  assert.equal(call.done, false);
  rig.sent();
  rig.core.tick();
  const [ping] = rig.sent();
  rig.says(`${ping.split(" ")[0]} OK ttl_ms=6000`);
  assert.equal(call.done, true);
  assert.equal(Math.round(call.holds[0].left(rig.now)), 5940);
});

test("a refused RENEW may have set the new end", () => {
  for (const code of ["UNAVAILABLE", "INDOUBT", "INTERNAL"]) {
    const rig = new Rig().open();
    const hold = rig.grant("a", { lease: 60_000 });
    const call = rig.core.renew(hold, 1000);
    rig.says(`${call.tag} ERR ${code} retry=1`);
    assert.equal(Math.round(hold.left(rig.now)), 988);
    assert.equal(call.error.code, code);
  }
});

/** A hold with a lease of 60 s, and its unanswered RENEW to 1 s. */
function renewed(options) {
  const rig = new Rig(options).open();
  const hold = rig.grant("a", { lease: 60_000 });
  const call = rig.core.renew(hold, 1000);
  rig.sent();
  return { rig, hold, call, left: () => Math.round(hold.left(rig.now)) };
}

test("a RENEW without an answer may have set the new end", () => {
  const { rig, hold, call, left } = renewed();
  assert.equal(left(), 988);
  rig.core.renew(hold, 500);
  assert.equal(left(), 493);
  rig.says(`${call.tag} OK ttl_ms=1000 lease_ms=1000`);
  assert.equal(left(), 493); // by the second one
  rig.pass(493);
  assert.equal(hold.lost, "deadline");
});

test("HELD does not move a deadline beyond an unanswered RENEW", () => {
  const { rig, call, left } = renewed();
  rig.now += 600;
  rig.core.pingAt = 0;
  rig.core.tick();
  const [tag] = rig.sent().find((line) => / HELD$/.test(line)).split(" ");
  rig.says(`${tag} ITEM name=a owner=~1 fence=7 ttl_ms=6000 lease_ms=59000`,
    `${tag} OK n=1`);
  assert.equal(left(), 388);
  rig.says(`${call.tag} ERR DENIED retry=0`);
  assert.equal(left(), 5940); // the broker has refused the new end
});

test("the answer to a RENEW counts from its sending", () => {
  const { rig, call, left } = renewed();
  rig.now += 500;
  rig.says(`${call.tag} OK ttl_ms=1000 lease_ms=1000`);
  assert.equal(left(), 490);
});

test("a RENEW that is sent again counts from its first sending", () => {
  const { rig, call, left } = renewed({ keep: 30_000, several: true });
  const [claim] = rig.move();
  rig.says(`${claim.split(" ")[0]} OK fence=7 ttl_ms=6000 count=1`);
  const [again] = rig.sent();
  assert.match(again, / RENEW a /);
  const before = left();
  assert.ok(before < 988, `${before}`);
  rig.says(`${again.split(" ")[0]} ERR LIMIT retry=1`);
  assert.equal(left(), before); // the first one may have been carried out
  assert.equal(call.error.code, "LIMIT");
});

test("a detached RENEW without an answer bounds no later one", () => {
  const rig = new Rig().open();
  const hold = new Hold("a", "", 7);
  rig.core.detached("RENEW", hold, 1000);
  rig.core.lost("test");
  rig.open();
  rig.sent();
  const call = rig.core.detached("RENEW", hold, 60_000);
  rig.says(`${call.tag} OK ttl_ms=60000 lease_ms=60000`);
  assert.equal(Math.round(hold.left(rig.now)), 59_400);
});

test("HELD has the deadline of a hold from its first RENEW on", () => {
  const rig = new Rig().open();
  const hold = rig.grant("a");
  const call = rig.core.renew(hold, 60_000);
  rig.says(`${call.tag} ERR INDOUBT retry=1`);
  assert.equal(Math.round(hold.left(rig.now)), 5940);
  rig.sent();
  rig.now += 2000;
  rig.core.tick();
  assert.match(rig.sent().join(), /^\d+ HELD$/);
});

test("a hold moves by its CLAIM, and a wait by its LOCK", () => {
  const rig = new Rig({ keep: 30_000, several: true }).open();
  const hold = rig.grant("a", { owner: "o" });
  const wait = rig.core.lock(["b"], { wait: 5000 });
  rig.sent();
  rig.now += 1000;
  const [claim, lock] = rig.move();
  assert.match(claim, / CLAIM a fence=7 owner=o$/);
  assert.match(lock, / LOCK b owner=~1 wait=(39|40)\d\d$/);
  assert.equal(hold.unclaimed, true);
  rig.says(`${claim.split(" ")[0]} OK fence=7 ttl_ms=6000 count=1 renewed=1`);
  assert.equal(Math.round(hold.left(rig.now)), 5940);
  assert.equal(rig.seen("moved").length, 1);
  rig.says(`${lock.split(" ")[0]} ERR TIMEOUT retry=1`);
  assert.equal(wait.error.code, "TIMEOUT");
});

test("without keep the session ends with its connection", () => {
  const rig = new Rig().open();
  const hold = rig.grant();
  const wait = rig.core.lock(["b"]);
  rig.core.lost("test");
  assert.deepEqual([hold.lost, wait.error.code], ["session", "GONE"]);
});

test("a wait that is given up gives back a late OK", () => {
  const rig = new Rig().open();
  const call = rig.core.lock(["a"]);
  rig.core.abandon(call);
  rig.sent();
  rig.says(`${call.tag} OK fence=7 ttl_ms=6000 count=1 renewed=1`);
  assert.match(rig.sent()[0], / UNLOCK a fence=7 owner=~1$/);
  assert.deepEqual(rig.seen("answered"), []);
});
