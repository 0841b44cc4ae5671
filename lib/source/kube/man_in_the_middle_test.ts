/** A man in the middle takes the API server's place on the way: no secret goes to him, and no object of his is believed. */
import { createServer, type Server, type Socket } from "node:net";
import { assertEquals, assertMatch } from "@std/assert";
import { putWeb, quickKubeSource } from "../../../tests/support/kube_fixture.ts";
import { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { type PairPaths, PKI, ServingPki } from "../../../tests/support/serving_pki.ts";
import { e2eTest } from "../../../tests/support/skip.ts";
import { type RunningSource, runSource } from "../../../tests/support/source_recorder.ts";
import { withFolder } from "../../../tests/support/temp_files.ts";
import { until } from "../../../tests/support/until.ts";
import { masterAccess } from "./api_access.ts";
import type { ClusterAccess } from "./kubeconfig.ts";

const TOKEN = "secret-of-the-node";
/** Attempts after which one that would ever succeed had succeeded. */
const ATTEMPTS = 3;

/** An attacker in the API server's place, and what it saw. */
interface Middle extends AsyncDisposable {
  readonly port: number;
  /** How often kproxy connected. */
  connections(): number;
  /** All that it could read, as text. */
  seen(): string;
}

/** The man's own API server, with objects of his, behind a certificate. */
function behindTls(pair: { readonly cert: string; readonly key: string }): Middle {
  const objects = new ListWatchServer();
  putWeb(objects);
  const listener = Deno.listenTls({ hostname: "127.0.0.1", port: 0, ...pair });
  let connections = 0;
  const pass = async (near: Deno.TlsConn): Promise<void> => {
    let far: Deno.TcpConn;
    try {
      await near.handshake();
      far = await Deno.connect({ hostname: "127.0.0.1", port: Number(new URL(objects.url).port) });
    } catch {
      // Refused, or the test is over.
      near.close();
      return;
    }
    await Promise.allSettled([near.readable.pipeTo(far.writable), far.readable.pipeTo(near.writable)]);
  };
  const serving = (async () => {
    const passed: Promise<void>[] = [];
    for await (const near of listener) {
      connections++;
      passed.push(pass(near));
    }
    await Promise.all(passed);
  })();
  return {
    port: listener.addr.port,
    connections: () => connections,
    seen: () => objects.requests.map(({ path, headers }) => `${path} ${[...headers].join(" ")}`).join("\n"),
    async [Symbol.asyncDispose]() {
      listener.close();
      await objects[Symbol.asyncDispose]();
      await serving;
    },
  };
}

/** Answers every piece of what it is sent with `answer`. */
async function raw(answer: string | Uint8Array): Promise<Middle> {
  let [connections, seen] = [0, ""];
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    connections++;
    sockets.add(socket);
    socket.on("data", (piece) => {
      seen += piece.toString("latin1");
      socket.write(answer);
    });
    socket.on("error", () => socket.destroy());
    socket.on("close", () => sockets.delete(socket));
  });
  const { promise, resolve } = Promise.withResolvers<void>();
  server.listen(0, "127.0.0.1", resolve);
  await promise;
  return {
    port: (server.address() as { port: number }).port,
    connections: () => connections,
    seen: () => seen,
    async [Symbol.asyncDispose]() {
      const closed = Promise.withResolvers<void>();
      server.close(() => closed.resolve());
      for (const socket of sockets) socket.destroy();
      await closed.promise;
    },
  };
}

function startOn(access: ClusterAccess): RunningSource {
  return runSource((log) => quickKubeSource(access.server, log, { access }));
}

async function pairOf({ cert, key }: PairPaths): Promise<{ cert: string; key: string }> {
  return { cert: await Deno.readTextFile(cert), key: await Deno.readTextFile(key) };
}

/** A list of no Services in plain HTTP. */
const PLAIN_LIST = (() => {
  const body = '{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}';
  return `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
})();
/** A ServerHello of TLS 1.0 with a suite of that time, without extensions. */
const OLD_HELLO = new Uint8Array([22, 3, 1, 0, 42, 2, 0, 0, 38, 3, 1, ...new Array(32).fill(7), 0, 0, 47, 0]);

/** Each way to intercept the connection, with what kproxy says of it. */
async function waysOf(pki: ServingPki): Promise<Map<string, [RegExp, () => Middle | Promise<Middle>]>> {
  await pki.authority("foreign");
  const otherName = ["extendedKeyUsage=serverAuth", "subjectAltName=DNS:api.other,IP:127.0.0.9"];
  const certificates = {
    "of another authority": await pki.server("foreign-server", { by: "foreign" }),
    "of another server of the cluster": await pki.server("other", { extensions: otherName }),
    "that has expired": await pki.server("expired", { in: "2020" }),
    "that is not good yet": await pki.server("early", { in: "2099" }),
    "of a client of the cluster": await pki.client("node", {
      extensions: ["extendedKeyUsage=clientAuth", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
    }),
    "that a client of the cluster signed": await (async () => {
      await pki.client("no-authority");
      return await pki.server("by-client", { by: "no-authority" });
    })(),
  };
  const ways = new Map<string, [RegExp, () => Middle | Promise<Middle>]>();
  for (const [name, paths] of Object.entries(certificates)) {
    const pair = await pairOf(paths);
    ways.set(`a certificate ${name}`, [/certificate|issuer|name|altname/i, () => behindTls(pair)]);
  }
  ways.set("plain HTTP", [/./, () => raw(PLAIN_LIST)]);
  ways.set("TLS 1.0", [/./, () => raw(OLD_HELLO)]);
  return ways;
}

e2eTest("a man in the middle gets no token, and none of his objects is taken", PKI, async (t) => {
  await withFolder(async (folder) => {
    const pki = await ServingPki.create(folder);
    const accessOf = (port: number): ClusterAccess => ({
      ...masterAccess(`https://127.0.0.1:${port}`),
      certificateAuthority: { kind: "file", path: pki.path("ca.crt") },
      identity: { kind: "token", token: TOKEN },
    });
    // Verified by the runtime, or under another name by node:tls.
    const transports = { "": "by its address", "localhost": "by tls-server-name" };
    const good = await pairOf(await pki.server("good"));
    const ways = await waysOf(pki);
    for (const [tlsServerName, how] of Object.entries(transports)) {
      await t.step(`verified ${how}: the true server is served by, and gets the token`, async () => {
        await using server = behindTls(good);
        await using source = startOn({ ...accessOf(server.port), tlsServerName });
        await source.recorder.untilSynced();
        assertMatch(server.seen(), new RegExp(`Bearer ${TOKEN}`));
      });
      for (const [way, [complaint, start]] of ways) {
        await t.step(`verified ${how}: ${way}`, async () => {
          await using middle = await start();
          await using source = startOn({ ...accessOf(middle.port), tlsServerName });
          await until(() => middle.connections() > ATTEMPTS, "attempts");
          const complaints = source.lines.filter((line) => /^[EW]/.test(line)).join("");
          assertMatch(complaints, /API server/);
          assertMatch(complaints, complaint);
          assertEquals([...source.recorder.objects.keys()], []);
          assertEquals(source.recorder.synced, []);
          assertEquals(middle.seen().includes(TOKEN), false);
          assertEquals(complaints.includes(TOKEN), false);
        });
      }
    }
  });
});
