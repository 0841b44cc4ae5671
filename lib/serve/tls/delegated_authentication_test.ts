import { assertEquals } from "@std/assert";
import { recordingLog } from "../../../tests/support/recording_log.ts";
import { systemClock } from "../../kernel/clock.ts";
import type { HttpAnswer } from "../../source/kube/response.ts";
import type { WriteRequest } from "../../source/kube/kube_client.ts";
import type { Peer } from "../http_listener.ts";
import { authenticated, byTokens, type Verdict } from "./tls_serving.ts";
import { DelegatedAuthentication } from "./delegated_authentication.ts";
import { tokenHash } from "./serving_files.ts";

const PROMETHEUS = {
  authenticated: true,
  user: {
    username: "system:serviceaccount:monitoring:prometheus",
    uid: "u1",
    groups: ["system:authenticated"],
  },
};
const NO_END = new AbortController().signal;

function peerAt(address: string): Peer {
  return { family: "IPv4", address, isLoopback: false };
}

/** An API server that answers reviews by their kind; a text is an answer as it stands, an error none. */
class Reviewer {
  readonly server = "https://api.test";
  readonly asked: Record<string, unknown>[] = [];
  nowMs = 0;
  readonly lines: string[];
  readonly authentication: DelegatedAuthentication;

  constructor(readonly answers: Readonly<Record<string, unknown>>) {
    const { log, lines } = recordingLog();
    this.lines = lines;
    const clock = { ...systemClock, nowMs: () => this.nowMs };
    this.authentication = new DelegatedAuthentication({ client: this, log, clock });
  }

  send({ method, path, body }: WriteRequest): Promise<HttpAnswer> {
    const { kind, spec } = JSON.parse(body);
    this.asked.push({ [`${method} ${path}`]: spec });
    const answer = this.answers[kind];
    if (answer instanceof Error) return Promise.reject(answer);
    const { status = 201, text = JSON.stringify({ kind, status: answer }) } = typeof answer === "string"
      ? { text: answer }
      : typeof answer === "number"
      ? { status: answer, text: "{}" }
      : {};
    return Promise.resolve({
      status,
      retryAfterSeconds: null,
      contentType: "application/json",
      body: new Response(text).body!,
    });
  }

  judge(token: string, address = "10.0.0.1", path = "/metrics"): Promise<Verdict> {
    return Promise.resolve(this.authentication.judge({ token, verb: "get", path }, peerAt(address), NO_END));
  }
}

Deno.test("the API server says whose token it is, and whether that one may get the path", async () => {
  const reviewer = new Reviewer({ TokenReview: PROMETHEUS, SubjectAccessReview: { allowed: true } });
  assertEquals(await reviewer.judge("t1"), "allowed");
  const { username: user, uid, groups } = PROMETHEUS.user;
  assertEquals(reviewer.asked, [
    { "POST /apis/authentication.k8s.io/v1/tokenreviews": { token: "t1" } },
    {
      "POST /apis/authorization.k8s.io/v1/subjectaccessreviews": {
        ...{ user, uid, groups },
        nonResourceAttributes: { path: "/metrics", verb: "get" },
      },
    },
  ]);
});

Deno.test("what is not a clear yes is a no, whatever the API server answers", async () => {
  const allowed = { allowed: true };
  for (
    const [TokenReview, SubjectAccessReview, expected] of [
      [{ authenticated: false }, allowed, "unauthenticated"],
      [{ authenticated: "true", user: { username: "x" } }, allowed, "unauthenticated"],
      [{ authenticated: true }, allowed, "unauthenticated"],
      [{ error: "no" }, allowed, "unauthenticated"],
      [PROMETHEUS, { allowed: false }, "forbidden"],
      [PROMETHEUS, {}, "forbidden"],
      [PROMETHEUS, { allowed: "true" }, "forbidden"],
      [PROMETHEUS, { allowed: true, denied: true }, "forbidden"],
      [PROMETHEUS, null, "undecided"],
      [PROMETHEUS, 500, "undecided"],
      [PROMETHEUS, "<html>", "undecided"],
      [403, allowed, "undecided"],
      ["[]", allowed, "undecided"],
      ["x".repeat(300_000), allowed, "undecided"],
      [new Error("refused"), allowed, "undecided"],
    ] as const
  ) {
    const reviewer = new Reviewer({ TokenReview, SubjectAccessReview });
    assertEquals(await reviewer.judge("t1"), expected, JSON.stringify([TokenReview, SubjectAccessReview]));
    assertEquals(reviewer.lines.length, expected === "undecided" ? 1 : 0);
  }
});

Deno.test("an answer counts for 10 s, for its token and path alone; that there was none does not", async () => {
  const answers: Record<string, unknown> = {
    TokenReview: PROMETHEUS,
    SubjectAccessReview: { allowed: true },
  };
  const reviewer = new Reviewer(answers);
  const questions = async (work: () => Promise<Verdict>): Promise<[Verdict, number]> => {
    const before = reviewer.asked.length;
    return [await work(), reviewer.asked.length - before];
  };
  assertEquals(await questions(() => reviewer.judge("t1")), ["allowed", 2]);
  answers["SubjectAccessReview"] = { allowed: false };
  reviewer.nowMs = 9_999;
  assertEquals(await questions(() => reviewer.judge("t1")), ["allowed", 0]);
  assertEquals(await questions(() => reviewer.judge("t2")), ["forbidden", 2]);
  assertEquals(await questions(() => reviewer.judge("t1", "10.0.0.1", "/configz")), ["forbidden", 2]);
  reviewer.nowMs = 10_000;
  assertEquals(await questions(() => reviewer.judge("t1")), ["forbidden", 2]);
  reviewer.nowMs = 20_000;
  answers["TokenReview"] = 500;
  assertEquals(await questions(() => reviewer.judge("t1")), ["undecided", 1]);
  answers["TokenReview"] = PROMETHEUS;
  assertEquals(await questions(() => reviewer.judge("t1")), ["forbidden", 2]);
  assertEquals(reviewer.lines.length, 2);
});

Deno.test("who tries tokens asks the API server a bounded number of times, and keeps others from nothing", async () => {
  const reviewer = new Reviewer({ TokenReview: { authenticated: false } });
  const verdicts = new Set<Verdict>();
  for (let i = 0; i < 10_000; i++) verdicts.add(await reviewer.judge(`guess${i}`));
  assertEquals([reviewer.asked.length, [...verdicts]], [20, ["unauthenticated", "undecided"]]);
  assertEquals(await reviewer.judge("other", "10.0.0.2"), "unauthenticated");
  for (let i = 0; i < 10_000; i++) await reviewer.judge(`guess${i}`, `10.0.${i % 250}.9`);
  assertEquals(reviewer.asked.length, 200);
  reviewer.nowMs = 10_000;
  assertEquals(await reviewer.judge("other"), "unauthenticated");
});

Deno.test("only a token that counts gets the page, and the API server is not asked about what is no token", async () => {
  const refusals: string[] = [];
  const handler = authenticated(
    () => new Response("page"),
    byTokens(() => ["secret", "next"].map(tokenHash)),
    (reason) => refusals.push(reason),
  );
  const ask = async (authorization: string | null): Promise<[number, string | null]> => {
    const headers = authorization === null ? {} : { authorization };
    const request = new Request("http://localhost/metrics?x=1", { headers });
    const { status, headers: given } = await handler(request, peerAt("10.0.0.1"), NO_END);
    return [status, given.get("www-authenticate")];
  };
  for (const good of ["Bearer secret", "bearer  next"]) assertEquals(await ask(good), [200, null], good);
  const wrong = [
    null,
    "",
    "secret",
    "Bearer",
    "Bearer secre",
    "Bearer secrets",
    "Basic secret",
    "Bearer secret, Bearer x",
  ];
  for (const authorization of [...wrong, `Bearer ${"x".repeat(20_000)}`]) {
    assertEquals(await ask(authorization), [401, "Bearer"], String(authorization).slice(0, 30));
  }
  assertEquals(refusals.length, wrong.length + 1);
});
