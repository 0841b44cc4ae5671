/**
 * `kproxy run` as root with files that others may write: at the start, when the configuration changes, and when manifests come.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { service } from "../flows/objects.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { withFolder } from "../support/temp_files.ts";

const OPENED = "Service port is open";

function configText(manifests: string, verbosity = 2): string {
  return JSON.stringify({
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode: "userspace",
    logging: { format: "json", verbosity },
    kproxy: { manifests: [manifests], userspaceListen: ["127.0.0.0/8"] },
  });
}

function listText(name: string, clusterIP: string): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "List",
    items: [service(`shop/${name}`, { clusterIP, ports: ["http:80"] })],
  });
}

e2eTest(
  "root's kproxy starts with nothing that others may write, takes no change of it and no manifest; the flag allows all",
  [ROOT_NAMESPACES, program("ip")],
  () =>
    withNetns((netns) =>
      withFolder(async (folder) => {
        const [config, manifests] = [`${folder}/config.json`, `${folder}/manifests`];
        await Deno.mkdir(manifests);
        await Deno.writeTextFile(`${manifests}/web.json`, listText("web", "10.96.0.10"));
        await Deno.writeTextFile(config, configText(manifests));
        const spawn = (...more: string[]): KproxyProcess =>
          KproxyProcess.spawn({ netns, verbosity: null, args: [`--config=${config}`, ...more] });

        await Deno.chmod(config, 0o666);
        {
          await using refused = spawn();
          assertEquals((await refused.ended()).code, 2);
          assertStringIncludes(refused.log, `${config} may be written by others (mode 0666)`);
          await using allowed = spawn("--allow-insecure-files");
          await allowed.untilMessage(OPENED);
          assertStringIncludes(allowed.log, `${config} may be written by others (mode 0666)`);
        }

        await Deno.chmod(config, 0o644);
        await using kproxy = spawn();
        await kproxy.untilMessage(OPENED);
        assert(!kproxy.log.includes("written by others"), kproxy.log);
        // What others put among the manifests is ignored; root's files count.
        await Deno.writeTextFile(`${manifests}/evil.json`, listText("evil", "10.96.0.11"));
        await Deno.chmod(`${manifests}/evil.json`, 0o666);
        await kproxy.untilMessage("Object refused");
        await Deno.writeTextFile(`${manifests}/good.json`, listText("good", "10.96.0.12"));
        await kproxy.until(
          "the good one",
          (lines) => lines.some(({ servicePort }) => servicePort === "shop/good:http"),
        );
        const refusal = kproxy.lines.find(({ msg }) => msg === "Object refused");
        assertStringIncludes(String(refusal?.["err"]), "may be written by others (mode 0666)");

        await Deno.chmod(config, 0o666);
        await Deno.writeTextFile(config, configText(manifests, 3));
        await kproxy.untilMessage("Changed configuration refused, the former one stays in force");
        assertEquals(kproxy.status, undefined);
      })
    ),
);
