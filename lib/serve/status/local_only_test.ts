import { assertEquals, assertStringIncludes } from "@std/assert";
import type { Peer } from "../http_listener.ts";
import { jsonAnswer } from "../http_answer.ts";
import { localOnly, strangerProblem } from "./local_only.ts";

const HOST = "127.0.0.1:10249";

Deno.test("only who asks over loopback, under a loopback name, from no foreign page is no stranger", () => {
  const cases: [string, Record<string, string>, string][] = [
    ["a program", { host: HOST }, ""],
    ["by name", { host: "localhost:10249" }, ""],
    ["by name, as some write it", { host: "LocalHost" }, ""],
    ["IPv6", { host: "[::1]:10249" }, ""],
    ["another loopback address", { host: "127.8.9.10" }, ""],
    ["a page of this server", { host: HOST, origin: `http://${HOST}` }, ""],
    ["a page of this server, fetching", { host: HOST, "sec-fetch-site": "same-origin" }, ""],
    ["a link followed", { host: HOST, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" }, ""],
    ["no host (HTTP/1.0)", {}, "Host"],
    ["a blank host", { host: "" }, "Host"],
    ["a name whose address was changed", { host: "evil.example:10249" }, "Host"],
    ["a name that looks local", { host: "localhost.evil.example" }, "Host"],
    ["an address in a name", { host: "127.0.0.1.nip.io:10249" }, "Host"],
    ["an address of the node", { host: "192.0.2.1:10249" }, "Host"],
    ["a wildcard", { host: "0.0.0.0:10249" }, "Host"],
    ["an address as a number", { host: "2130706433" }, "Host"],
    ["two hosts", { host: `${HOST}, ${HOST}` }, "Host"],
    ["brackets that do not end", { host: "[::1" }, "Host"],
    ["a foreign page", { host: HOST, origin: "https://evil.example" }, "another origin"],
    ["a page of another local server", { host: HOST, origin: "http://127.0.0.1:8080" }, "another origin"],
    ["a page by another scheme", { host: HOST, origin: `https://${HOST}` }, "another origin"],
    ["a page without an origin", { host: HOST, origin: "null" }, "another origin"],
    ["an image in a foreign page", {
      host: HOST,
      "sec-fetch-site": "cross-site",
      "sec-fetch-mode": "no-cors",
    }, "another site"],
    ["a proxy", { host: HOST, "x-forwarded-for": "203.0.113.5" }, "forwarded"],
    ["a proxy by the standard", { host: HOST, forwarded: "for=203.0.113.5" }, "forwarded"],
    ["an old proxy", { host: HOST, via: "1.1 squid" }, "forwarded"],
  ];
  for (const [who, headers, problem] of cases) {
    const told = strangerProblem(new Headers(headers), { isLoopback: true });
    if (problem === "") assertEquals(told, null, who);
    else assertStringIncludes(told ?? "nothing", problem, who);
  }
  assertStringIncludes(
    strangerProblem(new Headers({ host: HOST }), { isLoopback: false }) ?? "nothing",
    "from the node itself",
  );
});

Deno.test("a guarded page reads only, and its answers stay with the client that asked", async () => {
  let asked = 0;
  const handler = localOnly(() => {
    asked++;
    return jsonAnswer("{}");
  });
  const ask = async (method: string, isLoopback: boolean): Promise<Response> => {
    const peer: Peer = { family: "IPv4", address: "127.0.0.1", isLoopback };
    const request = new Request("http://localhost/x", { method, headers: { host: HOST } });
    return await handler(request, peer, new AbortController().signal);
  };
  const answer = await ask("GET", true);
  assertEquals(
    [answer.status, answer.headers.get("cache-control"), answer.headers.get("cross-origin-resource-policy")],
    [200, "no-store", "same-origin"],
  );
  assertEquals((await ask("HEAD", true)).status, 200);
  for (const method of ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"]) {
    const refused = await ask(method, true);
    assertEquals([refused.status, refused.headers.get("allow")], [405, "GET, HEAD"], method);
  }
  assertEquals((await ask("GET", false)).status, 403);
  assertEquals(asked, 2);
});
