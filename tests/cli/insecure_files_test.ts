/**
 * Files that others may write, in the hands of root and of a user; and credentials that go where all can read them.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { ListWatchServer } from "../support/list_watch_server.ts";
import { putWeb } from "../support/kube_fixture.ts";
import { kubeconfigText } from "../support/kubeconfig_text.ts";
import { service } from "../flows/objects.ts";
import { inFolder, kproxy, type Run } from "./kproxy.ts";

const IS_ROOT = Deno.uid() === 0;
const CONFIG = configText({});
const OBJECTS = JSON.stringify({
  apiVersion: "v1",
  kind: "List",
  items: [service("shop/web", { clusterIP: "10.96.0.1", ports: ["http:80"] })],
});

function configText(serving: Readonly<Record<string, string>>): string {
  return JSON.stringify({
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    kproxy: { serving },
  });
}

/** `kproxy doctor` goes by the same files as `run`, and writes nothing. */
function doctor(folder: string, ...flags: readonly string[]): Promise<Run> {
  return kproxy([
    "doctor",
    "-o=json",
    `--config=${folder}/config.yaml`,
    `--manifests=${folder}/manifests`,
    ...flags,
  ]);
}

async function inSoundFolder(work: (folder: string) => Promise<void>): Promise<void> {
  await inFolder({ "token": "t0ken" }, async (folder) => {
    const pair = { tlsCertFile: `${folder}/tls.crt`, tlsPrivateKeyFile: `${folder}/tls.key` };
    const config = configText({ ...pair, bearerTokenFile: `${folder}/token` });
    await Deno.writeTextFile(`${folder}/config.yaml`, config);
    await Deno.mkdir(`${folder}/manifests`);
    await Deno.writeTextFile(`${folder}/manifests/objects.json`, OBJECTS);
    await work(folder);
  });
}

/** What each attacker may write, and what is said of it. */
const ATTACKS: readonly (readonly [what: string, path: string, mode: number])[] = [
  ["the configuration", "config.yaml", 0o666],
  ["the folder of manifests", "manifests", 0o777],
  ["the tokens that get metrics", "token", 0o666],
  ["the folder that all of it is in", ".", 0o777],
];

Deno.test("as root nothing is gone by that others may write, unless that is allowed", async () => {
  for (const [what, path, mode] of ATTACKS) {
    await inSoundFolder(async (folder) => {
      await Deno.chmod(`${folder}/${path}`, mode);
      const words = `may be written by others (mode 0${
        mode.toString(8)
      }), so that others decide what kproxy does`;
      const run = await doctor(folder);
      assertEquals(run.code === 2, IS_ROOT, `${what}: ${run.err}`);
      if (IS_ROOT) {
        assertStringIncludes(run.err, words, what);
        assertStringIncludes(run.err, "--allow-insecure-files", what);
      }
      const allowed = await doctor(folder, "--allow-insecure-files");
      assert(allowed.code < 2, allowed.err);
      assertStringIncludes(allowed.out, words, what);
    });
  }
});

Deno.test("files of root's or one's own are gone by, also as the kubelet mounts them and through pipes", async () => {
  await inSoundFolder(async (folder) => {
    const sound = await doctor(folder);
    assert(sound.code < 2, sound.err);
    assert(!sound.out.includes("written by others"), sound.out);
    // A ConfigMap as the kubelet mounts it.
    await Deno.mkdir(`${folder}/volume/..2026_11_24`, { recursive: true });
    await Deno.chmod(`${folder}/volume`, 0o777);
    await Deno.writeTextFile(`${folder}/volume/..2026_11_24/config.yaml`, CONFIG);
    await Deno.symlink("..2026_11_24", `${folder}/volume/..data`);
    await Deno.symlink("..data/config.yaml", `${folder}/volume/config.yaml`);
    const mounted = await kproxy(["doctor", "-o=json", `--config=${folder}/volume/config.yaml`]);
    assert(mounted.code < 2, mounted.err);
    assert(!mounted.out.includes("written by others"), mounted.out);
    await new Deno.Command("mkfifo", { args: [`${folder}/pipe`] }).output();
    const piped = kproxy(["doctor", "-o=json", `--config=${folder}/pipe`]);
    await Deno.writeTextFile(`${folder}/pipe`, CONFIG);
    assert((await piped).code < 2, (await piped).err);
  });
});

Deno.test("as root no kubeconfig counts that others may write, nor one that names a file or program of others", async () => {
  const plugin = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: "./plugin",
    interactiveMode: "Never",
  };
  for (
    const [path, user] of [
      ["kubeconfig", {}],
      ["token", { tokenFile: "token" }],
      ["plugin", { exec: plugin }],
    ] as const
  ) {
    await inSoundFolder(async (folder) => {
      await Deno.writeTextFile(
        `${folder}/kubeconfig`,
        kubeconfigText({ cluster: { server: "https://127.0.0.1:1" }, user }),
      );
      await Deno.writeTextFile(`${folder}/plugin`, "#!/bin/true\n");
      await Deno.chmod(`${folder}/${path}`, 0o777);
      const { code, err } = await kproxy([
        "service",
        "list",
        `--kubeconfig=${folder}/kubeconfig`,
        "--proxy-mode=iptables",
      ]);
      assertEquals(code === 2, IS_ROOT, `${path}: ${err}`);
      assertMatch(err, new RegExp(`${folder}/${path} may be written by others \\(mode 0777\\)`));
    });
  }
});

Deno.test("credentials over plain HTTP are warned of once, with the names of user and cluster; without any nothing is said", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  for (
    const [user, words] of [
      [{ token: "t0ken" }, `a token goes to ${server.url} over plain HTTP`],
      [{ username: "u", password: "p" }, `a password goes to ${server.url} over plain HTTP`],
      [{}, null],
    ] as const
  ) {
    await inFolder(
      { kubeconfig: kubeconfigText({ cluster: { server: server.url }, user }) },
      async (folder) => {
        const { code, err } = await kproxy([
          "service",
          "list",
          `--kubeconfig=${folder}/kubeconfig`,
          "--proxy-mode=iptables",
        ]);
        assert(code < 2, err);
        assertEquals(err.split("plain HTTP").length - 1, words === null ? 0 : 1, err);
        if (words === null) return;
        assertStringIncludes(err, words);
        assertStringIncludes(err, `user "u" and cluster "c" of ${folder}/kubeconfig`);
      },
    );
  }
});

Deno.test("a token for a server that is not verified is warned of; without a token, and verified, nothing is said", async () => {
  const server = "https://127.0.0.1:1";
  const [token, skip] = [{ token: "t0ken" }, { "insecure-skip-tls-verify": true }];
  const words = `a token goes to ${server} without a look at its certificate (insecure-skip-tls-verify)`;
  for (
    const [cluster, user, isSaid] of [[skip, token, true], [skip, {}, false], [{}, token, false]] as const
  ) {
    const kubeconfig = kubeconfigText({ cluster: { server, ...cluster }, user });
    await inFolder({ kubeconfig }, async (folder) => {
      const { err } = await kproxy([
        ...["service", "list", `--kubeconfig=${folder}/kubeconfig`, "--proxy-mode=iptables"],
      ]);
      assertEquals(err.includes(words), isSaid, err);
      assertEquals(err.includes("without a look"), isSaid, err);
    });
  }
});

Deno.test("a secret that every user can read is warned of, and one that only its owner can is not", async () => {
  await inFolder({ token: "t0ken" }, async (folder) => {
    await Deno.writeTextFile(
      `${folder}/kubeconfig`,
      kubeconfigText({ cluster: { server: "https://127.0.0.1:1" }, user: { tokenFile: "token" } }),
    );
    const list = (): Promise<Run> =>
      kproxy(["service", "list", `--kubeconfig=${folder}/kubeconfig`, "--proxy-mode=iptables"]);
    const words = `${folder}/token: holds credentials, and every user of this machine can read it`;
    assert(!(await list()).err.includes(words), "the folder keeps others out");
    await Deno.chmod(folder, 0o755);
    assertStringIncludes((await list()).err, words);
    await Deno.chmod(`${folder}/token`, 0o600);
    assert(!(await list()).err.includes(words));
  });
});
