import { assertEquals } from "@std/assert";
import { startWork } from "../../../tests/support/spent.ts";
import { withoutSecrets } from "./secrets.ts";

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
  // With blanks, quotes and commas in them.
  ['{"password":"correct horse, battery","x":1}', '{"password":"[removed]","x":1}'],
  ['{"token":"a\\"b-secret","y":2}', '{"token":"[removed]","y":2}'],
  ["token: 'a b c'\nnext: 1", "token: '[removed]'\nnext: 1"],
  ["password: correct horse battery\nnext: x", "password: [removed]\nnext: x"],
  ['{"msg":"password: a b","node":"n"}', '{"msg":"password: [removed]","node":"n"}'],
  ['{"msg":"{\\"password\\":\\"a b\\"}"}', '{"msg":"{\\"password\\":\\"[removed]\\"}"}'],
  // By other names, in flags, headers and addresses.
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
