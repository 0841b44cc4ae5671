import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { ExecError } from "../../errors.ts";
import { type Exec, type ExecOptions, type ExecResult, OWN_PROGRAMS } from "../../kernel/exec.ts";
import { masterAccess } from "./api_access.ts";
import { CredentialReader, parseExecCredential } from "./credentials.ts";
import type { ClusterAccess } from "./kubeconfig.ts";
import { withFolder } from "../../../tests/support/temp_files.ts";

const VERSION = "client.authentication.k8s.io/v1";

const NO_SIGNAL = new AbortController().signal;

function access(fields: Partial<ClusterAccess>): ClusterAccess {
  return { ...masterAccess("https://h"), origin: "/etc/kubeconfig", ...fields };
}

Deno.test("a token file is read again within a minute, and at once when the server refuses the token", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/token`;
    let nowMs = 1000;
    const reader = new CredentialReader(access({ identity: { kind: "tokenFile", path } }), () => nowMs);
    const authorization = async () => (await reader.read(NO_SIGNAL)).authorization;
    await Deno.writeTextFile(path, "one\n");
    assertEquals(await authorization(), "Bearer one");
    await Deno.writeTextFile(path, "two\n");
    nowMs += 59_000;
    assertEquals(await authorization(), "Bearer one");
    nowMs += 1000;
    assertEquals(await authorization(), "Bearer two");
    await Deno.writeTextFile(path, "three");
    reader.invalidate();
    assertEquals(await authorization(), "Bearer three");
    // While the file is being replaced it may be empty.
    await Deno.writeTextFile(path, "");
    reader.invalidate();
    assertEquals(await authorization(), "Bearer three");
    await Deno.writeTextFile(path, "four");
    assertEquals(await authorization(), "Bearer four");
  });
});

Deno.test("a token file that is missing or empty at first is an error that names it", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/token`;
    const reader = new CredentialReader(access({ identity: { kind: "tokenFile", path } }), () => 0);
    await assertRejects(() => reader.read(NO_SIGNAL), Error, `Cannot read ${path}`);
    await Deno.writeTextFile(path, " \n");
    await assertRejects(() => reader.read(NO_SIGNAL), Error, `${path} holds no token`);
  });
});

Deno.test("certificates are read anew each time", async () => {
  await withFolder(async (folder) => {
    const [certificate, key, ca] = ["c", "k", "ca"].map((name) => `${folder}/${name}`) as [
      string,
      string,
      string,
    ];
    const pem = (label: string, body: string) =>
      `-----BEGIN ${label}-----\n${body}\n-----END ${label}-----\n`;
    const write = async (body: string): Promise<void> => {
      await Deno.writeTextFile(certificate, pem("CERTIFICATE", body));
      await Deno.writeTextFile(ca, `comment\n${pem("CERTIFICATE", body)}`);
      await Deno.writeTextFile(key, pem("EC PRIVATE KEY", body));
    };
    await write("old");
    const reader = new CredentialReader(
      access({
        certificateAuthority: { kind: "file", path: ca },
        clientCertificate: {
          certificate: { kind: "file", path: certificate },
          key: { kind: "file", path: key },
        },
      }),
      () => 0,
    );
    await reader.read(NO_SIGNAL);
    await write("new");
    assertEquals(await reader.read(NO_SIGNAL), {
      certificateAuthority: `comment\n${pem("CERTIFICATE", "new")}`,
      clientCertificate: { certificate: pem("CERTIFICATE", "new"), key: pem("EC PRIVATE KEY", "new") },
      authorization: null,
    });
    await Deno.writeTextFile(key, pem("CERTIFICATE", "x"));
    await assertRejects(() => reader.read(NO_SIGNAL), Error, `${key} holds no private key in PEM form`);
    await write("new");
    await Deno.writeTextFile(ca, "");
    await assertRejects(() => reader.read(NO_SIGNAL), Error, `${ca} holds no certificate in PEM form`);
  });
});

Deno.test("user name and password", { permissions: "none" }, async () => {
  const identity = { kind: "basic", username: "jürgen", password: "x:y" } as const;
  const { authorization } = await new CredentialReader(access({ identity }), () => 0).read(NO_SIGNAL);
  const bytes = Uint8Array.from(atob(authorization?.slice("Basic ".length) ?? ""), (c) => c.charCodeAt(0));
  assertEquals(new TextDecoder().decode(bytes), "jürgen:x:y");
});

/** Answers each run with the next result. */
class PluginExec implements Exec {
  readonly runs: { argv: readonly string[]; options: ExecOptions | undefined }[] = [];
  readonly #results: (ExecResult | Error)[];

  constructor(results: (ExecResult | Error)[]) {
    this.#results = results;
  }

  run(argv: readonly string[], options?: ExecOptions): Promise<ExecResult> {
    this.runs.push({ argv, options });
    const result = this.#results.shift();
    if (result === undefined) throw new Error("No more runs expected");
    return result instanceof Error ? Promise.reject(result) : Promise.resolve(result);
  }
}

function printed(status: unknown, rest = {}): ExecResult {
  return {
    code: 0,
    stdout: JSON.stringify({ kind: "ExecCredential", apiVersion: VERSION, status, ...rest }),
    stderr: "",
  };
}

function pluginReader(exec: Exec, fields = {}): CredentialReader {
  const plugin = {
    command: "login",
    args: ["now"],
    env: { REGION: "x" },
    apiVersion: VERSION,
    provideClusterInfo: false,
    clusterConfig: null,
    installHint: "",
    ...fields,
  };
  return new CredentialReader(access({ identity: { kind: "plugin", plugin } }), () => 0, exec);
}

Deno.test("a credential plugin runs once for many requests, again when its credential expires or is refused", async () => {
  const past = new Date(Date.now() - 1000).toISOString();
  const future = new Date(Date.now() + 60_000).toISOString();
  const exec = new PluginExec([
    printed({ token: "a", expirationTimestamp: past }),
    printed({ token: "b", expirationTimestamp: future }),
    printed({ clientCertificateData: "C", clientKeyData: "K" }),
  ]);
  const reader = pluginReader(exec, { provideClusterInfo: true });
  const [one, other] = await Promise.all([reader.read(NO_SIGNAL), reader.read(NO_SIGNAL)]);
  assertEquals([one.authorization, other.authorization], ["Bearer a", "Bearer a"]);
  assertEquals((await reader.read(NO_SIGNAL)).authorization, "Bearer b");
  assertEquals((await reader.read(NO_SIGNAL)).authorization, "Bearer b");
  reader.invalidate();
  assertEquals(await reader.read(NO_SIGNAL), {
    certificateAuthority: null,
    clientCertificate: { certificate: "C", key: "K" },
    authorization: null,
  });
  assertEquals(exec.runs.length, 3);
  assertEquals(exec.runs[0]?.argv, ["login", "now"]);
  const { KUBERNETES_EXEC_INFO: request = "", ...env } = exec.runs[0]?.options?.env ?? {};
  assertEquals(env, { REGION: "x" });
  assertEquals(JSON.parse(request), {
    kind: "ExecCredential",
    apiVersion: VERSION,
    spec: { interactive: false, cluster: { server: "https://h" } },
  });
});

Deno.test("a credential plugin that asks for the cluster is given what the kubeconfig holds for it", async () => {
  for (const provideClusterInfo of [true, false]) {
    const exec = new PluginExec([printed({ token: "a" })]);
    await pluginReader(exec, { provideClusterInfo, clusterConfig: { audience: "prod" } }).read(NO_SIGNAL);
    const { spec } = JSON.parse(exec.runs[0]?.options?.env?.["KUBERNETES_EXEC_INFO"] ?? "");
    const cluster = { server: "https://h", config: { audience: "prod" } };
    assertEquals(spec, { interactive: false, ...(provideClusterInfo ? { cluster } : {}) });
  }
});

Deno.test("a credential plugin that is not installed says how it is", async () => {
  const missing = new ExecError(["login"], -1, "x", { cause: new Deno.errors.NotFound("x") });
  await assertRejects(
    () => pluginReader(new PluginExec([missing]), { installHint: "apt install login" }).read(NO_SIGNAL),
    Error,
    'Credential plugin "login" of /etc/kubeconfig: is not installed: apt install login',
  );
});

Deno.test("what goes wrong with a credential plugin", async () => {
  const capable = new ExecError(["login", "secret"], -1, "x", {
    cause: new Deno.errors.NotCapable("no run access"),
  });
  const missing = new ExecError(["login"], -1, "x", { cause: new Deno.errors.NotFound("x") });
  const cases: readonly [ExecResult | Error, string][] = [
    [
      capable,
      "is not among the programs kproxy may start (docs/permissions.md); it needs a grant of its own: --allow-run=login",
    ],
    [missing, "is not installed"],
    [{ code: 3, stdout: "secret", stderr: "no session\nmore" }, "ended with status 3: no session"],
    [{ code: 0, stdout: "secret", stderr: "" }, "prints something else than JSON"],
    [printed({}), "must print a token, or clientCertificateData and clientKeyData"],
    [printed({ token: "secret" }, { apiVersion: "v2" }), `must print an ExecCredential of ${VERSION}`],
    [printed({ token: { x: "secret" } }), "prints token that cannot be read"],
    [printed("secret"), "prints status that cannot be read"],
    [printed({ token: "secret", expirationTimestamp: "soon" }), "an expirationTimestamp that is no time"],
  ];
  for (const [result, message] of cases) {
    const error = await assertRejects(
      () => pluginReader(new PluginExec([result])).read(NO_SIGNAL),
      Error,
      `Credential plugin "login" of /etc/kubeconfig: `,
    );
    assert(error.message.includes(message), error.message);
    assertEquals(error.message.includes("secret"), false, error.message);
  }
});

Deno.test("what kproxy starts for its own work is never started for credentials, by whatever path", async () => {
  const own = [...OWN_PROGRAMS, "/sbin/ip", "/nowhere/ip", "./../bin/nft"];
  for (const command of own) {
    const exec = new PluginExec([]);
    const error = await assertRejects(
      () => pluginReader(exec, { command, args: ["netns", "exec", "x", "sh"] }).read(NO_SIGNAL),
      Error,
      `Credential plugin "${command}" of /etc/kubeconfig: is the program `,
    );
    assert(error.message.includes("docs/permissions.md"), error.message);
    assertEquals(exec.runs, []);
  }
  for (const command of ["/opt/login", "ip-login", "ip/login"]) {
    const exec = new PluginExec([printed({ token: "t" })]);
    await pluginReader(exec, { command }).read(NO_SIGNAL);
    assertEquals(exec.runs.length, 1, command);
  }
});

Deno.test("the runtime starts a program by the path that was granted, not by another one that leads to it", async () => {
  await withFolder(async (folder) => {
    const [granted, link, hardLink] = [`${folder}/granted`, `${folder}/link`, `${folder}/hard`];
    await Deno.writeTextFile(granted, "#!/bin/sh\n", { mode: 0o755 });
    await Deno.symlink(granted, link);
    await Deno.link(granted, hardLink);
    const script = `for (const path of Deno.args) {
      try {
        new Deno.Command(path).outputSync();
        console.log("started");
      } catch (error) {
        console.log(error.name);
      }
    }`;
    await Deno.writeTextFile(`${folder}/start.ts`, script);
    const { stdout } = await new Deno.Command(Deno.execPath(), {
      args: [
        "run",
        "-q",
        "--no-prompt",
        `--allow-run=${granted}`,
        `${folder}/start.ts`,
        granted,
        link,
        hardLink,
      ],
    }).output();
    assertEquals(new TextDecoder().decode(stdout).trim().split("\n"), [
      "started",
      "NotCapable",
      "NotCapable",
    ]);
  });
});

Deno.test("a credential without a time does not expire", { permissions: "none" }, () => {
  assertEquals(parseExecCredential(printed({ token: "t" }).stdout, VERSION).expiresMs, Infinity);
  assertThrows(() => parseExecCredential("5", VERSION), Error, "prints its output that cannot be read");
});

Deno.test("reading credentials ends with its signal, whatever hangs", async () => {
  await withFolder(async (folder) => {
    const hanging: Exec = {
      run: (_argv, { signal } = {}) =>
        new Promise((_resolve, reject) => {
          if (signal?.aborted) return reject(signal.reason);
          signal?.addEventListener("abort", () => reject(signal.reason));
        }),
    };
    const reader = pluginReader(hanging);
    const [one, other] = [new AbortController(), new AbortController()];
    const readings = [reader.read(one.signal), reader.read(other.signal)];
    one.abort(new Error("the one gave up"));
    await assertRejects(() => readings[0]!, Error, "the one gave up");
    // The plugin goes on for the other one, until it is not needed any more.
    reader.close();
    await assertRejects(() => readings[1]!, Error, 'Credential plugin "login"');
    const path = `${folder}/pipe`;
    const { success } = await new Deno.Command("mkfifo", { args: [path] }).output();
    assert(success);
    const piped = new CredentialReader(access({ identity: { kind: "tokenFile", path } }), () => 0);
    const error = await assertRejects(() => piped.read(NO_SIGNAL), Error, `Cannot read ${path}`);
    assertEquals((error.cause as Error).message, "it is not a regular file");
    const aborted = AbortSignal.abort(new Error("over"));
    await Deno.writeTextFile(`${folder}/token`, "t");
    const plain = new CredentialReader(
      access({ identity: { kind: "tokenFile", path: `${folder}/token` } }),
      () => 0,
    );
    await assertRejects(() => plain.read(aborted), Error, "over");
  });
});
