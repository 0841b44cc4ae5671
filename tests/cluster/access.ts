/**
 * Who may reach the API server: its authority and certificate, the key of service accounts, and a kubeconfig for each user.
 *
 * @module
 */
import { kubeconfigText } from "../support/kubeconfig_text.ts";
import { pathExists } from "../support/path_exists.ts";
import { script } from "./machine.ts";
import { apiServerUrl, type ClusterPlan, familyPlans, nodeName } from "./plan.ts";

/** Makes what is not there yet in `conf` of the cluster's folder. */
export async function makeAccess(plan: ClusterPlan): Promise<void> {
  const conf = `${plan.folder}/conf`;
  await Deno.mkdir(conf, { recursive: true });
  if (!await pathExists(`${conf}/api.crt`)) await makeCertificates(plan, conf);
  const nodes = Array.from({ length: 9 }, (_, index) => nodeName(index + 1));
  const lines = [
    "admin-token,admin,admin,system:masters",
    ...nodes.map((name) => `${name}-token,system:node:${name},${name},system:nodes`),
  ];
  await Deno.writeTextFile(`${conf}/tokens.csv`, `${lines.join("\n")}\n`);
  const cluster = { server: apiServerUrl(plan), "certificate-authority": `${conf}/ca.crt` };
  const context = { name: "default", context: { cluster: "c", user: "u" } };
  for (const name of ["admin", ...nodes]) {
    const text = kubeconfigText({ cluster, user: { token: `${name}-token` }, contexts: [context] });
    await Deno.writeTextFile(`${conf}/${name}.kubeconfig`, text);
  }
}

async function makeCertificates(plan: ClusterPlan, conf: string): Promise<void> {
  const addresses = familyPlans(plan).flatMap(({ gateway, api }) => [gateway, api]);
  const names = ["", ".default", ".default.svc", ".default.svc.cluster.local"].map((end) =>
    `kubernetes${end}`
  );
  const alternatives = [
    ...["127.0.0.1", "::1", ...addresses].map((address) => `IP:${address}`),
    ...["localhost", ...names].map((name) => `DNS:${name}`),
  ];
  await Deno.writeTextFile(`${conf}/api.ext`, `subjectAltName=${alternatives.join(",")}\n`);
  const ec = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
  await script([
    `cd '${conf}'`,
    `openssl req -x509 ${ec} -days 30 -keyout ca.key -out ca.crt -subj /CN=cluster -addext basicConstraints=critical,CA:TRUE`,
    `openssl req ${ec} -keyout api.key -out api.csr -subj /CN=kube-apiserver`,
    "openssl x509 -req -in api.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out api.crt -extfile api.ext",
    "openssl genrsa -out sa.key 2048",
    "openssl rsa -in sa.key -pubout -out sa.pub",
  ]);
}
