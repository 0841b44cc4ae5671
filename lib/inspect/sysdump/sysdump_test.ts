import { startWork } from "../../../tests/support/spent.ts";
import { ExecError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import {
  type Part,
  type PartOutcome,
  programPart,
  readPart,
  sysdump,
  tarEnd,
  tarPieces,
  textPart,
  withoutSecrets,
} from "./sysdump.ts";
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";

const LIMITS = { timeMs: 1_000, bytes: 100, signal: new AbortController().signal };
const encoder = new TextEncoder();

/** A program that prints these pieces, and then ends as given. */
function printing(pieces: readonly string[], end: () => Promise<{ code: number; stderr: string }>): Exec {
  return {
    async run(_, { onStdout, signal } = {}) {
      for (const piece of pieces) {
        signal?.throwIfAborted();
        onStdout?.(encoder.encode(piece));
      }
      signal?.throwIfAborted();
      return { stdout: "", ...await end() };
    },
  };
}

const well = () => Promise.resolve({ code: 0, stderr: "" });

function shown({ bytes, problem }: PartOutcome): readonly [string | null, string] {
  return [bytes === null ? null : new TextDecoder().decode(bytes), problem];
}

Deno.test("a program's output is a part, as far as there is one", async () => {
  const fails = () => Promise.resolve({ code: 3, stderr: "not allowed\n" });
  const hangs = () => Promise.reject(new ExecError(["nft"], 143, "", { timedOutMs: 10_000 }));
  const missing = () => Promise.reject(new ExecError(["nft"], -1, "entity not found"));
  const cases: readonly (readonly [Exec, string | null, string])[] = [
    [printing(["a", "b"], well), "ab", ""],
    [printing([], well), "", ""],
    [printing([], fails), null, 'Command "nft list" failed with status 3: not allowed'],
    [printing(["half"], fails), "half", 'Command "nft list" failed with status 3: not allowed'],
    [printing(["half"], hangs), "half", 'Command "nft" timed out after 10 s'],
    [printing([], hangs), null, 'Command "nft" timed out after 10 s'],
    [printing([], missing), null, 'Command "nft" failed with status -1: entity not found'],
    [
      printing(Array.from({ length: 1_000 }, () => "x".repeat(30)), well),
      "x".repeat(100),
      "it is longer than 100 bytes, and cut there",
    ],
    [printing(["x".repeat(100)], well), "x".repeat(100), ""],
  ];
  for (const [exec, text, problem] of cases) {
    const outcome = await readPart(programPart("rules/a.txt", ["nft", "list"], exec), LIMITS, () => 0);
    assertEquals(shown(outcome), [text, problem]);
  }
});

Deno.test("rules are packed as they are, whatever their Services are called", async () => {
  const rule = '-A KUBE-SERVICES -m comment --comment "shop/token:password=x" -j KUBE-SVC-A\n';
  const part = programPart("a", ["iptables-save"], printing([rule], well));
  assertEquals(shown(await readPart(part, LIMITS, () => 0)), [rule, ""]);
});

async function all(
  parts: readonly Part[],
  signal = LIMITS.signal,
): Promise<{ text: string; said: string[] }> {
  const said: string[] = [];
  const pieces = sysdump({
    parts,
    folder: "dump",
    limits: LIMITS,
    signal,
    nowMs: () => 0,
    say: (text) => said.push(text),
    onOutcome: ({ name, problem }) => void said.push(`${name}: ${problem}`),
  });
  let text = "";
  for await (const piece of pieces) text += new TextDecoder().decode(piece);
  return { text, said };
}

Deno.test("a part that cannot be had costs the others nothing and is listed with its reason", async () => {
  const broken: Part = {
    name: "b.txt",
    from: "somewhere",
    read: () => Promise.reject(new Error("no such luck")),
  };
  const parts = [textPart("a.txt", "here", () => "first"), broken, textPart("c.txt", "here", () => "last")];
  const { text, said } = await all(parts);
  assert(text.includes("dump/a.txt") && text.includes("first") && text.includes("last"));
  assert(!text.includes("dump/b.txt"));
  assertEquals(said, [
    "Reading here",
    "a.txt: ",
    "Reading somewhere",
    "b.txt: no such luck",
    "Reading here",
    "c.txt: ",
  ]);
  const list = JSON.parse(text.slice(text.indexOf('{\n  "apiVersion"'), text.lastIndexOf("}") + 1));
  assertEquals(
    list.parts.map((
      part: { name: string; bytes: number | null; problem: string },
    ) => [part.name, part.bytes, part.problem]),
    [["a.txt", 5, ""], ["b.txt", null, "no such luck"], ["c.txt", 4, ""]],
  );
});

Deno.test("ending it ends the archive, and no further part is read", async () => {
  const end = new AbortController();
  let reads = 0;
  const part: Part = {
    name: "a",
    from: "here",
    read: () => {
      reads++;
      end.abort(new Error("ended"));
      return Promise.resolve("");
    },
  };
  await assertRejects(() => all([part, part], end.signal), Error, "ended");
  assertEquals(reads, 1);
});

const JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl";
const CASES: readonly (readonly [text: string, wanted: string])[] = [
  [`Authorization: Bearer ${JWT}`, "Authorization: Bearer [removed]"],
  [`x=${JWT}, y`, "x=[removed], y"],
  ["authorization: abcdef", "authorization: [removed]"],
  ['{"token":"s3cr3t-value","name":"web"}', '{"token":"[removed]","name":"web"}'],
  ["password=hunter2&x=1", "password=[removed]&x=1"],
  ["  client-key-data: LS0tLS1CRUdJTiBFQyBQUklWQVRF", "  client-key-data: [removed]"],
  ["said LS0tLS1CRUdJTiBFQyBQUklWQVRF aloud", "said [removed] aloud"],
  ["master=https://admin:hunter2@10.0.0.1:6443/x", "master=https://[removed]@10.0.0.1:6443/x"],
  [
    "-----BEGIN EC PRIVATE KEY-----\nMHcC\nAQEE\n-----END EC PRIVATE KEY-----\nrest",
    "-----BEGIN EC PRIVATE KEY-----[removed]-----END EC PRIVATE KEY-----\nrest",
  ],
  [
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQ\n-----END PGP PRIVATE KEY BLOCK-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----[removed]-----END PGP PRIVATE KEY BLOCK-----",
  ],
  // Values with blanks, quotes and commas.
  ['{"password":"correct horse, battery","x":1}', '{"password":"[removed]","x":1}'],
  ['{"token":"a\\"b-secret","y":2}', '{"token":"[removed]","y":2}'],
  ["token: 'a b c'\nnext: 1", "token: '[removed]'\nnext: 1"],
  ["password: correct horse battery\nnext: x", "password: [removed]\nnext: x"],
  ['{"msg":"password: a b","node":"n"}', '{"msg":"password: [removed]","node":"n"}'],
  ['{"msg":"{\\"password\\":\\"a b\\"}"}', '{"msg":"{\\"password\\":\\"[removed]\\"}"}'],
  // Secrets by other names, in flags, headers and addresses.
  ["access_token=abc&refresh-token=d", "access_token=[removed]&refresh-token=[removed]"],
  ["apiKey: s3cr3t", "apiKey: [removed]"],
  ["aws_secret_access_key = wJalrXUtnFEMI", "aws_secret_access_key = [removed]"],
  ["by AKIAIOSFODNN7EXAMPLE", "by [removed]"],
  ["plugin --token s3cr3t --password hunter2 x", "plugin --token [removed] --password [removed] x"],
  ["Authorization: Negotiate YIIabc def", "Authorization: [removed]"],
  ['"Set-Cookie": "session=abc; Path=/"', '"Set-Cookie": "[removed]"'],
  ["https://user:pa@ss@10.0.0.1/x", "https://[removed]@10.0.0.1/x"],
  ["-----BEGIN PRIVATE KEY-----\\nMHcC", "-----BEGIN PRIVATE KEY-----[removed]"],
];

Deno.test("what looks like a secret goes, and what is around it stays", { permissions: "none" }, () => {
  for (const [text, wanted] of CASES) assertEquals(withoutSecrets(text), wanted);
});

Deno.test("what a page usually says stays as it is", { permissions: "none" }, () => {
  const texts = [
    "token-file=/var/run/token\ntls-private-key-file: /etc/key.pem\n",
    "kubeconfig=/var/lib/kube-proxy/kubeconfig.conf\nmaster=https://10.0.0.1:6443\n",
    'kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family="IPv4",le="0.001"} 3\n',
    '{"service":"shop/web:http","clusterIP":"10.96.0.1","reason":"basic auth is not a thing here"}',
  ];
  for (const text of texts) assertEquals(withoutSecrets(text), text);
});

Deno.test("a hostile text costs no time", { permissions: "none" }, () => {
  const blank = `authorization=${"\n".repeat(200_000)}"`;
  for (
    const text of [
      blank,
      blank.replace("authorization", "cookie"),
      blank.replace("authorization", "token"),
      ...[
        "-----BEGIN PRIVATE KEY-----",
        "eyJaaaaaaaa.",
        "-eyJaaaaaaaa",
        "token=",
        "a://b",
        "x-",
        "a.",
        "bearer ",
        "--",
        "--token ",
        "token: ",
        'token:"\\',
        "cookie: ",
        "a://@",
      ].map((part) => part.repeat(20_000)),
    ]
  ) {
    const spentMs = startWork();
    withoutSecrets(text);
    const tookMs = spentMs();
    assertEquals(tookMs < 2_000, true, `${text.slice(0, 40)}: ${tookMs} ms`);
  }
});

const NONE = { permissions: "none" } as const;

function text(bytes: Uint8Array, from: number, to: number): string {
  return new TextDecoder().decode(bytes.subarray(from, to)).replace(/\0.*$/s, "");
}

Deno.test("a file is a header, its bytes, and zeros up to the next block", NONE, () => {
  const bytes = new TextEncoder().encode("x".repeat(600));
  const [header, content, rest, ...others] = tarPieces({
    name: "dump/a.txt",
    bytes,
    modifiedMs: 1_700_000_000_999,
  });
  assertEquals([content, rest, others], [bytes, new Uint8Array(424), []]);
  const fields = [[0, 100], [100, 108], [124, 136], [136, 148], [156, 157], [257, 263]] as const;
  assertEquals(
    fields.map(([from, to]) => text(header!, from, to)),
    ["dump/a.txt", "0000600", "00000001130", (1_700_000_000).toString(8), "0", "ustar"],
  );
  // Sum of unsigned bytes, with the checksum's own eight as blanks.
  const sum = header!.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 32 : byte), 0);
  assertEquals(Number.parseInt(text(header!, 148, 154), 8), sum);
  assertEquals(tarEnd(), new Uint8Array(1024));
});

Deno.test("a file that fills its blocks, or is empty, gets no zeros", NONE, () => {
  for (const length of [0, 512, 1024]) {
    const pieces = [...tarPieces({ name: "a", bytes: new Uint8Array(length), modifiedMs: 0 })];
    assertEquals(pieces.map((piece) => piece.length), [512, length]);
  }
});

Deno.test("a name that has no room is refused, not cut", NONE, () => {
  for (const name of ["", "x".repeat(101), "ü".repeat(51)]) {
    assertThrows(() => [...tarPieces({ name, bytes: new Uint8Array(), modifiedMs: 0 })], RangeError);
  }
  assertEquals([...tarPieces({ name: "ü".repeat(50), bytes: new Uint8Array(), modifiedMs: 0 })].length, 2);
});
