/**
 * Metrics and health over TLS, as curl and Prometheus see them: with right, wrong, expired, foreign and no certificates, with right and
 * wrong tokens, and while the files change.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { FakeReviews } from "../support/fake_reviews.ts";
import { e2eTest, program } from "../support/skip.ts";
import { TLS_NEEDS, TlsNode } from "../support/tls_node.ts";
import { until } from "../support/until.ts";

const METRICS = "https://localhost:10249/metrics";
const HEALTHZ = "localhost:10256/healthz";
const READ_ANEW = "Certificate, key, client CA and tokens were read anew";
const NOT_USED = "Changed files for TLS cannot be used, those read before stay in use";

e2eTest(
  "only a client with a certificate of the authority gets metrics; the other ports stay as they are",
  TLS_NEEDS,
  async () => {
    await using node = await TlsNode.create();
    const { pki } = node;
    await pki.authority("foreign");
    await pki.intermediate("between");
    const server = await pki.server("server");
    await using kproxy = await node.start({
      tlsCertFile: server.cert,
      tlsPrivateKeyFile: server.key,
      clientCAFile: pki.path("ca.crt"),
    });
    const through = await pki.client("through", { by: "between" });
    const chain = { cert: pki.path("chain.crt"), key: through.key };
    await Deno.writeTextFile(
      chain.cert,
      await Deno.readTextFile(through.cert) + await Deno.readTextFile(pki.path("between.crt")),
    );
    const good = await pki.client("good");
    for (const version of ["1.2", "1.3"]) {
      for (const pair of [good, chain]) {
        assertEquals(await node.curl(METRICS, { pair, args: ["--tls-max", version] }), {
          code: 0,
          status: 200,
        });
      }
      for (
        const pair of [
          undefined,
          await pki.client("foreigner", { by: "foreign" }),
          await pki.client("expired", { in: "2020" }),
          await pki.client("early", { in: "2099" }),
          // One that is good for a server alone, one with an unknown issuer, one that a client has issued.
          await pki.server("other"),
          through,
          await pki.client("issued", { by: "good" }),
        ]
      ) {
        const { code, status } = await node.curl(METRICS, {
          ...(pair === undefined ? {} : { pair }),
          args: ["--tls-max", version],
        });
        assert(code !== 0 && status === 0, `${pair?.cert}: ${code} ${status}\n${kproxy.log}`);
      }
    }
    assertEquals((await node.curl(METRICS, { pair: good, args: ["--tls-max", "1.1"] })).status, 0);
    // That is the answer of Go's servers, too.
    assertEquals((await node.curl(METRICS.replace("https", "http"))).status, 400);
    assertEquals((await node.curl(`http://${HEALTHZ}`)).status, 200);
    assertMatch(await node.page(METRICS, good), /^kproxy_serving_refusals_total\{reason="handshake"\} 16$/m);
    assertEquals((await kproxy.stop()).code, 0);
  },
);

e2eTest(
  "other files come into use without an end of open connections; wrong ones do not",
  TLS_NEEDS,
  async () => {
    await using node = await TlsNode.create();
    const { pki } = node;
    const files = ["crt", "key", "ca"].map((name) => pki.path(`used.${name}`));
    const [crt = "", key = "", ca = ""] = files;
    const use = async (...sources: readonly string[]): Promise<void> => {
      for (const [index, source] of sources.entries()) {
        // As a kubelet does: all at once, by a rename.
        await Deno.copyFile(source, `${files[index]}.new`);
        await Deno.chmod(`${files[index]}.new`, 0o600);
        await Deno.rename(`${files[index]}.new`, files[index]!);
      }
    };
    const [first, second] = [await pki.server("first"), await pki.server("second")];
    const old = await pki.server("old", { in: "2020" });
    const otherCa = await pki.authority("other-ca");
    const [client, other] = [await pki.client("client"), await pki.client("other", { by: "other-ca" })];
    await use(first.cert, first.key, pki.path("ca.crt"));
    await using kproxy = await node.start({ tlsCertFile: crt, tlsPrivateKeyFile: key, clientCAFile: ca });
    const named = async (pair: typeof client): Promise<string> => {
      const { stdout, stderr } = await node.netns.exec.run([
        ...[
          "curl",
          "-sv",
          "-o",
          "/dev/null",
          "--max-time",
          "30",
          "--noproxy",
          "*",
          "--cacert",
          pki.path("ca.crt"),
        ],
        ...["--cert", pair.cert, "--key", pair.key, METRICS],
      ]);
      return /subject: CN\s?=\s?(\S+)/.exec(stdout + stderr)?.[1] ?? stderr;
    };
    assertEquals(await named(client), "first");
    /** Goes on with the session in a file, or keeps a new one there; what the server answers. */
    const session = async (...words: readonly string[]): Promise<string> => {
      const ask =
        "(printf 'GET /proxyMode HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n'; sleep 1) | openssl s_client -quiet " +
        '-connect localhost:10249 "$@" 2>&1';
      return (await node.netns.exec.run(["sh", "-c", ask, "sh", ...words])).stdout;
    };
    const versions = ["-tls1_2", "-tls1_3"];
    for (const version of versions) {
      const kept = ["-sess_out", pki.path(`session${version}`)];
      assertMatch(
        await session(version, "-cert", client.cert, "-key", client.key, ...kept),
        /^HTTP\/1\.1 200 OK/m,
      );
    }
    // A connection that lives through all of it.
    const lasting = new Deno.Command("ip", {
      args: [
        ...["netns", "exec", node.netns.name, "openssl", "s_client", "-quiet", "-connect", "localhost:10249"],
        ...["-cert", client.cert, "-key", client.key],
      ],
      stdin: "piped",
      stdout: "piped",
      stderr: "null",
    }).spawn();
    const [writer, reader] = [lasting.stdin.getWriter(), lasting.stdout.getReader()];
    const askLasting = async (): Promise<string> => {
      await writer.write(new TextEncoder().encode("GET /proxyMode HTTP/1.1\r\nHost: localhost\r\n\r\n"));
      return new TextDecoder().decode((await reader.read()).value);
    };
    try {
      assertMatch(await askLasting(), /^HTTP\/1\.1 200 OK/);
      let from = kproxy.lines.length;
      await use(second.cert, second.key, otherCa);
      await kproxy.untilMessage(READ_ANEW, from);
      assertEquals(await named(other), "second");
      // What counted before counts no more.
      assertEquals((await node.curl(METRICS, { pair: client })).status, 0);
      for (const version of versions) {
        const resumed = await session(version, "-sess_in", pki.path(`session${version}`));
        assertEquals(/HTTP\/1\.1/.test(resumed), false, resumed);
      }
      assertMatch(await askLasting(), /^HTTP\/1\.1 200 OK/);
      for (
        const [source, index, problem] of [
          [first.key, 1, `tlsPrivateKeyFile: ${key}: it is not the key of the certificate`],
          [`${node.folder}/config.json`, 0, `tlsCertFile: ${crt}: it holds no certificate`],
        ] as const
      ) {
        from = kproxy.lines.length;
        await use(...[second.cert, second.key, otherCa].map((good, at) => at === index ? source : good));
        await kproxy.untilMessage(NOT_USED, from);
        assertStringIncludes(JSON.stringify(kproxy.lines.slice(from)), problem);
        assertEquals(await named(other), "second");
        assertMatch(await node.page(METRICS, other), /^kproxy_serving_last_reload_successful 0$/m);
      }
      from = kproxy.lines.length;
      await use(old.cert, old.key, otherCa);
      await kproxy.until(
        "a warning",
        (lines) => lines.some(({ msg }) => msg.startsWith("The serving certificate does not count")),
        from,
      );
      assertEquals((await node.curl(METRICS, { pair: other })).code, 60, "curl takes an expired certificate");
      assertEquals((await node.curl(METRICS, { pair: other, args: ["-k"] })).status, 200);
      assertMatch(await askLasting(), /^HTTP\/1\.1 200 OK/);
    } finally {
      lasting.kill("SIGKILL");
      await writer.abort().catch(() => undefined);
      await reader.cancel();
      await lasting.status;
    }
  },
);

e2eTest(
  "files that cannot be used end the start, with their field; one that others may read is reported",
  TLS_NEEDS,
  async () => {
    await using node = await TlsNode.create();
    const { pki } = node;
    const [server, client] = [await pki.server("server"), await pki.client("client")];
    for (
      const [serving, problem] of [
        [
          { tlsCertFile: server.cert, tlsPrivateKeyFile: client.key },
          "tlsPrivateKeyFile: .*: it is not the key",
        ],
        [
          { tlsCertFile: pki.path("none"), tlsPrivateKeyFile: server.key },
          "tlsCertFile: .*/none: No such file",
        ],
        [{ clientCAFile: pki.path("ca.crt") }, "clientCAFile: Invalid value: .* needs TLS"],
        [
          { tlsCertFile: server.cert, tlsPrivateKeyFile: server.key, delegatedAuthentication: true },
          "delegatedAuthentication: needs an API server",
        ],
      ] as const
    ) {
      await using kproxy = await node.spawn(serving);
      assertEquals((await kproxy.ended()).code, 2, kproxy.log);
      assertMatch(kproxy.log, new RegExp(`kproxy\\.serving\\.${problem}`));
    }
    await Deno.chmod(server.key, 0o644);
    await using kproxy = await node.start({
      tlsCertFile: server.cert,
      tlsPrivateKeyFile: server.key,
      healthz: true,
    });
    assertStringIncludes(kproxy.log, "can be read or written by any user of the node");
    // A probe shows no certificate, and verifies none.
    assertEquals((await node.curl(`https://${HEALTHZ}`, { args: ["-k"] })).status, 200);
    assertEquals((await node.curl(`http://${HEALTHZ}`)).status, 400);
    assertEquals((await node.curl(METRICS)).status, 200);
  },
);

e2eTest(
  "Prometheus scrapes with what it was given, and is refused with anything else",
  [...TLS_NEEDS, program("prometheus")],
  async () => {
    await using node = await TlsNode.create();
    const { pki } = node;
    await pki.authority("foreign");
    const server = await pki.server("server");
    const [good, foreign] = [await pki.client("good"), await pki.client("foreigner", { by: "foreign" })];
    const expired = await pki.client("expired", { in: "2020" });
    const tokens = pki.path("tokens");
    await Deno.writeTextFile(tokens, "first\nsecond\n", { mode: 0o600 });
    await Deno.writeTextFile(pki.path("token"), "second");
    await Deno.writeTextFile(pki.path("wrong"), "third");
    await using _kproxy = await node.start({
      tlsCertFile: server.cert,
      tlsPrivateKeyFile: server.key,
      clientCAFile: pki.path("ca.crt"),
      bearerTokenFile: tokens,
    });
    const ca_file = pki.path("ca.crt");
    const tls = (pair: typeof good | null, ca = ca_file): object => ({
      ca_file: ca,
      ...(pair === null ? {} : { cert_file: pair.cert, key_file: pair.key }),
    });
    const authorization = { credentials_file: pki.path("token") };
    const scraped = await node.prometheus({
      good: { scheme: "https", tls_config: tls(good), authorization },
      "no token": { scheme: "https", tls_config: tls(good) },
      "wrong token": {
        scheme: "https",
        tls_config: tls(good),
        authorization: { credentials_file: pki.path("wrong") },
      },
      "no certificate": { scheme: "https", tls_config: tls(null), authorization },
      expired: { scheme: "https", tls_config: tls(expired), authorization },
      foreign: { scheme: "https", tls_config: tls(foreign), authorization },
      "another server": { scheme: "https", tls_config: tls(good, pki.path("foreign.crt")), authorization },
      plain: { scheme: "http" },
    });
    const found = [...scraped].map(([job, { health, error }]) =>
      `${job}: ${health} ${
        /HTTP status \d+|EOF|reset|certificate|authority|tls|closed/.exec(error)?.[0] ?? error
      }`
    );
    assertEquals(
      found.map((line) => line.replace(/down (EOF|reset|closed|tls|certificate)$/, "down")).sort(),
      [
        "another server: down",
        "expired: down",
        "foreign: down",
        "good: up ",
        "no certificate: down",
        "no token: down HTTP status 401",
        "plain: down HTTP status 400",
        "wrong token: down HTTP status 401",
      ],
      JSON.stringify([...scraped]),
    );
  },
);

e2eTest("the API server decides who may scrape, and without it nobody may", TLS_NEEDS, async () => {
  await using node = await TlsNode.create();
  const server = await node.pki.server("server");
  await using api = await FakeReviews.start(node.netns, { prometheus: ["/metrics"], guest: [] });
  await using kproxy = await node.start(
    { tlsCertFile: server.cert, tlsPrivateKeyFile: server.key, delegatedAuthentication: true },
    [`--master=${api.url}`],
  );
  const ask = async (token: string | null, path = "/metrics"): Promise<number> => {
    const args = token === null ? [] : ["-H", `Authorization: Bearer ${token}`];
    return (await node.curl(`https://localhost:10249${path}`, { args })).status;
  };
  assertEquals(await ask("prometheus"), 200, kproxy.log);
  assertEquals(await ask("prometheus", "/configz"), 403);
  assertEquals(await ask("guest"), 403);
  assertEquals(await ask("nobody"), 401);
  assertEquals(await ask(null), 401);
  await api.stop();
  // What was answered counts a while; then nothing does.
  assertEquals(await ask("prometheus"), 200);
  assertEquals(await ask("another"), 503);
  await until(async () => await ask("prometheus") === 503, undefined, { everyMs: 1_000, limitMs: 60_000 });
  assertEquals((await node.curl(`http://${HEALTHZ}`)).code, 0);
});
