/**
 * Parsers of documents and of connections: configuration, kubeconfig, manifests, snapshot, what an API server answers, and requests.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { assert, assertEquals } from "@std/assert";
import { parseConfig } from "../../lib/config/parse.ts";
import { unwritableSettings, writeConfigJson } from "../../lib/config/write.ts";
import { writeConfigYaml } from "../../lib/config/write_yaml.ts";
import { ConfigError } from "../../lib/errors.ts";
import type { ApiObject } from "../../lib/model/objects.ts";
import { DecodeError } from "../../lib/source/decode/decode_values.ts";
import { JsonListReader, parseItems } from "../../lib/source/decode/json_list_reader.ts";
import { readManifest } from "../../lib/source/decode/manifest_text.ts";
import {
  decodeSnapshotObject,
  encodeSnapshotObject,
  SnapshotError,
  snapshotPieces,
  SnapshotReader,
} from "../../lib/source/snapshot/snapshot_format.ts";
import { parseExecCredential } from "../../lib/source/kube/credentials.ts";
import { readEvents, readPage } from "../../lib/source/kube/serializers.ts";
import { AnswerError } from "../../lib/source/kube/response.ts";
import { ENDPOINT_SLICES, nodeResource, SERVICE_CIDRS, SERVICES } from "../../lib/source/kube/kube_source.ts";
import { KubeStore, Listing } from "../../lib/source/kube/store.ts";
import { parseKubeconfig } from "../../lib/source/kube/kubeconfig.ts";
import { BadRequest, RequestReader } from "../../lib/serve/http_request.ts";
import { rawService, rawSlice } from "../support/decode_objects.ts";
import { kubeconfigText } from "../support/kubeconfig_text.ts";
import { frameBytes, joined, listBytes } from "../support/kube_protobuf.ts";
import { bytesOf, type FuzzTarget, inPieces, textOf } from "./target.ts";

/** The YAML package takes more than a microsecond for each byte: it is given 3 MiB at most, those of manifests in steps. */
const YAML_LIMIT_MS = 1_500;

const CONFIG: FuzzTarget = {
  name: "configuration",
  files: /^(tests\/cli\/configs\/.*\.(yaml|json)|deploy\/kubernetes\/overlays\/.*\.conf)$/,
  passes: 3,
  refusals: [ConfigError],
  limitMs: YAML_LIMIT_MS,
  read(bytes) {
    const text = textOf(bytes);
    const strict = bytes.length % 2 === 0;
    const { config } = parseConfig(text, { lenient: !strict });
    if (unwritableSettings(config).length > 0) return;
    assertEquals(parseConfig(writeConfigYaml(config)).config, config);
    assertEquals(parseConfig(writeConfigJson(config)).config, config);
  },
};

const KUBECONFIG: FuzzTarget = {
  name: "kubeconfig",
  examples: [
    kubeconfigText(),
    kubeconfigText({
      cluster: {
        server: "https://h:1/",
        "certificate-authority-data": "YWJj",
        "tls-server-name": "x",
        "proxy-url": "socks5://p:1",
        extensions: [{ name: "client.authentication.k8s.io/exec", extension: { a: 1 } }],
      },
      user: {
        exec: {
          apiVersion: "client.authentication.k8s.io/v1",
          command: "./x",
          args: ["a"],
          env: [{ name: "A", value: "b" }],
          interactiveMode: "Never",
          provideClusterInfo: true,
        },
        "as": "u",
        "as-groups": ["g"],
        "as-user-extra": { k: ["v"] },
      },
    }),
    kubeconfigText({
      user: {
        "client-certificate-data": "YQ==",
        "client-key-data": "YQ==",
        "auth-provider": {
          name: "oidc",
          config: { "idp-issuer-url": "https://i", "client-id": "c", "refresh-token": "r" },
        },
      },
    }),
    "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    certificate-authority: /ca.crt\n    server: https://172.18.0.2:6443/\n  name: default\ncontexts:\n- context: {cluster: default, user: default}\n  name: default\ncurrent-context: default\nusers:\n- name: default\n  user:\n    tokenFile: /token\n",
  ],
  refusals: [ConfigError],
  limitMs: YAML_LIMIT_MS,
  read(bytes) {
    const access = parseKubeconfig(textOf(bytes), "/etc/k/config");
    assert(/^https?:\/\//.test(access.server), `server ${access.server}`);
    if (access.identity.kind === "token") new Headers({ authorization: `Bearer ${access.identity.token}` });
  },
};

const CREDENTIAL: FuzzTarget = {
  name: "exec-credential",
  examples: [
    '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"s3cr3t-t0k3n","expirationTimestamp":"2026-01-01T00:00:00Z"}}',
    '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"clientCertificateData":"c","clientKeyData":"s3cr3t-t0k3n"}}',
  ],
  refusals: [],
  read(bytes) {
    try {
      parseExecCredential(textOf(bytes), "client.authentication.k8s.io/v1");
    } catch (error) {
      assert(
        error instanceof DecodeError || error instanceof Error && error.constructor === Error,
        `${error}`,
      );
      assert(!error.message.includes("s3cr3t-t0k3n"), `the message shows the credential: ${error.message}`);
    }
  },
};

/** Objects in the form that a snapshot keeps are read as they were. */
function checkKept(objects: readonly ApiObject[]): void {
  for (const object of objects.slice(0, 200)) {
    assertEquals(decodeSnapshotObject(JSON.parse(JSON.stringify(encodeSnapshotObject(object)))), object);
  }
}

const MANIFESTS: FuzzTarget = {
  name: "manifests",
  files: /^(tests\/(golden|manifests)\/.*\.(yaml|json)|examples\/.*\.yaml)$/,
  passes: 4,
  refusals: [],
  limitMs: YAML_LIMIT_MS,
  read(bytes) {
    const text = textOf(bytes);
    for (const json of [false, true]) {
      const manifest = readManifest(text, { json });
      const { items, problem } = manifest;
      const last = text.split("\n").length;
      if (problem !== undefined) {
        assertEquals(items, [], "objects of a text that is refused");
        assert(
          problem.line >= 1 && problem.line <= last && problem.message !== "",
          `${problem.message}, line ${problem.line} of ${last}`,
        );
      }
      for (const { line, refusal = "x" } of items) {
        assert(line >= 0 && line <= last, `line ${line} of ${last}`);
        assert(/^[^.]/.test(refusal), refusal);
      }
      for (const { refusal, foreign, objects, exclusion } of items) {
        if (refusal !== undefined || foreign !== undefined) {
          assert(objects.length === 0 && exclusion === undefined, "an object that is refused");
        }
      }
      checkKept(items.flatMap(({ objects }) => objects));
      assertEquals(
        readManifest(text, { json, previous: manifest }).items,
        items,
        "read once more, it says something else",
      );
    }
  },
};

const SERVICE = rawService({ type: "LoadBalancer", externalIPs: ["198.51.100.1"] }, {
  loadBalancer: { ingress: [{ ip: "203.0.113.9" }] },
});
const SLICE = rawSlice();
const META = { resourceVersion: "7", continue: "x,[{" };
const ENDPOINTS = {
  metadata: { namespace: "shop", name: "web" },
  subsets: [{ addresses: [{ ip: "10.0.0.1" }], ports: [{ port: 80, name: "http" }] }],
};
const LISTS = [
  {
    kind: "ServiceList",
    apiVersion: "v1",
    metadata: META,
    items: [SERVICE, { ...SERVICE, spec: null }, SERVICE],
  },
  { kind: "EndpointSliceList", apiVersion: "discovery.k8s.io/v1", metadata: META, items: [SLICE, SLICE] },
  {
    kind: "NodeList",
    apiVersion: "v1",
    metadata: META,
    items: [{
      metadata: { name: "n" },
      spec: { podCIDRs: ["10.0.0.0/24"] },
      status: { addresses: [{ type: "InternalIP", address: "10.0.0.1" }] },
    }],
  },
  {
    kind: "ServiceCIDRList",
    apiVersion: "networking.k8s.io/v1",
    metadata: META,
    items: [{ metadata: { name: "c" }, spec: { cidrs: ["10.96.0.0/12"] } }],
  },
];
const RESOURCES = [ENDPOINT_SLICES, nodeResource("n"), SERVICE_CIDRS, SERVICES];
const READING = { signal: new AbortController().signal, note: () => {} };

interface Events {
  readonly type: string;
  readonly object: unknown;
}

const EVENTS: readonly Events[] = LISTS.flatMap(({ kind, apiVersion, items }) => {
  const object = { ...items[0] as object, kind: kind.slice(0, -4), apiVersion };
  const metadata = { resourceVersion: "9", annotations: { "k8s.io/initial-events-end": "true" } };
  return [
    { type: "ADDED", object },
    { type: "BOOKMARK", object: { kind: kind.slice(0, -4), apiVersion, metadata } },
    { type: "DELETED", object },
    {
      type: "ERROR",
      object: {
        kind: "Status",
        apiVersion: "v1",
        status: "Failure",
        message: "gone",
        reason: "Expired",
        code: 410,
        details: { retryAfterSeconds: 1 },
      },
    },
  ];
});

/** Which resource an input is about. */
function resourceOf(text: string): typeof SERVICES {
  return RESOURCES.find(({ objectKind }) => text.includes(objectKind)) ?? SERVICES;
}

function streamOf(pieces: Iterable<Uint8Array>): ReadableStream<Uint8Array> {
  // Its memory may be taken away.
  const source = Iterator.from(pieces).map((piece) => piece.slice());
  return ReadableStream.from(source) as ReadableStream<Uint8Array>;
}

/** What an API server answers in one of its forms: a list, or the events of a watch. */
function answers(
  form: "json" | "protobuf",
  what: "list" | "watch",
  examples: FuzzTarget["examples"],
): FuzzTarget {
  const contentType = form === "json" ? "application/json" : "application/vnd.kubernetes.protobuf";
  return {
    name: `${form}-${what}`,
    examples: examples!,
    passes: 2,
    refusals: [AnswerError],
    async read(bytes, random) {
      const resource = resourceOf(textOf(bytes.subarray(0, 4_096)));
      const store = new KubeStore(resource, "here", () => {});
      const answer = { contentType, body: streamOf(inPieces(bytes, random)) };
      if (what === "list") {
        const listing = new Listing(store);
        await readPage(answer, resource, READING, (raws) => listing.take(raws));
        listing.finish(resource.path);
      } else {
        for await (const batch of readEvents(answer, resource, READING)) {
          for (const { type, object } of batch) {
            if (type === "DELETED") store.delete(object, []);
            else if (type !== "BOOKMARK") store.put(object, []);
          }
        }
      }
      checkKept([...store.objects()]);
    },
  };
}

/** A list read while it arrives is what the runtime's parser makes of all of it. */
const JSON_PIECES: FuzzTarget = {
  name: "json-pieces",
  examples: [
    ...LISTS.map((list) => JSON.stringify(list)),
    JSON.stringify({ kind: "EndpointsList", apiVersion: "v1", items: [ENDPOINTS] }),
    '{"kind":"x","items":[1,[2],{"items":[3]},"\\"],[",null],"more":[{"items":[]}]}',
  ],
  passes: 2,
  refusals: [DecodeError, SyntaxError],
  read(bytes, random) {
    const whole = jsonOf(textOf(bytes));
    const reader = new JsonListReader({ maxLength: 2 ** 21, wholeLength: 0 });
    const items: unknown[] = [];
    let around: unknown;
    try {
      const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
      for (const piece of inPieces(bytes, random)) {
        for (const group of reader.push(decoder.decode(piece, { stream: true }))) {
          items.push(...parseItems(group));
        }
      }
      reader.push(decoder.decode());
      around = reader.end();
    } catch (error) {
      const isRefusal = error instanceof SyntaxError ||
        error instanceof DecodeError && /twice|in one another|bytes without/.test(error.message);
      assert(isRefusal || whole === undefined, `${error}`);
      throw error;
    }
    assert(whole !== undefined, "it is no JSON");
    assertEquals(
      JSON.stringify(items.length > 0 ? { ...around as object, items } : around),
      JSON.stringify(whole.value),
    );
  },
};

function jsonOf(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

const SNAPSHOT_HEAD =
  '{"kproxySnapshot":1,"savedAt":"2026-11-21T17:00:00.000Z","node":"n1","server":"https://10.0.0.1:6443"}';

/** With the right checksum, too: otherwise hardly any would be read. */
const SNAPSHOT: FuzzTarget = {
  name: "snapshot",
  examples: [
    [
      SNAPSHOT_HEAD,
      JSON.stringify({ ...SERVICE, kind: "Service" }),
      JSON.stringify({ ...SLICE, kind: "EndpointSlice" }),
      '{"kind":"Node","metadata":{"name":"n1","labels":{"a":"b"}},"spec":{"podCIDRs":["10.0.0.0/24"],"taints":[{"key":"x"}]},"status":{}}',
      '{"kind":"EndpointSlice","metadata":{"namespace":"a","name":"web","labels":{"kubernetes.io/service-name":"web"},"annotations":{"kproxy/endpoints-slice":"endpoints/web/IPv4"}},"addressType":"IPv4","ports":[],"endpoints":[]}',
      '{"kind":"ServiceCIDR","metadata":{"name":"c"},"spec":{"cidrs":["10.96.0.0/12"]}}',
      "",
    ].join("\n"),
  ],
  passes: 2,
  refusals: [SnapshotError],
  read(bytes, random) {
    const sum = createHash("sha256").update(bytes).digest("hex");
    const summed = joined([bytes, bytesOf(`{"sha256":"${sum}"}\n`)]);
    const isEndOfLine = bytes.at(-1) === 10;
    const reader = new SnapshotReader(null, "/s");
    for (const piece of inPieces(isEndOfLine ? summed : bytes, random)) reader.take(piece);
    const snapshot = reader.end();
    checkKept(snapshot.objects);
    const again = new SnapshotReader(snapshot, "/s");
    for (const piece of snapshotPieces(snapshot, snapshot.objects)) again.take(piece);
    assertEquals(again.end(), { ...snapshot, rejections: [] });
  },
};

const HOST = "HTTP/1.1\r\nHost: a\r\n";

const HTTP: FuzzTarget = {
  name: "http-request",
  examples: [
    `GET /healthz ${HOST}\r\nHEAD http://x:1/z?q ${HOST}Connection: foo, Close\r\n\r\n`,
    `PUT /v ${HOST}Content-Length: 2\r\n\r\n10GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n`,
    `PUT /v ${HOST}Content-Length: 3\r\nExpect: 100-continue\r\n\r\n102OPTIONS * ${HOST}\r\n`,
  ],
  passes: 2,
  refusals: [],
  // Each request has its headers, each blank line is looked for anew.
  limitMs: 1_000,
  read(bytes, random) {
    const read = (pieces: Iterable<Uint8Array>): readonly string[] => {
      const reader = new RequestReader();
      const said: string[] = [];
      try {
        for (const piece of pieces) {
          reader.push(piece);
          for (let request = reader.next(); request !== null; request = reader.next()) {
            said.push(`${request.method} ${request.target} ${request.keepAlive} ${textOf(request.body)}`);
            assert(/^[ -~\x80-\xff]+$/.test(request.target) && request.target.startsWith("/"));
          }
          reader.takeContinueDue();
        }
      } catch (error) {
        if (!(error instanceof BadRequest)) throw error;
        said.push(String(error.status));
      }
      return said;
    };
    // As much as a connection reads at once.
    const requests = read(inPieces(bytes, random, 4_096));
    const others = read(inPieces(bytes, random, 4_096));
    // A head that is too long may be refused for that before, or for something else after, its end has come.
    if (![...requests, ...others].includes("431")) assertEquals(others, requests);
  },
};

/** All of this file. */
export const DOCUMENT_TARGETS: readonly FuzzTarget[] = [
  CONFIG,
  KUBECONFIG,
  CREDENTIAL,
  MANIFESTS,
  SNAPSHOT,
  JSON_PIECES,
  answers("json", "list", LISTS.map((list) => JSON.stringify(list))),
  answers("json", "watch", [
    EVENTS.map((event) => `${JSON.stringify(event)}\n`).join(""),
    ...EVENTS.map((event) => `${JSON.stringify(event)}\n`),
  ]),
  answers("protobuf", "list", LISTS.map((list) => listBytes(list))),
  answers(
    "protobuf",
    "watch",
    EVENTS.map(({ type, object }) => frameBytes(type, object, { apiVersion: "v1", kind: "Service" })),
  ),
  HTTP,
];
