/**
 * A tenant's Service takes an address of the Internet and the node's own (CVE-2020-8554), with real packets: without a policy it gets
 * them, as with kube-proxy; a policy comes and goes by an edit of the configuration file, and what is refused is told.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { RunningKproxy } from "../../lib/inspect/running/running.ts";
import { service, slice } from "../flows/objects.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { WEB_NEEDS, WEB_PODS, WEB_TARGET_PORT, WebLab } from "../support/lab_web.ts";
import { socketIn } from "../support/netns.ts";
import { e2eTest, program } from "../support/skip.ts";

const TAKEN = { ip: "198.51.100.53", port: 53 };
const NODE_SSH = { ip: "192.0.2.10", port: 22 };
const EVIL = [
  service("evil/external", {
    clusterIP: "10.96.66.1",
    externalIPs: [TAKEN.ip, NODE_SSH.ip],
    ports: ["dns:53", "ssh:22"],
  }),
  slice("evil/external.1", [`dns:${WEB_TARGET_PORT}`, `ssh:${WEB_TARGET_PORT}`], [`${WEB_PODS[0]}@node-a`]),
];
const NOT_IN = "it is not in kproxy.externalIPPolicy.externalIPs";
const OWN = "it is the node's own address, and kproxy.externalIPPolicy.nodeAddresses is not true";

function configText(policy: string): string {
  return `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clusterCIDR: 10.244.0.0/16,fd00:10:244::/56
iptables: { minSyncPeriod: 1ms }
kproxy: { ${policy} }
`;
}

e2eTest(
  "a tenant's Service takes foreign addresses until a policy comes, by an edit of the configuration file",
  [...WEB_NEEDS, program("curl")],
  async () => {
    await using web = await WebLab.create();
    await web.manifests.replace("evil.json", EVIL);
    const config = await Deno.makeTempFile({ prefix: "kproxy-config-", suffix: ".yaml" });
    await using _config = { [Symbol.asyncDispose]: () => Deno.remove(config) };
    await Deno.writeTextFile(config, configText(""));
    const { netns } = web.lab.node;
    await using kproxy = await KproxyProcess.start({
      netns,
      args: [`--config=${config}`, "--hostname-override=node-a", `--manifests=${web.manifests.folder}`],
    });
    const anew = (policy: string) => kproxy.anew(() => Deno.writeTextFile(config, configText(policy)));
    const victims = async (): Promise<readonly boolean[]> => {
      const answers = [await web.answering(TAKEN, 1_000), await web.answering(NODE_SSH, 1_000)];
      return answers.map((who) => who.includes(WEB_PODS[0]));
    };
    const status = () => new RunningKproxy(socketIn(netns.name)).status();

    assertEquals([await victims(), (await status()).unserved?.count], [[true, true], 0]);

    await anew("externalIPPolicy: { externalIPs: [203.0.113.0/24] }");
    assertEquals(await victims(), [false, false]);
    const { unserved } = await status();
    assertEquals(unserved, {
      count: 2,
      destinations: [
        { service: "evil/external", destination: `external IP ${TAKEN.ip}`, reason: NOT_IN },
        { service: "evil/external", destination: `external IP ${NODE_SSH.ip}`, reason: OWN },
      ],
    });
    await anew("externalIPPolicy: { externalIPs: [192.0.2.0/24], nodeAddresses: true }");
    assertEquals(await victims(), [false, true]);

    await anew("");
    assertEquals([await victims(), (await status()).unserved?.count], [[true, true], 0]);
    assertEquals((await kproxy.stop()).code, 0);
  },
);
