import { assertEquals, assertStringIncludes } from "@std/assert";
import type { Job } from "../../lib/inspect/selftest/agent.ts";
import { steadyPorts } from "../support/steady_ports.ts";
import { inFolder, kproxy, kproxyArgv } from "./kproxy.ts";

Deno.test("selftest tells wrong use in one line", async () => {
  const cases = [
    [["--time-limit=10ms"], "--time-limit is too short: 1s is the least"],
    [["now"], '"kproxy selftest" does not take any arguments, got ["now"]'],
    [["-o", "yaml"], 'Invalid value "yaml" for -o: want text or json'],
    [["agent"], '"kproxy selftest agent" is what kproxy selftest starts itself; there is no job for it here'],
  ] as const;
  for (const [args, wanted] of cases) {
    const { code, out, err } = await kproxy(["selftest", ...args], { stdin: "" });
    assertEquals([code, out, err], [2, "", `Error: ${wanted}\n`]);
  }
});

Deno.test("a job that is handed to the agent on a machine at work writes no rule there", async () => {
  const job = JSON.stringify({ job: "apply", mode: "iptables", families: ["IPv4"], objects: [] });
  const { code, out, err } = await kproxy(["selftest", "agent"], { stdin: job });
  assertEquals([code, out], [1, ""]);
  assertStringIncludes(err, "needs the node of a kproxy selftest, found another machine");
});

Deno.test("without the right to make namespaces selftest says so in one line", async () => {
  await inFolder({}, async (folder) => {
    const refuses =
      '#!/bin/sh\n[ "$2" = list ] || { echo "mkdir /run/netns failed: Permission denied" >&2; exit 1; }\n';
    await Deno.writeTextFile(`${folder}/ip`, refuses, { mode: 0o755 });
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: [...kproxyArgv(), "selftest"],
      env: { PATH: `${folder}:${Deno.env.get("PATH")}` },
      stdin: "null",
    }).output();
    const [out, err] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
    const wanted =
      "Error: selftest needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, to make network namespaces: " +
      "mkdir /run/netns failed: Permission denied\n";
    assertEquals([code, out, err], [1, "", wanted]);
  });
});

Deno.test("the agent's servers tell who asks, and its questions tell answers, refusals and silence apart", async () => {
  using silent = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const port = steadyPorts();
  const wish = { ip: "127.0.0.1", port } as const;
  const serve: Job = {
    job: "serve",
    servers: [{ ...wish, protocol: "tcp" }, { ...wish, protocol: "udp" }],
    lifeMs: 300_000,
  };
  const question = { ...wish, protocol: "tcp", limitMs: 60_000, count: 3 } as const;
  const ask = async (job: Job): Promise<unknown> => {
    const { code, out, err } = await kproxy(["selftest", "agent"], { stdin: JSON.stringify(job) });
    assertEquals([code, err], [0, ""]);
    return JSON.parse(out).attempts;
  };
  const refused = { kind: "refused" };
  assertEquals(await ask({ job: "ask", questions: [{ ...question, id: "a" }] }), {
    a: [refused, refused, refused],
  });
  const child = new Deno.Command(Deno.execPath(), {
    args: [...kproxyArgv(), "selftest", "agent"],
    stdin: "piped",
    stdout: "piped",
  }).spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(JSON.stringify(serve)));
  await writer.close();
  const reader = child.stdout.getReader();
  assertEquals(new TextDecoder().decode((await reader.read()).value), "ready\n");
  const attempts = await ask({
    job: "ask",
    questions: [
      { ...question, id: "tcp" },
      { ...question, id: "udp", protocol: "udp" },
      { ...question, id: "silent", port: silent.addr.port, limitMs: 200 },
    ],
  });
  const answer = { kind: "answer", server: `127.0.0.1:${port}`, client: "127.0.0.1" };
  const all = [answer, answer, answer];
  assertEquals(attempts, { tcp: all, udp: all, silent: [{ kind: "silence" }] });
  // A reader that is gone ends the servers, too.
  await reader.cancel();
  assertEquals((await child.status).code, 0);
});
