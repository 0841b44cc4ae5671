import { assertEquals } from "@std/assert";
import type { Exec } from "./exec.ts";
import { RememberingExec } from "./remembering_exec.ts";

Deno.test(
  "a command is run once, unless it failed, has input or another environment",
  { permissions: "none" },
  async () => {
    const started: string[] = [];
    const exec: Exec = {
      run: (argv) => {
        started.push(argv.join(" "));
        const code = argv[0] === "busy" && started.length === 2 ? 4 : 0;
        return Promise.resolve({ code, stdout: `answer ${started.length}`, stderr: "" });
      },
    };
    const remembering = new RememberingExec(exec);
    assertEquals((await remembering.run(["save"])).stdout, "answer 1");
    assertEquals((await remembering.run(["busy"])).code, 4);
    assertEquals((await remembering.run(["save"])).stdout, "answer 1");
    assertEquals((await remembering.run(["busy"])).stdout, "answer 3");
    assertEquals((await remembering.run(["busy"])).stdout, "answer 3");
    assertEquals((await remembering.run(["save", "-t"])).stdout, "answer 4");
    assertEquals((await remembering.run(["save"], { stdin: "" })).stdout, "answer 5");
    assertEquals((await remembering.run(["save"], { env: { A: "1" } })).stdout, "answer 6");
    assertEquals(started, ["save", "busy", "busy", "save -t", "save", "save"]);
  },
);
