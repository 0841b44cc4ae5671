/**
 * A client in a Pod that connects to a Service without end, and what it saw.
 *
 * @module
 */
import { AssertionError } from "@std/assert";
import { ExecError } from "../../lib/errors.ts";
import { eventually } from "../support/until.ts";
import type { Cluster } from "./cluster.ts";
import { nodeName } from "./plan.ts";

const NAMESPACE = "client";
const AGNHOST = "registry.k8s.io/e2e-test-images/agnhost:2.63.0";

/** What the client saw since it was last asked. */
export interface Connections {
  readonly answered: number;
  /** What failed, as the client says it. */
  readonly failures: readonly string[];
}

/** Two servers behind a Service, and the client on the first node, where nothing is drained. */
export class ServiceClient implements AsyncDisposable {
  readonly #cluster: Cluster;
  #seen = 0;

  private constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  static async start(cluster: Cluster): Promise<ServiceClient> {
    const metadata = { name: "web", namespace: NAMESPACE };
    await cluster.apply(
      { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } },
      {
        apiVersion: "v1",
        kind: "Service",
        metadata,
        spec: { selector: { app: "web" }, ports: [{ port: 80, targetPort: 8080 }] },
      },
      ...[1, 2].map((node) => pod(`web-${node}`, node, ["netexec", "--http-port=8080"])),
    );
    await cluster.kubectl([
      "-n",
      NAMESPACE,
      "wait",
      "--for=condition=Ready",
      "pod",
      "--all",
      "--timeout=120s",
    ]);
    // Its own name server would be the next to fail: the address is the Service's.
    const address = await cluster.kubectl([
      ...["-n", NAMESPACE, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"],
    ]);
    const url = `http://${address.includes(":") ? `[${address}]` : address}/hostname`;
    const line =
      `while :; do curl -g -s -f -m 3 -o /dev/null ${url} && echo ok || echo "failed: $? $(date -u +%T)"; ` +
      "sleep 0.1; done";
    await cluster.apply(pod("client", 1, ["-c", line], ["sh"]));
    await cluster.kubectl(["-n", NAMESPACE, "wait", "--for=condition=Ready", "pod/client", "--timeout=120s"]);
    const client = new ServiceClient(cluster);
    await client.count();
    return client;
  }

  /** What came since the last call. */
  async count(): Promise<Connections> {
    // A kubelet that was just started does not know its Pods yet.
    const text = await eventually(
      () =>
        this.#cluster.kubectl(["-n", NAMESPACE, "logs", "client", "--tail=-1"]).catch((error: unknown) => {
          throw error instanceof ExecError ? new AssertionError(error.message) : error;
        }),
      { everyMs: 1_000, limitMs: 60_000 },
    );
    const lines = text.split("\n").filter((line) => line !== "").slice(this.#seen);
    this.#seen += lines.length;
    return {
      answered: lines.filter((line) => line === "ok").length,
      failures: lines.filter((line) => line.startsWith("failed")),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#cluster.kubectl(["delete", "namespace", NAMESPACE]);
  }
}

function pod(name: string, node: number, args: readonly string[], command?: readonly string[]): unknown {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: NAMESPACE, labels: { app: name.replace(/-\d$/, "") } },
    spec: {
      nodeName: nodeName(node),
      terminationGracePeriodSeconds: 0,
      containers: [{ name: "main", image: AGNHOST, command, args, imagePullPolicy: "IfNotPresent" }],
    },
  };
}
