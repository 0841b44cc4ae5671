/**
 * kproxy with metrics over TLS in a network namespace, and clients beside it: curl, and Prometheus.
 *
 * @module
 */
import { AssertionError } from "@std/assert";
import { KproxyProcess } from "./kproxy_process.ts";
import { LabGuard } from "./lab_guard.ts";
import { createNetns, type Netns, removeNetns } from "./netns.ts";
import { type PairPaths, PKI, ServingPki } from "./serving_pki.ts";
import { type Need, program, ROOT_NAMESPACES } from "./skip.ts";
import { eventually } from "./until.ts";

export const TLS_NEEDS: readonly Need[] = [...PKI, ROOT_NAMESPACES, program("nft"), program("curl")];

/** Result of curl: its exit code, and the status of the answer, 0 without one. */
export interface Asked {
  readonly code: number;
  readonly status: number;
}

/** Result of a Prometheus scrape job. */
export interface Scraped {
  /** `up` or `down`. */
  readonly health: string;
  /** Why the target is down; `""` if it is up. */
  readonly error: string;
}

const PROMETHEUS = "127.0.0.1:19090";

/** See the module. */
export class TlsNode implements AsyncDisposable {
  readonly #guard = new LabGuard();

  private constructor(readonly netns: Netns, readonly folder: string, readonly pki: ServingPki) {}

  static async create(): Promise<TlsNode> {
    const netns = await createNetns();
    const folder = await Deno.makeTempDir({ prefix: `kproxy-manifests-${Deno.pid}-tls-` });
    await Deno.mkdir(`${folder}/objects`);
    return new TlsNode(netns, folder, await ServingPki.create(folder));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await using _guard = this.#guard;
    await removeNetns(this.netns);
    await Deno.remove(this.folder, { recursive: true });
  }

  /** Starts kproxy with this `kproxy.serving`; it may fail to start. */
  async spawn(serving: Readonly<Record<string, unknown>>, args?: readonly string[]): Promise<KproxyProcess> {
    const config = {
      apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
      kind: "KubeProxyConfiguration",
      mode: "nftables",
      kproxy: { serving },
    };
    await Deno.writeTextFile(`${this.folder}/config.json`, JSON.stringify(config));
    return KproxyProcess.spawn({
      netns: this.netns,
      args: [
        `--config=${this.folder}/config.json`,
        "--hostname-override=node-a",
        ...args ?? [`--manifests=${this.folder}/objects`],
      ],
    });
  }

  /** Starts kproxy, and waits until the metrics server listens. */
  async start(serving: Readonly<Record<string, unknown>>, args?: readonly string[]): Promise<KproxyProcess> {
    const kproxy = await this.spawn(serving, args);
    try {
      await kproxy.until(
        "its servers",
        (lines) => lines.some(({ msg, server }) => msg === "Listening" && server === "metrics"),
      );
      return kproxy;
    } catch (error) {
      await kproxy[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Sends a request, trusting the tests' authority. */
  async curl(
    url: string,
    { pair, args = [] }: { pair?: PairPaths; args?: readonly string[] } = {},
  ): Promise<Asked> {
    const own = pair === undefined ? [] : ["--cert", pair.cert, "--key", pair.key];
    const { code, stdout } = await this.netns.exec.run([
      ...["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "30", "--noproxy", "*"],
      ...["--cacert", this.pki.path("ca.crt"), ...own, ...args, url],
    ]);
    return { code, status: Number(stdout) };
  }

  /** Body of a page. */
  async page(url: string, pair: PairPaths): Promise<string> {
    const own = ["--cacert", this.pki.path("ca.crt"), "--cert", pair.cert, "--key", pair.key];
    return (await this.netns.exec.run(["curl", "-s", "--max-time", "30", "--noproxy", "*", ...own, url]))
      .stdout;
  }

  /** Makes Prometheus scrape once by each of these jobs (of its configuration); yields their results, by name. */
  async prometheus(jobs: Readonly<Record<string, object>>): Promise<ReadonlyMap<string, Scraped>> {
    const common = {
      scrape_interval: "1s",
      scrape_timeout: "1s",
      static_configs: [{ targets: ["localhost:10249"] }],
    };
    const scrape_configs = Object.entries(jobs).map(([job_name, job]) => ({ job_name, ...common, ...job }));
    await Deno.writeTextFile(`${this.folder}/prometheus.yml`, JSON.stringify({ scrape_configs }));
    const child = new Deno.Command("ip", {
      args: [
        ...["netns", "exec", this.netns.name, "prometheus", `--config.file=${this.folder}/prometheus.yml`],
        ...[`--storage.tsdb.path=${this.folder}/tsdb`, `--web.listen-address=${PROMETHEUS}`],
      ],
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).spawn();
    try {
      return await eventually(() => this.#targets(Object.keys(jobs)), { everyMs: 500 });
    } finally {
      child.kill("SIGKILL");
      await child.status;
    }
  }

  async #targets(jobs: readonly string[]): Promise<ReadonlyMap<string, Scraped>> {
    const url = `http://${PROMETHEUS}/api/v1/targets`;
    // It refuses connections until it listens, and answers 503 until it is ready.
    const curl = ["curl", "-s", "--fail", "--max-time", "5", "--noproxy", "*", url];
    const { code, stdout } = await this.netns.exec.run(curl);
    const targets: readonly { labels: { job: string }; health: string; lastError: string }[] = code === 0
      ? JSON.parse(stdout).data.activeTargets
      : [];
    const known = targets.filter(({ health }) => health !== "unknown");
    if (known.length < jobs.length) throw new AssertionError(`not all were scraped: ${stdout}`);
    return new Map(
      known.map(({ labels: { job }, health, lastError }) => [job, { health, error: lastError }]),
    );
  }
}
