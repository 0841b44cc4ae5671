/**
 * What a tenant writes into objects, in the log, in Events and in documents: shown, never obeyed, and never at any length.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { createLogger, partlyUsableReport } from "../../lib/observe/log.ts";
import { destinationRefusedEvent, serviceQuarantinedEvent } from "../../lib/observe/events.ts";
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import { eventBody } from "../../lib/source/kube/event_recorder.ts";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import { kproxyArgv } from "../cli/kproxy.ts";
import { quickKubeSource, watching } from "../support/kube_fixture.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { ListWatchServer } from "../support/list_watch_server.ts";
import { rawService } from "../support/raw_objects.ts";
import { SourceRecorder } from "../support/source_recorder.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { until } from "../support/until.ts";

/** An escape of 8 bits, a change of direction, a line end of Unicode, a text without width, half a character. */
const EVIL = "\u009b31m\u202e\u2028\u200b\ufeff\ud800";
/** What no line may hold as it is: controls, changes of direction, other line ends, what has no width. */
const OBEYED = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;
const LONG = EVIL.repeat(40_000).slice(0, 240_000);
const ANNOTATION = "kproxy.io/ipvs-scheduler";
const EDITS = 10;
/** The log line of one edit has so many bytes at most. */
const MOST_BYTES = 600;

function annotated(edit: number): ApiJson {
  const web = service("shop/web", { clusterIP: "10.96.0.10", ports: ["http:80"] });
  return {
    ...web,
    metadata: { ...web.metadata, annotations: { [ANNOTATION]: `${edit}${LONG}` } },
  } as ApiJson;
}

/** A Service of a tenant who keeps to no rule. */
function anyService(name: string, spec: object, kind = "Service"): ApiJson {
  const metadata = { name, namespace: "shop" };
  return {
    apiVersion: "v1",
    kind,
    metadata,
    spec: { clusterIP: "10.96.0.11", ports: [{ port: 80 }], ...spec },
  } as ApiJson;
}

/** Objects that are wrong in each text that they have. */
const HOSTILE: readonly ApiJson[] = [
  anyService(LONG, {}),
  anyService("kind", {}, LONG),
  anyService("address", { clusterIP: LONG }),
  anyService("port", { ports: [{ port: 80, name: LONG }] }),
  anyService("protocol", { ports: [{ port: 80, protocol: LONG }] }),
  anyService("ranges", { loadBalancerSourceRanges: Array(500).fill(LONG) }),
  anyService("externals", { externalIPs: Array.from({ length: 500 }, (_, at) => `${at}${EVIL}`) }),
  slice("shop/web.1", ["http:8080"], [`${LONG}@node-a`]),
];

/** What a kproxy in the namespace writes to its two outputs until `work` has ended. */
async function outputsWhile(
  netns: Netns,
  args: readonly string[],
  work: (text: () => string) => Promise<void>,
): Promise<string> {
  const child = new Deno.Command("ip", {
    args: ["netns", "exec", netns.name, Deno.execPath(), ...kproxyArgv(), "run", "--socket=", ...args],
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  let text = "";
  const reading = [child.stdout, child.stderr].map(async (stream) => {
    for await (const piece of stream.pipeThrough(new TextDecoderStream())) text += piece;
  });
  try {
    await work(() => text);
  } finally {
    child.kill("SIGTERM");
    await child.status;
    await Promise.all(reading);
  }
  return text;
}

for (const format of ["text", "json"]) {
  e2eTest(
    `an annotation of 240 KB that is edited ${EDITS} times costs a short line each, in format ${format}`,
    [ROOT_NAMESPACES, program("ip")],
    () =>
      withNetns(async (netns) => {
        await using manifests = await LabManifests.create();
        await manifests.replace("web.json", [annotated(0)]);
        const args = [
          "--userspace-listen=127.0.0.0/8",
          `--manifests=${manifests.folder}`,
          `--logging-format=${format}`,
        ];
        let before = 0;
        const text = await outputsWhile(netns, args, async (written) => {
          const complaints = (): number => written().split("which is none of rr").length - 1;
          await until(() => complaints() >= 1, "the first complaint", { limitMs: 60_000 });
          before = written().length;
          for (let edit = 1; edit <= EDITS; edit++) {
            await manifests.replace("web.json", [annotated(edit)]);
            await until(() => complaints() > edit, `the complaint of edit ${edit}`, { limitMs: 60_000 });
          }
          await manifests.replace("hostile.json", HOSTILE);
          await until(() => written().includes("Object refused"), "what is refused", { limitMs: 60_000 });
          await new Promise((resolve) => setTimeout(resolve, 500));
        });
        const bytes = new TextEncoder().encode(text).length - before;
        const lines = text.trimEnd().split("\n");
        for (const line of lines) {
          assert(!OBEYED.test(line), JSON.stringify(line));
          assert(line.length < 2 * MOST_BYTES, `${line.length}: ${line}`);
        }
        assert(bytes < (EDITS + 10) * MOST_BYTES, `${bytes} bytes`);
      }),
  );
}

Deno.test("the same through the API: names, ports and addresses of 240 KB, in short lines without anything to obey", async () => {
  await using server = new ListWatchServer();
  const lines: string[] = [];
  for (const format of ["text", "json"] as const) {
    const log = createLogger({
      format,
      verbosity: 2,
      write: (line) => void lines.push(line.trimEnd()),
      nowMs: Date.now,
      pid: 1,
    });
    const report = partlyUsableReport(log);
    const tracker = new ChangeTracker({
      family: "IPv4",
      node: { name: "n1", zone: "" },
      report,
      startedAtMs: 0,
    });
    const web = rawService("web") as ApiJson;
    server.put({ ...web, metadata: { ...web.metadata, annotations: { [ANNOTATION]: LONG } } } as never);
    server.put({ ...rawService("address"), spec: { clusterIP: LONG, ports: [{ port: 80 }] } } as never);
    server.put(
      { ...rawService("port"), spec: { clusterIP: "10.96.0.9", ports: [{ port: 80, name: LONG }] } } as never,
    );
    const recorder = new SourceRecorder();
    const end = new AbortController();
    const source = quickKubeSource(server.url, log);
    const running = source.run({
      events: (batch) => {
        recorder.events(batch);
        for (const event of batch) {
          if (event.type === "add" && event.object.kind === "Service") {
            tracker.updateService(undefined, event.object);
          }
        }
        tracker.checkout();
      },
      rejected: (rejection) => {
        log.error("Object refused", rejection.message, { object: rejection.object, where: rejection.where });
      },
    }, end.signal);
    await recorder.untilSynced();
    await watching(server);
    end.abort();
    await running;
  }
  const told = lines.join("\n");
  assertStringIncludes(told, "Object refused");
  assertStringIncludes(told, "Object is only partly usable");
  for (const line of lines) {
    assert(!OBEYED.test(line), JSON.stringify(line));
    assert(line.length < 2 * MOST_BYTES, `${line.length}: ${line.slice(0, 2_000)}`);
  }
});

Deno.test("Events hold nothing that a terminal would obey, and end somewhere", () => {
  for (
    const event of [
      serviceQuarantinedEvent("n1", { service: "shop/web" as never, problem: LONG }),
      destinationRefusedEvent("n1", { service: "shop/web" as never, destination: LONG, reason: LONG }),
    ]
  ) {
    const { note = "" } = eventBody(event, "n1", 0);
    assert(!OBEYED.test(note), JSON.stringify(note));
    assertEquals(new TextEncoder().encode(note).length <= 1024, true);
  }
});
