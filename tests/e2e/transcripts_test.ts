/**
 * The transcripts of `docs/transcripts.md`, run again against `kproxy run`: what the document shows is what the servers say.
 * With `KPROXY_WRITE_TRANSCRIPTS=1` (`deno task docs:transcripts`) the document is rewritten where it differs.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { kproxyArgv } from "../cli/kproxy.ts";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { type Netns, socketIn, withNetns } from "../support/netns.ts";
import { NODE_OBJECT } from "../support/node_lab.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { parseTranscripts, replaceOutputs, type Transcript, withoutVarying } from "../support/transcript.ts";
import { eventually } from "../support/until.ts";

const NEEDS = [
  ROOT_NAMESPACES,
  ...["ip", "sysctl", "conntrack", "iptables", "ip6tables", "curl"].map(program),
];
const DOCUMENT = `${ROOT}/docs/transcripts.md`;
const SOCKET = "/run/kproxy/kproxy.sock";
const NODE_IP = "192.0.2.10";
const TAINT = { key: "ToBeDeletedByClusterAutoscaler", effect: "NoSchedule", value: "1790000000" };
/** Every path there is, as the servers have them. */
const PATHS = [
  ...["/healthz", "/livez", "/readyz"].map((path) => `:10256${path}`),
  ...["/metrics", "/metrics/slis", "/healthz", "/healthz?verbose", "/proxyMode", "/configz", "/statusz"],
  ...["/flagz", "/debug/flags/v", "/debug/pprof", "/debug/pprof/", "/debug/pprof/heap"],
  ...["/debug/pprof/profile", "/kproxy/v1/status", "/kproxy/v1/config", "/kproxy/v1/objects"],
].map((path) => path.startsWith(":") || /^\/(?:debug|kproxy)/.test(path) ? path : `:10249${path}`);

/** Every command that looks at a node. */
const COMMANDS = [
  ...["trace", "service list", "service get", "check", "status", "status --watch", "doctor"],
  ...["doctor --migrate-to", "selftest", "sysdump"],
];

/** What a state of the document is: how the node comes to be in it, from the state before. */
type States = ReadonlyMap<string, () => Promise<void>>;

function localService(name: string, index: number): ApiJson {
  return service(`shop/${name}`, {
    type: "LoadBalancer",
    clusterIP: `10.96.0.${index}`,
    ports: [`http:80:3008${index}`],
    externalTrafficPolicy: "Local",
    healthCheckNodePort: 30200 + index,
    ingress: [{ ip: `203.0.113.${index}` }],
  });
}

const WEB = localService("web", 1);
const OBJECTS: readonly ApiJson[] = [
  WEB,
  slice("shop/web.1", ["http:8080"], ["10.244.0.11@node-a", "10.244.0.12@node-a", "10.244.1.13@node-b"]),
  localService("far", 2),
  slice("shop/far.1", ["http:8080"], ["10.244.1.21@node-b", "10.244.1.22@node-b unready"]),
];
const DNS: readonly ApiJson[] = [
  service("shop/dns", { clusterIP: "10.96.0.10", ports: ["dns:53/UDP"] }),
  slice("shop/dns.1", ["dns:53/UDP"], ["10.244.0.31@node-a"]),
];

/** An object that the cluster has changed just now, as its controller notes it. */
function changedNow(object: ApiJson): ApiJson {
  const annotations = { "endpoints.kubernetes.io/last-change-trigger-time": new Date().toISOString() };
  return { ...object, metadata: { ...object.metadata, annotations } };
}

/** The node of the transcripts, and the kproxy that is on it. */
class TranscriptNode implements AsyncDisposable {
  readonly #netns: Netns;
  readonly #manifests: LabManifests;
  /** Holds the restore program that can be made to fail. */
  readonly #bin: string;
  #kproxy: KproxyProcess | undefined;

  private constructor(netns: Netns, manifests: LabManifests, bin: string) {
    this.#netns = netns;
    this.#manifests = manifests;
    this.#bin = bin;
  }

  static async create(netns: Netns): Promise<TranscriptNode> {
    await netns.run(["ip", "addr", "add", `${NODE_IP}/32`, "dev", "lo"]);
    // What pods are behind, and the world, so that packets have a way.
    for (const device of ["cni0", "eth0"]) {
      await netns.run(["ip", "link", "add", device, "type", "bridge"]);
      await netns.run(["ip", "link", "set", device, "up"]);
    }
    await netns.run(["ip", "addr", "add", "10.244.0.1/16", "dev", "cni0"]);
    await netns.run(["ip", "route", "add", "default", "dev", "eth0"]);
    await netns.run(["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"]);
    await netns.run(["sysctl", "-q", "-w", "net.ipv6.conf.all.forwarding=1"]);
    const manifests = await LabManifests.create();
    const bin = await Deno.makeTempDir({ prefix: "kproxy-bin-" });
    const real = (await netns.run(["sh", "-c", "command -v iptables-restore"])).trim();
    const script = `#!/bin/sh\nif [ -e ${bin}/broken ]; then case "$*" in *--version*) ;; *) ` +
      `echo "Could not fetch rule set generation id: Permission denied (you must be root)" >&2; exit 4;; esac; fi\nexec ${real} "$@"\n`;
    await Deno.writeTextFile(`${bin}/iptables-restore`, script, { mode: 0o755 });
    const quoted = [Deno.execPath(), ...kproxyArgv()].map((word) => `'${word}'`).join(" ");
    const asks = `case "$1" in check|trace|service|doctor|status|sysdump) command=$1; shift; ` +
      `set -- "$command" --socket=${socketIn(netns.name)} "$@";; esac\n`;
    await Deno.writeTextFile(`${bin}/kproxy`, `#!/bin/sh\n${asks}exec ${quoted} "$@"\n`, { mode: 0o755 });
    await manifests.replace("objects.json", OBJECTS);
    await manifests.replace("node.json", [NODE_OBJECT]);
    return new TranscriptNode(netns, manifests, bin);
  }

  get states(): States {
    return new Map<string, () => Promise<void>>([
      ["unsynced", async () => {
        await this.#break();
        await this.#start({ families: 1 }, "--iptables-sync-period=2s", "--iptables-min-sync-period=0s");
        await this.#run.untilMessage("Sync failed, will write everything again");
      }],
      ["stuck", async () => {
        await Deno.remove(`${this.#bin}/broken`);
        await this.#run.until(
          "the first sync of IPv4",
          (lines) =>
            lines.some(({ msg, family }) =>
              msg === "First sync done, Services are served" && family === "IPv4"
            ),
        );
        await this.#untilStatus(30201, 200);
        await this.#break();
        await this.#manifests.replace("dns.json", DNS);
        await this.#untilStatus(10256, 503);
      }],
      ["ready", async () => {
        await Deno.remove(`${this.#bin}/broken`);
        await this.#manifests.remove("dns.json");
        await this.#start();
        await this.#run.change(
          () => this.#manifests.replace("dns.json", DNS.map(changedNow)),
          "shop/dns",
        );
        await this.#untilStatus(30201, 200);
        await this.#untilStatus(30202, 503);
        await this.#untilMetric("kubeproxy_conntrack_reconciler_sync_duration_seconds_count");
      }],
      ["leaving", async () => {
        await this.#manifests.replace("node.json", [{
          ...NODE_OBJECT,
          spec: { ...NODE_OBJECT.spec, taints: [TAINT] },
        }]);
        await this.#untilStatus(10256, 503);
      }],
      ["profiling", async () => {
        await this.#manifests.replace("node.json", [NODE_OBJECT]);
        await this.#start({}, "--profiling");
      }],
    ]);
  }

  /** What a command of the document writes. */
  async output(command: string): Promise<string> {
    // The network of the document is none that a proxy of this machine leads to.
    const path = `${this.#bin}:${Deno.env.get("PATH") ?? ""}`;
    const env = { no_proxy: "*", NO_PROXY: "*", PATH: path };
    // Nodes have a file system each; namespaces of this machine have one.
    const socket = socketIn(this.#netns.name);
    const argv = ["sh", "-c", command.replaceAll(SOCKET, socket)];
    const { stdout, stderr } = await this.#netns.exec.run(argv, { env, timeoutMs: 60_000 });
    assertEquals(stderr, "", command);
    return stdout.replaceAll("\r", "").replaceAll(socket, SOCKET).trimEnd();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#kproxy?.[Symbol.asyncDispose]();
    await this.#manifests[Symbol.asyncDispose]();
    await Deno.remove(this.#bin, { recursive: true });
  }

  get #run(): KproxyProcess {
    if (this.#kproxy === undefined) throw new TypeError("kproxy is not started");
    return this.#kproxy;
  }

  async #break(): Promise<void> {
    await Deno.writeTextFile(`${this.#bin}/broken`, "");
  }

  async #start({ families = 2 } = {}, ...more: string[]): Promise<void> {
    await this.#kproxy?.stop();
    const args = [
      "--hostname-override=node-a",
      "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
      `--manifests=${this.#manifests.folder}`,
      ...more,
    ];
    this.#kproxy = await KproxyProcess.start({ netns: this.#netns, args, path: this.#bin }, families);
  }

  async #untilStatus(port: number, wanted: number): Promise<void> {
    const curl = `curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:${port}/healthz`;
    await this.#until(curl, (said) => said === String(wanted));
  }

  async #untilMetric(name: string): Promise<void> {
    await this.#until("curl -s http://127.0.0.1:10249/metrics", (said) => said.includes(name));
  }

  async #until(command: string, isSo: (output: string) => boolean): Promise<void> {
    await eventually(async () => {
      const said = await this.output(command);
      assert(isSo(said), `${command}\n${said}\n${this.#run.log}`);
    }, { everyMs: 50 });
  }
}

/** Brings the node into each state in turn and runs the commands that the document has for it. */
async function outputsOf(transcripts: readonly Transcript[], node: TranscriptNode): Promise<string[]> {
  const outputs = new Map<Transcript, string>();
  for (const [state, enter] of node.states) {
    const wanted = transcripts.filter((transcript) => transcript.state === state);
    assert(wanted.length > 0, `The document shows nothing of a node that is ${state}`);
    await enter();
    for (const transcript of wanted) outputs.set(transcript, await node.output(transcript.command));
  }
  return transcripts.map((transcript) => {
    const output = outputs.get(transcript);
    assert(output !== undefined, `There is no state "${transcript.state}"`);
    return output;
  });
}

e2eTest("the transcripts in docs/transcripts.md are what the servers say", NEEDS, async () => {
  const text = await Deno.readTextFile(DOCUMENT);
  const transcripts = parseTranscripts(text);
  assertEquals(transcripts.length, text.match(/^\$ /gm)?.length, "each command is in a block that is read");
  const commands = transcripts.map(({ command }) => command).join("\n");
  for (const path of PATHS) {
    assert(new RegExp(`${RegExp.escape(path)}(?=[\\s'?]|$)`, "m").test(commands), `No transcript of ${path}`);
  }
  for (const command of COMMANDS) {
    assert(new RegExp(`\\bkproxy ${command}\\b`).test(commands), `No transcript of kproxy ${command}`);
  }
  await withNetns(async (netns) => {
    await using node = await TranscriptNode.create(netns);
    const outputs = await outputsOf(transcripts, node);
    const shown = transcripts.map(({ command, output }) => `$ ${command}\n${withoutVarying(output)}`);
    const said = transcripts.map(({ command }, i) => `$ ${command}\n${withoutVarying(outputs[i] ?? "")}`);
    if (Deno.env.get("KPROXY_WRITE_TRANSCRIPTS") === "1") {
      const kept = outputs.map((output, i) => said[i] === shown[i] ? transcripts[i]?.output ?? "" : output);
      await Deno.writeTextFile(DOCUMENT, replaceOutputs(text, kept));
      return;
    }
    assertEquals(shown, said, 'differs: look at what changed, then "deno task docs:transcripts"');
  });
});
