import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { OWN_PROGRAMS } from "../../lib/kernel/exec.ts";
import { inFolder, kproxyArgv, type Run } from "./kproxy.ts";

/** What must be in no dump, in no form. */
const SECRETS = {
  token: "kubeconfig-token-7f3a9c51d2",
  password: "correct-horse-battery-staple",
  key: "MHcCAQEEIKtestkeytestkeytestkeytestkeytestkey",
  fromEnvironment: "environment-secret-0815-4711",
  inFlag: "master-password-in-a-flag",
};

const encode = (text: string): string => btoa(text);

const KUBECONFIG = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users:
- name: u
  user:
    token: ${SECRETS.token}
    username: admin
    password: ${SECRETS.password}
    client-key-data: ${
  encode(`-----BEGIN EC PRIVATE KEY-----\n${SECRETS.key}\n-----END EC PRIVATE KEY-----\n`)
}
`;

/** Programs on a PATH of their own, so that nothing of this machine is read. */
async function makePrograms(folder: string): Promise<void> {
  await Deno.mkdir(`${folder}/bin`);
  for (const name of OWN_PROGRAMS) {
    if (name === "ipvsadm") continue;
    const text = name === "nft"
      ? "#!/bin/sh\necho 'table ip kproxy {'\necho 'cut off' >&2\nexit 1\n"
      : `#!/bin/sh\necho "${name} printed this: $*"\n`;
    await Deno.writeTextFile(`${folder}/bin/${name}`, text, { mode: 0o755 });
  }
}

async function sysdump(
  folder: string,
  args: readonly string[],
): Promise<Run & { readonly bytes: Uint8Array }> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [...kproxyArgv(), "sysdump", ...args],
    env: { PATH: `${folder}/bin`, KUBECONFIG: `${folder}/kubeconfig`, SECRET: SECRETS.fromEnvironment },
    stdin: "null",
  }).output();
  return { code, bytes: stdout, out: "", err: new TextDecoder().decode(stderr) };
}

async function unpacked(bytes: Uint8Array<ArrayBuffer>): Promise<ReadonlyMap<string, string>> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const tar = new Uint8Array(await new Response(stream).arrayBuffer());
  const text = (from: number, to: number): string => new TextDecoder().decode(tar.subarray(from, to));
  const files = new Map<string, string>();
  for (let at = 0; tar[at] !== 0;) {
    const name = text(at, at + 100).replace(/\0.*$/s, "");
    const size = Number.parseInt(text(at + 124, at + 135), 8);
    files.set(name.replace(/^[^/]*\//, ""), text(at + 512, at + 512 + size));
    at += 512 + Math.ceil(size / 512) * 512;
  }
  return files;
}

/** The secret as it is, and as it reads in base64 wherever it begins. */
function forms(secret: string): readonly string[] {
  const encoded = ["", "x", "xx"].map((before) => encode(before + secret).slice(4, -4));
  return [secret, ...encoded, ...encoded.map((text) => text.replaceAll("+", "-").replaceAll("/", "_"))];
}

Deno.test("a dump beside a kubeconfig has rules, pages and settings in it, and no secret in any form", async () => {
  const pages: Readonly<Record<string, string>> = {
    "/metrics": "kubeproxy_up 1\n",
    "/flagz": `master=https://admin:${SECRETS.inFlag}@127.0.0.1:1\nbearer-token=${SECRETS.token}\n`,
    "/statusz":
      `last error: Authorization: Bearer ${SECRETS.token} was refused, password=${SECRETS.password}\n` +
      `-----BEGIN EC PRIVATE KEY-----\n${SECRETS.key}\n-----END EC PRIVATE KEY-----\n`,
  };
  await using server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, (request) => {
    const page = pages[new URL(request.url).pathname];
    return new Response(page ?? "404 page not found\n", { status: page === undefined ? 404 : 200 });
  });
  const config = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
healthzBindAddress: 127.0.0.1:1
metricsBindAddress: 127.0.0.1:${server.addr.port}
clientConnection: { kubeconfig: KUBECONFIG }
kproxy: { socket: /run/nowhere/kproxy.sock }
`;
  await inFolder({ kubeconfig: KUBECONFIG }, async (folder) => {
    await makePrograms(folder);
    await Deno.writeTextFile(`${folder}/config`, config.replace("KUBECONFIG", `${folder}/kubeconfig`));
    const target = `${folder}/dump.tar.gz`;
    const { code, err } = await sysdump(folder, [target, `--config=${folder}/config`]);
    assertEquals(code, 0, err);
    assertEquals((await Deno.stat(target)).mode! & 0o777, 0o600);
    const files = await unpacked(await Deno.readFile(target));
    assertEquals(files.get("rules/iptables-save.txt"), "iptables-save printed this: -c\n");
    assertEquals(files.get("rules/nft-ruleset.txt"), "table ip kproxy {\n");
    assertEquals(files.get("network/routes-ipv6.json"), "ip printed this: -json -6 route show table all\n");
    assertStringIncludes(files.get("configuration/effective.yaml") ?? "", "mode: nftables");
    assertStringIncludes(files.get("configuration/effective.yaml") ?? "", `${folder}/kubeconfig`);
    assertEquals(files.get("running/metrics.txt"), "kubeproxy_up 1\n");
    assertStringIncludes(files.get("running/flagz.txt") ?? "", "master=https://[removed]@127.0.0.1:1");
    const { parts } = JSON.parse(files.get("parts.json") ?? "") as {
      parts: readonly { readonly name: string; readonly problem: string; readonly bytes: number | null }[];
    };
    const problem = (name: string): string =>
      parts.find((part) => part.name === name)?.problem ?? "not listed";
    assertStringIncludes(problem("rules/nft-ruleset.txt"), "cut off");
    assertStringIncludes(problem("rules/ipvsadm.txt"), "ipvsadm");
    assertStringIncludes(problem("running/status.json"), "No such file or directory");
    assertEquals(parts.filter(({ bytes }) => bytes === null).map(({ name }) => name), [
      "running/status.json",
      "running/configuration.json",
      "running/objects.json",
      "running/healthz.json",
      "running/livez.json",
      "running/readyz.json",
      "rules/ipvsadm.txt",
      "versions/ipvsadm.txt",
    ]);
    assertStringIncludes(
      err,
      "Note: running/healthz.json, running/livez.json, running/readyz.json: Connection refused",
    );
    assertStringIncludes(err, "Note: rules/ipvsadm.txt: ");
    const whole = [...files].flat().join("\n");
    for (const [kind, secret] of Object.entries(SECRETS)) {
      for (const form of forms(secret)) assert(!whole.includes(form), `${kind} is in the dump as ${form}`);
    }
  });
});

Deno.test("what is there already stays as it is, a link, too, and other names are refused", async () => {
  await inFolder({ "old.tar.gz": "mine", "other": "yours" }, async (folder) => {
    await makePrograms(folder);
    await Deno.symlink(`${folder}/other`, `${folder}/link.tgz`);
    await Deno.symlink(`${folder}/nowhere`, `${folder}/dangling.tar`);
    const quiet = ["--metrics-bind-address=127.0.0.1:1", "--socket="];
    for (const name of ["old.tar.gz", "link.tgz", "dangling.tar"]) {
      const { code, err } = await sysdump(folder, [`${folder}/${name}`, ...quiet]);
      assertEquals([code, err], [2, `Error: ${folder}/${name} is there already; sysdump replaces nothing\n`]);
    }
    assertEquals(await Deno.readTextFile(`${folder}/old.tar.gz`), "mine");
    assertEquals(await Deno.readTextFile(`${folder}/other`), "yours");
    const names = [...Deno.readDirSync(folder)].map(({ name }) => name);
    assert(!names.includes("nowhere"));
    for (
      const [args, wanted] of [[[], "needs a file"], [
        [`${folder}/x.zip`],
        "must end in .tar.gz, .tgz or .tar",
      ]] as const
    ) {
      const { code, err } = await sysdump(folder, args);
      assertEquals(code, 2);
      assertStringIncludes(err, wanted);
    }
    const nowhere = await sysdump(folder, [`${folder}/no/such/folder/a.tar`, ...quiet]);
    assertEquals(nowhere.code, 1);
    const target = `${folder}/no/such/folder/a.tar`;
    assertEquals(nowhere.err, `Error: Cannot write "${target}": No such file or directory (os error 2)\n`);
  });
});

Deno.test("- is standard output, compressed, with nothing else on it", async () => {
  await inFolder({}, async (folder) => {
    await makePrograms(folder);
    const { code, bytes, err } = await sysdump(folder, [
      "-",
      "--metrics-bind-address=127.0.0.1:1",
      "--socket=",
    ]);
    const files = await unpacked(Uint8Array.from(bytes));
    assertEquals([code, files.has("parts.json"), files.has("running/metrics.txt")], [0, true, false]);
    assertStringIncludes(err, "running/metrics.txt");
  });
});
