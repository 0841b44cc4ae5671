/** Certificates and authorities that change under open watches, on both sides: serving certificate, client certificate, expiry. */
import { type AddressInfo, createConnection, createServer, type Socket } from "node:net";
import { assertEquals, assertMatch } from "@std/assert";
import {
  listsOf,
  putWeb,
  QUICK_TIMES,
  startKubeSource,
  watching,
} from "../../../tests/support/kube_fixture.ts";
import { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { rawService } from "../../../tests/support/raw_objects.ts";
import { type PairPaths, PKI, ServingPki } from "../../../tests/support/serving_pki.ts";
import { e2eTest } from "../../../tests/support/skip.ts";
import type { RunningSource } from "../../../tests/support/source_recorder.ts";
import { withFolder } from "../../../tests/support/temp_files.ts";
import { TlsFront } from "../../../tests/support/tls_front.ts";
import { until } from "../../../tests/support/until.ts";
import { masterAccess } from "./api_access.ts";

/** An API server behind TLS whose certificate changes while its port stays, and a source that is let in by a certificate in files. */
class Rig implements AsyncDisposable {
  readonly server = new ListWatchServer();
  readonly #fronts: TlsFront[] = [];
  #listener: Deno.TlsListener | undefined;
  #serving: Promise<void> | undefined;
  /** Port of the server that connections are relayed to. */
  #port = 0;
  readonly #door = createServer((near) => this.#relay(near));
  #count = 0;

  constructor(readonly folder: string, readonly pki: ServingPki) {
    putWeb(this.server);
  }

  get front(): TlsFront {
    return this.#fronts.at(-1)!;
  }

  /** Clients that connect from now on meet this certificate, and must have one of the authority `ca`; open connections stay. */
  async serveAs({ cert, key }: PairPaths, ca: string): Promise<void> {
    const [port, read] = [Number(new URL(this.server.url).port), Deno.readTextFile];
    const pair = { cert: await read(cert), key: await read(key) };
    const options = { asks: true, ca: await read(this.pki.path(`${ca}.crt`)) };
    this.#fronts.push(await TlsFront.start(port, pair, options));
    this.#port = this.front.port;
  }

  /**
   * Restarts the server with another certificate: it knows no sessions of the one before, so that clients verify it. It asks
   * for no certificates. (All of Node's servers in one process know each other's sessions here.)
   */
  async restartAs({ cert, key }: PairPaths): Promise<void> {
    const [port, read] = [Number(new URL(this.server.url).port), Deno.readTextFile];
    const listener = Deno.listenTls({
      hostname: "127.0.0.1",
      port: 0,
      cert: await read(cert),
      key: await read(key),
    });
    this.#listener = listener;
    this.#port = listener.addr.port;
    this.#serving = (async () => {
      const passed: Promise<unknown>[] = [];
      for await (const near of listener) {
        const far = await Deno.connect({ hostname: "127.0.0.1", port });
        const pipes = [near.readable.pipeTo(far.writable), far.readable.pipeTo(near.writable)];
        passed.push(Promise.allSettled(pipes));
      }
      await Promise.all(passed);
    })();
  }

  /** Relays every connection to the server of the moment. */
  #relay(near: Socket): void {
    const far = createConnection(this.#port, "127.0.0.1");
    for (const [one, other] of [[near, far], [far, near]] as const) {
      one.on("data", (piece) => other.write(piece));
      one.on("error", () => other.destroy());
      one.on("close", () => other.destroy());
    }
  }

  /** Replaces the contents of the kubeconfig's files, each as a whole; certificate and key are one file, as the kubelet's. */
  async hold(client: PairPaths, authorities: readonly string[]): Promise<void> {
    const texts = authorities.map((name) => Deno.readTextFile(this.pki.path(`${name}.crt`)));
    const files = {
      ca: (await Promise.all(texts)).join(""),
      client: await Deno.readTextFile(client.cert) + await Deno.readTextFile(client.key),
    };
    for (const [name, text] of Object.entries(files)) {
      await Deno.writeTextFile(`${this.folder}/${name}.tmp`, text);
      await Deno.rename(`${this.folder}/${name}.tmp`, `${this.folder}/${name}`);
    }
  }

  async start(): Promise<RunningSource> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#door.listen(0, "127.0.0.1", resolve);
    await promise;
    const file = (name: string) => ({ kind: "file", path: `${this.folder}/${name}` }) as const;
    const access = {
      ...masterAccess(`https://localhost:${(this.#door.address() as AddressInfo).port}`),
      certificateAuthority: file("ca"),
      clientCertificate: { certificate: file("client"), key: file("client") },
    };
    return startKubeSource(this.server, { access, times: QUICK_TIMES });
  }

  /** A change arrives. */
  async brings({ recorder }: RunningSource): Promise<void> {
    const name = `change-${this.#count++}`;
    this.server.put(rawService(name));
    await recorder.untilThere(`Service default/${name}`);
  }

  /** All connections are cut, also unused ones, and the watches opened anew. */
  async reopens(source: RunningSource): Promise<void> {
    const opened = (): number => this.server.requests.filter(({ watch }) => watch).length;
    const before = opened();
    this.server.closeConnections();
    await until(() => opened() >= before + 3, "three more watches");
    await watching(this.server);
    await this.brings(source);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#door.close(() => resolve());
    for (const front of this.#fronts) await front[Symbol.asyncDispose]();
    this.#listener?.close();
    await Promise.all([promise, this.#serving]);
    await this.server[Symbol.asyncDispose]();
  }
}

function trouble({ lines }: RunningSource): string[] {
  return lines.filter((line) => /^[EW]/.test(line));
}

e2eTest(
  "certificates and authorities change under open watches, and nothing is listed again or deleted",
  PKI,
  async (t) => {
    await withFolder(async (folder) => {
      const pki = await ServingPki.create(folder);
      await pki.authority("new-ca");
      await using rig = new Rig(folder, pki);
      await rig.serveAs(await pki.server("one"), "ca");
      await rig.hold(await pki.client("node"), ["ca"]);
      await using source = await rig.start();
      await source.recorder.untilSynced();
      await watching(rig.server);

      await t.step("the serving certificate is renewed", async () => {
        await rig.serveAs(await pki.server("two"), "ca");
        await rig.brings(source);
        await rig.reopens(source);
        assertEquals(rig.front.clients.every((name) => name === "node"), true);
      });
      await t.step("the client certificate is renewed: who connects has the new one", async () => {
        await rig.hold(await pki.client("node-renewed"), ["ca"]);
        const before = rig.front.clients.length;
        await rig.brings(source);
        await rig.reopens(source);
        const since = rig.front.clients.slice(before);
        assertEquals([since.length > 0, new Set(since)], [true, new Set(["node-renewed"])]);
        assertEquals(trouble(source), []);
      });
      await t.step("the server has a new authority before the node has: what is open goes on", async () => {
        await rig.restartAs(await pki.server("three", { by: "new-ca" }));
        await rig.brings(source);
        assertEquals(trouble(source), []);
      });
      await t.step("what ends then comes back as soon as the files have the authority", async () => {
        rig.server.closeConnections();
        await until(() => trouble(source).length > 0, "a complaint");
        rig.server.put(rawService("missed"));
        await rig.hold(await pki.client("node-3"), ["ca", "new-ca"]);
        await source.recorder.untilThere("Service default/missed");
        await watching(rig.server);
        assertEquals(trouble(source).length, 1, trouble(source).join(""));
        assertMatch(trouble(source)[0]!, /Lost the connection to the API server.*(certificate|issuer)/i);
      });
      await t.step(
        "a client certificate that has expired is replaced as soon as there is another one",
        async () => {
          await rig.serveAs(await pki.server("four", { by: "new-ca" }), "new-ca");
          await rig.hold(await pki.client("node-4", { by: "new-ca", in: "2020" }), ["new-ca"]);
          await rig.brings(source);
          rig.server.closeConnections();
          await until(() => trouble(source).length > 1, "a complaint");
          rig.server.put(rawService("missed-again"));
          await rig.hold(await pki.client("node-5", { by: "new-ca" }), ["new-ca"]);
          await source.recorder.untilThere("Service default/missed-again");
          await watching(rig.server);
          assertEquals(rig.front.clients.at(-1), "node-5");
        },
      );
      assertEquals(["services", "endpointslices"].map((kind) => listsOf(rig.server, kind)), [1, 1]);
      assertEquals(source.recorder.story().filter((line) => line.startsWith("delete")), []);
    });
  },
);
