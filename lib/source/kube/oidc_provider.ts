/**
 * The `auth-provider` of a user in a kubeconfig: OpenID Connect.
 *
 * @module
 */
import { DecodeError, inside, objectAt, type RawObject, textAt } from "../decode/decode_values.ts";
import { checkHeader, type Pem, pemAt, requiredText, secretTextAt } from "./kubeconfig_values.ts";

/** Who gives out tokens, and those that are there at first. */
export interface OidcProvider {
  /** Name of the user in the kubeconfig, for messages. */
  readonly user: string;
  /** https. */
  readonly issuer: string;
  readonly clientId: string;
  /** `""` for none. */
  readonly clientSecret: string;
  /** `""` for none: the first one is then asked for. */
  readonly idToken: string;
  /** `""` for none: what is there serves until it expires. */
  readonly refreshToken: string;
  /** Of the issuer; null for those that the runtime knows. */
  readonly certificateAuthority: Pem | null;
}

/**
 * Reads `auth-provider` of the user called `user`; `path` is the kubeconfig.
 *
 * @throws {DecodeError} if it is of another sort than oidc, or a field is missing or wrong; shows no tokens
 */
export function readAuthProvider(raw: RawObject, user: string, path: string): OidcProvider {
  const written = objectAt(raw, "auth-provider");
  return inside("auth-provider", () => {
    const name = textAt(written, "name");
    if (name !== "oidc") {
      throw new DecodeError("name", `must be oidc, found ${JSON.stringify(name)}: for others use exec`);
    }
    const config = objectAt(written, "config");
    return inside("config", () => ({ user, ...readConfig(config, path) }));
  });
}

function readConfig(config: RawObject, path: string): Omit<OidcProvider, "user"> {
  const issuer = requiredText(config, "idp-issuer-url");
  const url = URL.parse(issuer);
  if (url?.protocol !== "https:" || url.username !== "" || url.password !== "") {
    throw new DecodeError("idp-issuer-url", "must be an https URL without user and password");
  }
  const idToken = secretTextAt(config, "id-token");
  const refreshToken = secretTextAt(config, "refresh-token");
  if (idToken === "" && refreshToken === "") {
    throw new DecodeError("refresh-token", "is required where there is no id-token");
  }
  return {
    issuer,
    clientId: requiredText(config, "client-id"),
    clientSecret: secretTextAt(config, "client-secret"),
    idToken: idToken === "" ? "" : checkHeader(idToken, "id-token"),
    refreshToken,
    certificateAuthority: pemAt(config, "idp-certificate-authority", path),
  };
}
