import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { FakeIssuer } from "../../../tests/support/fake_issuer.ts";
import { putWeb, startKubeSource } from "../../../tests/support/kube_fixture.ts";
import { kubeconfigText } from "../../../tests/support/kubeconfig_text.ts";
import { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { OTHER_CA, TEST_CA } from "../../../tests/support/test_certificates.ts";
import { systemClock } from "../../kernel/clock.ts";
import { CredentialError, CredentialReader, IssuerError } from "./credentials.ts";
import { KubeClient } from "./kube_client.ts";
import { loadKubeconfig } from "./kubeconfig.ts";

const NEVER = new AbortController().signal;
/** Loading client-node and its packages starts operations that outlast a test. */
const LOADS = { sanitizeOps: false, sanitizeResources: false };

interface Rig {
  readonly issuer: FakeIssuer;
  readonly path: string;
  nowMs: number;
  /** Writes the kubeconfig with these fields of the provider. */
  write(fields: Readonly<Record<string, string>>, server?: string): Promise<void>;
  /** A reader of the kubeconfig as it is. */
  reader(): Promise<CredentialReader>;
}

async function withIssuer(work: (rig: Rig) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-oidc-" });
  const issuer = new FakeIssuer();
  const rig: Rig = {
    issuer,
    path: `${folder}/kubeconfig`,
    nowMs: 0,
    async write(fields, server = "https://h") {
      const config = {
        "idp-issuer-url": issuer.url,
        "client-id": "kproxy",
        "idp-certificate-authority-data": btoa(TEST_CA),
        ...fields,
      };
      const user = { "auth-provider": { name: "oidc", config } };
      await Deno.writeTextFile(rig.path, kubeconfigText({ cluster: { server }, user }));
    },
    reader: async () => new CredentialReader(await loadKubeconfig(rig.path), () => rig.nowMs),
  };
  try {
    await work(rig);
  } finally {
    await issuer[Symbol.asyncDispose]();
    await Deno.remove(folder, { recursive: true });
  }
}

/** Lets so much time pass for readers of the clock, until it is disposed of. */
function shiftClock(ms: number): Disposable {
  const { now } = Date;
  Date.now = () => now() + ms;
  return { [Symbol.dispose]: () => void (Date.now = now) };
}

async function serialOf(reader: CredentialReader): Promise<number> {
  const { authorization } = await reader.read(NEVER);
  const payload = authorization?.replace("Bearer ", "").split(".")[1] ?? "";
  return JSON.parse(atob(payload.replaceAll("-", "+").replaceAll("_", "/"))).serial;
}

Deno.test(
  "a token serves until it expires; many requests then ask the issuer once, with each refresh token once",
  LOADS,
  async () => {
    await withIssuer(async (rig) => {
      const { issuer } = rig;
      await rig.write({ "id-token": issuer.idToken(3600), "refresh-token": "refresh-1" });
      assertEquals(await serialOf(await rig.reader()), 0);
      assertEquals(issuer.asked, 0);
      await rig.write({ "id-token": issuer.idToken(-1), "refresh-token": "refresh-1" });
      const reader = await rig.reader();
      assertEquals(await Promise.all([serialOf(reader), serialOf(reader), serialOf(reader)]), [1, 1, 1]);
      assertEquals(await serialOf(reader), 1);
      assertEquals(issuer.asked, 1);
      using _later = shiftClock(issuer.lifeSeconds * 1000 + 1);
      // The refresh token of the first answer: that of the kubeconfig is used up.
      assertEquals(await serialOf(reader), 2);
      issuer.manners = "keeps";
      reader.invalidate();
      assertEquals(await serialOf(reader), 2, "a token just given out is not asked for again");
      rig.nowMs += 30_000;
      reader.invalidate();
      assertEquals(await serialOf(reader), 3);
      rig.nowMs += 30_000;
      reader.invalidate();
      assertEquals(await serialOf(reader), 4, "a refresh token that stays");
    });
  },
);

Deno.test(
  "without an id-token the first one is asked for; a secret is sent to the issuer",
  LOADS,
  async () => {
    await withIssuer(async (rig) => {
      rig.issuer.secret = "s3cret";
      await rig.write({ "refresh-token": "refresh-1", "client-secret": "s3cret" });
      assertEquals(await serialOf(await rig.reader()), 1);
    });
  },
);

Deno.test(
  "tokens that are written into the kubeconfig are used when those before no longer serve",
  LOADS,
  async () => {
    await withIssuer(async (rig) => {
      const { issuer } = rig;
      await rig.write({ "id-token": issuer.idToken(-1) });
      const reader = await rig.reader();
      await assertRejects(
        () => reader.read(NEVER),
        CredentialError,
        "the id-token has expired, and there is no refresh-token",
      );
      await rig.write({ "id-token": issuer.idToken(3600, 7) });
      assertEquals(await serialOf(reader), 7);
      await rig.write({ "id-token": issuer.idToken(3600, 8) });
      assertEquals(await serialOf(reader), 7);
      reader.invalidate();
      assertEquals(await serialOf(reader), 8);
      await Deno.writeTextFile(rig.path, "half: [");
      reader.invalidate();
      assertEquals(await serialOf(reader), 8);
      assertEquals(issuer.asked, 0);
    });
  },
);

Deno.test(
  "trouble with the issuer is reported with file and user, never with a token; later it is over",
  LOADS,
  async () => {
    await withIssuer(async (rig) => {
      const { issuer } = rig;
      const expired = { "id-token": issuer.idToken(-1), "refresh-token": "refresh-1" };
      await rig.write(expired);
      const reader = await rig.reader();
      const told = async (kind: typeof CredentialError, pattern: RegExp, of = reader): Promise<void> => {
        const error = await assertRejects(() => of.read(NEVER), kind);
        assertEquals(error.constructor, kind, error.message);
        assert(error.message.startsWith(`OpenID Connect, user "u" of ${rig.path}: `), error.message);
        assertMatch(error.message, pattern);
        for (const secret of ["secret-token", "refresh-1", expired["id-token"]]) {
          assertEquals(error.message.includes(secret), false, error.message);
        }
        assertEquals(error.cause, undefined);
      };
      issuer.manners = "down";
      await told(IssuerError, /no usable answer: .*status 503/);
      issuer.manners = "garbage";
      await told(IssuerError, /no usable answer/);
      issuer.manners = "endless";
      await told(IssuerError, /larger than 1048576 bytes/);
      issuer.manners = "silent";
      const waiting = reader.read(AbortSignal.timeout(50));
      await assertRejects(() => waiting, DOMException);
      issuer.manners = "well";
      reader.close();
      await told(IssuerError, /not wanted any more/);

      const other = await rig.reader();
      assertEquals(await serialOf(other) > 0, true, "it is over");

      issuer.refreshToken = "another";
      await told(
        CredentialError,
        /refuses the refresh-token: invalid_grant: this token was used up$/,
        await rig.reader(),
      );
      await rig.write({ ...expired, "idp-certificate-authority-data": btoa(OTHER_CA) });
      await told(
        IssuerError,
        /cannot ask the issuer at https:\/\/127\.0\.0\.1:\d+: .*certificate/i,
        await rig.reader(),
      );
      await rig.write({ ...expired, "idp-issuer-url": "https://127.0.0.1:4" });
      await told(
        IssuerError,
        /cannot ask the issuer at https:\/\/127\.0\.0\.1:4: .*refused/i,
        await rig.reader(),
      );
      await rig.write({ ...expired, "id-token": "no.token.here" });
      await told(CredentialError, /the id-token is no JWT/, await rig.reader());
      issuer.refreshToken = "refresh-1";
      issuer.manners = "gives no id_token";
      await rig.write(expired);
      await told(IssuerError, /gives no id_token/, await rig.reader());
    });
  },
);

Deno.test("an issuer that is down does not end the start; a refusal does", LOADS, async () => {
  await withIssuer(async (rig) => {
    await rig.write({ "refresh-token": "refresh-1" });
    const options = { qps: -1, burst: 1, userAgent: "t", clock: systemClock };
    const client = async () => new KubeClient({ access: await loadKubeconfig(rig.path), ...options });
    rig.issuer.manners = "down";
    await (await client()).checkCredentials(NEVER);
    rig.issuer.manners = "well";
    rig.issuer.refreshToken = "another";
    const refused = await client();
    await assertRejects(() => refused.checkCredentials(NEVER), Error, "refuses the refresh-token");
  });
});

Deno.test("list and watch go on over tokens that expire and that the server refuses", LOADS, async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  await withIssuer(async (rig) => {
    const { issuer } = rig;
    const first = issuer.idToken(3600);
    // Refused at once: the server lets in only what the issuer gives out next.
    await rig.write({ "id-token": first, "refresh-token": "refresh-1" }, server.url);
    server.accepted = new Set(["Bearer nobody's"]);
    await using source = startKubeSource(server, { access: await loadKubeconfig(rig.path) });
    const { recorder } = source;
    while (issuer.asked === 0) await new Promise((resolve) => setTimeout(resolve, 10));
    server.accepted = undefined;
    await recorder.until(() => recorder.names("Service").length === 1, "the list");
    const last = server.requests.at(-1)?.headers.get("authorization") ?? "";
    assertEquals(last === `Bearer ${first}`, false);
    recorder.assertSound();
  });
});
