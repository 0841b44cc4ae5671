/**
 * A node of the cluster: a network, mount, pid and uts namespace with containerd and kubelet.
 *
 * @module
 */
import type { ExecOptions } from "../../lib/kernel/exec.ts";
import { killPrograms } from "../../tools/end_programs.ts";
import { pathExists } from "../support/path_exists.ts";
import { childPids } from "../support/processes.ts";
import { until } from "../support/until.ts";
import type { Cluster } from "./cluster.ts";
import { run, script } from "./machine.ts";
import { CONTROL_PLANE, familyPlans, nodeAddress, nodeName, nodeNetns, podNetwork } from "./plan.ts";

const SCRIPT = new URL("node.sh", import.meta.url).pathname;
const CONTAINERD = "/run/containerd/containerd.sock";
const START = { limitMs: 300_000, everyMs: 300 };

/** One node, by its number. */
export class ClusterNode {
  readonly #cluster: Cluster;
  readonly number: number;

  constructor(cluster: Cluster, number: number) {
    this.#cluster = cluster;
    this.number = number;
  }

  /** Of its Node. */
  get name(): string {
    return nodeName(this.number);
  }

  get #netns(): string {
    return nodeNetns(this.number);
  }

  get #folder(): string {
    return `${this.#cluster.plan.folder}/${this.name}`;
  }

  /** Runs a command inside. */
  async run(argv: readonly string[], options?: ExecOptions): Promise<string> {
    return await run(await this.#inside(argv), { timeoutMs: 300_000, ...options });
  }

  async #inside(argv: readonly string[]): Promise<string[]> {
    const outer = await this.#cluster.programs.pid(this.#netns);
    const [first] = outer === null ? [] : await childPids(outer);
    if (first === undefined) throw new Error(`${this.name} does not run`);
    const path =
      `PATH=${this.#cluster.plan.binaries}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`;
    return ["nsenter", "-t", String(first), "-n", "-m", "-p", "-u", "env", path, ...argv];
  }

  /** Makes it, and waits until it is ready. */
  async create(): Promise<void> {
    await this.#link();
    const folder = this.#folder;
    await Deno.mkdir(`${folder}/cni`, { recursive: true });
    await this.#writeFiles();
    const spaces = [
      "nsenter",
      `--net=/run/netns/${this.#netns}`,
      "unshare",
      "-m",
      "-p",
      "-u",
      "-f",
      "--kill-child",
    ];
    await this.#cluster.programs.start(this.#netns, [...spaces, SCRIPT, folder, this.name]);
    await until(() => pathExists(`${folder}/ready`), `${this.name} to be made`, START);
    await this.#startContainerd();
    await this.startKubelet();
    const podCIDRs = this.#cluster.plan.families.map((family) => podNetwork(family, this.number));
    const isThere = async (): Promise<boolean> =>
      (await this.#cluster.kubectl(["get", "nodes", "-o", "name"])).split("\n").includes(`node/${this.name}`);
    await until(isThere, `Node ${this.name}`, START);
    const patch = JSON.stringify({ spec: { podCIDR: podCIDRs[0], podCIDRs } });
    await this.#cluster.kubectl(["patch", "node", this.name, `--patch=${patch}`]);
    await this.#cluster.kubectl(["wait", "--for=condition=Ready", `node/${this.name}`, "--timeout=240s"]);
  }

  /** A link to the router, and routes to the Pods of all nodes. */
  async #link(): Promise<void> {
    const netns = this.#netns;
    const lines = [
      `ip netns add ${netns}`,
      `ip -n ${netns} link set lo up`,
      `ip netns exec ${netns} sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0`,
      `ip -n ${netns} link add eth0 type veth peer name n${this.number} netns ${CONTROL_PLANE}`,
      `ip -n ${CONTROL_PLANE} link set n${this.number} master br0 up`,
    ];
    const { plan } = this.#cluster;
    const plans = familyPlans(plan);
    for (const [index, family] of plan.families.entries()) {
      const address = `${nodeAddress(family, this.number)}/${plans[index]?.nodePrefix}`;
      lines.push(`ip -n ${netns} addr add ${address} dev eth0${family === "IPv6" ? " nodad" : ""}`);
    }
    lines.push(`ip -n ${netns} link set eth0 up`);
    for (const [index, family] of plan.families.entries()) {
      const ip = family === "IPv6" ? "ip -6" : "ip";
      // By way of the router, which knows all nodes.
      lines.push(`${ip} -n ${netns} route add default via ${plans[index]?.gateway}`);
      const way = `${podNetwork(family, this.number)} via ${nodeAddress(family, this.number)}`;
      lines.push(`${ip} -n ${CONTROL_PLANE} route add ${way}`);
    }
    await script(lines);
  }

  async #writeFiles(): Promise<void> {
    const { binaries, families } = this.#cluster.plan;
    const folder = this.#folder;
    const [first] = familyPlans(this.#cluster.plan);
    const ranges = families.map((family) => [{ subnet: podNetwork(family, this.number) }]);
    const plugins = [
      {
        type: "bridge",
        bridge: "cni0",
        isGateway: true,
        isDefaultGateway: true,
        ipMasq: false,
        hairpinMode: true,
        ipam: { type: "host-local", ranges, dataDir: "/var/lib/cni/networks" },
      },
      { type: "portmap", capabilities: { portMappings: true }, snat: true },
    ];
    const kubelet = {
      apiVersion: "kubelet.config.k8s.io/v1beta1",
      kind: "KubeletConfiguration",
      authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
      authorization: { mode: "AlwaysAllow" },
      cgroupDriver: "cgroupfs",
      cgroupsPerQOS: false,
      enforceNodeAllocatable: [],
      failSwapOn: false,
      failCgroupV1: false,
      clusterDNS: [first?.dns],
      clusterDomain: "cluster.local",
      resolvConf: `${folder}/resolv.conf`,
      containerRuntimeEndpoint: `unix://${CONTAINERD}`,
      evictionHard: { "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
      imageGCHighThresholdPercent: 100,
      imageGCLowThresholdPercent: 99,
    };
    const files = {
      "containerd.toml": containerdToml(binaries, folder),
      "cni/10-pods.conflist": JSON.stringify({ cniVersion: "1.0.0", name: "pods", plugins }),
      "resolv.conf": `nameserver ${first?.gateway}\n`,
      "kubelet.yaml": JSON.stringify(kubelet),
    };
    for (const [name, text] of Object.entries(files)) await Deno.writeTextFile(`${folder}/${name}`, text);
  }

  async #startContainerd(): Promise<void> {
    const argv = await this.#inside(["containerd", "--config", `${this.#folder}/containerd.toml`]);
    await this.#cluster.programs.start(`containerd-${this.name}`, argv);
    const ctr = ["ctr", `--address=${CONTAINERD}`];
    const answers = async (): Promise<boolean> =>
      await this.run([...ctr, "version"]).then(() => true, () => false);
    await until(answers, `containerd of ${this.name}`, START);
    for (const folder of [`${this.#cluster.plan.binaries}/images`, `${this.#cluster.plan.folder}/images`]) {
      for await (const { name } of Deno.readDir(folder)) {
        if (name.endsWith(".tar")) await this.importImage(`${folder}/${name}`);
      }
    }
  }

  /** Brings an image onto the node. */
  async importImage(path: string): Promise<void> {
    await this.run(["ctr", `--address=${CONTAINERD}`, "--namespace=k8s.io", "images", "import", path]);
  }

  /** Starts kubelet, which makes or takes the Node. */
  async startKubelet(): Promise<void> {
    const { folder, families } = this.#cluster.plan;
    const zone = `zone-${(this.number - 1) % 3 + 1}`;
    const flags = [
      `--config=${this.#folder}/kubelet.yaml`,
      `--kubeconfig=${folder}/conf/${this.name}.kubeconfig`,
      `--hostname-override=${this.name}`,
      `--node-ip=${families.map((family) => nodeAddress(family, this.number)).join(",")}`,
      "--root-dir=/var/lib/kubelet",
      `--cert-dir=${this.#folder}/kubelet-pki`,
      `--node-labels=topology.kubernetes.io/zone=${zone}`,
    ];
    const line = 'echo $$ > /run/kubelet.pid; exec kubelet "$@"';
    const argv = await this.#inside(["sh", "-c", line, "sh", ...flags]);
    await this.#cluster.programs.start(`kubelet-${this.name}`, argv);
  }

  /** Ends kubelet; containers go on. */
  async stopKubelet(): Promise<void> {
    await this.run(["sh", "-c", "kill $(cat /run/kubelet.pid)"]);
    const { programs } = this.#cluster;
    await until(async () => await programs.pid(`kubelet-${this.name}`) === null, "kubelet to end", START);
  }

  /** Ends what runs on it, and removes it; its Node object stays. */
  async remove(): Promise<void> {
    await this.#cluster.programs.end(this.#netns, "SIGKILL");
    const netns = this.#netns;
    killPrograms(await run(["ip", "netns", "pids", netns]));
    await run(["ip", "netns", "del", netns]);
    await Deno.remove(`${this.#folder}/ready`);
    for (const [index] of familyPlans(this.#cluster.plan).entries()) {
      const family = this.#cluster.plan.families[index] ?? "IPv4";
      const ip = family === "IPv6" ? ["ip", "-6"] : ["ip"];
      // Of a cluster of other families there is none.
      await run([...ip, "-n", CONTROL_PLANE, "route", "flush", podNetwork(family, this.number)]);
    }
  }
}

function containerdToml(binaries: string, folder: string): string {
  const cri = `plugins."io.containerd.grpc.v1.cri"`;
  return `version = 2
root = "${folder}/containerd"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "${CONTAINERD}"
[${cri}]
  sandbox_image = "registry.k8s.io/pause:3.10.2"
  disable_apparmor = true
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
[${cri}.containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[${cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[${cri}.containerd.runtimes.runc.options]
  BinaryName = "${binaries}/runc"
[${cri}.cni]
  bin_dir = "${binaries}"
  conf_dir = "${folder}/cni"
`;
}
