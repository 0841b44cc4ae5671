/**
 * An API server without objects that answers TokenReviews and SubjectAccessReviews, in a network namespace: a token is the name of its
 * user. Started as a program, it serves by its one argument.
 *
 * @module
 */
import { ROOT } from "../../tools/project_files.ts";
import type { Netns } from "./netns.ts";

/** Users with the paths that they may GET. */
export type Grants = Readonly<Record<string, readonly string[]>>;

const PORT = 18443;

/** The API server; see the module. */
export class FakeReviews implements AsyncDisposable {
  readonly url = `http://127.0.0.1:${PORT}`;
  readonly #child: Deno.ChildProcess;
  #hasEnded = false;

  private constructor(child: Deno.ChildProcess) {
    this.#child = child;
  }

  static async start(netns: Netns, grants: Grants): Promise<FakeReviews> {
    const child = new Deno.Command("ip", {
      args: [
        ...["netns", "exec", netns.name, Deno.execPath(), "run", "-q", `--config=${ROOT}/deno.json`],
        ...["--allow-net", import.meta.filename!, JSON.stringify(grants)],
      ],
      stdin: "null",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    const reader = child.stdout.getReader();
    await reader.read();
    await reader.cancel();
    return new FakeReviews(child);
  }

  async stop(): Promise<void> {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#child.kill("SIGKILL");
    await this.#child.status;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

async function answer(grants: Grants, request: Request): Promise<Response> {
  const { pathname, searchParams } = new URL(request.url);
  if (request.method === "POST") {
    const { kind, spec } = await request.json();
    if (kind === "TokenReview") {
      const isKnown = spec.token in grants;
      const status = isKnown
        ? { authenticated: true, user: { username: spec.token } }
        : { authenticated: false };
      return Response.json({ kind, status }, { status: 201 });
    }
    if (kind === "SubjectAccessReview") {
      const { path, verb } = spec.nonResourceAttributes;
      const allowed = verb === "get" && grants[spec.user]?.includes(path) === true;
      return Response.json({ kind, status: { allowed } }, { status: 201 });
    }
    return Response.json({ kind: "Status", code: 403 }, { status: 403 });
  }
  // Watches end at once, and are requested again.
  if (searchParams.has("watch")) return new Response(new ReadableStream({}));
  const kind = `${pathname.split("/").at(-1)}List`;
  return Response.json({ kind, apiVersion: "v1", metadata: { resourceVersion: "1" }, items: [] });
}

if (import.meta.main) {
  const grants = JSON.parse(Deno.args[0] ?? "{}");
  Deno.serve({
    hostname: "127.0.0.1",
    port: PORT,
    onListen: () => {
      Deno.stdout.writeSync(new TextEncoder().encode("ready\n"));
    },
  }, (request) => answer(grants, request));
}
