import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { HOSTILE, shopObjects } from "../../../tests/support/page_objects.ts";
import { servingPage } from "../../../tests/support/page_server.ts";
import { serving } from "../../../tests/support/status_server.ts";
import { FILES } from "./page_files.ts";

const get = (path: string, host: string, ...more: string[]): string[] => [
  `GET ${path} HTTP/1.1`,
  `Host: ${host}`,
  ...more,
];

const DATA = ["services", "service?name=shop/web", "trace?from=world&to=10.96.31.7:80"];
const PATHS = ["/kproxy/", "/kproxy", "/kproxy/page/app.js", ...DATA.map((path) => `/kproxy/v1/${path}`)];

Deno.test("without kproxy.statusPage there is no page", async () => {
  await serving(async ({ address, ask }) => {
    for (const path of PATHS) assertEquals((await ask(...get(path, address))).status, "404", path);
  });
});

Deno.test("the page is for this machine: loopback names, no foreign page, no proxy in between, reading only", async () => {
  await servingPage(async ({ address, ask }) => {
    for (const path of PATHS) {
      const status = async (...lines: string[]): Promise<string> => (await ask(...lines)).status;
      const own = await status(...get(path, address));
      assertEquals(own, path === "/kproxy" ? "302" : "200", path);
      assertEquals(await status(...get(path, "attacker.example")), "403", path);
      assertEquals(await status(...get(path, "127.0.0.1.attacker.example:10249")), "403", path);
      assertEquals(await status(...get(path, address, "Origin: http://attacker.example")), "403", path);
      assertEquals(await status(...get(path, address, "Origin: null")), "403", path);
      assertEquals(await status(...get(path, address, "X-Forwarded-For: 203.0.113.9")), "403", path);
      assertEquals(await status(...get(path, address, "Sec-Fetch-Site: cross-site")), "403", path);
      assertEquals(
        await status(`POST ${path} HTTP/1.1`, `Host: ${address}`, "Content-Length: 0"),
        "405",
        path,
      );
    }
  }, { objects: shopObjects() });
});

Deno.test("the page and its files let a browser run and show nothing else", async () => {
  await servingPage(async ({ address, ask }) => {
    for (const path of ["/kproxy/", "/kproxy/page/app.js", "/kproxy/page/style.css"]) {
      const { head } = await ask(...get(path, address));
      const headers = head.toLowerCase();
      const policy = /content-security-policy: (.*)/.exec(headers)?.[1] ?? "";
      assertStringIncludes(policy, "default-src 'none'");
      assertStringIncludes(policy, "frame-ancestors 'none'");
      assertEquals(/unsafe|http:|\*/.test(policy), false, policy);
      for (
        const line of [
          "x-content-type-options: nosniff",
          "x-frame-options: deny",
          "referrer-policy: no-referrer",
        ]
      ) {
        assertStringIncludes(headers, line);
      }
    }
  });
});

Deno.test("a browser that has a file gets 304, without the file", async () => {
  await servingPage(async ({ address, ask }) => {
    for (const path of ["/kproxy/", "/kproxy/page/preact.js"]) {
      const { head, body } = await ask(...get(path, address));
      assert(body.length > 300);
      const tag = /etag: (\S+)/i.exec(head)?.[1] ?? "";
      const again = await ask(...get(path, address, `If-None-Match: ${tag}`));
      assertEquals([again.status, again.body], ["304", ""]);
      assertEquals(/content-length|transfer-encoding/i.test(again.head), false);
    }
    assertEquals((await ask(...get("/kproxy/page/none.js", address))).status, "404");
    assertEquals((await ask(...get("/kproxy/page/../v1/config", address))).status, "403");
  });
});

Deno.test("modules ask for nothing that is not among the files", () => {
  for (const [name, { text }] of FILES) {
    if (!name.endsWith(".js")) continue;
    for (const [, specifier = ""] of text.matchAll(/(?:\bfrom|\bimport)\s*"([^"\s,]+)"/g)) {
      assertMatch(specifier, /^\.\//, `${name} imports ${specifier}`);
      assert(FILES.has(specifier.slice(2)), `${name} imports ${specifier}`);
    }
    assertEquals(/\beval\(|new Function\(/.test(text), false, name);
  }
});

Deno.test("a browser that polls gets rows only after a change", async () => {
  await servingPage(async (served) => {
    const poll = async (path: string, tag = ""): Promise<[status: number, tag: string, text: string]> => {
      const answer = await fetch(`${served.url}v1/${path}`, { headers: { "if-none-match": tag } });
      return [answer.status, answer.headers.get("etag") ?? "", await answer.text()];
    };
    const [kubernetes] = shopObjects();
    if (kubernetes === undefined) throw new Error("no object");
    const [, tag, text] = await poll("services");
    assertEquals(JSON.parse(text).rows.length, 10);
    assertEquals(await poll("services", tag), [304, tag, ""]);
    const [, ofService] = await poll("service?name=shop/web");
    assertEquals(await poll("service?name=shop/web", ofService), [304, ofService, ""]);
    served.remove([kubernetes]);
    const [status, , changed] = await poll("services", tag);
    assertEquals([status, JSON.parse(changed).rows.length], [200, 9]);
  }, { objects: shopObjects() });
});

Deno.test("nonsense is refused in words", async () => {
  await servingPage(async ({ url }) => {
    const cases: readonly (readonly [string, number, string])[] = [
      ["trace", 400, "a source and a destination are needed"],
      ["trace?from=world&to=nowhere", 400, "is no destination"],
      [`trace?from=${"x".repeat(700)}&to=10.96.0.1:80`, 400, "too long"],
      [`trace?from=${encodeURIComponent(HOSTILE)}&to=10.96.0.1:80`, 400, "is no source"],
      ["trace?from=world&to=10.96.0.1:80%00", 400, "is no destination"],
      ["service", 404, "there is no Service"],
      ["service?name=__proto__", 404, "there is no Service"],
      [`service?name=${"x".repeat(700)}`, 400, "too long"],
    ];
    for (const [path, status, words] of cases) {
      const answer = await fetch(`${url}v1/${path}`);
      assertStringIncludes(((await answer.json()) as { error: string }).error, words, path);
      assertEquals(answer.status, status, path);
    }
  }, { objects: shopObjects() });
});

Deno.test("of many who ask for packets at once some are sent away, and none waits for ever", async () => {
  await servingPage(async ({ url }) => {
    const asked = Array.from({ length: 25 }, () => fetch(`${url}v1/trace?from=world&to=10.96.31.7:80`));
    const answers = await Promise.all(asked);
    const statuses = await Promise.all(answers.map(async (answer) => {
      await answer.text();
      return answer.status;
    }));
    assertEquals([...new Set(statuses)].sort(), [200, 503]);
  }, { objects: shopObjects() });
});
