import { assertEquals } from "@std/assert";
import { type Difference, type FamilyCheck, lastingChecks, mayPass } from "./check.ts";

const NONE = { permissions: "none" } as const;

function difference(cause: string): Difference {
  return { kind: "missing", place: "nftables ip kproxy services", cause, wanted: ["accept"], found: [] };
}

function check(found: Partial<FamilyCheck> = {}): FamilyCheck {
  const none = { base: [], services: new Map(), leftovers: [], notes: [], problems: [] };
  return { family: "IPv4", compared: 2, isRead: true, ...none, ...found };
}

Deno.test("what only one of two looks has found is left out, wherever it is", NONE, () => {
  const found = check({
    base: [difference("a")],
    services: new Map([["shop/web", [difference("b")]]]),
    leftovers: [difference("c")],
  });
  assertEquals(lastingChecks([check()], [found]), [check()]);
  assertEquals(lastingChecks([found], [check()]), [check()]);
});

Deno.test("what both have found is reported as it is by now", NONE, () => {
  const first = check({
    base: [difference("emptied")],
    services: new Map([["shop/web", [difference("emptied")]], ["shop/api", [difference("emptied")]]]),
    leftovers: [difference("old")],
  });
  const services = new Map([["shop/web", [difference("gone")]], ["shop/new", [difference("gone")]]]);
  const second = check({ base: [difference("gone")], services, leftovers: [difference("older")] });
  assertEquals(lastingChecks([first], [second]), [
    check({
      base: [difference("gone")],
      services: new Map([["shop/web", [difference("gone")]]]),
      leftovers: [difference("older")],
    }),
  ]);
});

Deno.test("a family that was not read, or not told of, speaks for nothing", NONE, () => {
  const found = check({ base: [difference("a")] });
  assertEquals(lastingChecks([check({ isRead: false })], [found]), [found]);
  assertEquals(lastingChecks([check({ family: "IPv6" })], [found]), [found]);
});

Deno.test("a second look is worth while where something was compared and differs", NONE, () => {
  assertEquals(mayPass([check(), check({ family: "IPv6" })]), false);
  assertEquals(mayPass([check({ isRead: false })]), false);
  assertEquals(mayPass([check(), check({ family: "IPv6", leftovers: [difference("c")] })]), true);
});
