/**
 * A Kubernetes cluster in network namespaces: etcd, API server, controllers, scheduler and DNS in one of them, which routes between
 * the others, its nodes. It goes on when the program that made it ends, and is found again by its folder.
 *
 * @module
 */
import type { ExecOptions } from "../../lib/kernel/exec.ts";
import { killPrograms } from "../../tools/end_programs.ts";
import { pathExists } from "../support/path_exists.ts";
import { until } from "../support/until.ts";
import { makeAccess } from "./access.ts";
import { Programs, run, script } from "./machine.ts";
import { ClusterNode } from "./node.ts";
import { type ClusterPlan, CONTROL_PLANE, familyPlans, nodeNetns } from "./plan.ts";

const ETCD = "http://127.0.0.1:2379";
const BOOT = { limitMs: 300_000, everyMs: 500 };

/** The cluster of a plan. */
export class Cluster {
  readonly plan: ClusterPlan;
  readonly programs: Programs;

  constructor(plan: ClusterPlan) {
    this.plan = plan;
    this.programs = new Programs(plan.folder);
  }

  /** True if its API server runs. */
  async isUp(): Promise<boolean> {
    return await this.programs.pid("kube-apiserver") !== null;
  }

  /** Runs kubectl as the cluster's administrator. */
  kubectl(args: readonly string[], options?: ExecOptions): Promise<string> {
    const { binaries, folder } = this.plan;
    const argv = [`${binaries}/kubectl`, `--kubeconfig=${folder}/conf/admin.kubeconfig`, ...args];
    return run(["ip", "netns", "exec", CONTROL_PLANE, ...argv], { timeoutMs: 300_000, ...options });
  }

  /** Writes objects. */
  async apply(...objects: readonly unknown[]): Promise<void> {
    const items = { apiVersion: "v1", kind: "List", items: objects };
    await this.kubectl(["apply", "-f", "-"], { stdin: JSON.stringify(items) });
  }

  /** Starts all of it; resolves when the nodes are ready. */
  async up(nodes: number): Promise<void> {
    await makeAccess(this.plan);
    await this.#makeRouter();
    await this.startControlPlane();
    const joining = Array.from({ length: nodes }, (_, index) => this.join(index + 1));
    await Promise.all(joining);
    await this.#startDns();
  }

  /** Nodes that were made, by number. */
  async nodes(): Promise<readonly ClusterNode[]> {
    const found: ClusterNode[] = [];
    for (let node = 1; node <= 9; node++) {
      if (await this.programs.pid(nodeNetns(node)) !== null) found.push(new ClusterNode(this, node));
    }
    return found;
  }

  /** Makes a node, and waits until it is ready. */
  async join(number: number): Promise<ClusterNode> {
    const node = new ClusterNode(this, number);
    await node.create();
    return node;
  }

  async #makeRouter(): Promise<void> {
    const inside = `ip netns exec ${CONTROL_PLANE}`;
    await script([
      `ip netns add ${CONTROL_PLANE}`,
      `ip -n ${CONTROL_PLANE} link set lo up`,
      `ip -n ${CONTROL_PLANE} link add br0 type bridge`,
      `${inside} sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0`,
      `${inside} sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1`,
      `${inside} sysctl -qw net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0`,
      `${inside} sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 || true`,
      ...familyPlans(this.plan).map(({ gateway, nodePrefix }) =>
        `ip -n ${CONTROL_PLANE} addr add ${gateway}/${nodePrefix} dev br0${
          gateway.includes(":") ? " nodad" : ""
        }`
      ),
      `ip -n ${CONTROL_PLANE} link set br0 up`,
    ]);
  }

  /** Starts a program of the control plane. */
  async #start(name: string, args: readonly string[]): Promise<void> {
    const argv = [`${this.plan.binaries}/${name}`, ...args];
    await this.programs.start(name, ["ip", "netns", "exec", CONTROL_PLANE, ...argv]);
  }

  /** Starts what of the control plane does not run. */
  async startControlPlane(): Promise<void> {
    const { folder } = this.plan;
    const admin = `${folder}/conf/admin.kubeconfig`;
    if (await this.programs.pid("etcd") === null) {
      const peers = "http://127.0.0.1:2380";
      await this.#start("etcd", [
        ...["--data-dir", `${folder}/etcd`, "--unsafe-no-fsync", "--listen-peer-urls", peers],
        ...["--listen-client-urls", ETCD, "--advertise-client-urls", ETCD],
      ]);
    }
    if (!await this.isUp()) await this.#start("kube-apiserver", this.#apiServerArgs());
    const answers = async (): Promise<boolean> => {
      const asked = await this.kubectl(["get", "--raw", "/readyz"], { timeoutMs: 5_000 }).catch(() => "");
      return asked === "ok";
    };
    await until(answers, "the API server to be ready", BOOT);
    if (await this.programs.pid("kube-controller-manager") !== null) return;
    await this.#start("kube-controller-manager", [
      `--kubeconfig=${admin}`,
      `--service-account-private-key-file=${folder}/conf/sa.key`,
      `--root-ca-file=${folder}/conf/ca.crt`,
      "--controllers=*,-node-ipam-controller,-node-route-controller,-cloud-node-lifecycle-controller",
      "--allocate-node-cidrs=false",
      "--leader-elect=false",
      `--cert-dir=${folder}/kcm`,
    ]);
    const ways = ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"];
    await this.#start("kube-scheduler", [
      ...ways.map((flag) => `--${flag}=${admin}`),
      "--leader-elect=false",
    ]);
  }

  #apiServerArgs(): string[] {
    const conf = `${this.plan.folder}/conf`;
    const plans = familyPlans(this.plan);
    return [
      `--etcd-servers=${ETCD}`,
      `--service-cluster-ip-range=${plans.map(({ services }) => services).join(",")}`,
      "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
      `--service-account-key-file=${conf}/sa.pub`,
      `--service-account-signing-key-file=${conf}/sa.key`,
      "--authorization-mode=Node,RBAC",
      "--enable-admission-plugins=NodeRestriction",
      `--token-auth-file=${conf}/tokens.csv`,
      `--tls-cert-file=${conf}/api.crt`,
      `--tls-private-key-file=${conf}/api.key`,
      `--advertise-address=${plans[0]?.gateway}`,
      "--bind-address=::",
      "--allow-privileged=true",
      "--kubelet-preferred-address-types=InternalIP",
      `--cert-dir=${this.plan.folder}/api`,
    ];
  }

  async #startDns(): Promise<void> {
    const { folder } = this.plan;
    const [first] = familyPlans(this.plan);
    const corefile = `.:53 {
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig ${folder}/conf/admin.kubeconfig default
    pods insecure
  }
  errors
}
`;
    await Deno.writeTextFile(`${folder}/conf/Corefile`, corefile);
    await this.#start("coredns", ["-conf", `${folder}/conf/Corefile`]);
    const ports = [["dns", "UDP"], ["dns-tcp", "TCP"]].map(([name, protocol]) => ({
      name,
      port: 53,
      protocol,
    }));
    const metadata = { name: "kube-dns", namespace: "kube-system" };
    await this.apply(
      { apiVersion: "v1", kind: "Service", metadata, spec: { clusterIP: first?.dns, ports } },
      {
        apiVersion: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        metadata: { ...metadata, name: "kube-dns-1", labels: { "kubernetes.io/service-name": "kube-dns" } },
        addressType: first?.gateway.includes(":") ? "IPv6" : "IPv4",
        endpoints: [{ addresses: [first?.gateway], conditions: { ready: true } }],
        ports,
      },
    );
  }

  /** Ends all of it, and removes its namespaces; its files stay. */
  async down(): Promise<void> {
    for (const node of await this.nodes()) await node.remove();
    for (const name of ["coredns", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"]) {
      await this.programs.end(name);
    }
    if (await pathExists(`/run/netns/${CONTROL_PLANE}`)) {
      killPrograms(await run(["ip", "netns", "pids", CONTROL_PLANE]));
      await run(["ip", "netns", "del", CONTROL_PLANE]);
    }
    // Containers' groups that their runtime did not come to remove.
    await script([
      "for i in 1 2 3; do",
      '  find /sys/fs/cgroup -depth -type d -path "*/k8s.io/*" -exec rmdir {} + 2>/dev/null || true',
      "done",
    ]);
  }
}
